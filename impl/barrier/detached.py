"""`with barrier.detached():` the way to start a task that outlives the sections of its starter."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from weakref import ref

from .cut import HELD, Detachment, Named, Nested, chain, links


class DetachedContext:
    """`with barrier.detached():` tasks started inside are not bound by the sections that the starter holds.

    The starter itself stays bound. It must not wait for such a task while it holds its section: the task may wait for
    a checkpoint, and the checkpoint waits for the section.
    """

    __slots__ = ("_barrier", "_current_task", "_mark")

    def __init__(self, barrier: Named, current_task: Callable[[], object | None]) -> None:
        self._barrier = barrier
        self._current_task = current_task
        self._mark: Detachment | None = None

    def __enter__(self) -> None:
        current_task = self._current_task
        task = current_task()
        maker = None if task is None else ref(task)

        def made_here() -> bool:
            return maker is not None and maker() is current_task()

        self._mark = Detachment(self._barrier, made_here)
        HELD.set(Nested(self._mark, HELD.get()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Take the mark out, wherever it is by now; sections opened above it stay."""
        rest = chain([section for section in links(HELD.get()) if section is not self._mark])
        assert rest is not None, "below a mark there is at least a dead link"
        HELD.set(rest)
