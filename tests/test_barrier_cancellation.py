"""Sections under cancellation: whatever is cancelled, and whenever, the barrier is as it should be."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from barrier_holders import Holder, Open, cancelled, entering, exclusive, holding, is_idle, shared
from loop_turns import turns

from impl import CheckpointBarrier

BOTH_SIDES = pytest.mark.parametrize("side", [shared, exclusive])


async def test_case_B01_a_grant_spent_on_a_cancelled_waiter_is_passed_on() -> None:
    """Release and cancel meet in one turn, in every order: a remaining waiter always proceeds."""
    events = ("release", "cancel first", "cancel second", "new waiter")
    for order in itertools.permutations(events):
        for waiting, held in ((shared, exclusive), (exclusive, shared), (exclusive, exclusive)):
            barrier = CheckpointBarrier()
            holder = await holding(barrier, held)
            first = await holding(barrier, waiting)
            second = await holding(barrier, waiting)
            third: Holder | None = None
            for event in order:
                if event == "release":
                    holder.leave.set()
                elif event == "cancel first":
                    first.task.cancel()
                elif event == "cancel second":
                    second.task.cancel()
                else:
                    third = Holder(barrier, waiting)
            await turns()
            assert third is not None
            assert third.inside, (order, waiting, held)
            await third.finish()
            assert first.task.cancelled()
            assert second.task.cancelled()
            assert await is_idle(barrier)


async def test_case_B01_one_cancelled_waiter_leaves_the_other_its_turn() -> None:
    """The smallest form: two wait, one slot is released, and the first waiter is cancelled in the same turn."""
    for cancel_first in (True, False):
        barrier = CheckpointBarrier()
        holder = await holding(barrier, shared)
        first, second = await holding(barrier, exclusive), await holding(barrier, exclusive)
        if cancel_first:
            first.task.cancel()
        holder.leave.set()
        if not cancel_first:
            first.task.cancel()
        await turns()
        assert second.inside
        await second.finish()


async def test_case_B02_a_cancelled_waiter_strands_nobody_behind_it() -> None:
    """No further release ever happens: the release that met the dead entry has to be enough."""
    for held, sides in (
        (shared, (exclusive, exclusive)),
        (shared, (exclusive, shared)),
        (exclusive, (shared, shared)),
        (exclusive, (shared, exclusive)),
        (exclusive, (exclusive, shared)),
    ):
        barrier = CheckpointBarrier()
        holder = await holding(barrier, held)
        first, second = await holding(barrier, sides[0]), await holding(barrier, sides[1])
        first.task.cancel()
        await holder.finish()
        await turns()
        assert second.inside, (held, sides)
        await second.finish()
        assert await is_idle(barrier)


async def test_case_B03_survivors_are_served_in_order_of_arrival() -> None:
    """Five queued checkpoints, every set of them cancelled at the hand-over; the third task then gets in too."""
    for victims in itertools.chain.from_iterable(itertools.combinations(range(5), count) for count in range(5)):
        barrier = CheckpointBarrier()
        served: list[int] = []

        async def waiter(number: int, barrier: CheckpointBarrier = barrier, served: list[int] = served) -> None:
            async with barrier.checkpoint():
                served.append(number)

        holder = await holding(barrier, exclusive)
        tasks = [asyncio.create_task(waiter(number)) for number in range(5)]
        await turns(2)
        holder.leave.set()
        await turns(1)
        for victim in victims:
            tasks[victim].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        survivors = [number for number in range(5) if number not in victims]
        assert [number for number in served if number in survivors] == survivors
        assert served == sorted(served)
        assert await is_idle(barrier)


@BOTH_SIDES
@pytest.mark.parametrize("cancel_first", [True, False])
async def test_case_B04_a_cancellation_that_meets_the_grant_is_not_swallowed(side: Open, cancel_first: bool) -> None:
    """Either cancelled with nothing held, or inside with the cancellation seen at the next await; never neither."""
    barrier = CheckpointBarrier()
    holder = await holding(barrier, exclusive)
    waiter = await holding(barrier, side)
    if cancel_first:
        waiter.task.cancel()
    holder.leave.set()
    await turns(1)
    if not cancel_first:
        waiter.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter.task
    assert not waiter.inside
    assert await is_idle(barrier)


@BOTH_SIDES
@pytest.mark.parametrize("contended", [False, True])
async def test_case_B05_a_cancellation_at_any_await_of_an_entry_leaves_no_slot_taken(
    side: Open, contended: bool
) -> None:
    """The entry is driven step by step; at each of its awaits the cancellation is thrown exactly there."""
    for awaits in range(4):
        barrier = CheckpointBarrier()
        holder = await holding(barrier, exclusive) if contended else None
        entered: list[bool] = []
        task = asyncio.create_task(entering(barrier, side, entered))
        await turns(awaits)
        if not task.done():
            await cancelled(task)
        if holder is not None:
            await holder.finish()
        await turns()
        assert await is_idle(barrier)


async def test_case_B07_a_cancelled_exclusive_request_subtracts_nothing() -> None:
    """Counters are back at zero, and both sides work, whichever end the request met."""
    barrier = CheckpointBarrier()
    writer = await holding(barrier, shared)
    saver = await holding(barrier, exclusive)
    await cancelled(saver.task)
    figures = barrier.statistics()
    assert (figures.active_mutations, figures.waiting_checkpoints) == (1, 0)
    await writer.finish()
    assert await is_idle(barrier)


async def test_case_B08_the_last_queued_checkpoint_reopens_the_gate_when_it_is_cancelled() -> None:
    """The three that wait proceed at once, while the writer is still inside."""
    barrier = CheckpointBarrier()
    writer = await holding(barrier, shared)
    saver = await holding(barrier, exclusive)
    blocked = [await holding(barrier, shared) for _ in range(3)]
    assert not any(each.inside for each in blocked)
    await cancelled(saver.task)
    await turns(1)
    assert all(each.inside for each in blocked)
    assert writer.inside
    for each in (writer, *blocked):
        await each.finish()


@pytest.mark.parametrize("withdrawn", [0, 1])
async def test_case_B08_with_another_checkpoint_queued_the_gate_stays_shut(withdrawn: int) -> None:
    """The three stay where they are until the remaining checkpoint was served."""
    barrier = CheckpointBarrier()
    writer = await holding(barrier, shared)
    savers = [await holding(barrier, exclusive) for _ in range(2)]
    blocked = [await holding(barrier, shared) for _ in range(3)]
    await cancelled(savers[withdrawn].task)
    await turns()
    assert not any(each.inside for each in blocked)
    await writer.finish()
    await turns()
    remaining = savers[1 - withdrawn]
    assert remaining.inside
    assert not any(each.inside for each in blocked)
    await remaining.finish()
    await turns(1)
    assert all(each.inside for each in blocked)
    for each in blocked:
        await each.finish()


@BOTH_SIDES
async def test_case_B25_the_same_cancellation_comes_out_and_the_invariants_hold_in_the_handler(side: Open) -> None:
    """Message and identity survive, both when still waiting and when granted meanwhile."""
    for granted in (False, True):
        barrier = CheckpointBarrier()
        seen: list[tuple[BaseException, int, int]] = []

        async def wait(barrier: CheckpointBarrier = barrier, seen: list[Any] = seen) -> None:
            try:
                async with side(barrier):
                    pass
            except asyncio.CancelledError as error:
                figures = barrier.statistics()
                seen.append((error, figures.waiting_mutations, figures.waiting_checkpoints))  # noqa: B023
                raise

        holder = await holding(barrier, exclusive)
        task = asyncio.create_task(wait())
        await turns(2)
        if granted:
            holder.leave.set()
        task.cancel("the message")
        with pytest.raises(asyncio.CancelledError, match="the message") as raised:
            await task
        assert len(seen) == 1
        error, mutations, checkpoints = seen[0]
        assert error is raised.value
        assert error.args == ("the message",)
        assert (mutations, checkpoints) == (0, 0)
        if not granted:
            await holder.finish()
        await turns()
        assert await is_idle(barrier)


async def test_ten_thousand_waiting_mutations_can_be_cancelled_one_by_one() -> None:
    """A withdrawal finds its place at once; a search through the queue would take minutes here."""
    barrier = CheckpointBarrier()
    saver = await holding(barrier, exclusive)
    entered: list[bool] = []
    tasks = [asyncio.create_task(entering(barrier, shared, entered)) for _ in range(10_000)]
    await turns(2)
    assert barrier.statistics().waiting_mutations == 10_000
    for task in tasks[:-1]:
        task.cancel()
    await turns(2)
    assert barrier.statistics().waiting_mutations == 1
    await saver.finish()
    await tasks[-1]
    assert entered == [True]
