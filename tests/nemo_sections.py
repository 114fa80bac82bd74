"""Sections of the barrier for NeMo-RL, for its tests: opened once, held, and whether nobody is left."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Literal

from loop_turns import turns

from impl.nemo import DataPlaneCheckpointBarrier, DataPlaneMutationCut

Side = Literal["mutation", "checkpoint"]


def section(barrier: DataPlaneCheckpointBarrier, side: Side) -> AbstractAsyncContextManager[DataPlaneMutationCut]:
    return barrier.mutation() if side == "mutation" else barrier.checkpoint()


class Remover:
    """A task that holds a mutation of kind `group_removals` until it is told to leave."""

    def __init__(self, barrier: DataPlaneCheckpointBarrier, name: str | None) -> None:
        self.leave = asyncio.Event()
        self.inside = False
        self.barrier = barrier
        self.task = asyncio.create_task(self._hold(), name=name)

    async def _hold(self) -> None:
        async with self.barrier.mutation("group_removals"):
            self.inside = True
            await self.leave.wait()
            self.inside = False

    async def finish(self) -> None:
        self.leave.set()
        await self.task


async def removing(barrier: DataPlaneCheckpointBarrier, name: str | None = None) -> Remover:
    """A `Remover` that has entered, or waits to."""
    remover = Remover(barrier, name)
    await turns(3)
    return remover


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def once(barrier: DataPlaneCheckpointBarrier, side: Side) -> None:
    async with section(barrier, side):
        pass


async def idle(barrier: DataPlaneCheckpointBarrier) -> bool:
    """Nobody holds or waits, and both sides open."""
    reading = await barrier.drain_telemetry()
    await once(barrier, "mutation")
    await once(barrier, "checkpoint")
    return (reading.active_mutations, reading.waiting_mutations, reading.checkpoint_active) == (0, 0, False)
