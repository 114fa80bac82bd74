"""Neither side starves the other."""

from __future__ import annotations

import asyncio

from barrier_holders import Open, cancelled, exclusive, is_idle, shared
from loop_turns import turns

from impl import CheckpointBarrier


async def forever(barrier: CheckpointBarrier, side: Open, counts: list[int], me: int) -> None:
    while True:
        async with side(barrier):
            await asyncio.sleep(0)
        counts[me] += 1


async def test_neither_side_starves_in_a_tight_loop() -> None:
    """Two checkpointers and two mutators as fast as they can: each side has at least 30 % of the sections."""
    barrier = CheckpointBarrier()
    counts = [0, 0, 0, 0]
    tasks = [
        asyncio.create_task(forever(barrier, side, counts, me))
        for me, side in enumerate((exclusive, exclusive, shared, shared))
    ]
    await turns(3000)
    for task in tasks:
        await cancelled(task)
    checkpoints, mutations = counts[0] + counts[1], counts[2] + counts[3]
    assert min(checkpoints, mutations) >= 0.3 * (checkpoints + mutations), counts
    assert all(counts)
    assert await is_idle(barrier)


async def empty_forever(barrier: CheckpointBarrier, counts: list[int], me: int) -> None:
    while True:
        async with barrier.checkpoint():
            pass
        counts[me] += 1


async def test_checkpoints_without_a_body_do_not_starve_writers() -> None:
    """The loop that once did 147,597 checkpoints to no mutation."""
    barrier = CheckpointBarrier()
    counts = [0, 0, 0, 0]
    tasks = [asyncio.create_task(empty_forever(barrier, counts, me)) for me in range(2)]
    tasks += [asyncio.create_task(forever(barrier, shared, counts, me)) for me in (2, 3)]
    await turns(3000)
    for task in tasks:
        await cancelled(task)
    checkpoints, mutations = counts[0] + counts[1], counts[2] + counts[3]
    assert min(checkpoints, mutations) >= 0.3 * (checkpoints + mutations), counts


async def test_case_B12_a_stream_of_writers_does_not_keep_a_checkpoint_out() -> None:
    """It opens once the holders of the request have left, and the writers go on afterwards."""
    barrier = CheckpointBarrier()
    counts = [0, 0, 0]
    tasks = [asyncio.create_task(forever(barrier, shared, counts, me)) for me in range(3)]
    await turns(10)
    at_request: list[int] = []

    async def save() -> list[int]:
        async with barrier.checkpoint():
            return list(counts)

    saver = asyncio.create_task(save())
    while not barrier.statistics().waiting_checkpoints:
        await turns(1)
    at_request = list(counts)
    at_cut = await saver
    assert all(after - before <= 1 for before, after in zip(at_request, at_cut, strict=True))
    await turns(20)
    assert all(now > then for now, then in zip(counts, at_cut, strict=True))
    for task in tasks:
        await cancelled(task)
