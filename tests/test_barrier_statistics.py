"""statistics(): a snapshot of who is inside, who waited, and for how long."""

from __future__ import annotations

import dataclasses

import pytest
from barrier_holders import exclusive, holding, shared
from front_ends import FrontEnd, in_virtual_time, on_both_front_ends

from impl.barrier import KEPT, BarrierFrontEnd, DurationRecorder


@in_virtual_time
async def test_waits_and_blocks_are_counted_by_kind(front: FrontEnd) -> None:
    """`blocked` counts those that found the gate shut, `waits` those of them that were let in, with their seconds."""
    barrier = front.barrier()

    async def write(kind: str) -> None:
        async with barrier.mutation(kind):
            pass

    await write("clears")
    saver = await holding(front, barrier, exclusive)
    tasks = [front.start(write, kind) for kind in ("commits", "commits", "clears")]
    await front.sleep(2.0)
    figures = barrier.statistics()
    assert (figures.waiting_mutations, figures.checkpoint_active) == (3, True)
    assert figures.blocked == {"commits": 2, "clears": 1}
    assert figures.waits == {}
    await tasks[0].cancel_and_wait()
    await saver.finish()
    for task in tasks[1:]:
        await task.value()
    figures = barrier.statistics()
    assert figures.blocked == {"commits": 2, "clears": 1}
    assert {kind: wait.count for kind, wait in figures.waits.items()} == {"commits": 1, "clears": 1}
    assert figures.waits["commits"].total == pytest.approx(2.0)
    assert figures.waits["commits"].longest == pytest.approx(2.0)
    assert (figures.mutation_version, figures.most_waiting_mutations) == (3, 3)


@in_virtual_time
async def test_window_and_drain_are_measured_apart(front: FrontEnd) -> None:
    """How long cuts were open is what the writers pay; how long they waited is what the saver pays."""
    barrier = front.barrier()
    for drain, window in ((1.0, 0.1), (3.0, 0.3), (2.0, 0.2)):
        writer = await holding(front, barrier, shared)
        saver = await holding(front, barrier, exclusive)
        await front.sleep(drain)
        await writer.finish()
        await front.sleep(window)
        await saver.finish()
    figures = barrier.statistics()
    assert figures.drain.count == figures.window.count == 3
    assert [figures.drain.p50, figures.drain.longest] == pytest.approx([2.0, 3.0])
    assert [figures.window.p50, figures.window.longest] == pytest.approx([0.2, 0.3])


@in_virtual_time
async def test_a_checkpoint_that_is_handed_the_cut_has_not_drained(front: FrontEnd) -> None:
    """It waited behind another one, which is no drain."""
    barrier = front.barrier()
    first, second = await holding(front, barrier, exclusive), await holding(front, barrier, exclusive)
    await front.sleep(50.0)
    await first.finish()
    await second.finish()
    assert barrier.statistics().drain.longest == 0.0


@in_virtual_time
async def test_the_drain_begins_when_the_request_heads_the_queue(front: FrontEnd) -> None:
    """The hour behind another checkpoint is no drain; the two seconds for the writers after it are."""
    barrier = front.barrier()
    first = await holding(front, barrier, exclusive)
    second = await holding(front, barrier, exclusive)
    writer = await holding(front, barrier, shared)
    await front.sleep(3600.0)
    await first.finish()
    await front.sleep(2.0)
    await writer.finish()
    await second.finish()
    assert barrier.statistics().drain.longest == pytest.approx(2.0)


@in_virtual_time
async def test_holders_are_listed_oldest_first_with_age_and_place(front: FrontEnd) -> None:
    """The list that a stalled run is read by."""
    barrier = front.barrier()
    old = await holding(front, barrier, shared, name="old")
    await front.sleep(5.0)
    young = await holding(front, barrier, shared, name="young")
    await front.sleep(1.0)
    holders = barrier.statistics().holders
    assert [(holder.task, holder.kind) for holder in holders] == [("old", "write"), ("young", "write")]
    assert [holder.age for holder in holders] == pytest.approx([6.0, 1.0])
    assert all("barrier_holders.py:" in holder.place for holder in holders)
    await old.finish()
    await young.finish()
    assert barrier.statistics().holders == ()


@in_virtual_time
async def test_a_section_that_waited_is_as_old_as_its_grant(front: FrontEnd) -> None:
    """It holds from there; the wait before is somebody else's age."""
    barrier = front.barrier()
    saver = await holding(front, barrier, exclusive)
    writer = await holding(front, barrier, shared)
    await front.sleep(7.0)
    await saver.finish()
    await front.sleep(2.0)
    (holder,) = barrier.statistics().holders
    assert holder.age == pytest.approx(2.0)
    await writer.finish()


@on_both_front_ends
async def test_a_snapshot_does_not_change_and_changes_nothing(front: FrontEnd) -> None:
    """What was read stays as it was, and writing to it reaches nobody."""
    barrier = front.barrier()
    saver = await holding(front, barrier, exclusive)
    writer = await holding(front, barrier, shared)
    figures = barrier.statistics()
    copied = dataclasses.asdict(figures)
    await saver.finish()
    await writer.finish()
    assert dataclasses.asdict(figures) == copied
    figures.blocked["write"] = 99
    assert barrier.statistics().blocked == {"write": 1}
    with pytest.raises(dataclasses.FrozenInstanceError):
        figures.mutation_version = 5  # type: ignore[misc]


@in_virtual_time
async def test_a_window_tells_whom_it_waited_for_and_whom_it_blocked(front: FrontEnd) -> None:
    """The last writer to end, not the oldest; what an abandoned drain has blocked is not the next window's."""
    barrier = front.barrier()
    assert barrier.last_window is None

    async def write(kind: str) -> None:
        async with barrier.mutation(kind):
            pass

    first, last = await holding(front, barrier, shared), await holding(front, barrier, shared)
    given_up = front.start(write_exclusively, barrier)
    await front.turns()
    blocked = front.start(write, "clears")
    await front.turns()
    await given_up.cancel_and_wait()
    await blocked.value()
    saver = await holding(front, barrier, exclusive)
    later = [front.start(write, kind) for kind in ("commits", "commits")]
    await front.sleep(1.0)
    await last.finish()
    await front.sleep(2.0)
    await first.finish()
    await front.turns()
    assert barrier.last_window is None
    await saver.finish()
    for task in later:
        await task.value()
    cost = barrier.last_window
    assert cost is not None
    assert cost.blocked == {"commits": 2}
    assert cost.slowest_holder is not None
    assert cost.slowest_holder.age == pytest.approx(3.0)
    assert not cost.slowest_holder.exclusive
    await (await holding(front, barrier, exclusive)).finish()
    free = barrier.last_window
    assert free is not None
    assert (free.slowest_holder, free.blocked) == (None, {})


async def write_exclusively(barrier: BarrierFrontEnd) -> None:
    async with barrier.checkpoint():
        pass


@in_virtual_time
async def test_a_window_that_was_handed_over_waited_for_no_writer(front: FrontEnd) -> None:
    """And has blocked those who came while it was open, not those of its predecessor."""
    barrier = front.barrier()

    async def write(kind: str) -> None:
        async with barrier.mutation(kind):
            pass

    writer = await holding(front, barrier, shared)
    first, second = await holding(front, barrier, exclusive), await holding(front, barrier, exclusive)
    await writer.finish()
    await front.turns()
    await first.finish()
    waiting = front.start(write, "clears")
    await front.turns()
    await second.finish()
    await waiting.value()
    cost = barrier.last_window
    assert cost is not None
    assert (cost.slowest_holder, cost.blocked) == (None, {"clears": 1})


def test_the_reservoir_is_bounded_and_keeps_the_newest() -> None:
    """A run of months must not grow; the figures of an hour ago are of no use either."""
    recorder = DurationRecorder()
    for number in range(3 * KEPT):
        recorder.add(float(number))
    figures = recorder.summary()
    assert figures.count == 3 * KEPT
    assert figures.longest == 3 * KEPT - 1
    assert figures.p50 == 2.5 * KEPT
    assert DurationRecorder().summary().longest == 0.0
