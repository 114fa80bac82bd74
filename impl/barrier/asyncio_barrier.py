"""The checkpoint barrier on asyncio: writers share it, a checkpoint has it alone.

    async with barrier.mutation("group_commits") as cut:   # shared; waits only while a checkpoint drains or is open
        ledger.drop(cut, ...)
    async with barrier.checkpoint() as cut:                # exclusive; read every restart-facing value here
        ...

The order of entry is decided by `AdmissionCore`; this file adds tasks, futures, timers, and who may call. Waiters are
plain futures. A release is synchronous, so no cancellation, however placed, leaks a section.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _get_running_loop
from collections.abc import Callable, Sequence
from sys import _getframe
from threading import get_ident
from time import monotonic

from ..errors import BarrierClosed, DrainTimeout, Holder, WrongLoop
from .admission import LIVE, NEW, WAITING, AdmissionCore, Ticket
from .arguments import UNSET, Tracer, Unset, seconds
from .hold_watch import HoldWatch
from .sections import AsyncioSection, CheckpointSection, DetachedContext, ImmediateSection, MutationSection
from .statistics import BarrierStatistics, Recorder, named


class CheckpointBarrier:
    """Shared mutation slots and one exclusive checkpoint. Constructible before there is a loop.

    It belongs to one event loop at a time and moves to another only when idle and when the former does not run.
    `drain_timeout` is the default limit of a checkpoint's drain in seconds, None for no limit; `hold_warning` logs,
    under "cleancut.barrier", sections of either side that are open for longer. `trace` is called with every event.
    """

    def __init__(
        self,
        name: str = "checkpoint",
        drain_timeout: float | None = None,
        hold_warning: float | None = None,
        trace: Tracer | None = None,
    ) -> None:
        self.name = name
        self._trace = trace
        self._sections_named = 0
        self._drain_timeout = seconds("drain_timeout", drain_timeout)
        limit = seconds("hold_warning", hold_warning)
        self._hold_watch = None if limit is None else HoldWatch(self, limit)
        # Somebody wants to see every section; without, a free one passes by faster.
        self._watched = self._trace is not None or self._hold_watch is not None
        self._core = AdmissionCore()
        self._recorder = Recorder()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._time: Callable[[], float] = _no_time
        # Checkpoints on their way through the loop; later ones go the same way, so that none overtakes them.
        self._arriving: dict[CheckpointSection, None] = {}
        # Invariant one_drain: `_drain_timer` belongs to `_draining`, the checkpoint that heads the queue.
        self._draining: CheckpointSection | None = None
        self._drain_timer: asyncio.TimerHandle | None = None

    # -- sections

    def mutation(self, kind: str = "mutation") -> MutationSection:
        """A shared section, as an async context manager. `kind` is a free label for statistics and messages."""
        section = MutationSection()
        frame = _getframe(1)
        section.barrier = self
        section.kind = kind
        section.standing = NEW
        section.code = frame.f_code
        section.instruction = frame.f_lasti
        return section

    def mutation_nowait(self, kind: str = "mutation") -> ImmediateSection:
        """A shared section, as a plain context manager; entering raises WouldBlock instead of waiting."""
        section = ImmediateSection()
        frame = _getframe(1)
        section.barrier = self
        section.kind = kind
        section.standing = NEW
        section.code = frame.f_code
        section.instruction = frame.f_lasti
        return section

    def checkpoint(self, timeout: float | Unset | None = UNSET) -> CheckpointSection:
        """The exclusive section, as an async context manager.

        `timeout` limits the drain alone, from the moment when this request heads the queue; UNSET takes the barrier's
        `drain_timeout`, None is unlimited. Passes through the loop once even when free, else a tight loop of
        checkpoints would never let a writer run.
        """
        section = CheckpointSection()
        frame = _getframe(1)
        section.barrier = self
        section.kind = "checkpoint"
        section.standing = NEW
        section.code = frame.f_code
        section.instruction = frame.f_lasti
        section.timeout = self._drain_timeout if isinstance(timeout, Unset) else seconds("timeout", timeout)
        return section

    def detached(self) -> DetachedContext:
        """A plain context manager: tasks started inside may outlive the sections that their starter holds."""
        return DetachedContext(self)

    # -- views and control

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that it belongs to; None before its first section."""
        return self._loop

    @property
    def tracer(self) -> Tracer | None:
        """Whoever is called with every event."""
        return self._trace

    @property
    def mutation_version(self) -> int:
        """How many shared sections have ended, failed ones included. Exact inside a cut."""
        return self._core.mutation_version

    def statistics(self) -> BarrierStatistics:
        """A snapshot. Ages are in the clock of the loop that the barrier belongs to."""
        core, recorder = self._core, self._recorder
        return BarrierStatistics(
            name=self.name,
            mutation_version=core.mutation_version,
            active_mutations=core.active_mutations,
            waiting_mutations=core.waiting_mutations,
            most_waiting_mutations=core.most_waiting,
            checkpoint_active=core.cut is not None,
            waiting_checkpoints=core.waiting_checkpoints,
            expired_checkpoints=recorder.expired,
            blocked=dict(recorder.blocked),
            waits=dict(recorder.waits),
            window=recorder.window.summary(),
            drain=recorder.drain.summary(),
            holders=self._holders(),
            closed_because=core.closed_because,
        )

    def close(self, reason: str) -> None:
        """Refuse all later requests with BarrierClosed and wake the waiting ones with it; open sections finish.

        The first reason stays. Call it in the barrier's own thread.
        """
        if self._loop is not None and self._loop.is_running() and _get_running_loop() is not self._loop:
            raise WrongLoop(
                f"barrier {self.name!r} was closed from outside its event loop while that runs. "
                "Use `loop.call_soon_threadsafe(barrier.close, reason)`."
            )
        if self._core.closed_because is not None:
            return
        woken = self._core.close(reason)
        self._watch_drain()
        for section in woken:
            assert isinstance(section, AsyncioSection)
            section.refusal = BarrierClosed(
                f"a waiting section (kind {section.kind!r}) of barrier {self.name!r} was given up, because the barrier "
                f"was closed: {reason}. The run is ending; nothing was changed."
            )
            self._trace_withdrawal(section, "closed")
            section.task = None
            self._wake(section)

    def emit(self, action: str, **fields: object) -> None:
        """Pass an event of another part to the tracer; nothing without one."""
        if self._trace is not None:
            self._trace(action, **fields)

    # -- entry

    def _bind(self) -> asyncio.Task[object] | None:
        """Belong to the running loop from here on, or refuse; return the running task, if it is one.

        The answer does not depend on whether there is contention.
        """
        former, loop = self._loop, _get_running_loop()
        if loop is not None and loop is former:
            return asyncio.current_task(loop)
        if loop is None:
            raise WrongLoop(
                f"barrier {self.name!r} was used where no event loop runs; the likely cause is a worker thread. "
                "Enter the section in a coroutine and hand the work to the thread from there, or use "
                "`asyncio.run_coroutine_threadsafe(coroutine, loop)`."
            )
        if former is not None:
            if not self._core.free:
                if former.is_closed():
                    raise WrongLoop(
                        f"the event loop of barrier {self.name!r} was closed while sections were open or waiting "
                        f"({named(self._holders()) or 'none open'}). The likely cause is a task that was dropped "
                        "instead of cancelled. What the sections protect may be half changed: restore it, and build a "
                        "new barrier."
                    )
                raise WrongLoop(self._foreign("sections are open or waiting in the former"))
            if former.is_running():
                raise WrongLoop(self._foreign("the former still runs"))
        self._loop = loop
        self._thread = get_ident()
        # The clock of the loop, without the detour where that is the usual one.
        usual = getattr(type(loop), "time", None) is asyncio.BaseEventLoop.time
        self._time = monotonic if usual else loop.time
        self._arriving.clear()
        if self._hold_watch is not None:
            self._hold_watch.forget_loop()
        return asyncio.current_task(loop)

    def _foreign(self, cause: str) -> str:
        return (
            f"barrier {self.name!r} belongs to one event loop and was used in another, while {cause}. From another "
            "thread use `asyncio.run_coroutine_threadsafe(coroutine, loop)`; one loop after the other is fine once "
            "every section has ended."
        )

    def _must_pass_through_loop(self) -> bool:
        return self._core.closed_because is None and (self._core.free or bool(self._arriving))

    def _entered(self, section: AsyncioSection) -> None:
        """Show a section that was let in at once to the tracer and to the hold watch."""
        if self._hold_watch is not None:
            self._hold_watch.opened(section)
        self._trace_request(section)
        self._trace_section("open_cut" if section.exclusive else "enter_slot", section)

    async def _wait(self, section: AsyncioSection) -> None:
        """Wait for the grant of a queued request; whatever ends the wait, the request is settled afterwards."""
        assert self._loop is not None
        section.since = self._time()
        section.refusal = None
        section.waiter = self._loop.create_future()
        if section.exclusive:
            self._watch_drain()
        else:
            self._recorder.mutation_blocked(section.kind)
        self._trace_request(section)
        try:
            await section.waiter
        except BaseException:
            # The same exception passes out, whoever was woken by this.
            if section.standing is LIVE:
                self._release(section)
            elif section.standing is WAITING:
                self._withdraw(section, "cancelled")
            raise
        finally:
            section.waiter = None
        if section.refusal is not None:
            try:
                raise section.refusal
            finally:
                # The error's traceback holds this frame and so the section: no circle through both.
                section.refusal = None

    def _grant(self, sections: Sequence[Ticket]) -> None:
        """Tell sections which the core has counted in. Their tasks run later; they hold from here on."""
        if not sections:
            return
        now = self._time()
        for section in sections:
            assert isinstance(section, AsyncioSection)
            if isinstance(section, CheckpointSection):
                # One that was handed the cut by its predecessor has headed the queue for no time at all.
                self._recorder.drain.add(now - section.headed_at if section is self._draining else 0.0)
            else:
                self._recorder.mutation_waited(section.kind, now - section.since)
            section.since = now
            self._wake(section)
            if self._hold_watch is not None:
                self._hold_watch.opened(section)
            self._trace_section("open_cut" if section.exclusive else "enter_slot", section)

    def _wake(self, section: AsyncioSection) -> None:
        waiter = section.waiter
        if waiter is not None and not waiter.done() and not waiter.get_loop().is_closed():
            waiter.set_result(None)

    # -- exit

    def _release(self, section: AsyncioSection) -> None:
        """Give an open section back, and let in whom it kept out. Never awaits."""
        self._left(section, self._core.leave(section))
        section.task = None

    def _left(self, section: AsyncioSection, let_in: Sequence[Ticket]) -> None:
        """Follow up on a section that the core has counted out."""
        if section.exclusive:
            self._recorder.window.add(self._time() - section.since)
        self._trace_section("close_cut" if section.exclusive else "leave_slot", section)
        self._grant(let_in)
        self._watch_drain()

    def _release_elsewhere(self, section: AsyncioSection) -> None:
        """Give a section back from a thread that is not the loop's: there, if it still runs, and here if not.

        Such a release comes from the collector, when it finds an abandoned coroutine, or from a plain `with` that
        was moved.
        """
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._release, section)
        else:
            self._release(section)

    def _withdraw(self, section: AsyncioSection, reason: str) -> None:
        let_in = self._core.withdraw(section)
        self._trace_withdrawal(section, reason)
        section.task = None
        self._grant(let_in)
        self._watch_drain()

    # -- the drain limit

    def _watch_drain(self) -> None:
        """Start the clock of the checkpoint that came to head the queue, and stop that of its predecessor."""
        head = self._core.draining
        if head is self._draining:
            return
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        if head is None:
            self._draining = None
            return
        assert isinstance(head, CheckpointSection)
        self._draining = head
        head.headed_at = self._time()
        if head.timeout is not None and self._loop is not None and not self._loop.is_closed():
            self._drain_timer = self._loop.call_later(head.timeout, self._drain_limit_reached, head)

    def _drain_limit_reached(self, section: CheckpointSection) -> None:
        # One turn later, so that a grant in this turn wins, on whichever side of the timer it falls.
        assert self._loop is not None
        self._loop.call_soon(self._abandon, section)

    def _abandon(self, section: CheckpointSection) -> None:
        """Give a drain up. A request that was granted or cancelled in the meantime is not touched."""
        if section.standing is not WAITING or section.waiter is None or section.waiter.done():
            return
        holders = self._holders()
        section.refusal = DrainTimeout(
            f"the checkpoint of barrier {self.name!r}, asked for by {section.task_name!r} at {section.place}, was "
            f"given up: after {section.timeout} s of draining, {len(holders)} not ended: {named(holders)}. The likely "
            "cause is a holder that waits for the trainer, or for this save, inside its section. The writers proceed "
            "and nothing was read; move that wait out of the section, or raise the drain limit, and save again.",
            holders,
        )
        self._recorder.expired += 1
        self._wake(section)
        self._withdraw(section, "expired")

    # -- events

    def _holders(self) -> tuple[Holder, ...]:
        now = self._time()
        return tuple(section.as_holder(now) for section in self._core.holders() if isinstance(section, AsyncioSection))

    def _trace_request(self, section: AsyncioSection) -> None:
        if self._trace is not None:
            self._sections_named += 1
            section.number = self._sections_named
            self._trace_section("request_cut" if section.exclusive else "request_slot", section)

    def _trace_section(self, action: str, section: AsyncioSection) -> None:
        if self._trace is not None:
            self._trace(action, section=section.number, task=section.task_name, kind=section.kind)

    def _trace_withdrawal(self, section: AsyncioSection, reason: str) -> None:
        if self._trace is None:
            return
        fields = {"section": section.number, "task": section.task_name, "kind": section.kind, "reason": reason}
        self._trace("withdraw_cut" if section.exclusive else "withdraw_slot", **fields)


def _no_time() -> float:
    return 0.0
