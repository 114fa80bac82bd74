"""Processes of the tests of the Ray barrier that must start quickly: writers, a part of its own, a host of nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import ray

from impl import Cut, GroupId, LeaseExpired
from impl.leases import HostedBarrier
from impl.ray import Fence, FenceOrder, RayBarrier, Token


class Counting:
    """The least that a host may have: how often it was asked."""

    def __init__(self, barrier: HostedBarrier) -> None:
        self._count = 0

    def count(self, cut: Cut) -> int:
        """Once more."""
        self._count += 1
        return self._count


async def refusal_of(attempt: Coroutine[Any, Any, Any]) -> str:
    """The name of the error, or what came back."""
    try:
        return repr(await attempt)
    except LeaseExpired as refused:
        return type(refused).__name__


class Writer:
    """A writer in a process of its own."""

    def process(self) -> int:
        return os.getpid()

    async def write_all(self, barrier: RayBarrier) -> list[GroupId]:
        """Take batches until there are none, and commit their groups."""
        done: list[GroupId] = []
        while True:
            async with barrier.mutation("admissions") as cut:
                groups = await cut.call("admit_batch")
            if not groups:
                return done
            for group in groups:
                await self.write(barrier, group)
            done += groups

    async def write(self, barrier: RayBarrier, group: GroupId) -> None:
        """Commit one group."""
        await barrier.ask("stage", group)
        async with barrier.mutation("group_commits") as cut:
            await cut.call("commit", group)

    async def hang_in_slot(self, barrier: RayBarrier) -> None:
        """Take a batch, and never leave the section."""
        async with barrier.mutation("admissions") as cut:
            await cut.call("admit_batch")
            await asyncio.Event().wait()

    async def hang_in_cut(self, barrier: RayBarrier) -> None:
        """Open a cut, and never close it."""
        async with barrier.checkpoint() as cut:
            await cut.call("owners")
            await asyncio.Event().wait()

    async def write_late(self, barrier: RayBarrier, group: GroupId, part: Any, started: Path) -> list[str]:
        """In a slot, be paused until after the lease, and try every way there is to write: what each answered."""
        await barrier.ask("stage", group)
        async with barrier.mutation("group_commits") as cut:
            await part.write.remote(cut.token, "in time")
            started.touch()
            while not started.with_suffix(".woken").exists():
                await asyncio.sleep(0.02)
            return [
                await refusal_of(cut.call("commit", group)),
                # Not looking at its own clock first, as a message does that was on its way.
                await refusal_of(self.past_the_clock(barrier, cut.token, group)),
                await part.write.remote(cut.token, "too late"),
            ]

    async def past_the_clock(self, barrier: RayBarrier, token: Token, group: GroupId) -> Any:
        return (await barrier._actor.call.remote(token, "commit", (group,))).taken()


class Part:
    """A part that keeps something of its own in a process of its own, behind a fence."""

    def __init__(self) -> None:
        self._fence = Fence()
        self._written: list[str] = []
        self._forgets = False

    async def obey(self, order: FenceOrder) -> FenceOrder | None:
        answer = self._fence.obey(order)
        return None if self._forgets else answer

    async def forget(self) -> None:
        """Answer no order from here on, as one that was written wrong."""
        self._forgets = True

    async def write(self, token: Token, what: str) -> str:
        try:
            self._fence.require(token)
        except LeaseExpired as refused:
            return type(refused).__name__
        self._written.append(what)
        return what

    async def written(self) -> list[str]:
        return self._written


def remote_writer() -> Any:
    return ray.remote(Writer).options(num_cpus=0).remote()


def remote_part(name: str | None = None) -> Any:
    return ray.remote(Part).options(num_cpus=0, name=name).remote()
