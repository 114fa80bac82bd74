"""Sections of the barrier for NeMo-RL, for its tests: opened once, held, and whether nobody is left."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Literal

from impl import CheckpointBarrier, Cut
from impl.nemo import DataPlaneCheckpointBarrier, DataPlaneMutationCut

Side = Literal["mutation", "checkpoint"]


def section(barrier: DataPlaneCheckpointBarrier, side: Side) -> AbstractAsyncContextManager[DataPlaneMutationCut]:
    return barrier.mutation() if side == "mutation" else barrier.checkpoint()


def removal(barrier: CheckpointBarrier) -> AbstractAsyncContextManager[Cut]:
    """A side for `barrier_holders.Holder`, with a kind that this barrier knows."""
    return barrier.mutation("group_removals")


async def once(barrier: DataPlaneCheckpointBarrier, side: Side) -> None:
    async with section(barrier, side):
        pass


async def idle(barrier: DataPlaneCheckpointBarrier) -> bool:
    """Nobody holds or waits, and both sides open."""
    reading = await barrier.drain_telemetry()
    await once(barrier, "mutation")
    await once(barrier, "checkpoint")
    return (reading.active_mutations, reading.waiting_mutations, reading.checkpoint_active) == (0, 0, False)
