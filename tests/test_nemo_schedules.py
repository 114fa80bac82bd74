"""impl.nemo in every schedule of two writers and a checkpoint, with a cancellation anywhere."""

import asyncio

import pytest

import interleavings
from impl.nemo import DataPlaneCheckpointBarrier
from interleavings.scenarios import register_barrier


async def program() -> None:
    """Two sections that span a remote call, one window, and a reading at the end."""
    barrier = DataPlaneCheckpointBarrier()
    inside = 0

    async def finalize() -> None:
        nonlocal inside
        async with barrier.mutation("group_commits") as cut:
            inside += 1
            try:
                await asyncio.sleep(0)
                cut.require_live()
            finally:
                inside -= 1

    async def save() -> None:
        async with barrier.checkpoint() as cut:
            assert inside == 0
            await asyncio.sleep(0)
            assert inside == 0
            cut.require_live()

    tasks = [asyncio.create_task(work) for work in (finalize(), finalize(), save())]
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()
    reading = await barrier.drain_telemetry()
    assert (reading.active_mutations, reading.waiting_mutations, reading.checkpoint_active) == (0, 0, False)
    assert sum(reading.blocked_by_kind.values()) == len(reading.wait_durations_s) <= 2
    async with barrier.checkpoint():
        assert barrier.mutation_version <= 2


@pytest.mark.parametrize("cancels", [0, 1])
def test_every_schedule_excludes_writers_from_the_window_and_leaves_nobody_inside(cancels: int) -> None:
    """The base is explored in the scenarios; this is what the swap adds: kinds, live cuts, waits that are counted."""
    register_barrier()
    result = interleavings.explore(program, cancels=cancels)
    result.assert_holds()
    assert result.complete
