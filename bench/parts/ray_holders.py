"""What the bench of the Ray barrier has in other processes; it must start quickly, so it imports no torch."""

from __future__ import annotations

import asyncio
import os

from impl import Cut
from impl.leases import HostedBarrier
from impl.ray import RayBarrier


class Counting:
    """The least that a host may have to do."""

    def __init__(self, barrier: HostedBarrier) -> None:
        self._count = 0

    def count(self, cut: Cut) -> int:
        """Once more."""
        self._count += 1
        return self._count


class Holder:
    """A process that is killed inside its slot."""

    def process(self) -> int:
        """Its number, to be killed by."""
        return os.getpid()

    async def hold(self, barrier: RayBarrier) -> None:
        """Enter a slot and never leave it."""
        async with barrier.mutation("held"):
            await asyncio.Event().wait()
