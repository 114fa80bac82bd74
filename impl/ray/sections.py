"""The sections that a `RayBarrier` hands out, in the process of the holder: tokens that beat.

A heartbeat is a task on the holder's own event loop, from the request to the end. A loop that is blocked for longer
than the lease beats no more, and is taken for what it is: stalled. The token expires here too, before it does at the
host, by this process's own clock: a holder that was paused finds out at its next write, without asking.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from ray.exceptions import RayActorError

from ..barrier.admission import ENDED, LIVE, NEW
from ..barrier.cut import HELD, Cut, Nested, outer_sections
from ..errors import LeaseExpired, UsageError
from ..leases import Asking, Token

if TYPE_CHECKING:
    from .barrier import RayBarrier

logger = logging.getLogger("cleancut.barrier")

BEATS_IN_A_LEASE = 4
"""Heartbeats in the time of one lease: a few may be late or lost."""


class RayCut(Cut):
    """A section of either side, and its token: `async with barrier.mutation(kind) as cut`."""

    __slots__ = ("_beat", "_good_until", "_lost", "_request", "timeout", "token")

    barrier: RayBarrier
    timeout: Any
    token: Token
    """What a part in another process is given with a write, for its `Fence.require`."""
    # Why the lease is over, once that is known here.
    _lost: LeaseExpired | None
    # By this process's clock; no later than by the host's.
    _good_until: float
    _request: str
    _beat: asyncio.Task[None]

    def require(self, barrier: object, exclusive: bool = False) -> None:
        """As of any cut; LeaseExpired, which is a StaleCut, when the lease is over as far as is known here."""
        super().require(barrier, exclusive)
        if self._lost is not None or monotonic() >= self._good_until:
            raise self._lost or LeaseExpired(
                f"a cut of barrier {self.barrier.name!r} (kind {self.kind!r}, opened at {self.place}) was used, but "
                f"this process was not heard of for {self.barrier.lease:g} s: its lease is over. It was paused, its "
                "event loop was blocked, or the host cannot be reached. Open another section and look again."
            )

    async def call(self, operation: str, *arguments: Any) -> Any:
        """Run an operation in the host's process with the cut of this section, and return what it returns.

        It happens as a whole or not at all, also when this process dies now. LeaseExpired, and nothing done, when the
        lease is over. What moves together goes into one operation. Cancelled, it may happen all the same.
        """
        self.require(self.barrier)
        try:
            return (await self.barrier._actor.call.remote(self.token, operation, arguments)).taken()
        except RayActorError as gone:
            self._lost = LeaseExpired(
                f"the process that hosts barrier {self.barrier.name!r} was lost during operation {operation!r}, and "
                "the lease with it. Started anew, it goes on from its newest checkpoint: whatever was written since "
                "then, by this operation too, is undone. Open another section and look again."
            )
            raise self._lost from gone

    async def __aenter__(self) -> RayCut:
        if self.standing is not NEW:
            raise UsageError(
                f"a section (kind {self.kind!r}) was entered twice, but each is for one use. Ask for a new one."
            )
        barrier = self.barrier
        outer = outer_sections(HELD.get(), barrier)
        self._request = uuid4().hex
        self._lost = None
        self._good_until = monotonic() + barrier.lease
        asking = Asking(self._request, barrier._holder(), self.kind, self.place, self.exclusive, self.timeout)
        self._beat = asyncio.create_task(self._beats(), name=f"beats for {self.kind}", context=Context())
        try:
            self.token = await barrier._acquire(asking)
            if monotonic() > self._good_until - barrier.lease / 2:
                # No heartbeat was answered lately: the host was busy, or is a new one.
                await self._heartbeat()
        except BaseException:
            # Whatever ended the wait: the host forgets the request, and a grant that is on its way.
            self._give_back()
            raise
        self.standing = LIVE
        HELD.set(self if outer is None else Nested(self, outer))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the section back. Nothing is awaited, so no cancellation can keep it; a lost message lets it lapse."""
        self._give_back()

    def _give_back(self) -> None:
        self.standing = ENDED
        self._beat.cancel()
        self.barrier._actor.release.remote(self._request)

    async def _beats(self) -> None:
        """Say that the holder lives, until the section ends or its lease is over."""
        while self._lost is None:
            await asyncio.sleep(self.barrier.lease / BEATS_IN_A_LEASE)
            # Messages may overtake: one sent before the grant can reach a host that does not know the request yet, or
            # is being started anew. What became of a request its own answer says.
            granted = self.standing is LIVE
            try:
                await self._heartbeat()
            except (LeaseExpired, RayActorError) as over:
                if granted:
                    self._lose(over)

    def _lose(self, cause: Exception) -> None:
        if isinstance(cause, LeaseExpired):
            self._lost = cause
        else:
            self._lost = LeaseExpired(f"the process that hosts barrier {self.barrier.name!r} was lost: {cause}")
        if self.standing is LIVE:
            logger.warning("a section of barrier %r is over before its end: %s", self.barrier.name, self._lost)

    async def _heartbeat(self) -> None:
        """One, good for a lease from the moment of sending, so that it is over here no later than at the host."""
        sent = monotonic()
        (await self.barrier._actor.renew.remote(self._request)).taken()
        self._good_until = max(self._good_until, sent + self.barrier.lease)


class RayMutation(RayCut):
    """A shared section."""

    __slots__ = ()


class RayCheckpoint(RayCut):
    """The exclusive section."""

    __slots__ = ()

    exclusive: ClassVar[bool] = True
