"""A host of leases in virtual time: what the tests of it share. Hours of silence take no time."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from jumping_clock import run_in_virtual_time

from impl import UNSET, Cut, Key, Ledger, PromptLoader
from impl.leases import Asking, Fence, FenceOrder, HostedBarrier, LeaseHost, LeaseTable, Token

LEASE = 10.0


class Operations:
    """What holders may ask for: a loader and a ledger, moved together."""

    def __init__(self, barrier: HostedBarrier) -> None:
        self.barrier = barrier
        self.ledger = Ledger(barrier)
        self.loader = PromptLoader(list(range(100)), batch_size=2, seed=0)

    def reserve(self, cut: Cut) -> list[Key]:
        batch = self.loader.next_batch(cut)
        assert batch is not None
        self.ledger.reserve(cut, batch.keys)
        return list(batch.keys)

    def owned(self, cut: Cut) -> tuple[int, int]:
        cut.require(self.barrier, exclusive=True)
        return self.loader.state().position, len(self.ledger.snapshot(cut, ()).entries)

    async def slow(self, cut: Cut) -> None:
        await asyncio.sleep(1)

    async def save(self) -> tuple[int, int]:
        async with self.barrier.checkpoint() as cut:
            return self.owned(cut)


class Part:
    """A part in another process, as the host sees it."""

    def __init__(self, delay: float = 0.0) -> None:
        self.fence = Fence()
        self.delay = delay
        self.answers = True
        self.told: list[FenceOrder] = []

    async def obey(self, order: FenceOrder) -> FenceOrder:
        await asyncio.sleep(self.delay)
        if not self.answers:
            raise ConnectionError("no route")
        self.told.append(order)
        return self.fence.obey(order)


Program = Callable[[], Coroutine[Any, Any, None]]


def in_virtual_time(test: Program) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        run_in_virtual_time(test())

    del run.__wrapped__
    return run


@asynccontextmanager
async def hosting(*parts: Part, drain_timeout: float | None = None, longest_hold: float | None = None, epoch: int = 1):  # type: ignore[no-untyped-def]
    """A host that watches its leases."""
    barrier = HostedBarrier("tested", drain_timeout)
    clock = asyncio.get_running_loop().time
    table = LeaseTable(epoch, LEASE, longest_hold)
    host = LeaseHost(barrier, table, Operations(barrier), parts, guard_timeout=30.0, clock=clock)
    await host.announce()
    watch = asyncio.create_task(host.watch())
    try:
        yield host
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


def slot(request: str) -> Asking:
    return Asking(request, f"writer {request}", "writes", "writer.py:7")


def cut(request: str, timeout: Any = UNSET) -> Asking:
    return Asking(request, f"saver {request}", "checkpoint", "saver.py:9", True, timeout)


async def beating(host: LeaseHost, request: str, seconds: float) -> None:
    """Be heard of for so long."""
    for _ in range(int(seconds / 2)):
        await asyncio.sleep(2)
        host.renew(request)


async def saving(host: LeaseHost, request: str) -> Token:
    """A cut whose holder is heard of while it waits."""
    beats = asyncio.create_task(beating(host, request, 1000))
    try:
        return await host.acquire(cut(request))
    finally:
        beats.cancel()


def now() -> float:
    return asyncio.get_running_loop().time()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
