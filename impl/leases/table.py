"""Who holds which lease and until when: data and decisions, with the time given. No clock, no awaits, no messages.

    ask --> ASKED --grant--> HELD --end--> gone
              |                |
              +-----lapse------+--> LAPSED --end--> gone

A heartbeat (`renew`) puts the end of a lease off; a lease that has lapsed it never brings back. `lapse` is asked with
the time and says whose time is up: their tokens are void from then on, and the host ends their sections once every part
that checks tokens has been told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from ..barrier.arguments import UNSET, Unset, positive
from ..errors import LeaseExpired, UsageError
from .fence import FenceOrder, Token


class LeaseStanding(Enum):
    """Where a lease stands. It only moves forward."""

    ASKED = "asked for"
    HELD = "held"
    LAPSED = "lapsed"


ASKED, HELD, LAPSED = LeaseStanding.ASKED, LeaseStanding.HELD, LeaseStanding.LAPSED


@dataclass(frozen=True, slots=True)
class Asking:
    """What a holder says as it asks: `request` is its own name for it, never used twice; the rest is for people.

    `timeout` limits the drain of a checkpoint, in seconds; UNSET takes the barrier's, None is unlimited.
    """

    request: str
    holder: str
    kind: str
    place: str
    exclusive: bool = False
    timeout: float | Unset | None = UNSET


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease at one instant. Times are in the clock of whoever gives them to the table."""

    asking: Asking
    standing: LeaseStanding
    heard_of: float
    """When its holder last said anything."""
    deadline: float
    """When it lapses, unless it is renewed."""
    number: int | None = None
    """Of its token; None until it is granted."""
    granted: float | None = None


@dataclass(frozen=True, slots=True)
class LeaseCounts:
    """How many leases: open ones now; asked for, granted, ended and lapsed in this epoch. A lapsed one ends too."""

    epoch: int
    waiting: int
    held: int
    asked: int
    granted: int
    ended: int
    lapsed: int


class LeaseTable:
    """All leases of one epoch of a barrier. `duration` is how long a holder may be silent, in seconds.

    `longest_hold` is how long a granted lease may last whatever its holder says, None for no limit.
    """

    # Invariant numbered: the leases with a number have different ones, all below `_next`.
    # Invariant void: `_void` has the numbers from `_floor` on whose leases lapsed.

    def __init__(self, epoch: int, duration: float, longest_hold: float | None = None) -> None:
        self.epoch = epoch
        self.duration = positive("lease", duration)
        self.longest_hold = None if longest_hold is None else positive("longest_hold", longest_hold)
        self._leases: dict[str, Lease] = {}
        self._numbered: dict[int, str] = {}
        self._next = 1
        self._floor = 1
        self._void: set[int] = set()
        self._asked = self._granted = self._ended = self._lapsed = 0

    def ask(self, asking: Asking, now: float) -> Lease:
        """Note a request; asked again with the same name, it is heard of again and stays what it was."""
        known = self._leases.get(asking.request)
        if known is not None:
            self.renew(asking.request, now)
            return self._leases[asking.request]
        self._asked += 1
        return self._put(Lease(asking, ASKED, now, now + self.duration))

    def grant(self, request: str, now: float) -> Token:
        """Let a request in: it gets the next number. LeaseExpired when it lapsed while it waited."""
        lease = self._live(request)
        if lease.standing is HELD:
            raise UsageError(f"request {request!r} was granted twice; a lease has one number.")
        number, self._next = self._next, self._next + 1
        self._granted += 1
        self._numbered[number] = request
        self._put(
            replace(lease, standing=HELD, number=number, granted=now, deadline=self._no_later(now + self.duration, now))
        )
        return Token(self.epoch, number)

    def renew(self, request: str, now: float) -> float:
        """A heartbeat: the seconds that the lease has now. LeaseExpired when it is over: it is never brought back."""
        lease = self._live(request)
        # What was heard of late is as silent as what was never heard of: the time decides, not who is asked first.
        if lease.deadline <= now:
            raise self.refusal(request)
        renewed = replace(lease, heard_of=now, deadline=self._no_later(now + self.duration, lease.granted))
        return self._put(renewed).deadline - now

    def lapse(self, now: float) -> tuple[Lease, ...]:
        """The leases whose time is up, oldest first, each once. From here on their tokens are void."""
        found = tuple(x for x in self._leases.values() if x.standing is not LAPSED and x.deadline <= now)
        for lease in found:
            self._lapsed += 1
            self._put(replace(lease, standing=LAPSED))
            if lease.number is not None and lease.number >= self._floor:
                self._void.add(lease.number)
        return found

    def forgive(self, seconds: float) -> None:
        """Put every end off by so long: the time in which the table's keeper was stalled and heard nobody."""
        for lease in [x for x in self._leases.values() if x.standing is not LAPSED]:
            self._put(replace(lease, deadline=self._no_later(lease.deadline + seconds, lease.granted)))

    def end(self, request: str) -> None:
        """Forget a lease whose section has ended, however; nothing for one that is gone already."""
        lease = self._leases.pop(request, None)
        if lease is not None:
            self._ended += 1
            if lease.number is not None:
                del self._numbered[lease.number]

    def raise_floor(self) -> FenceOrder:
        """A cut opens: no token given so far is good any more. What every part must know before it is read."""
        self._floor = self._next
        self._void.clear()
        return self.order

    def require(self, token: Token) -> Lease:
        """The lease of a token; LeaseExpired unless it is held and its token good."""
        request = self._numbered.get(token.number) if token.epoch == self.epoch else None
        if request is None or not self.order.takes(token):
            earlier = token.epoch != self.epoch
            cause = "the barrier has been started anew since" if earlier else "the section is over"
            raise LeaseExpired(
                f"the token of {token} was used, but {cause} (this is epoch {self.epoch}). Nothing was changed; open "
                "another section and look again."
            )
        return self._leases[request]

    @property
    def order(self) -> FenceOrder:
        """What the parts in other processes must know."""
        return FenceOrder(self.epoch, self._floor, frozenset(self._void))

    @property
    def shortest(self) -> float:
        """How long a lease lasts at the least from its grant, in seconds."""
        return self.duration if self.longest_hold is None else min(self.duration, self.longest_hold)

    @property
    def next_deadline(self) -> float | None:
        """When the next lease lapses if nobody is heard of; None when there is none."""
        return min((x.deadline for x in self._leases.values() if x.standing is not LAPSED), default=None)

    def get(self, request: str) -> Lease | None:
        """The lease of a request; None once it has ended."""
        return self._leases.get(request)

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._leases.values()))

    @property
    def counts(self) -> LeaseCounts:
        """A snapshot."""
        standings = [lease.standing for lease in self._leases.values()]
        waiting, held = standings.count(ASKED), standings.count(HELD)
        return LeaseCounts(self.epoch, waiting, held, self._asked, self._granted, self._ended, self._lapsed)

    def refusal(self, request: str) -> LeaseExpired:
        """The error for a lease that is over, with its holder where it is still known."""
        lease = self._leases.get(request)
        whose = "" if lease is None else f" of {lease.asking.holder} (kind {lease.asking.kind!r})"
        return LeaseExpired(
            f"the lease{whose} is over: its holder was silent for {self.duration:g} s, held it for longer than "
            f"longest_hold, or the barrier was started anew (this is epoch {self.epoch}). Nothing was changed; open "
            "another section and look again."
        )

    def _put(self, lease: Lease) -> Lease:
        self._leases[lease.asking.request] = lease
        return lease

    def _live(self, request: str) -> Lease:
        lease = self._leases.get(request)
        if lease is None or lease.standing is LAPSED:
            raise self.refusal(request)
        return lease

    def _no_later(self, deadline: float, granted: float | None) -> float:
        if self.longest_hold is None or granted is None:
            return deadline
        return min(deadline, granted + self.longest_hold)
