"""The real C task and future of asyncio, with a hash that does not depend on addresses.

Nothing else of them is changed: steps, wake-ups and cancellation run in CPython's own code. Without the hash a set of
tasks (`asyncio.wait`, `TaskGroup`, a user's own set) would be iterated in the order of addresses, and a recorded
schedule would lead elsewhere in the next process.
"""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import sys
import types
import zlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextvars import Context

    from interleavings.runtime.loop import ExplorerLoop

    _TaskBase = asyncio.Task[Any]
    _FutureBase = asyncio.Future[Any]
else:
    _TaskBase = asyncio.Task
    _FutureBase = asyncio.Future

MAIN = "main"


class ExplorerFuture(_FutureBase):
    """`asyncio.Future` whose hash is its number, given when it is first hashed."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        try:
            return self.number
        except AttributeError:
            loop: Any = self.get_loop()
            loop.hashed_futures += 1
            self.number = loop.hashed_futures
            return self.number


class ExplorerTask(_TaskBase):
    """`asyncio.Task` that knows its label, and whether anybody has looked at how it ended.

    The label is unique among the tasks that are alive. `looked_at` is needed for cancellations only: asyncio itself
    remembers whether an exception was retrieved, but not whether a cancellation was seen.
    """

    __slots__ = ("context", "housekeeping", "label", "looked_at", "number", "root", "step_key")
    context: Context
    housekeeping: bool  # started by the loop, not by the program
    label: str
    looked_at: bool
    number: int
    root: bool
    step_key: str

    def __hash__(self) -> int:
        return self.number

    def set_name(self, value: object) -> None:
        """Take the name, and the label with it as long as the task has not started.

        `asyncio.create_task(..., name=...)` makes the task first and names it then.
        """
        super().set_name(value)
        coroutine = self.get_coro()
        if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            loop: Any = self.get_loop()
            loop.relabel(self, str(value))

    def cancelling(self) -> int:
        """Asked of a task that has ended, it tells of requests which states leave out until somebody asks."""
        if self.done():
            loop: Any = self.get_loop()
            loop.sights.add("requests")
        return super().cancelling()

    def __await__(self) -> Generator[Any, None, Any]:
        self.looked_at = True
        return super().__await__()

    def result(self) -> Any:
        self.looked_at = True
        return super().result()

    def exception(self) -> BaseException | None:
        self.looked_at = True
        return super().exception()

    def cancelled(self) -> bool:
        self.looked_at = True
        return super().cancelled()


def make_task(
    loop: ExplorerLoop, coroutine: Any, label: str, context: Context, *, root: bool = False, eager: bool = False
) -> ExplorerTask:
    """Start a task under a label. The label is set first: an eager task runs inside its own constructor."""
    task: ExplorerTask = ExplorerTask.__new__(ExplorerTask)
    task.label = label
    task.number = number_of(loop, label)
    task.step_key = "task-step " + label
    task.root = root
    task.housekeeping = False
    task.looked_at = False
    task.context = context
    arguments: dict[str, Any] = {"loop": loop, "name": label, "context": context}
    if eager:
        arguments["eager_start"] = True
    task.__init__(coroutine, **arguments)  # type: ignore[misc]
    return task


def number_of(loop: ExplorerLoop, label: str) -> int:
    """Return the hash of a task of that label; tasks declared identical share one."""
    text = label if loop.identical is None else loop.identical.hashed(label)
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def was_cancelled(task: asyncio.Future[Any]) -> bool:
    """Say whether a done task was cancelled, without counting as somebody who looked."""
    return asyncio.Future.cancelled(task) if not isinstance(task, asyncio.Task) else asyncio.Task.cancelled(task)


cancel_requests = asyncio.Task.cancelling
"""How often a task was asked to cancel, without counting as the program's question."""


def exception_of(task: Any) -> BaseException | None:
    """Return a done task's exception without marking it retrieved."""
    exception: BaseException | None = task._exception
    return exception


def coroutine_name(coroutine: Any) -> str:
    """Return the last part of a coroutine's name, which a task made from it is called after."""
    name = getattr(coroutine, "__name__", None)
    return name if isinstance(name, str) else type(coroutine).__name__


_generic_dict = ctypes.pythonapi.PyObject_GenericGetDict
_generic_dict.argtypes = [ctypes.py_object, ctypes.c_void_p]
_generic_dict.restype = ctypes.py_object


def attributes_of(future: Any) -> dict[str, Any]:
    """Return the attributes that were set on a future or task; the C types have a dictionary but do not show it."""
    attributes: dict[str, Any] = _generic_dict(future, None)
    return attributes


def _step_wrapper_type() -> type:
    """Find the C type of the callback that runs a task's step; it has no public name."""

    class Probe(asyncio.AbstractEventLoop):
        seen: Any = None

        def get_debug(self) -> bool:
            return False

        def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
            self.seen = callback

    async def nothing() -> None:
        return None

    probe: Any = Probe()  # type: ignore[abstract]
    coroutine = nothing()
    task: Any = asyncio.Task(coroutine, loop=probe)
    task._log_destroy_pending = False
    coroutine.close()
    return type(probe.seen)


STEP_WRAPPER = _step_wrapper_type()


def stepped_task(callback: Any) -> asyncio.Task[Any] | None:
    """Return the task that this ready callback steps or wakes up; None for any other callback."""
    kind = type(callback)
    if kind is STEP_WRAPPER or (kind is types.BuiltinFunctionType and callback.__name__ == "task_wakeup"):
        task: asyncio.Task[Any] = callback.__self__
        return task
    return None


EAGER_FACTORY: Any = getattr(asyncio, "eager_task_factory", None) if sys.version_info >= (3, 12) else None
