"""The event loop of one run: it keeps ready handles, timers and jobs, and lets the explorer choose among them.

It never waits. Time is virtual and stands still while anything can run. Everything that would let the outside world
in (sockets, subprocesses, signals, other threads) is refused by name.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ExplorerUsageError
from .clock_regions import Moment, plain
from .identical import Identical
from .refusals import RefusingLoop, calling_module
from .tasks import EAGER_FACTORY, MAIN, ExplorerFuture, ExplorerTask, coroutine_name, make_task, number_of, stepped_task

Callback = Callable[..., object]


class ExplorerHandle(asyncio.Handle):
    """A ready callback. Its key is the name of the choice to run it."""

    __slots__ = ("key",)

    def __init__(
        self, callback: Callback, args: Sequence[Any], loop: ExplorerLoop, context: contextvars.Context | None
    ) -> None:
        # The base constructor is not called: it asks for debug tracebacks, and this is the hottest line of all.
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback: Callback | None = callback
        self._args: Sequence[Any] = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self.key = ""


class ExplorerTimer(asyncio.TimerHandle):
    """A timer at a virtual time, and the label of the task that set it."""

    __slots__ = ("key", "owner")
    _args: Sequence[Any]
    _callback: Callback
    _context: contextvars.Context
    _when: float

    def __init__(
        self,
        when: float,
        callback: Callback,
        args: tuple[Any, ...],
        loop: ExplorerLoop,
        context: contextvars.Context | None,
        owner: str,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._scheduled = True
        self.owner = owner
        self.key = f"timer {callback_name(callback, args)} of {owner}"

    def when(self) -> float:
        """Return the time at which it fires. That is a look at the clock."""
        moment: float = self._loop.shown(self._when)  # type: ignore[attr-defined]
        return moment


class Job:
    """A function handed to an executor. Choosing it runs it; its result arrives as a callback of its own."""

    __slots__ = ("args", "function", "future", "key", "owner")

    def __init__(self, function: Callback, args: tuple[Any, ...], future: asyncio.Future[Any], owner: str) -> None:
        self.function = function
        self.args = args
        self.future = future
        self.owner = owner
        self.key = f"job {callback_name(function, args)} of {owner}"

    def deliver(self, result: object, exception: BaseException | None) -> None:
        """Hand the outcome to the future; a future that was cancelled meanwhile drops it, as asyncio's does."""
        if self.future.done():
            return
        if exception is not None:
            self.future.set_exception(exception)
        else:
            self.future.set_result(result)


class ExplorerLoop(RefusingLoop, asyncio.AbstractEventLoop):
    """The event loop of one run. The explorer reads its lists and runs their members."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: list[ExplorerHandle] = []
        self.timers: list[ExplorerTimer] = []
        self.jobs: list[Job] = []
        self.tasks: list[ExplorerTask] = []
        # Tasks built by a factory of the program's own, by identity: (task, label).
        self.foreign: dict[int, tuple[asyncio.Task[Any], str]] = {}
        self.labels: dict[str, asyncio.Task[Any]] = {}
        self.unhandled: list[dict[str, Any]] = []
        self.generators: list[weakref.ref[Any]] = []
        self.now = 0.0
        self.sights: set[str] = set()  # what the program looked at and states leave out until it does (`search.py`)
        self.relative = False  # the program was declared to look at distances of time alone
        self.random_seeded = False
        self.hashed_futures = 0
        self.identical: Identical | None = None
        self.closing = False
        self._thread = threading.get_ident()
        self._factory: Any = None
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    # -- what asyncio asks of a loop ---------------------------------------------------------------------------------
    def time(self) -> float:
        """Return the virtual time. A program that reads it makes absolute time a part of its state."""
        if calling_module(1) == "asyncio.timeouts":  # a Timeout's own deadline is followed relative to now
            return Moment(self.now) if self.relative else self.now
        return self.shown(self.now)

    def shown(self, moment: float) -> float:
        """Return a point in time to the program, which has looked at the clock then."""
        if self.relative:
            return Moment(moment)
        self.sights.add("clock")
        return moment

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Ignore the request: debug mode reads the wall clock."""

    def is_running(self) -> bool:
        return not self.closing

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return ExplorerFuture(loop=self)

    def call_soon(  # type: ignore[override]
        self, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = ExplorerHandle(callback, args, self, context)
        if not self.closing:
            self.ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._thread:
            self.refuse("loop.call_soon_threadsafe from another thread", "hand the work to run_in_executor")
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if delay is None:
            raise TypeError("delay must not be None")
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callback, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if when is None:
            raise TypeError("when cannot be None")
        timer = ExplorerTimer(plain(when), callback, args, self, context, self.current_label())
        if not self.closing:
            self.timers.append(timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        # By identity: timers compare by their arguments, and those may be the user's.
        self.timers = [timer for timer in self.timers if timer is not handle]

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None, **options: Any) -> Any:
        """Start a task under a label that every replay gives it again."""
        eager = options.pop("eager_start", None)
        label = self.fresh_label(coroutine_name(coro) if name is None else str(name), explicit=name is not None)
        if self._factory is not None and self._factory is not EAGER_FACTORY:
            arguments = options if context is None else {**options, "context": context}
            task = self._factory(self, coro, **arguments)
            task.set_name(label)
            if isinstance(task, asyncio.Task):
                self.adopt(task, label)
            return task
        if eager is None:
            eager = self._factory is not None
        own = contextvars.copy_context() if context is None else context
        task = make_task(self, coro, label, own, eager=bool(eager))
        self.register(task)
        return task

    def set_task_factory(self, factory: Any) -> None:
        if factory is not None and not callable(factory):
            raise TypeError("task factory must be a callable or None")
        self._factory = factory

    def get_task_factory(self) -> Any:
        return self._factory

    def run_in_executor(self, executor: Any, func: Callback, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Make the call a choice instead of giving it to a thread; the executor itself is never used."""
        job = Job(func, args, self.create_future(), self.current_label())
        if not self.closing:
            self.jobs.append(job)
        return job.future

    def set_default_executor(self, executor: Any) -> None:
        """Ignore the executor: jobs are choices."""

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.unhandled.append(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.closing:
            return
        if self._exception_handler is None:
            self.default_exception_handler(context)
            return
        try:
            self._exception_handler(self, context)
        except Exception as error:
            self.default_exception_handler({"message": "the program's exception handler failed", "exception": error})

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: the run closes what is left."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: jobs that are left are choices still."""

    def close(self) -> None:
        raise ExplorerUsageError("the program closed the explorer's event loop; it belongs to the run, not to a task")

    # -- labels ------------------------------------------------------------------------------------------------------
    def current_label(self) -> str:
        """Return the label of the task that runs now, or '' between tasks."""
        task = asyncio.current_task(self)
        return "" if task is None else self.label_of(task)

    def label_of(self, task: asyncio.Task[Any]) -> str:
        """Return the label of any task, adopting one that was built behind the loop's back."""
        if isinstance(task, ExplorerTask):
            return task.label
        known = self.foreign.get(id(task))
        if known is not None:
            return known[1]
        name = task.get_name()
        automatic = name.startswith("Task-")  # asyncio's own counter goes on from run to run
        label = self.fresh_label(coroutine_name(task.get_coro()) if automatic else name, explicit=not automatic)
        if automatic:
            task.set_name(label)
        self.adopt(task, label)
        return label

    def adopt(self, task: asyncio.Task[Any], label: str) -> None:
        """Take in a task that is not ours: its label lives beside it."""
        self.foreign[id(task)] = (task, label)
        self.labels[label] = task
        self.tasks.append(task)  # type: ignore[arg-type]

    def register(self, task: ExplorerTask) -> None:
        """Take in a task of ours."""
        self._take_label(task)
        self.tasks.append(task)

    def relabel(self, task: ExplorerTask, name: str) -> None:
        """Give a task that has not started the label of its name; its hash stays, sets may hold it already.

        Unless it is declared identical by its name: then nothing of the program's has seen it under another hash.
        """
        if self.labels.get(task.label) is task:
            del self.labels[task.label]
        task.label = self.fresh_label(name, explicit=True)
        task.step_key = "task-step " + task.label
        if self.identical is not None and self.identical.place(task.label) is not None:
            task.number = number_of(self, task.label)
        self._take_label(task)

    def _take_label(self, task: ExplorerTask) -> None:
        self.labels[task.label] = task
        if self.identical is not None and self.identical.place(task.label) is not None:
            self.identical.seen.add(task.label)

    def fresh_label(self, name: str, *, explicit: bool) -> str:
        """Return a label that no living task has: the given name, or parent and coroutine with a number.

        It depends on the living tasks only, so a loop that starts a task in each round comes back to a state.
        """
        if explicit:
            label, number = name, 1
            while self._taken(label):
                number += 1
                label = f"{name}#{number}"
            return label
        parent = self.current_label()
        prefix = "" if parent in ("", MAIN) else parent + "/"
        number = 1
        while self._taken(f"{prefix}{name}-{number}"):
            number += 1
        return f"{prefix}{name}-{number}"

    def _taken(self, label: str) -> bool:
        task = self.labels.get(label)
        return task is not None and not task.done()

    # -- hooks ------------------------------------------------------------------------------------------------------
    def generator_started(self, generator: Any) -> None:
        """Remember an async generator so that the run can close it."""
        self.generators.append(weakref.ref(generator))

    def generator_dropped(self, generator: Any) -> None:
        """Close a dropped async generator as asyncio does: in a task of its own, or at once when the run is over."""
        if not self.closing:
            self.call_soon(self._close_generator, generator)

    def _close_generator(self, generator: Any) -> None:
        task = self.create_task(generator.aclose())
        if isinstance(task, ExplorerTask):
            task.housekeeping = True


def key_of(handle: ExplorerHandle) -> str:
    """Return the name of the choice to run a ready handle; it depends on the callback and its arguments alone."""
    key = handle.key
    if not key:
        callback, args = handle._callback, handle._args
        task = stepped_task(callback)
        if isinstance(task, ExplorerTask):
            key = task.step_key
        elif task is not None:
            key = "task-step " + handle._loop.label_of(task)
        else:
            key = "callback " + callback_name(callback, args or ())
        handle.key = key
    return key


def name_of(target: Any, naming: Callable[[str], str]) -> str:
    """Return the name of any choice with every label in it put another way."""
    if isinstance(target, ExplorerHandle):
        task = stepped_task(target._callback)
        if task is not None:
            return "task-step " + naming(target._loop.label_of(task))
        return "callback " + callback_name(target._callback, target._args or (), naming)
    if isinstance(target, ExplorerTimer):
        return f"timer {callback_name(target._callback, target._args or (), naming)} of {naming(target.owner)}"
    if isinstance(target, Job):
        return f"job {callback_name(target.function, target.args, naming)} of {naming(target.owner)}"
    return "cancel " + naming(target.get_loop().label_of(target))


def callback_name(callback: Any, args: Sequence[Any], naming: Callable[[str], str] = str) -> str:
    """Return a callback's qualified name with the labels of the tasks it is called for."""
    labels = []
    function = callback
    while hasattr(function, "func"):  # functools.partial, also the one of asyncio.to_thread
        args = (*function.args, *args)
        function = function.func
    bound = getattr(function, "__self__", None)
    if isinstance(bound, contextvars.Context) and args:  # to_thread runs `context.run(function, ...)`
        return callback_name(args[0], args[1:], naming)
    if isinstance(bound, Job):
        return f"delivery of {bound.key if naming is str else name_of(bound, naming)}"
    for value in (bound, *args):
        if isinstance(value, ExplorerTask):
            labels.append(naming(value.label))
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{name}({', '.join(labels)})"
