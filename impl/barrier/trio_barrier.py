"""The checkpoint barrier on trio: the twin of the asyncio one, over the same admission core.

    async with barrier.mutation("group_commits") as cut:   # shared; waits only while a checkpoint drains or is open
        ledger.drop(cut, ...)
    async with barrier.checkpoint() as cut:                # exclusive; read every restart-facing value here
        ...

This file adds tasks, timers, and who may call. A release is synchronous and no checkpoint in trio's sense, so no cancel
scope, however placed, leaks a section. Three things are trio's own:

- Entering `mutation()` or `checkpoint()` in a cancelled scope raises Cancelled, whether or not anybody is in the way;
  nothing is held then. Entering a free mutation does not let others run, though, unlike trio's locks.
- Timers are system tasks. None sleeps while nobody holds or drains.
- A nursery waits for its children, so a task for `detached()` belongs into a nursery that was opened outside the
  section; callbacks of `TrioToken.run_sync_soon` and system tasks inherit no context and are detached by themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from sys import _getframe

import trio
from trio.lowlevel import Abort, Task, TrioToken, wait_task_rescheduled

from ..errors import WrongLoop
from .admission import LIVE, NEW, WAITING
from .arguments import UNSET, Tracer, Unset, label, seconds
from .front_end import BarrierFrontEnd, Inherited
from .section import Section, Timer, raise_refusal
from .trio_sections import CheckpointSection, ImmediateSection, MutationSection, TrioSection

logger = logging.getLogger("cleancut.barrier")


class CheckpointBarrier(BarrierFrontEnd):
    """Shared mutation slots and one exclusive checkpoint. Constructible before there is a run.

    It belongs to one `trio.run` at a time and moves to another only when idle and when the former is over.
    `drain_timeout` is the default limit of a checkpoint's drain in seconds, None for no limit; `hold_warning` logs,
    under "cleancut.barrier", sections of either side that are open for longer. `trace` is called with every event.

    A task, thread or callback that was started inside a section has inherited it. With `inherited="refuse"` it is
    refused while that is open, and let in once it has ended, which is a matter of timing where nobody waits for it.
    With "warn" it is let in either way, and what would have been refused is logged; who holds a section by itself is
    refused as ever.
    """

    def __init__(
        self,
        name: str = "checkpoint",
        drain_timeout: float | None = None,
        hold_warning: float | None = None,
        trace: Tracer | None = None,
        *,
        inherited: Inherited = "refuse",
    ) -> None:
        super().__init__(name, drain_timeout, hold_warning, trace, inherited=inherited)
        # What names the run that the barrier belongs to.
        self._token: TrioToken | None = None

    # -- sections

    def mutation(self, kind: str = "mutation") -> MutationSection:
        """A shared section, as an async context manager. `kind` is a free label for statistics and messages."""
        section = MutationSection()
        self._prepare(section, kind)
        return section

    def mutation_nowait(self, kind: str = "mutation") -> ImmediateSection:
        """A shared section, as a plain context manager; entering raises WouldBlock instead of waiting."""
        section = ImmediateSection()
        self._prepare(section, kind)
        return section

    def checkpoint(self, timeout: float | Unset | None = UNSET) -> CheckpointSection:
        """The exclusive section, as an async context manager.

        `timeout` limits the drain alone, from the moment when this request heads the queue; UNSET takes the barrier's
        `drain_timeout`, None is unlimited. Passes through the loop once even when free, else a tight loop of
        checkpoints would never let a writer run.
        """
        section = CheckpointSection()
        self._prepare(section, "checkpoint")
        section.timeout = self._drain_timeout if isinstance(timeout, Unset) else seconds("timeout", timeout)
        return section

    def _prepare(self, section: TrioSection, kind: str) -> None:
        caller = _getframe(2)
        section.barrier = self
        section.kind = kind if type(kind) is str else label("kind", kind)
        section.standing = NEW
        section.code = caller.f_code
        section.instruction = caller.f_lasti
        section.task = section.sleeper = None
        section.cancelled = False

    # -- entry

    def _bind(self) -> Task | None:
        """Belong to the current run from here on, or refuse; return the running task, if it is one.

        The answer does not depend on whether there is contention.
        """
        former, token = self._token, _current_token()
        if token is not None and token is former:
            return self._current_task()
        if token is None:
            raise WrongLoop(
                f"barrier {self.name!r} was used where trio does not run; the likely cause is a worker thread. Enter "
                "the section in a task and hand the work to the thread from there, or use `trio.from_thread.run(...)`. "
                "On asyncio use `impl.CheckpointBarrier`."
            )
        if former is not None:
            if _still_runs(former):
                cause = "the former still runs" if self._core.free else "sections are open or waiting in the former"
                raise WrongLoop(
                    f"barrier {self.name!r} belongs to one trio run and was used in another, while {cause}. From "
                    "another thread use `trio.from_thread.run(..., trio_token=token)`; one run after the other is fine "
                    "once every section has ended."
                )
            if not self._core.free:
                raise self._dropped("trio run", "a section that was entered by hand and never left")
        self._token = token
        self._time = trio.lowlevel.current_clock().current_time
        self._arriving.clear()
        if self._hold_watch is not None:
            self._hold_watch.forget_loop()
        return self._current_task()

    async def _pass_through_loop(self, section: CheckpointSection) -> None:
        """Let everybody who is ready run, and ask for the cut then, not before: its gate would be shut for nothing."""
        self._arriving[section] = None
        try:
            await trio.lowlevel.checkpoint()
            # trio runs the tasks of one turn in any order. So whoever comes back first asks for those before it, too.
            while section.standing is NEW:
                first = next(iter(self._arriving), section)
                self._arriving.pop(first, None)
                self._ask_for_cut(first)
        except BaseException:
            self._settle(section)
            raise
        finally:
            self._arriving.pop(section, None)

    def _ask_for_cut(self, section: Section) -> None:
        if self._core.request_cut(section):
            self._opened_at_once(section)
        else:
            self._queued(section)

    async def _wait(self, section: TrioSection) -> None:
        """Wait for the grant of a request; whatever ends the wait, the request is settled afterwards."""
        if section.standing is WAITING:

            def wake_cancelled(_: object) -> Abort:
                # No more than that: this runs inside whatever cancels, where an error would end the whole run.
                section.sleeper = None
                section.cancelled = True
                return Abort.SUCCEEDED

            section.sleeper = trio.lowlevel.current_task()
            try:
                await wait_task_rescheduled(wake_cancelled)
            except BaseException:
                # The same exception passes out, whoever was woken by this.
                self._settle(section)
                raise
        if section.standing is not LIVE:
            raise_refusal(section)

    def _wake(self, section: Section) -> None:
        assert isinstance(section, TrioSection)
        sleeper, section.sleeper = section.sleeper, None
        if sleeper is not None:
            trio.lowlevel.reschedule(sleeper)

    def _on_its_way_out(self, section: Section) -> bool:
        assert isinstance(section, TrioSection)
        return section.cancelled

    # -- exit

    def _release_elsewhere(self, section: TrioSection) -> None:
        """Give a section back from outside the run: inside it, if it still goes on, and here if not.

        Such a release comes from the collector, when it finds an abandoned coroutine, or from a plain `with` that
        was moved.
        """
        try:
            if self._token is not None:
                self._token.run_sync_soon(_call, self._release, (section,))
                return
        except trio.RunFinishedError:
            pass
        self._release(section)

    # -- the run

    def _is_here(self) -> bool:
        """The caller is in the run that the barrier belongs to."""
        return self._token is not None and _current_token() is self._token

    def _call_later(self, delay: float, callback: Callable[..., None], *arguments: Section) -> Timer | None:
        if not self._is_here():
            return None
        scope = trio.CancelScope()

        async def wait() -> None:
            with scope:
                await trio.sleep(delay)
                _call(callback, arguments)

        return scope if _spawned(wait, f"timer of barrier {self.name!r}") else None

    def _call_after_this_turn(self, callback: Callable[..., None], *arguments: Section) -> None:
        # A new task runs in the next turn at the earliest.
        async def call() -> None:
            _call(callback, arguments)

        _spawned(call, f"timer of barrier {self.name!r}")

    def _call_off(self, timer: Timer) -> None:
        if self._is_here():
            timer.cancel()

    def _refuse_close_from_outside(self) -> None:
        if self._token is not None and not self._is_here() and _still_runs(self._token):
            raise WrongLoop(
                f"barrier {self.name!r} was closed from outside its trio run while that goes on. "
                "Use `trio.from_thread.run_sync(barrier.close, reason, trio_token=token)`."
            )

    def _current_task(self) -> Task | None:
        return trio.lowlevel.current_task() if trio.lowlevel.in_trio_task() else None


def _current_token() -> TrioToken | None:
    """What names the run that this is called in; None outside one."""
    return trio.lowlevel.current_trio_token() if trio.lowlevel.in_trio_run() else None


def _still_runs(token: TrioToken) -> bool:
    """A run that is not over yet takes a call. There is no other way to ask."""
    try:
        token.run_sync_soon(_nothing)
    except trio.RunFinishedError:
        return False
    return True


def _nothing() -> None:
    pass


def _spawned(task: Callable[[], object], name: str) -> bool:
    """Start a system task; False when the run is ending and takes none."""
    try:
        trio.lowlevel.spawn_system_task(task, name=name)  # type: ignore[arg-type]
    except RuntimeError:
        return False
    return True


def _call(callback: Callable[..., None], arguments: tuple[Section, ...]) -> None:
    """Call back, and log what is raised: in a system task an error of a tracer or a log handler would end the run."""
    try:
        callback(*arguments)
    except Exception:
        logger.exception("A timer or a late release of a barrier failed; the run goes on.")
