"""Sections on asyncio: how they open, end, and are refused."""

from __future__ import annotations

import asyncio
import gc

import pytest
from barrier_holders import Holder, exclusive, holding, is_idle, shared
from loop_turns import turns

from impl import BarrierClosed, CheckpointBarrier, UsageError, WouldBlock


async def test_a_free_mutation_enters_without_touching_the_loop() -> None:
    """The fast path of every write of a run: nothing else gets a turn in between."""
    barrier = CheckpointBarrier()
    ran: list[str] = []
    asyncio.get_running_loop().call_soon(ran.append, "somebody else")
    async with barrier.mutation():
        pass
    assert ran == []


async def test_a_free_checkpoint_passes_through_the_loop_once() -> None:
    """Whoever was ready gets a turn before the gate shuts, so a tight loop of checkpoints starves nobody."""
    barrier = CheckpointBarrier()
    ran: list[bool] = []
    asyncio.get_running_loop().call_soon(lambda: ran.append(barrier.statistics().waiting_checkpoints == 0))
    async with barrier.checkpoint():
        assert ran == [True]


async def test_checkpoints_open_in_the_order_they_were_asked_for() -> None:
    """Also when the first came to a free barrier and was on its way through the loop when the second came."""
    barrier = CheckpointBarrier()
    order: list[int] = []

    async def checkpoint(number: int) -> None:
        async with barrier.checkpoint():
            order.append(number)

    first = asyncio.create_task(checkpoint(1))
    await turns(0)
    writer = Holder(barrier, shared)
    await asyncio.gather(first, *(checkpoint(number) for number in (2, 3)), writer.finish())
    assert order == [1, 2, 3]


async def test_mutation_nowait_refuses_to_wait_and_changes_nothing() -> None:
    """WouldBlock while a checkpoint is open or draining; afterwards it enters."""
    barrier = CheckpointBarrier()
    writer = await holding(barrier, shared)
    saver = await holding(barrier, exclusive)
    before = barrier.statistics()
    with pytest.raises(WouldBlock, match="checkpoint"), barrier.mutation_nowait():
        pass
    assert barrier.statistics().blocked == before.blocked
    await writer.finish()
    with pytest.raises(WouldBlock), barrier.mutation_nowait():
        pass
    await saver.finish()
    with barrier.mutation_nowait("clear") as cut:
        assert cut.live


async def test_an_exit_awaits_nothing() -> None:
    """A release that could be cancelled would keep its slot; this one is over at its first step."""
    barrier = CheckpointBarrier()
    for side in (shared, exclusive):
        section = side(barrier)
        cut = await section.__aenter__()
        with pytest.raises(StopIteration):
            section.__aexit__(None, None, None).send(None)
        assert not cut.live


async def test_a_section_that_raises_is_given_back() -> None:
    """The error passes out unchanged, and the section counts like any other."""
    barrier = CheckpointBarrier()
    for side in (shared, exclusive):
        with pytest.raises(KeyError, match="mine"):
            async with side(barrier):
                raise KeyError("mine")
    assert barrier.mutation_version == 1
    assert await is_idle(barrier)


async def test_a_section_is_for_one_use() -> None:
    """A kept section that came to life again would revive its expired token."""
    barrier = CheckpointBarrier()
    for section in (barrier.mutation(), barrier.checkpoint()):
        async with section:
            pass
        with pytest.raises(UsageError, match="entered twice"):
            async with section:
                pass
    immediate = barrier.mutation_nowait()
    with immediate:
        pass
    with pytest.raises(UsageError, match="entered twice"), immediate:
        pass
    assert await is_idle(barrier)


async def test_case_C01_each_mutation_is_wholly_before_or_wholly_after_the_cut() -> None:
    """Two writers with an await inside each mutation, a checkpoint in every turn: no cut sees half of one."""
    for offset in range(12):
        barrier = CheckpointBarrier()
        written = [0, 0]
        recorded = [0, 0]
        cuts: list[tuple[list[int], list[int]]] = []

        async def writer(
            me: int, barrier: CheckpointBarrier = barrier, written: list[int] = written, recorded: list[int] = recorded
        ) -> None:
            for _ in range(3):
                async with barrier.mutation():
                    written[me] += 1
                    await turns(2)
                    recorded[me] += 1
                await turns(1)

        tasks = [asyncio.create_task(writer(me)) for me in range(2)]
        await turns(offset)
        async with barrier.checkpoint():
            before = (list(written), list(recorded))
            await turns(3)
            cuts.append(before)
            assert before == (written, recorded), "a writer moved while the cut was open"
        await asyncio.gather(*tasks)
        assert all(left == right for left, right in cuts)


async def test_waiting_tasks_are_kept_alive_by_the_barrier() -> None:
    """The loop keeps weak references only: a task that waits at the barrier must not be collected."""
    barrier = CheckpointBarrier()
    holder = await holding(barrier, exclusive)
    done: list[int] = []
    for number in range(3):
        asyncio.create_task(entering_with(barrier, done, number))  # noqa: RUF006 - nobody keeps it, on purpose
    await turns(2)
    gc.collect()
    await holder.finish()
    await turns()
    assert sorted(done) == [0, 1, 2]


async def entering_with(barrier: CheckpointBarrier, done: list[int], number: int) -> None:
    async with barrier.mutation():
        done.append(number)


async def test_close_wakes_the_waiting_refuses_the_later_and_lets_holders_finish() -> None:
    """The end of a run: nobody waits for what never comes, and nothing is torn from a holder."""
    barrier = CheckpointBarrier()
    writer = await holding(barrier, shared)
    waiting = [await holding(barrier, exclusive), await holding(barrier, shared)]
    barrier.close("the run is over")
    barrier.close("a second reason does not replace the first")
    for each in waiting:
        with pytest.raises(BarrierClosed, match="the run is over"):
            await each.task
    for attempt in (barrier.mutation(), barrier.checkpoint()):
        with pytest.raises(BarrierClosed, match="the run is over"):
            async with attempt:
                pass
    with pytest.raises(BarrierClosed), barrier.mutation_nowait():
        pass
    assert writer.inside
    await writer.finish()
    assert barrier.statistics().closed_because == "the run is over"
    assert barrier.statistics().active_mutations == 0


async def test_close_reaches_a_checkpoint_on_its_way_through_the_loop() -> None:
    """It has asked for nothing yet, and asks for nothing any more."""
    barrier = CheckpointBarrier()
    saver = Holder(barrier, exclusive)
    await turns(1)
    barrier.close("over")
    with pytest.raises(BarrierClosed):
        await saver.task


def test_a_barrier_is_constructible_before_there_is_a_loop() -> None:
    """It is made where the run is configured, often at import time."""
    barrier = CheckpointBarrier()

    async def main() -> None:
        assert await is_idle(barrier)

    asyncio.run(main())
