"""Neither side starves the other."""

from __future__ import annotations

from barrier_holders import Open, exclusive, is_idle, shared
from front_ends import FrontEnd, on_both_front_ends

from impl.barrier import BarrierFrontEnd


async def forever(front: FrontEnd, barrier: BarrierFrontEnd, side: Open, counts: list[int], me: int) -> None:
    while True:
        async with side(barrier):
            await front.sleep(0)
        counts[me] += 1


@on_both_front_ends
async def test_neither_side_starves_in_a_tight_loop(front: FrontEnd) -> None:
    """Two checkpointers and two mutators as fast as they can: each side has at least 30 % of the sections."""
    barrier = front.barrier()
    counts = [0, 0, 0, 0]
    tasks = [
        front.start(forever, front, barrier, side, counts, me)
        for me, side in enumerate((exclusive, exclusive, shared, shared))
    ]
    await front.turns(3000)
    for task in tasks:
        await task.cancel_and_wait()
    checkpoints, mutations = counts[0] + counts[1], counts[2] + counts[3]
    assert min(checkpoints, mutations) >= 0.3 * (checkpoints + mutations), counts
    assert all(counts)
    assert await is_idle(barrier)


async def empty_forever(barrier: BarrierFrontEnd, counts: list[int], me: int) -> None:
    while True:
        async with barrier.checkpoint():
            pass
        counts[me] += 1


@on_both_front_ends
async def test_checkpoints_without_a_body_do_not_starve_writers(front: FrontEnd) -> None:
    """The loop that once did 147,597 checkpoints to no mutation."""
    barrier = front.barrier()
    counts = [0, 0, 0, 0]
    tasks = [front.start(empty_forever, barrier, counts, me) for me in range(2)]
    tasks += [front.start(forever, front, barrier, shared, counts, me) for me in (2, 3)]
    await front.turns(3000)
    for task in tasks:
        await task.cancel_and_wait()
    checkpoints, mutations = counts[0] + counts[1], counts[2] + counts[3]
    assert min(checkpoints, mutations) >= 0.3 * (checkpoints + mutations), counts


@on_both_front_ends
async def test_case_B12_a_stream_of_writers_does_not_keep_a_checkpoint_out(front: FrontEnd) -> None:
    """It opens once the holders of the request have left, and the writers go on afterwards."""
    barrier = front.barrier()
    counts = [0, 0, 0]
    tasks = [front.start(forever, front, barrier, shared, counts, me) for me in range(3)]
    await front.turns(10)

    async def save() -> tuple[list[int], list[int]]:
        at_request = list(counts)
        async with barrier.checkpoint():
            return at_request, list(counts)

    at_request, at_cut = await front.start(save).value()
    assert all(after - before <= 1 for before, after in zip(at_request, at_cut, strict=True))
    await front.turns(20)
    assert all(now > then for now, then in zip(counts, at_cut, strict=True))
    for task in tasks:
        await task.cancel_and_wait()
