"""The actor that hosts the barrier: a thin shell over `impl.leases.LeaseHost`.

It lives in one process and one event loop. Ray may start it anew elsewhere (`max_restarts`): then `make_operations`
runs again, which restores what it must from the newest checkpoint, under a new and higher epoch, so that no lease from
before is good.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ray.exceptions import (
    ActorDiedError,
    ActorUnschedulableError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RuntimeEnvSetupError,
)

from ..barrier import BarrierStatistics
from ..errors import CleancutError, GuardUnreachable, HostUnreachable
from ..leases import Asking, FenceOrder, HostedBarrier, LeaseCounts, LeaseHost, LeaseTable, Token
from ..leases.host import TELL_AGAIN_SECONDS

logger = logging.getLogger("cleancut.barrier")

MakeOperations = Callable[[HostedBarrier], Any]

DIED: tuple[type[RayError], ...] = (ActorDiedError, OutOfMemoryError, ActorUnschedulableError, RuntimeEnvSetupError)
"""What Ray raises for an actor whose process is dead: not all of it is a RayActorError, as when Ray itself killed it
because memory ran low. Another process may be on its way."""
LOST: tuple[type[RayError], ...] = (RayActorError, *DIED)
"""What Ray raises for a call that an actor has not answered and will not."""


@dataclass(frozen=True)
class Settings:
    """What a barrier is started with; all in seconds."""

    name: str
    lease: float
    longest_hold: float | None
    drain_timeout: float | None
    hold_warning: float | None
    guard_timeout: float


@dataclass(frozen=True)
class Answer:
    """What a call of the actor gives: a value, or a refusal of ours, which travels as it is, not in Ray's wrapping."""

    value: Any = None
    refusal: CleancutError | None = None

    def taken(self) -> Any:
        """The value; raises the refusal."""
        if self.refusal is not None:
            raise self.refusal
        return self.value


class ActorGuard:
    """A part in an actor: its method `obey(order)` hands the order to its `Fence` and returns the answer."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    async def obey(self, order: FenceOrder) -> FenceOrder:
        """Tell it. A process that is dead takes no writes, and another in its place takes none before it is told."""
        try:
            answer: FenceOrder = await self._handle.obey.remote(order)
        except DIED as death:
            logger.warning("a part that checks tokens has died (%s); it is not waited for", type(death).__name__)
            return order
        except LOST as gone:
            raise ConnectionError(str(gone)) from gone
        return answer


class BarrierActor:
    """Hosts the barrier. Every method answers with an `Answer`."""

    def __init__(self, make_operations: MakeOperations, settings: Settings, guards: Sequence[Any]) -> None:
        self._make_operations = make_operations
        self._settings = settings
        self._guards = [ActorGuard(handle) for handle in guards]
        self._starting: asyncio.Task[LeaseHost] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def _host(self) -> LeaseHost:
        """The host, made at the first call: an actor has no loop before that."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> LeaseHost:
        settings = self._settings
        barrier = HostedBarrier(settings.name, settings.drain_timeout, settings.hold_warning)
        operations = self._make_operations(barrier)
        if inspect.isawaitable(operations):
            operations = await operations
        # The clock on the wall: it rises from one start of this actor to the next.
        table = LeaseTable(time.time_ns(), settings.lease, settings.longest_hold)
        host = LeaseHost(barrier, table, operations, self._guards, guard_timeout=settings.guard_timeout)
        while True:
            try:
                await host.announce()
                break
            except GuardUnreachable as silence:
                if not isinstance(silence.__cause__, OSError):
                    raise  # it is there, and not what it has to be: nobody is to wait for that
                logger.warning("barrier %r is not open yet: %s", settings.name, silence)
                await asyncio.sleep(TELL_AGAIN_SECONDS)
            except HostUnreachable:
                break  # a newer host has its place; this one refuses everything by itself
        self._watch = asyncio.create_task(host.watch(), name="ends the leases of silent holders")
        logger.info("barrier %r is hosted by process %d, epoch %d", settings.name, os.getpid(), table.epoch)
        return host

    async def _answer(self, work: Callable[[LeaseHost], Any]) -> Answer:
        try:
            result = work(await self._host())
            return Answer(await result if inspect.isawaitable(result) else result)
        except CleancutError as refusal:
            return Answer(refusal=refusal)

    async def acquire(self, asking: Asking) -> Answer:
        """Wait until a section is entered; its token, and the seconds that it is good."""

        async def granted(host: LeaseHost) -> tuple[Token, float]:
            token = await host.acquire(asking)
            return token, host.renew(asking.request)

        return await self._answer(granted)

    async def renew(self, request: str) -> Answer:
        """A heartbeat; the seconds that the lease has now."""
        return await self._answer(lambda host: host.renew(request))

    async def release(self, request: str) -> Answer:
        """Give a section back, or withdraw the request for it."""
        return await self._answer(lambda host: host.release(request))

    async def call(self, token: Token, operation: str, arguments: Sequence[Any]) -> Answer:
        """Run an operation in the section of a token."""
        return await self._answer(lambda host: host.call(token, operation, arguments))

    async def ask(self, operation: str, arguments: Sequence[Any]) -> Answer:
        """Run an operation outside of any lease."""
        return await self._answer(lambda host: host.ask(operation, arguments))

    async def announce(self) -> Answer:
        """Tell every guard which tokens are good."""
        return await self._answer(lambda host: host.announce())

    async def statistics(self) -> Answer:
        """Of the barrier, and of the leases; and the process that hosts them."""

        def reading(host: LeaseHost) -> tuple[BarrierStatistics, LeaseCounts, int]:
            return host.barrier.statistics(), host.counts, os.getpid()

        return await self._answer(reading)

    async def settings(self) -> Settings:
        """What it was started with."""
        return self._settings

    async def close(self, reason: str) -> Answer:
        """Refuse all later requests."""
        return await self._answer(lambda host: host.barrier.close(reason))


CALLS_AT_ONCE = 10_000
"""Calls that the actor has open at once, most of them of those who wait. Beyond that, heartbeats wait too.

Without concurrency groups: Ray gives each its own thread and event loop, and a barrier belongs to one.
"""
