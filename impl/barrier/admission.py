"""Who may enter the barrier, and in which order. No awaits, no I/O, no event loop: the front ends add those.

    OPEN --request_cut--> DRAINING --last slot left--> CUT --leave--> OPEN, or DRAINING for the next in the queue

Slots never block each other. From the moment a checkpoint heads the queue new slots wait; the open ones drain; then
the cut opens. On its release all mutations that wait by then are let in as one batch before the next drain starts, so
neither side starves the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import ClassVar, Final

from ..errors import BarrierClosed, UsageError


class Standing(Enum):
    """Where a request stands. It only moves forward, and it skips WAITING when it is let in at once."""

    NEW = "new"
    WAITING = "waiting"
    LIVE = "live"
    ENDED = "ended"


NEW: Final = Standing.NEW
WAITING: Final = Standing.WAITING
LIVE: Final = Standing.LIVE
ENDED: Final = Standing.ENDED


class Ticket:
    """One request for a section, from its arrival to its end. It is used once, and only the core moves it.

    Whoever makes one sets `kind`, and `standing` to NEW. There is no __init__ for that: its call would be a tenth of
    the time that a free section takes from enter to exit.
    """

    __slots__ = ("kind", "standing")

    exclusive: ClassVar[bool] = False
    kind: str
    standing: Standing

    @property
    def live(self) -> bool:
        """The section is counted in: from the grant on, even if the asking task has not run since, to its end."""
        return self.standing is LIVE


class ExclusiveTicket(Ticket):
    """A request for the exclusive side."""

    __slots__ = ()

    exclusive: ClassVar[bool] = True


NOBODY: Sequence[Ticket] = ()


class AdmissionCore:
    """The state of one barrier. Methods that free something return the tickets let in by it, oldest first.

    Membership is kept in tables, not in counters: a count that is the size of a table cannot go negative, and giving
    back what is not there is refused instead of subtracted.

    While `gate_open`, `request_slot` and `leave` come down to two lines each, on `inside` and `standing`. A front end
    may write these lines itself, for the two calls are a tenth of the time that a free section takes; with a gate that
    is not open it may not.
    """

    __slots__ = (
        "_checkpoints",
        "_cut",
        "_mutations",
        "closed_because",
        "gate_open",
        "inside",
        "most_waiting",
        "mutation_version",
    )

    # Invariant cut_excludes_writers: `_cut` is set only while `inside` is empty.
    inside: dict[Ticket, None]
    _cut: Ticket | None
    # Invariant no_idle_drain: while `_checkpoints` is not empty, `_cut` is set or `inside` is not empty.
    # Oldest first; its first entry drains, unless `_cut` is set.
    _checkpoints: OrderedDict[Ticket, None]
    # Invariant waits_with_cause: `_mutations` is not empty only while `_cut` is set or `_checkpoints` is not empty.
    _mutations: dict[Ticket, None]
    # Invariant gate: open exactly while no cut is open, none is asked for, and the barrier is not closed.
    gate_open: bool
    # Sections of the shared side that have ended, failed ones included.
    mutation_version: int
    most_waiting: int
    closed_because: str | None

    def __init__(self) -> None:
        self.inside = {}
        self._cut = None
        self._checkpoints = OrderedDict()
        self._mutations = {}
        self.gate_open = True
        self.mutation_version = 0
        self.most_waiting = 0
        self.closed_because = None

    # -- requests

    def request_slot(self, ticket: Ticket) -> bool:
        """Ask for a shared section; True when it is let in at once, False when the ticket waits now."""
        if self.request_slot_nowait(ticket):
            return True
        self._mutations[ticket] = None
        ticket.standing = WAITING
        self.most_waiting = max(self.most_waiting, len(self._mutations))
        return False

    def request_slot_nowait(self, ticket: Ticket) -> bool:
        """Ask for a shared section that need not wait; False, and nothing changed, when it would have to."""
        if ticket.standing is not NEW:
            raise used_twice(ticket)
        if self.gate_open:
            self.inside[ticket] = None
            ticket.standing = LIVE
            return True
        self._refuse_when_closed(ticket)
        return False

    def request_cut(self, ticket: Ticket) -> bool:
        """Ask for the exclusive section; True when it is let in at once, False when the ticket waits now.

        From here on the gate is shut: this is where the barrier bars.
        """
        if ticket.standing is not NEW:
            raise used_twice(ticket)
        self._refuse_when_closed(ticket)
        self.gate_open = False
        if self.inside or self._cut is not None:
            self._checkpoints[ticket] = None
            ticket.standing = WAITING
            return False
        self._cut = ticket
        ticket.standing = LIVE
        return True

    # -- ends

    def leave(self, ticket: Ticket) -> Sequence[Ticket]:
        """Give a section back; return the tickets this lets in, oldest first.

        Synchronous on purpose: a release that could be cancelled would keep its slot for ever.
        """
        if ticket.exclusive:
            return self._leave_cut(ticket)
        if ticket.standing is not LIVE:
            raise _not_open(ticket)
        del self.inside[ticket]
        ticket.standing = ENDED
        self.mutation_version += 1
        if self.gate_open or self.inside or not self._checkpoints:
            return NOBODY
        return self._open_next_cut()

    def withdraw(self, ticket: Ticket) -> Sequence[Ticket]:
        """Take a waiting request back, cancelled or expired; return the tickets this lets in.

        Only the withdrawal of the last queued checkpoint opens the gate again: with another one behind it the
        waiting mutations stay where they are.
        """
        if ticket.standing is not WAITING:
            raise UsageError(
                f"a request (kind {ticket.kind!r}) was withdrawn, but it is not waiting, it is "
                f"{ticket.standing.value}. Withdraw a waiting request once, and leave an open section instead."
            )
        ticket.standing = ENDED
        if not ticket.exclusive:
            del self._mutations[ticket]
            return NOBODY
        del self._checkpoints[ticket]
        if self._checkpoints or self._cut is not None:
            return NOBODY
        self._settle_gate()
        return self._let_waiting_mutations_in()

    def close(self, reason: str) -> Sequence[Ticket]:
        """Refuse all later requests; return the waiting ones, withdrawn: mutations first, then checkpoints."""
        self.closed_because = reason
        woken = [*self._mutations, *self._checkpoints]
        for ticket in woken:
            ticket.standing = ENDED
        self._mutations.clear()
        self._checkpoints.clear()
        self._settle_gate()
        return woken

    # -- views

    @property
    def free(self) -> bool:
        """Nobody is inside and nobody waits: either side would be let in at once."""
        return not self.inside and self._cut is None and not self._checkpoints

    @property
    def draining(self) -> Ticket | None:
        """The checkpoint that waits for the open slots to end; None while a cut is open or none is asked for."""
        if self._cut is None and self._checkpoints:
            return next(iter(self._checkpoints))
        return None

    @property
    def cut(self) -> Ticket | None:
        """The open exclusive section, if any."""
        return self._cut

    @property
    def active_mutations(self) -> int:
        """How many shared sections are open."""
        return len(self.inside)

    @property
    def waiting_mutations(self) -> int:
        """How many shared requests wait."""
        return len(self._mutations)

    @property
    def waiting_checkpoints(self) -> int:
        """How many exclusive requests wait, the draining one included."""
        return len(self._checkpoints)

    def holders(self) -> Iterator[Ticket]:
        """Every open section, oldest first."""
        if self._cut is not None:
            yield self._cut
        yield from self.inside

    # -- transitions

    def _leave_cut(self, ticket: Ticket) -> Sequence[Ticket]:
        if self._cut is not ticket:
            raise _not_open(ticket)
        self._cut = None
        ticket.standing = ENDED
        self._settle_gate()
        batch = self._let_waiting_mutations_in()
        if batch or not self._checkpoints:
            return batch
        return self._open_next_cut()

    def _let_waiting_mutations_in(self) -> Sequence[Ticket]:
        batch = [*self._mutations]
        for ticket in batch:
            ticket.standing = LIVE
        self.inside.update(self._mutations)
        self._mutations.clear()
        return batch

    def _open_next_cut(self) -> Sequence[Ticket]:
        ticket, _ = self._checkpoints.popitem(last=False)
        ticket.standing = LIVE
        self._cut = ticket
        return (ticket,)

    def _settle_gate(self) -> None:
        self.gate_open = self._cut is None and not self._checkpoints and self.closed_because is None

    def _refuse_when_closed(self, ticket: Ticket) -> None:
        if self.closed_because is not None:
            raise BarrierClosed(
                f"a section (kind {ticket.kind!r}) was asked for, but the barrier is closed: {self.closed_because}. "
                "The run is ending; stop the task that asks, or build a new barrier for a new run."
            )


def used_twice(ticket: Ticket) -> UsageError:
    """The error for a ticket that asks a second time."""
    return UsageError(
        f"a section (kind {ticket.kind!r}) was entered twice, but each is for one use; the likely cause is a section "
        "kept in a variable. Ask the barrier for a new one each time."
    )


def _not_open(ticket: Ticket) -> UsageError:
    return UsageError(
        f"a section (kind {ticket.kind!r}) was given back, but it is not open: it is {ticket.standing.value}. "
        "Use `with`, which gives each section back once."
    )
