"""One execution of the program under the explorer's control: what may happen next, doing it, and judging it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import types
import warnings
from asyncio import events
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..errors import ExplorerUsageError, ForbiddenCall, Violation
from .crashing import Crash, next_subject, possible_crashes, require_recovery
from .fence import Fence
from .frames import frames_inwards
from .identical import Identical, identical_from
from .loop import ExplorerHandle, ExplorerLoop, ExplorerTimer, Job, key_of
from .result import Failure
from .subject import Program, Subject, fresh_subject
from .tasks import (
    MAIN,
    ExplorerTask,
    cancel_requests,
    coroutine_name,
    exception_of,
    make_task,
    stepped_task,
    was_cancelled,
)

Target: TypeAlias = "ExplorerHandle | ExplorerTimer | Job | ExplorerTask | Crash"
"""What a choice acts on; a task stands for its cancellation."""

_CANCEL = "cancel "
_CLOSE_ATTEMPTS = 100
CLOCK_RESOLUTION = 1e-9
"""Timers less than this apart fire in one turn of asyncio's own loop: 0.1 + 0.2 seconds are not later than 0.3."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What is open in a run: budgets and the order of ready handles."""

    cancels: int = 0
    crashes: int = 0
    atomic_callbacks: bool = False
    fifo: bool = False
    timers: Literal["idle", "anytime"] = "idle"
    identical: Identical | None = None
    strict: bool = False
    # What states hold because some run looked at it: "clock" is absolute time, "requests" are the requests to cancel
    # that a task had when it ended. A search that finds out begins again, for it may have taken states for one.
    sights: frozenset[str] = frozenset()


class Run:
    """One execution. Use it as a context manager: it owns the running loop while it is open."""

    def __init__(
        self,
        program: Program,
        rules: Rules,
        fence: Fence,
        state: Callable[[], Any] | None,
        invariant: Callable[[], object] | None,
        observed: dict[Hashable, Any],
    ) -> None:
        self.rules = rules
        self.fifo = rules.fifo
        self.cancels_left = rules.cancels
        self.crashes_left = rules.crashes
        self.loop = ExplorerLoop()  # type: ignore[abstract]  # the refused methods are added by name
        # The processes that died, each with all it held: nothing of them is collected, and so nothing of them runs.
        self._dead: list[tuple[ExplorerLoop, Subject, list[Any]]] = []
        self.observed: Any = -1  # what stands for the observer's last answer
        self._observed = observed
        self.unseen: list[Any] = []  # ended tasks whose failure nobody has looked at yet
        self.outcome: str | None = None
        self.escaped: BaseException | None = None
        self.escaped_from = "escaped from the event loop"
        self.cancelled_labels: list[str] = []
        self._own_cancellations: set[Any] = set()
        self._fence = fence
        self._previous_loop = events._get_running_loop()
        self._hooks = sys.get_asyncgen_hooks()
        context = contextvars.copy_context()
        self.base_context = dict(context.items())
        events._set_running_loop(self.loop)
        fence.loop = self.loop
        try:
            self.subject: Subject = fresh_subject(program)
            require_recovery(self.subject, rules.crashes)
        except BaseException:
            events._set_running_loop(self._previous_loop)
            raise
        finally:
            fence.loop = None
        self._given = (state, invariant)
        self.mains = self._start(self.subject)

    def _start(self, subject: Subject) -> tuple[ExplorerTask, ...]:
        state, invariant = self._given
        self.loop.identical = self.rules.identical or (identical_from(subject.identical) if subject.identical else None)
        self.loop.relative = subject.horizon is not None
        self.state = subject.state or state
        self.invariant = subject.invariant or invariant
        self.declared = self.state is not None
        sys.set_asyncgen_hooks(self.loop.generator_started, self.loop.generator_dropped)
        coroutines = subject.mains()
        mains = []
        for coroutine in coroutines:
            single = len(coroutines) == 1
            label = MAIN if single else self.loop.fresh_label(coroutine_name(coroutine), explicit=False)
            task = make_task(self.loop, coroutine, label, contextvars.copy_context(), root=True)
            self.loop.register(task)
            mains.append(task)
        return tuple(mains)

    # -- choices -----------------------------------------------------------------------------------------------------
    def living(self) -> list[ExplorerTask]:
        """Return the tasks that have not ended, oldest first; remember the ended ones that failed unseen."""
        tasks = self.loop.tasks
        living = [task for task in tasks if not task.done()]
        if len(living) != len(tasks):
            for task in tasks:
                if not task.done() or getattr(task, "root", False):
                    continue
                if exception_of(task) is not None or task in self._own_cancellations:
                    self.unseen.append(task)
            self.loop.tasks = living
        if self.unseen:
            self.unseen = [task for task in self.unseen if self._is_unseen(task)]
        return living

    def _is_unseen(self, task: Any) -> bool:
        """Whether nobody has looked at how a task failed; in a strict run an exception stays unseen for good."""
        if was_cancelled(task):
            return not task.looked_at
        return self.rules.strict or bool(task._log_traceback)

    def mains_ended(self) -> bool:
        """Say whether every main coroutine has ended."""
        return all(map(ExplorerTask.done, self.mains))

    def options(self) -> dict[str, Target]:
        """Return what may happen next, by name. Equal names are told apart by a number, in the order of the lists."""
        loop = self.loop
        found: dict[str, Target] = {}
        for handle in loop.ready:
            if handle._cancelled:
                continue
            key = handle.key or key_of(handle)
            if key in found:
                key = _numbered(found, key)
            found[key] = handle
            if self.fifo:
                break
        ended = self.mains_ended()
        if loop.timers and not ended:
            for timer in self._due_timers(bool(found)):
                _put(found, timer.key, timer)
        for job in loop.jobs:
            _put(found, job.key, job)
        if self.cancels_left and not ended:
            for task in self.living():
                if not (task in self.mains and len(self.mains) == 1) and not is_housekeeping(task):
                    _put(found, _CANCEL + loop.label_of(task), task)
        if self.crashes_left and not ended:
            for crash in self._guarded(lambda: possible_crashes(self.subject)):
                _put(found, crash.key, crash)
        return found

    def _due_timers(self, busy: bool) -> list[ExplorerTimer]:
        timers = self.loop.timers
        earliest = min(timer._when for timer in timers)
        latest = self.loop.now
        if not busy or self.fifo or self.rules.timers == "anytime":
            latest = max(earliest, latest)
        return [timer for timer in timers if timer._when < latest + CLOCK_RESOLUTION]

    def only_environment(self, options: dict[str, Target]) -> bool:
        """Say whether nothing can happen by itself: what is left is to cancel somebody, or to crash."""
        return all(map(is_a_fault, options.values()))

    # -- steps -------------------------------------------------------------------------------------------------------
    def step(self, target: Target) -> None:
        """Do one choice."""
        loop = self.loop
        if isinstance(target, ExplorerHandle):
            loop.ready.remove(target)
            self._run_handle(target)
        elif isinstance(target, ExplorerTimer):
            loop.timers = [timer for timer in loop.timers if timer is not target]
            loop.now = max(loop.now, target._when)
            target._scheduled = False
            if self.fifo:  # asyncio puts what is due behind what is ready
                handle = ExplorerHandle(target._callback, target._args, loop, target._context)
                loop.ready.append(handle)
            else:
                self._run_handle(target)
        elif isinstance(target, Job):
            self._run_job(target)
        elif isinstance(target, Crash):
            self._crash(target)
        else:
            self.cancels_left -= 1
            self.cancelled_labels.append(loop.label_of(target))
            self._guarded(target.cancel)
        if self.rules.atomic_callbacks:
            self._drain_callbacks()

    def _run_handle(self, handle: Any) -> None:
        callback, args = handle._callback, handle._args
        fence, loop = self._fence, self.loop
        fence.loop = loop
        try:
            handle._context.run(callback, *args)
        except Exception as error:
            name = getattr(callback, "__qualname__", repr(callback))
            loop.call_exception_handler({"message": f"Exception in callback {name}", "exception": error})
        except BaseException as error:
            self.escaped = error
            fence.interrupted |= isinstance(error, KeyboardInterrupt)
        finally:
            fence.loop = None
        task = stepped_task(callback)
        if task is not None and task.done() and was_cancelled(task) and not cancel_requests(task):
            waited_for = args[0] if args else None
            if not (isinstance(waited_for, asyncio.Future) and waited_for.done() and was_cancelled(waited_for)):
                self._own_cancellations.add(task)
        if task is None or task.done():
            self.living()  # notes who failed, in the order of failing: a replay asks nothing between

    def _run_job(self, job: Job) -> None:
        """Run an executor's function as a thread would: no loop is running for it."""
        self.loop.jobs.remove(job)
        result: object = None
        exception: BaseException | None = None
        events._set_running_loop(None)
        self._fence.loop = self.loop
        try:
            result = job.function(*job.args)
        except Exception as error:
            exception = error
        except BaseException as error:
            self.escaped = error
            return
        finally:
            self._fence.loop = None
            events._set_running_loop(self.loop)
        self.loop.call_soon(job.deliver, result, exception)

    def _guarded(self, function: Callable[[], Any]) -> Any:
        self._fence.loop = self.loop
        try:
            return function()
        finally:
            self._fence.loop = None

    def _crash(self, crash: Crash) -> None:
        """Let the process die as it stands, and start the next one on a loop of its own from what is left."""
        self.living()  # notes who failed unseen, so that the end of the run can silence them
        self.loop.closing = True
        self._dead.append((self.loop, self.subject, [*self.mains, *self.unseen]))
        self.crashes_left -= 1
        self.unseen, self.cancelled_labels, self._own_cancellations = [], [], set()
        self.loop = ExplorerLoop()  # type: ignore[abstract]
        events._set_running_loop(self.loop)
        try:
            self.subject = self._guarded(lambda: next_subject(self.subject, crash.image))
        except ExplorerUsageError:
            raise
        except Exception as error:
            self.escaped, self.escaped_from = error, "in recover, after a crash"
            self.mains = ()
        else:
            self.mains = self._start(self.subject)

    def _drain_callbacks(self) -> None:
        while True:
            waiting = [handle for handle in self.loop.ready if not handle._cancelled]
            callback = next((handle for handle in waiting if not key_of(handle).startswith("task-step ")), None)
            if callback is None:
                return
            self.loop.ready.remove(callback)
            self._run_handle(callback)

    # -- judgement ---------------------------------------------------------------------------------------------------
    def observe(self) -> Failure | None:
        """Let the subject's observer follow the step that was just done."""
        observer = self.subject.observe
        if observer is None:
            return None
        try:
            answer = observer()
        except Violation as violation:
            return Failure("violation", violation.property, violation.message, violation.details)
        try:
            self.observed = self._observed.setdefault(answer, len(self._observed))
        except TypeError:
            raise ExplorerUsageError(
                f"observe() returned {type(answer).__name__}, which cannot be hashed; it becomes a part of the state, "
                "so return a tuple or another immutable value"
            ) from None
        return None

    def forbidden_call(self) -> ForbiddenCall | None:
        """Return the first forbidden call the program made, caught or not."""
        return self.loop.forbidden[0] if self.loop.forbidden else None

    # -- the end -----------------------------------------------------------------------------------------------------
    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close everything the program left, without a warning leaking, and give the interpreter its loop back."""
        lives = [*self._dead, (self.loop, self.subject, [*self.mains, *self.unseen])]
        for loop, _, _ in lives:
            loop.closing = True
        for loop, _, ended in lives:
            with unawaited_as_it_is():
                _close_what_is_left(loop)
            for task in ended:
                if task.done():
                    task._log_traceback = False
        sys.set_asyncgen_hooks(*self._hooks)
        events._set_running_loop(self._previous_loop)
        closed: list[Callable[[], object]] = []
        for _, subject, _ in lives:
            if subject.close is not None and subject.close not in closed:
                closed.append(subject.close)
                subject.close()


def _close_what_is_left(loop: ExplorerLoop) -> None:
    for task in loop.tasks:
        if not task.done():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _close_inside_out(task.get_coro())
            with contextlib.suppress(BaseException):
                task.get_coro().close()  # that of C which has no frame, as `aclose()`
    for reference in loop.generators:
        generator = reference()
        if generator is not None:
            with contextlib.suppress(BaseException):  # what cleanup raises now says nothing about the program
                generator.aclose().send(None)


def is_a_fault(target: Target) -> bool:
    """Say whether a choice is the environment's to make and never has to come: a cancellation or a crash."""
    return isinstance(target, (asyncio.Task, Crash))


def is_housekeeping(task: Any) -> bool:
    """Say whether the loop started a task for itself: it is not cancelled by the environment and never leaks."""
    return bool(getattr(task, "housekeeping", False))


def _close_inside_out(coroutine: Any) -> None:
    """Close the innermost coroutine first, and again as long as `finally` blocks await something new.

    Closed from outside, an inner coroutine that awaits in its `finally` stays suspended and complains when it is
    collected. Async generators on the way are dropped: while somebody waits for them they cannot be closed.
    """
    for _ in range(_CLOSE_ATTEMPTS):
        chain = [inner for _, _, inner in frames_inwards(coroutine) if not isinstance(inner, types.AsyncGeneratorType)]
        if not chain:
            return
        with contextlib.suppress(BaseException):  # what cleanup raises now says nothing about the program
            for inner in reversed(chain):
                inner.close()


@contextlib.contextmanager
def unawaited_as_it_is() -> Iterator[None]:
    """Let a run that is broken off leave what it would have awaited later, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        yield


def _put(found: dict[str, Target], key: str, target: Target) -> None:
    found[_numbered(found, key) if key in found else key] = target


def _numbered(found: dict[str, Target], key: str) -> str:
    number = 2
    while f"{key} #{number}" in found:
        number += 1
    return f"{key} #{number}"
