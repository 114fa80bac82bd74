"""Sections: how they open, end, and are refused."""

from __future__ import annotations

import pytest
from barrier_holders import Holder, exclusive, holding, is_idle, shared
from front_ends import FrontEnd, on_both_front_ends, outside_any_loop

from impl import BarrierClosed, UsageError, WouldBlock


@on_both_front_ends
async def test_a_free_mutation_enters_without_touching_the_loop(front: FrontEnd) -> None:
    """The fast path of every write of a run: nothing else gets a turn in between."""
    barrier = front.barrier()
    ran: list[str] = []

    async def somebody_else() -> None:
        ran.append("somebody else")

    front.start(somebody_else)
    async with barrier.mutation():
        pass
    assert ran == []


@on_both_front_ends
async def test_a_free_checkpoint_passes_through_the_loop_once(front: FrontEnd) -> None:
    """Whoever is ready gets a turn then, so that a tight loop of checkpoints starves nobody."""
    barrier = front.barrier()
    written_before: list[int] = []
    save = 0

    async def write() -> None:
        async with barrier.mutation():
            written_before.append(save)

    front.start(write)
    for save in range(5):  # noqa: B007 - the writer reads it
        async with barrier.checkpoint():
            pass
    assert len(written_before) == 1
    # trio shuffles what is ready in one turn: the writer may come after the first checkpoint of its turn.
    assert written_before[0] <= 1


@on_both_front_ends
async def test_checkpoints_open_in_the_order_they_were_asked_for(front: FrontEnd) -> None:
    """Also when the first came to a free barrier and was on its way through the loop when the second came."""
    barrier = front.barrier()
    for writers in (0, 1):
        arrived: list[int] = []
        order: list[int] = []

        async def save(number: int) -> None:
            arrived.append(number)  # noqa: B023 - each round ends before the next
            async with barrier.checkpoint():
                order.append(number)  # noqa: B023

        savers = [front.start(save, number) for number in range(4)]
        for _ in range(writers):
            await Holder(front, barrier, shared).finish()
        await front.turns(1)
        savers += [front.start(save, number) for number in range(4, 8)]
        for saver in savers:
            await saver.value()
        assert sorted(order) == list(range(8))
        assert order == arrived


@on_both_front_ends
async def test_mutation_nowait_refuses_to_wait_and_changes_nothing(front: FrontEnd) -> None:
    """WouldBlock while a checkpoint is open or draining; afterwards it enters."""
    barrier = front.barrier()
    writer = await holding(front, barrier, shared)
    saver = await holding(front, barrier, exclusive)
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


@on_both_front_ends
async def test_an_exit_awaits_nothing(front: FrontEnd) -> None:
    """A release that could be cancelled would keep its slot; this one is over at its first step."""
    barrier = front.barrier()
    for side in (shared, exclusive):
        section = side(barrier)
        cut = await section.__aenter__()
        with pytest.raises(StopIteration):
            section.__aexit__(None, None, None).send(None)
        assert not cut.live


@on_both_front_ends
async def test_a_section_that_raises_is_given_back(front: FrontEnd) -> None:
    """The error passes out unchanged, and the section counts like any other."""
    barrier = front.barrier()
    for side in (shared, exclusive):
        with pytest.raises(KeyError, match="mine"):
            async with side(barrier):
                raise KeyError("mine")
    assert barrier.mutation_version == 1
    assert await is_idle(barrier)


@on_both_front_ends
async def test_a_section_is_for_one_use(front: FrontEnd) -> None:
    """A kept section that came to life again would revive its expired token."""
    barrier = front.barrier()
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


@on_both_front_ends
async def test_case_C01_each_mutation_is_wholly_before_or_wholly_after_the_cut(front: FrontEnd) -> None:
    """Two writers with an await inside each mutation, a checkpoint in every turn: no cut sees half of one."""
    for offset in range(12):
        barrier = front.barrier()
        written = [0, 0]
        recorded = [0, 0]
        cuts: list[tuple[list[int], list[int]]] = []

        async def writer(me: int) -> None:
            for _ in range(3):
                async with barrier.mutation():  # noqa: B023 - each round ends before the next
                    written[me] += 1  # noqa: B023
                    await front.turns(2)
                    recorded[me] += 1  # noqa: B023
                await front.turns(1)

        tasks = [front.start(writer, me) for me in range(2)]
        await front.turns(offset)
        async with barrier.checkpoint():
            before = (list(written), list(recorded))
            await front.turns(3)
            cuts.append(before)
            assert before == (written, recorded), "a writer moved while the cut was open"
        for task in tasks:
            await task.value()
        assert all(left == right for left, right in cuts)


@on_both_front_ends
async def test_close_wakes_the_waiting_refuses_the_later_and_lets_holders_finish(front: FrontEnd) -> None:
    """The end of a run: nobody waits for what never comes, and nothing is torn from a holder."""
    barrier = front.barrier()
    writer = await holding(front, barrier, shared)
    waiting = [await holding(front, barrier, exclusive), await holding(front, barrier, shared)]
    barrier.close("the run is over")
    barrier.close("a second reason does not replace the first")
    for each in waiting:
        with pytest.raises(BarrierClosed, match="the run is over"):
            await each.task.value()
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


@on_both_front_ends
async def test_close_reaches_a_checkpoint_on_its_way_through_the_loop(front: FrontEnd) -> None:
    """It has asked for nothing yet, and asks for nothing any more."""
    barrier = front.barrier()
    saver = Holder(front, barrier, exclusive)
    await front.turns(1)
    barrier.close("over")
    with pytest.raises(BarrierClosed):
        await saver.task.value()


@outside_any_loop
def test_a_barrier_is_constructible_before_there_is_a_loop(front: FrontEnd) -> None:
    """It is made where the run is configured, often at import time."""
    barrier = front.barrier()
    assert front.run_alone(is_idle, barrier)
