"""What both front ends of the barrier share: all but tasks, waiting, timers, and who may call.

`asyncio_barrier` and `trio_barrier` derive from this. The order of entry is decided by `AdmissionCore`; here stands
what follows from its decisions: who is told, which clock starts, what is counted and what an error says.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Literal

from ..errors import BarrierClosed, DrainTimeout, Holder, UsageError, WrongLoop
from .admission import LIVE, WAITING, AdmissionCore, Ticket
from .arguments import UNSET, Tracer, Unset, seconds
from .cut import HELD, Cut, outer_sections
from .detached import DetachedContext
from .hold_watch import HoldWatch
from .section import Section, Timer
from .statistics import BarrierStatistics, Recorder, WindowFigures, named

logger = logging.getLogger("cleancut.barrier")

#: What becomes of a task, thread or callback that was started inside a section and opens one while that is open.
Inherited = Literal["refuse", "warn"]


class BarrierFrontEnd(ABC):
    """Shared mutation slots and one exclusive checkpoint, short of a library to run tasks with."""

    def __init__(
        self,
        name: str = "checkpoint",
        drain_timeout: float | None = None,
        hold_warning: float | None = None,
        trace: Tracer | None = None,
        *,
        inherited: Inherited = "refuse",
    ) -> None:
        if not isinstance(name, str) or not name:
            raise UsageError(f"name is {name!r}, but must be a text: it is the barrier's name in messages.")
        if trace is not None and not callable(trace):
            raise UsageError(f"trace is {trace!r}, but must be a function that takes every event, or None.")
        if inherited not in ("refuse", "warn"):
            raise UsageError(f"inherited is {inherited!r}, but must be 'refuse' or 'warn'.")
        self.name = name
        self._trace = trace
        self._inherited = inherited
        self._sections_named = 0
        self._drain_timeout = seconds("drain_timeout", drain_timeout)
        limit = seconds("hold_warning", hold_warning)
        self._hold_watch = None if limit is None else HoldWatch(self, limit)
        # Somebody wants to see every section; without, a free one passes by faster.
        self._watched = self._trace is not None or self._hold_watch is not None
        self._core = AdmissionCore()
        self._recorder = Recorder()
        self._time: Callable[[], float] = _no_time
        # Checkpoints on their way through the loop; later ones go the same way, so that none overtakes them.
        self._arriving: dict[Section, None] = {}
        # Invariant one_drain: `_drain_timer` and `_drain_began` are those of `_draining`, which heads the queue.
        self._draining: Section | None = None
        self._drain_began = 0.0
        self._drain_timer: Timer | None = None

    # -- what a front end adds

    @abstractmethod
    def _wake(self, section: Section) -> None:
        """Let the task of a section go on that the barrier made wait. It may be gone, or not have waited yet."""

    @abstractmethod
    def _on_its_way_out(self, section: Section) -> bool:
        """Say whether a waiting section was cancelled and its task has not come to withdraw it yet."""

    @abstractmethod
    def _call_later(self, delay: float, callback: Callable[..., None], *arguments: Section) -> Timer | None:
        """Have `callback` called after `delay` seconds, outside any task's context; None when nothing runs any more."""

    @abstractmethod
    def _call_after_this_turn(self, callback: Callable[..., None], *arguments: Section) -> None:
        """Have `callback` called once everything that is ready now has run."""

    @abstractmethod
    def _call_off(self, timer: Timer) -> None:
        """Cancel what `_call_later` returned, also when the loop that it was meant for is over."""

    @abstractmethod
    def _refuse_close_from_outside(self) -> None:
        """Raise WrongLoop when the barrier's loop runs and the caller is not in it."""

    @abstractmethod
    def _current_task(self) -> object | None:
        """The running task; None outside one."""

    # -- public

    @abstractmethod
    def mutation(self, kind: str = "mutation") -> AbstractAsyncContextManager[Cut]:
        """A shared section, as an async context manager. `kind` is a free label for statistics and messages."""

    @abstractmethod
    def mutation_nowait(self, kind: str = "mutation") -> AbstractContextManager[Cut]:
        """A shared section, as a plain context manager; entering raises WouldBlock instead of waiting."""

    @abstractmethod
    def checkpoint(self, timeout: float | Unset | None = UNSET) -> AbstractAsyncContextManager[Cut]:
        """The exclusive section, as an async context manager. `timeout` limits its drain, in seconds."""

    def detached(self) -> DetachedContext:
        """A plain context manager: tasks started inside may outlive the sections that their starter holds."""
        return DetachedContext(self, self._current_task)

    def require_outside(self) -> None:
        """Raise BarrierReentered when the caller's context holds a section of this barrier; changes nothing.

        For an operation that opens a section only when there is work: it answers the same when there is none.
        """
        outer_sections(HELD.get(), self)

    def lets_heirs_in(self, section: Cut) -> bool:
        """Whether the caller, whose context holds this open section, may open another: by `inherited`, with a warning.

        Never the task that opened the section: it would wait for itself.
        """
        if self._inherited == "refuse" or not isinstance(section, Section) or section.task is self._current_task():
            return False
        logger.warning(
            "a section of barrier %r was asked for in a context that has inherited one: kind %r, opened by %s at %s. "
            "If whoever opened that waits for this before it leaves, a checkpoint between the two waits until its "
            "drain limit. Start what is meant to outlive the section inside `with barrier.detached():`.",
            self.name, section.kind, section.task_name, section.place,
        )  # fmt: skip
        return True

    @property
    def tracer(self) -> Tracer | None:
        """Whoever is called with every event."""
        return self._trace

    @property
    def mutation_version(self) -> int:
        """How many shared sections have ended, failed ones included. Exact inside a cut."""
        return self._core.mutation_version

    @property
    def last_window(self) -> WindowFigures | None:
        """What the newest window that has ended cost the others; None before the first has."""
        return self._recorder.last_window

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
        if not isinstance(reason, str) or not reason:
            raise UsageError(f"reason is {reason!r}, but must be a text: whoever is refused later reads it.")
        self._refuse_close_from_outside()
        if self._core.closed_because is not None:
            return
        woken = self._core.close(reason)
        self._watch_drain()
        for section in woken:
            assert isinstance(section, Section)
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

    def _must_pass_through_loop(self) -> bool:
        return self._core.closed_because is None and (self._core.free or bool(self._arriving))

    def _entered(self, section: Section) -> None:
        """Show a section that was let in at once to the tracer and to the hold watch."""
        if self._hold_watch is not None:
            self._hold_watch.opened(section)
        self._trace_request(section)
        self._trace_section("open_cut" if section.exclusive else "enter_slot", section)

    def _opened_at_once(self, section: Section) -> None:
        """Follow up on a checkpoint that the core has let in without a wait."""
        section.since = self._time()
        self._recorder.drain.add(0.0)
        self._recorder.checkpoint_begins()
        if self._watched:
            self._entered(section)

    def _queued(self, section: Section) -> None:
        """Follow up on a request that the core has queued."""
        section.since = self._time()
        section.refusal = None
        if section.exclusive:
            self._watch_drain()
        else:
            self._recorder.mutation_blocked(section.kind)
        self._trace_request(section)

    def _settle(self, section: Section) -> None:
        """Settle a request whose wait was interrupted: give back what it was granted meanwhile, or withdraw it."""
        if section.standing is LIVE:
            self._release(section)
        elif section.standing is WAITING:
            self._withdraw(section, "cancelled")

    def _grant(self, sections: Sequence[Ticket]) -> None:
        """Tell sections which the core has counted in. Their tasks run later; they hold from here on."""
        if not sections:
            return
        now = self._time()
        for section in sections:
            assert isinstance(section, Section)
            if section.exclusive:
                # One that was handed the cut by its predecessor has headed the queue for no time at all.
                self._recorder.drain.add(now - self._drain_began if section is self._draining else 0.0)
            else:
                self._recorder.mutation_waited(section.kind, now - section.since)
            section.since = now
            self._wake(section)
            if self._hold_watch is not None:
                self._hold_watch.opened(section)
            self._trace_section("open_cut" if section.exclusive else "enter_slot", section)

    def _dropped(self, loop: str, cause: str) -> WrongLoop:
        return WrongLoop(
            f"the {loop} of barrier {self.name!r} was over while sections were open or waiting "
            f"({named(self._holders()) or 'none open'}). The likely cause is {cause}. What the sections protect may be "
            "half changed: restore it, and build a new barrier."
        )

    # -- exit

    def _release(self, section: Section) -> None:
        """Give an open section back, and let in whom it kept out. Never awaits."""
        self._left(section, self._core.leave(section))
        section.task = None

    def _left(self, section: Section, let_in: Sequence[Ticket]) -> None:
        """Follow up on a section that the core has counted out."""
        if section.exclusive:
            self._recorder.window_ended(self._time() - section.since)
        elif let_in:
            # Nothing but a cut is let in by the end of a shared section, and only by the last one.
            self._recorder.drain_ended_with(section.as_holder(self._time()))
        self._trace_section("close_cut" if section.exclusive else "leave_slot", section)
        self._grant(let_in)
        self._watch_drain()

    def _withdraw(self, section: Section, reason: str) -> None:
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
            self._call_off(self._drain_timer)
            self._drain_timer = None
        if head is None:
            self._draining, self._drain_began = None, 0.0
            return
        assert isinstance(head, Section)
        self._draining, self._drain_began = head, self._time()
        self._recorder.checkpoint_begins()
        if head.timeout is not None:
            self._drain_timer = self._call_later(head.timeout, self._drain_limit_reached, head)

    def _drain_limit_reached(self, section: Section) -> None:
        # One turn later, so that a grant in this turn wins, on whichever side of the timer it falls.
        self._call_after_this_turn(self._abandon, section)

    def _abandon(self, section: Section) -> None:
        """Give a drain up. A request that was granted or cancelled in the meantime is not touched."""
        if section.standing is not WAITING or self._on_its_way_out(section):
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
        return tuple(section.as_holder(now) for section in self._core.holders() if isinstance(section, Cut))

    def _trace_request(self, section: Section) -> None:
        if self._trace is not None:
            self._sections_named += 1
            section.number = self._sections_named
            self._trace_section("request_cut" if section.exclusive else "request_slot", section)

    def _trace_section(self, action: str, section: Section) -> None:
        if self._trace is not None:
            self._trace(action, section=section.number, task=section.task_name, kind=section.kind)

    def _trace_withdrawal(self, section: Section, reason: str) -> None:
        if self._trace is None:
            return
        fields = {"section": section.number, "task": section.task_name, "kind": section.kind, "reason": reason}
        self._trace("withdraw_cut" if section.exclusive else "withdraw_slot", **fields)


def _no_time() -> float:
    return 0.0
