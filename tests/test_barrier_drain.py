"""The drain limit and hold_warning, in virtual time: what expires, what is said, and that nothing stays behind."""

from __future__ import annotations

import logging
import sys
from contextvars import copy_context

import pytest
from barrier_holders import Events, exclusive, holding, is_idle, shared
from front_ends import FrontEnd, in_virtual_time, outside_any_loop

from impl import UNSET, DrainTimeout, UsageError
from impl.barrier import BarrierFrontEnd


async def save(front: FrontEnd, barrier: BarrierFrontEnd, timeout: float | None) -> float:
    """Open a cut; the time it opened."""
    async with barrier.checkpoint(timeout=timeout):
        return front.now()


@in_virtual_time
async def test_case_C11_an_endless_drain_is_given_up_and_names_its_holders(front: FrontEnd) -> None:
    """The save fails after the limit, the blocked writers proceed, the holder finishes, the next save works."""
    barrier = front.barrier(drain_timeout=30.0)
    holder = await holding(front, barrier, shared, name="refit pump")
    await front.sleep(12.0)
    saver = front.start(save, front, barrier, 30.0, name="saver")
    await front.turns(3)
    blocked = await holding(front, barrier, shared)
    assert not blocked.inside
    with pytest.raises(DrainTimeout) as raised:
        await saver.value()
    await front.turns(1)
    assert blocked.inside
    (named,) = raised.value.holders
    assert (named.task, named.kind, named.exclusive) == ("refit pump", "write", False)
    assert named.age == pytest.approx(42.0)
    assert "barrier_holders.py:" in named.place
    text = str(raised.value)
    for part in ("refit pump", "'write'", "42.000 s", named.place, "30.0 s", "saver"):
        assert part in text
    assert isinstance(raised.value, TimeoutError)
    await holder.finish()
    await blocked.finish()
    assert barrier.statistics().expired_checkpoints == 1
    assert await is_idle(barrier)


@in_virtual_time
async def test_the_place_is_the_line_that_opened_the_section(front: FrontEnd) -> None:
    """It is worked out only when asked for, from what the entry kept."""
    barrier = front.barrier()
    line = 0

    def here() -> int:
        return sys._getframe(1).f_lineno

    line = here() + 1
    async with barrier.mutation() as cut:
        assert cut.place == f"{__file__}:{line}"
    line = here() + 1
    with barrier.mutation_nowait() as cut:
        assert cut.place.endswith(f"test_barrier_drain.py:{line}")
    line = here() + 1
    async with barrier.checkpoint() as cut:
        assert cut.place.endswith(f"test_barrier_drain.py:{line}")


@in_virtual_time
async def test_the_limit_counts_the_drain_alone(front: FrontEnd) -> None:
    """Not the time behind another checkpoint: that one may hold for an hour."""
    barrier = front.barrier()
    start = front.now()
    first = await holding(front, barrier, exclusive)
    second = front.start(save, front, barrier, 5.0)
    await front.sleep(3600.0)
    writer = await holding(front, barrier, shared)
    await first.finish()
    await front.sleep(4.0)
    assert not second.done
    await writer.finish()
    assert await second.value() == pytest.approx(start + 3604.0)


@in_virtual_time
async def test_the_clock_starts_when_the_request_comes_to_head_the_queue(front: FrontEnd) -> None:
    """The head is withdrawn: its successor has its whole limit from there."""
    barrier = front.barrier()
    writer = await holding(front, barrier, shared)
    head = front.start(save, front, barrier, None)
    await front.turns(2)
    successor = front.start(save, front, barrier, 10.0)
    await front.sleep(100.0)
    await head.cancel_and_wait()
    started = front.now()
    with pytest.raises(DrainTimeout):
        await successor.value()
    assert front.now() == pytest.approx(started + 10.0)
    await writer.finish()
    assert await is_idle(barrier)


@pytest.mark.parametrize("release_first", [True, False])
@in_virtual_time
async def test_a_grant_beats_an_expiry_of_the_same_turn(front: FrontEnd, release_first: bool) -> None:
    """The last writer leaves in the very turn in which the limit is reached, before or after the timer."""
    barrier = front.barrier()
    without_section = copy_context()
    section = barrier.mutation_nowait()
    section.__enter__()
    order: list[str] = []
    limit = front.now() + 5.0

    def release() -> None:
        order.append("release")
        section.__exit__(None, None, None)

    if release_first:
        front.call_at(limit - front.one_instant, release)
    saver = without_section.run(front.start, save, front, barrier, 5.0)
    await front.turns(2)
    if not release_first:
        front.call_at(limit + front.one_instant, release)
    assert await saver.value() == pytest.approx(limit)
    assert order == ["release"]
    assert barrier.statistics().expired_checkpoints == 0
    assert await is_idle(barrier)


@in_virtual_time
async def test_a_limit_of_zero_opens_a_free_barrier_and_gives_up_on_a_busy_one(front: FrontEnd) -> None:
    """Zero seconds of drain, not zero checkpoints."""
    barrier = front.barrier()
    await save(front, barrier, 0)
    writer = await holding(front, barrier, shared)
    with pytest.raises(DrainTimeout):
        await save(front, barrier, 0)
    await writer.finish()
    assert await is_idle(barrier)


@in_virtual_time
async def test_none_and_unset_are_different_limits(front: FrontEnd) -> None:
    """UNSET takes the barrier's default; None waits for ever."""
    barrier = front.barrier(drain_timeout=1.0)
    writer = await holding(front, barrier, shared)
    endless = front.start(save, front, barrier, None)
    await front.sleep(1000.0)
    assert not endless.done
    await endless.cancel_and_wait()
    with pytest.raises(DrainTimeout):
        async with barrier.checkpoint(timeout=UNSET):
            pass
    await writer.finish()


@in_virtual_time
async def test_case_B07_an_expired_exclusive_request_subtracts_nothing(front: FrontEnd) -> None:
    """The sister of the cancelled one: counters are back at zero, and both sides work."""
    barrier = front.barrier()
    writer = await holding(front, barrier, shared)
    with pytest.raises(DrainTimeout):
        await save(front, barrier, 1.0)
    figures = barrier.statistics()
    assert (figures.active_mutations, figures.waiting_checkpoints) == (1, 0)
    await writer.finish()
    assert await is_idle(barrier)


@pytest.mark.parametrize(
    "fault", ["expires", "cancelled", "body raises", "cancelled, then granted", "granted, then cancelled"]
)
@in_virtual_time
async def test_case_B22_a_cut_that_fails_at_any_step_is_abandoned_completely(front: FrontEnd, fault: str) -> None:
    """Writers proceed, a later checkpoint works, and the error reaches the caller of the save."""
    barrier = front.barrier()
    writer = await holding(front, barrier, shared)

    async def failing_save() -> None:
        async with barrier.checkpoint(timeout=2.0):
            raise OSError("the disk")

    saver = front.start(failing_save)
    await front.turns(3)
    blocked = await holding(front, barrier, shared)
    if fault == "expires":
        assert isinstance(await saver.raised(), DrainTimeout)
    elif fault == "cancelled":
        await saver.cancel_and_wait()
        assert saver.cancelled
    elif fault == "cancelled, then granted":
        saver.cancel()
        writer.leave.set()
        await saver.wait_done()
        assert saver.cancelled
    elif fault == "granted, then cancelled":
        writer.leave.set()
        await front.turns(1)
        saver.cancel()
        # On trio what was granted stays so, and the body runs up to its next await.
        assert isinstance(await saver.raised(), OSError) or saver.cancelled
    else:
        writer.leave.set()
        assert isinstance(await saver.raised(), OSError)
    await front.turns(2)
    assert blocked.inside
    await writer.finish()
    await blocked.finish()
    assert await is_idle(barrier)


@in_virtual_time
async def test_an_expiry_and_a_cancellation_together_leave_one_withdrawal(front: FrontEnd) -> None:
    """Cancelled in the turn in which the limit was reached: the cancellation comes out, nothing is counted twice."""
    for distance in (0.0, -front.one_instant, front.one_instant):
        events = Events()
        barrier = front.barrier(trace=events)
        writer = await holding(front, barrier, shared)
        saver = front.start(save, front, barrier, 5.0)
        await front.turns(2)
        front.call_at(front.now() + 5.0 + distance, saver.cancel)
        error = await saver.raised()
        assert saver.cancelled or isinstance(error, DrainTimeout)
        assert events.actions().count("withdraw_cut") == 1
        await writer.finish()
        assert await is_idle(barrier)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "5", True])
@outside_any_loop
def test_a_limit_that_is_none_is_refused_by_name(front: FrontEnd, value: object) -> None:
    """At construction or at the call, before anything waits for it."""
    for name in ("drain_timeout", "hold_warning"):
        with pytest.raises(UsageError, match=name):
            front.barrier(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="timeout"):
        front.barrier().checkpoint(timeout=value)  # type: ignore[arg-type]


@in_virtual_time
async def test_hold_warning_logs_slow_holders_of_either_side_once(
    front: FrontEnd, caplog: pytest.LogCaptureFixture
) -> None:
    """Both sides are named with task, kind and place; those that were quick are not."""
    caplog.clear()
    caplog.set_level(logging.WARNING, logger="cleancut.barrier")
    barrier = front.barrier(name="run", hold_warning=10.0)
    quick = await holding(front, barrier, shared)
    await front.sleep(9.0)
    slow = await holding(front, barrier, shared, name="slow writer")
    await quick.finish()
    await front.sleep(9.0)
    assert caplog.records == []
    await front.sleep(30.0)
    younger = await holding(front, barrier, shared)
    await front.sleep(5.0)
    await younger.finish()
    await front.sleep(30.0)
    await slow.finish()
    saver = await holding(front, barrier, exclusive, name="slow saver")
    await front.sleep(30.0)
    await saver.finish()

    assert [record.name for record in caplog.records] == ["cleancut.barrier"] * 2
    about_writer, about_saver = (record.getMessage() for record in caplog.records)
    for part in ("'run'", "slow writer", "'write'", "barrier_holders.py:"):
        assert part in about_writer
    for part in ("slow saver", "'checkpoint'"):
        assert part in about_saver


@in_virtual_time
async def test_the_hold_timer_rests_when_nobody_holds(front: FrontEnd, caplog: pytest.LogCaptureFixture) -> None:
    """A timer that re-armed itself would keep an idle loop busy for ever."""
    caplog.clear()
    caplog.set_level(logging.WARNING, logger="cleancut.barrier")
    barrier = front.barrier(hold_warning=1.0)
    async with barrier.mutation():
        pass
    await front.sleep(10.0)
    assert front.timers() == 0
    writer = await holding(front, barrier, shared)
    await front.sleep(2.0)
    await writer.finish()

    assert len(caplog.records) == 1
