"""The sections that a `RayBarrier` hands out, in the process of the holder: tokens that beat.

A heartbeat is a task on the holder's own event loop, from the request to the end. A loop that is blocked for longer
than the lease beats no more, and is taken for what it is: stalled. The token expires here too, before it does at the
host, by this process's own clock: a holder that was paused finds out at its next write, without asking. Each answer of
the host says for how long it is good, and that is counted from before the question was sent.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio.events import _get_running_loop
from contextlib import suppress
from contextvars import Context
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import ray
from ray.exceptions import RayError

from ..barrier.admission import ENDED, LIVE, NEW
from ..barrier.cut import HELD, Cut, Nested, outer_sections
from ..errors import CleancutError, LeaseExpired, UsageError
from ..leases import Asking, Token
from .actor import LOST

if TYPE_CHECKING:
    from .barrier import RayBarrier

logger = logging.getLogger("cleancut.barrier")

BEATS_IN_A_LEASE = 4
"""Heartbeats in the time of one lease: a few may be late or lost."""

ASK_AGAIN_SECONDS = 0.2
"""How long to wait before the host is asked again while it is being started anew."""


class RayCut(Cut):
    """A section of either side, and its token: `async with barrier.mutation(kind) as cut`."""

    __slots__ = ("_beat", "_good_until", "_heard", "_lost", "_request", "timeout", "token")

    barrier: RayBarrier
    timeout: Any
    token: Token
    """What a part in another process is given with a write, for its `Fence.require`."""
    # Why the lease is over, once that is known here.
    _lost: LeaseExpired | None
    # By this process's clock; no later than by the host's. From the grant on.
    _good_until: float
    # When the newest question was sent that the host has answered, with a refusal or not.
    _heard: float
    _request: str
    _beat: asyncio.Task[None]

    def require(self, barrier: object, exclusive: bool = False) -> None:
        """As of any cut; LeaseExpired, which is a StaleCut, when the lease is over as far as is known here."""
        super().require(barrier, exclusive)
        if self._lost is not None or monotonic() >= self._good_until:
            raise self._lost or LeaseExpired(
                f"a cut of barrier {self.barrier.name!r} (kind {self.kind!r}, opened at {self.place}) was used, but "
                f"its lease is over: this process was not heard of for {self.barrier.lease:g} s, since it was paused, "
                "its event loop was blocked or the host cannot be reached; or the section was open for longest_hold. "
                "Open another section and look again."
            )

    async def call(self, operation: str, *arguments: Any) -> Any:
        """Run an operation in the host's process with the cut of this section, and return what it returns.

        It happens as a whole or not at all, also when this process dies now. LeaseExpired, and nothing done, when the
        lease is over. What moves together goes into one operation. Cancelled, it may happen all the same.
        """
        self.require(self.barrier)
        try:
            return (await self.barrier._actor.call.remote(self.token, operation, arguments)).taken()
        except LeaseExpired as over:
            self._lost = over
            raise
        except LOST as gone:
            self._lost = LeaseExpired(
                f"the process that hosts barrier {self.barrier.name!r} was lost, or cannot be reached, during "
                f"operation {operation!r}, and the lease with it: whether it happened is not known here. Started anew, "
                "the host goes on from its newest checkpoint, and whatever was written since then is undone. Open "
                "another section and look again."
            )
            raise self._lost from gone

    async def __aenter__(self) -> RayCut:
        if self.standing is not NEW:
            raise UsageError(
                f"a section (kind {self.kind!r}) was entered twice, but each is for one use. Ask for a new one."
            )
        barrier = self.barrier
        barrier._require_loop()
        outer = outer_sections(HELD.get(), barrier)
        self._request = uuid4().hex
        self._lost = None
        self._heard = monotonic()
        asking = Asking(self._request, barrier._holder(), self.kind, self.place, self.exclusive, self.timeout)
        self._beat = asyncio.create_task(self._beats(), name=f"beats for {self.kind}", context=Context())
        try:
            sent, self.token, left = await self._granted(asking)
            self._good_until = sent + left
            if monotonic() > self._good_until - left / 2:
                # It waited, and the answer is about a time that is nearly over.
                await self._say_that_it_lives()
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
        loop = self._beat.get_loop()
        if _get_running_loop() is loop:
            self._beat.cancel()
        else:
            # By the collector, which found the holder abandoned, in whatever thread. Its loop may be closed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._beat.cancel)
        try:
            if ray.is_initialized():  # else this would start another one
                self.barrier._actor.release.remote(self._request)
        except Exception:
            # The lease lapses; what ended the section must not be hidden by that.
            logger.warning("the end of a section of barrier %r could not be told", self.barrier.name, exc_info=True)

    async def _granted(self, asking: Asking) -> tuple[float, Token, float]:
        """Ask until it is granted or refused: when that was sent, the token, and the seconds that it is good then.

        The request has a name, so asking again asks for the same one. The patience with a host that is gone counts
        from when that was noticed, however long the request had waited before.
        """
        patience = self.barrier.patience
        gone_since: float | None = None
        while True:
            sent = monotonic()
            try:
                token, left = (await self.barrier._actor.acquire.remote(asking)).taken()
            except LOST as gone:
                if gone_since is None or self._heard > gone_since:
                    gone_since = monotonic()
                if patience is not None and monotonic() - gone_since >= patience:
                    raise self.barrier._unreachable(gone) from gone
                await asyncio.sleep(ASK_AGAIN_SECONDS)
            else:
                return sent, token, left

    async def _beats(self) -> None:
        """Say that the holder lives, until the section ends or its lease is over."""
        while self._lost is None:
            await asyncio.sleep(self.barrier.lease / BEATS_IN_A_LEASE)
            # Messages may overtake: one sent before the grant can reach a host that does not know the request yet, or
            # is being started anew. What became of a request its own answer says.
            if self.standing is LIVE:
                with suppress(LeaseExpired):
                    await self._say_that_it_lives()
            else:
                with suppress(CleancutError, RayError):
                    await self._heartbeat()

    async def _say_that_it_lives(self) -> None:
        """A heartbeat of a section that is granted. LeaseExpired, and it is lost, when the answer is no or none."""
        try:
            sent, left = await self._heartbeat()
        except (CleancutError, RayError) as cause:
            self._lose(cause)
            assert self._lost is not None
            raise self._lost from cause
        self._good_until = max(self._good_until, sent + left)

    async def _heartbeat(self) -> tuple[float, float]:
        """One: when it was sent, and the seconds that the lease has from then on, so that it ends here no later."""
        sent = monotonic()
        answer = await self.barrier._actor.renew.remote(self._request)
        self._heard = sent
        return sent, answer.taken()

    def _lose(self, cause: Exception) -> None:
        if isinstance(cause, LeaseExpired):
            self._lost = cause
        else:
            self._lost = LeaseExpired(f"the process that hosts barrier {self.barrier.name!r} was lost: {cause}")
        if self.standing is LIVE:
            logger.warning("a section of barrier %r is over before its end: %s", self.barrier.name, self._lost)


class RayMutation(RayCut):
    """A shared section."""

    __slots__ = ()


class RayCheckpoint(RayCut):
    """The exclusive section."""

    __slots__ = ()

    exclusive: ClassVar[bool] = True
