"""The context managers that the trio barrier hands out. Each is its own token: one object for one section.

What runs in here is protected from KeyboardInterrupt, which trio would otherwise raise between any two lines of a
user's task: in the middle of a release it would leave a section half given back.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

from trio.lowlevel import Task, checkpoint_if_cancelled, enable_ki_protection

from .admission import NEW, used_twice
from .cut import HELD, Cut, Held, Nested, outer_sections
from .section import Section, would_block

if TYPE_CHECKING:
    from .trio_barrier import CheckpointBarrier


class TrioSection(Section):
    """What the sections of both sides have beyond a token: the asking task, and how it waits."""

    __slots__ = ("cancelled", "sleeper")

    barrier: CheckpointBarrier
    task: Task | None
    # The task while it sleeps until the request is granted or refused. Whoever wakes it takes it out: once is enough.
    sleeper: Task | None
    # The sleeper was woken by a cancellation. As soon as it runs, it settles the request.
    cancelled: bool

    @property
    def task_name(self) -> str | None:
        """The name of the task that asked; None outside a task, and after the section has ended."""
        return None if self.task is None else self.task.name

    def _hold(self, outer: Held | None) -> Cut:
        HELD.set(self if outer is None else Nested(self, outer))
        return self

    def _give_back(self) -> None:
        if self.barrier._is_here():
            self.barrier._release(self)
        else:
            self.barrier._release_elsewhere(self)


class MutationSection(TrioSection):
    """A shared section: `async with barrier.mutation(kind) as cut`."""

    __slots__ = ()

    @enable_ki_protection
    async def __aenter__(self) -> Cut:
        barrier = self.barrier
        outer = outer_sections(HELD.get(), barrier)
        task = barrier._bind()
        # Whether a cancelled task is let in must not depend on who else is there.
        await checkpoint_if_cancelled()
        if barrier._core.request_slot(self):
            self.task = task
            self.since = barrier._time()
            if barrier._watched:
                barrier._entered(self)
        else:
            self.task = task
            barrier._queued(self)
            await barrier._wait(self)
        return self._hold(outer)

    @enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the slot back. Nothing is awaited here, so no cancellation can keep it."""
        self._give_back()


class ImmediateSection(TrioSection):
    """A shared section that never waits: `with barrier.mutation_nowait(kind) as cut`."""

    __slots__ = ()

    @enable_ki_protection
    def __enter__(self) -> Cut:
        barrier = self.barrier
        outer = outer_sections(HELD.get(), barrier)
        task = barrier._bind()
        if not barrier._core.request_slot_nowait(self):
            raise would_block(self)
        self.task = task
        self.since = barrier._time()
        if barrier._watched:
            barrier._entered(self)
        return self._hold(outer)

    @enable_ki_protection
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the slot back."""
        self._give_back()


class CheckpointSection(TrioSection):
    """The exclusive section: `async with barrier.checkpoint() as cut`."""

    __slots__ = ("timeout",)

    exclusive: ClassVar[bool] = True

    @enable_ki_protection
    async def __aenter__(self) -> Cut:
        barrier = self.barrier
        outer = outer_sections(HELD.get(), barrier)
        task = barrier._bind()
        if self.standing is not NEW or self in barrier._arriving:
            raise used_twice(self)
        # Before the request: another checkpoint may ask for this one as well.
        self.task = task
        try:
            if barrier._must_pass_through_loop():
                await barrier._pass_through_loop(self)
            else:
                await checkpoint_if_cancelled()
                barrier._ask_for_cut(self)
            await barrier._wait(self)
        finally:
            if not self.live:
                self.task = None
        return self._hold(outer)

    @enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the cut. Nothing is awaited here, so no cancellation can keep it."""
        self._give_back()
