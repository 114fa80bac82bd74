"""Counted permits, first come first served, that no cancellation can lose.

`asyncio.Semaphore` has been wrong on both counts in several Python versions (a cancel at the hand-over left a permit
unusable, or let a late arrival overtake), so the library has its own. A returned permit is handed to the oldest waiter
synchronously: from that moment it counts as held by it, and a waiter that is cancelled before it resumes gives it back
in its own handler. Nothing here awaits while a count is half changed.
"""

from __future__ import annotations

import asyncio
from collections import deque

from cleancut_leaf.words import counted

from ..arguments import require_count, require_kind
from ..errors import InvariantViolated, UsageError


class Permit:
    """The right to one place. Held from `acquire` until `give_back`, or until it is spent on a place."""

    __slots__ = ("_pool", "_spent")

    def __init__(self, pool: PermitPool) -> None:
        self._pool = pool
        self._spent = False

    @property
    def spent(self) -> bool:
        """Whether this permit was given back, or belongs to a place now."""
        return self._spent

    def give_back(self) -> None:
        """Return the permit to its pool unless it is spent; synchronous, fit for a `finally`."""
        if not self._spent:
            self._spent = True
            self._pool.return_permit()

    def spend(self, pool: PermitPool) -> None:
        """Turn the permit into a place of `pool`, which is returned later with `pool.return_place()`."""
        if self._pool is not pool:
            raise UsageError(
                f"this permit was acquired from '{self._pool.name}' and was presented to '{pool.name}'. "
                "Permits of two buffers were mixed up; acquire it from the object that it is given to."
            )
        if self._spent:
            raise InvariantViolated(
                f"a permit of '{pool.name}' was used twice. It had been given back or spent before; "
                "acquire one permit for each group."
            )
        self._spent = True
        pool.place_permit()


def require_permit(permit: object) -> None:
    """UsageError unless this is a permit, of whichever pool."""
    require_kind("permit", permit, Permit, "what `acquire_permit` returned")


class PermitPool:
    """`capacity` permits in a first come first served queue."""

    # Invariant permits_balance: free + unspent + placed = capacity, and nobody waits while a permit is free.
    # Unspent permits are with a holder, or on their way to a waiter that has not resumed.
    _free: int
    _unspent: int
    _placed: int

    def __init__(self, capacity: int, name: str) -> None:
        self.capacity = require_count(f"{name}: the capacity", capacity, least=1)
        self.name = name
        self._free = capacity
        self._unspent = 0
        self._placed = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def free(self) -> int:
        """Permits that nobody holds."""
        return self._free

    @property
    def unspent(self) -> int:
        """Permits with a holder that has neither spent nor returned them."""
        return self._unspent

    @property
    def placed(self) -> int:
        """Permits that belong to a place."""
        return self._placed

    @property
    def waiting(self) -> int:
        """Waiters that no permit was handed to yet."""
        return sum(not waiter.done() for waiter in self._waiters)

    async def acquire(self) -> Permit:
        """Take a permit, in arrival order; a cancelled wait leaves the pool as it was."""
        if self._free:
            self._grant()
            return Permit(self)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.return_permit()
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise
        return Permit(self)

    def take_places(self, count: int) -> None:
        """Turn `count` free permits into places at once, for places that exist already (a restored buffer)."""
        if count > self._free:
            raise InvariantViolated(
                f"{counted(count, 'permit')} of '{self.name}' would have to be free, and {self._free} of "
                f"{self.capacity} are. The restored state does not fit; its size has to be checked before anything is "
                "loaded."
            )
        self._free -= count
        self._placed += count

    def place_permit(self) -> None:
        """Count one unspent permit as a place; `Permit.spend` calls it."""
        self._unspent -= 1
        self._placed += 1

    def return_permit(self) -> None:
        """Return one unspent permit; `Permit.give_back` calls it."""
        self._unspent -= 1
        self._hand_over()

    def return_place(self) -> None:
        """Return the permit of a place that is gone. Synchronous, so that it can stand inside a slot."""
        self._placed -= 1
        self._hand_over()

    def _hand_over(self) -> None:
        self._free += 1
        self.check()
        while self._waiters:
            waiter = self._waiters.popleft()
            # A waiter that is done was cancelled and has not cleaned up yet: nothing may be spent on it.
            if not waiter.done():
                self._grant()
                waiter.set_result(None)
                return

    def _grant(self) -> None:
        self._free -= 1
        self._unspent += 1

    def check(self) -> None:
        """Raise InvariantViolated unless free + unspent + placed = capacity, none of them negative."""
        counts = (self._free, self._unspent, self._placed)
        if min(counts) < 0 or sum(counts) != self.capacity:
            raise InvariantViolated(
                f"permits of '{self.name}' do not balance: {self._free} free + {self._unspent} held + "
                f"{self._placed} in places is not {self.capacity}. One was returned twice, or lost; this is a fault "
                "of the library, not of its caller."
            )
