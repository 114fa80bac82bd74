"""Sections under cancellation: whatever is cancelled, and whenever, the barrier is as it should be."""

from __future__ import annotations

import functools
import itertools

import pytest
from barrier_holders import Holder, Open, entering, exclusive, holding, is_idle, shared
from front_ends import FrontEnd, both_front_ends, on_both_front_ends, run_test_over

BOTH_SIDES = pytest.mark.parametrize("side", [shared, exclusive])


@on_both_front_ends
async def test_case_B01_a_grant_spent_on_a_cancelled_waiter_is_passed_on(front: FrontEnd) -> None:
    """Release and cancel meet in one turn, in every order: a remaining waiter always proceeds."""
    events = ("release", "cancel first", "cancel second", "new waiter")
    for order in itertools.permutations(events):
        for waiting, held in ((shared, exclusive), (exclusive, shared), (exclusive, exclusive)):
            barrier = front.barrier()
            holder = await holding(front, barrier, held)
            first = await holding(front, barrier, waiting)
            second = await holding(front, barrier, waiting)
            third: Holder | None = None
            for event in order:
                if event == "release":
                    holder.leave.set()
                elif event == "cancel first":
                    first.task.cancel()
                elif event == "cancel second":
                    second.task.cancel()
                else:
                    third = Holder(front, barrier, waiting)
            await front.turns()
            assert third is not None
            assert third.inside, (order, waiting, held)
            await third.finish()
            assert first.task.cancelled
            assert second.task.cancelled
            assert await is_idle(barrier)


@on_both_front_ends
async def test_case_B01_one_cancelled_waiter_leaves_the_other_its_turn(front: FrontEnd) -> None:
    """The smallest form: two wait, one slot is released, and the first waiter is cancelled in the same turn."""
    for cancel_first in (True, False):
        barrier = front.barrier()
        holder = await holding(front, barrier, shared)
        first, second = await holding(front, barrier, exclusive), await holding(front, barrier, exclusive)
        if cancel_first:
            first.task.cancel()
        holder.leave.set()
        if not cancel_first:
            first.task.cancel()
        await front.turns()
        assert second.inside
        await second.finish()


@on_both_front_ends
async def test_case_B02_a_cancelled_waiter_strands_nobody_behind_it(front: FrontEnd) -> None:
    """No further release ever happens: the release that met the dead entry has to be enough."""
    for held, sides in (
        (shared, (exclusive, exclusive)),
        (shared, (exclusive, shared)),
        (exclusive, (shared, shared)),
        (exclusive, (shared, exclusive)),
        (exclusive, (exclusive, shared)),
    ):
        barrier = front.barrier()
        holder = await holding(front, barrier, held)
        first, second = await holding(front, barrier, sides[0]), await holding(front, barrier, sides[1])
        first.task.cancel()
        await holder.finish()
        await front.turns()
        assert second.inside, (held, sides)
        await second.finish()
        assert await is_idle(barrier)


@on_both_front_ends
async def test_case_B03_survivors_are_served_in_order_of_arrival(front: FrontEnd) -> None:
    """Five queued checkpoints, every set of them cancelled at the hand-over; the third task then gets in too."""
    for victims in itertools.chain.from_iterable(itertools.combinations(range(5), count) for count in range(5)):
        barrier = front.barrier()
        arrived: list[int] = []
        served: list[int] = []

        async def wait(number: int) -> None:
            arrived.append(number)  # noqa: B023 - each round ends before the next
            async with barrier.checkpoint():  # noqa: B023
                served.append(number)  # noqa: B023

        holder = await holding(front, barrier, exclusive)
        tasks = [front.start(wait, number) for number in range(5)]
        await front.turns(2)
        holder.leave.set()
        await front.turns(1)
        for victim in victims:
            tasks[victim].cancel()
        for task in tasks:
            await task.wait_done()
        assert {number for number, task in enumerate(tasks) if task.cancelled} <= set(victims)
        assert served == [number for number in arrived if number in served]
        assert set(served) >= set(range(5)) - set(victims)
        assert await is_idle(barrier)


@BOTH_SIDES
@pytest.mark.parametrize("cancel_first", [True, False])
@on_both_front_ends
async def test_case_B04_a_cancellation_that_meets_the_grant_is_not_swallowed(
    front: FrontEnd, side: Open, cancel_first: bool
) -> None:
    """Either cancelled with nothing held, or inside with the cancellation seen at the next await; never neither."""
    barrier = front.barrier()
    holder = await holding(front, barrier, exclusive)
    waiter = await holding(front, barrier, side)
    if cancel_first:
        waiter.task.cancel()
    holder.leave.set()
    await front.turns(1)
    if not cancel_first:
        waiter.task.cancel()
    await waiter.task.wait_done()
    assert waiter.task.cancelled
    assert await is_idle(barrier)


@BOTH_SIDES
@pytest.mark.parametrize("contended", [False, True])
@on_both_front_ends
async def test_case_B05_a_cancellation_at_any_await_of_an_entry_leaves_no_slot_taken(
    front: FrontEnd, side: Open, contended: bool
) -> None:
    """The entry is driven step by step; at each of its awaits the cancellation is thrown exactly there."""
    for awaits in range(5):
        barrier = front.barrier()
        holder = await holding(front, barrier, exclusive) if contended else None
        entered: list[bool] = []
        task = front.start(entering, barrier, side, entered)
        await front.turns(awaits)
        if not task.done:
            await task.cancel_and_wait()
        if holder is not None:
            await holder.finish()
        await front.turns()
        assert await is_idle(barrier)


@on_both_front_ends
async def test_case_B07_a_cancelled_exclusive_request_subtracts_nothing(front: FrontEnd) -> None:
    """Counters are back at zero, and both sides work, whichever end the request met."""
    barrier = front.barrier()
    writer = await holding(front, barrier, shared)
    saver = await holding(front, barrier, exclusive)
    await saver.task.cancel_and_wait()
    figures = barrier.statistics()
    assert (figures.active_mutations, figures.waiting_checkpoints) == (1, 0)
    await writer.finish()
    assert await is_idle(barrier)


@on_both_front_ends
async def test_case_B08_the_last_queued_checkpoint_reopens_the_gate_when_it_is_cancelled(front: FrontEnd) -> None:
    """The three that wait proceed at once, while the writer is still inside."""
    barrier = front.barrier()
    writer = await holding(front, barrier, shared)
    saver = await holding(front, barrier, exclusive)
    blocked = [await holding(front, barrier, shared) for _ in range(3)]
    assert not any(each.inside for each in blocked)
    await saver.task.cancel_and_wait()
    assert barrier.statistics().active_mutations == 4
    await front.turns(2)
    assert all(each.inside for each in blocked)
    assert writer.inside
    for each in (writer, *blocked):
        await each.finish()


@pytest.mark.parametrize("withdrawn", [0, 1])
@on_both_front_ends
async def test_case_B08_with_another_checkpoint_queued_the_gate_stays_shut(front: FrontEnd, withdrawn: int) -> None:
    """The three stay where they are until the remaining checkpoint was served."""
    barrier = front.barrier()
    writer = await holding(front, barrier, shared)
    savers = [await holding(front, barrier, exclusive) for _ in range(2)]
    blocked = [await holding(front, barrier, shared) for _ in range(3)]
    await savers[withdrawn].task.cancel_and_wait()
    await front.turns()
    assert not any(each.inside for each in blocked)
    await writer.finish()
    await front.turns()
    remaining = savers[1 - withdrawn]
    assert remaining.inside
    assert not any(each.inside for each in blocked)
    await remaining.finish()
    assert barrier.statistics().active_mutations == 3
    await front.turns(2)
    assert all(each.inside for each in blocked)
    for each in blocked:
        await each.finish()


@BOTH_SIDES
@pytest.mark.parametrize("granted", [False, True])
@on_both_front_ends
async def test_case_B25_the_same_cancellation_comes_out_and_the_invariants_hold_in_the_handler(
    front: FrontEnd, side: Open, granted: bool
) -> None:
    """With its message, and neither replaced nor dressed up; still waiting, and granted in the same turn."""
    barrier = front.barrier()
    seen: list[tuple[BaseException, int, int]] = []

    async def wait() -> None:
        try:
            async with side(barrier):
                pass
        except front.cancellation as error:
            figures = barrier.statistics()
            seen.append((error, figures.waiting_mutations, figures.waiting_checkpoints))
            raise

    holder = await holding(front, barrier, exclusive)
    task = front.start(wait)
    await front.turns(2)
    task.cancel("the message")
    if granted:
        holder.leave.set()
    await task.wait_done()
    assert task.cancelled
    ((error, mutations, checkpoints),) = seen
    assert front.message_of(error) == "the message"
    assert error.__cause__ is None
    assert (mutations, checkpoints) == (0, 0)
    if not granted:
        await holder.finish()
    await front.turns()
    assert await is_idle(barrier)


@functools.partial(run_test_over, both_front_ends(), orders=1)
async def test_ten_thousand_waiting_mutations_can_be_cancelled_one_by_one(front: FrontEnd) -> None:
    """A withdrawal finds its place at once; a search through the queue would take minutes here."""
    barrier = front.barrier()
    saver = await holding(front, barrier, exclusive)
    entered: list[bool] = []
    tasks = [front.start(entering, barrier, shared, entered) for _ in range(10_000)]
    await front.turns(2)
    assert barrier.statistics().waiting_mutations == 10_000
    for task in tasks[:-1]:
        task.cancel()
    await front.turns(2)
    assert barrier.statistics().waiting_mutations == 1
    await saver.finish()
    await tasks[-1].value()
    assert entered == [True]
