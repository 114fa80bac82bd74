"""The drain limit and hold_warning, in virtual time: what expires, what is said, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextvars import Context

import pytest
from barrier_holders import Events, cancelled, exclusive, holding, is_idle, shared
from jumping_clock import run_in_virtual_time
from loop_turns import turns

from impl import UNSET, CheckpointBarrier, DrainTimeout, UsageError


async def save(barrier: CheckpointBarrier, timeout: float | None) -> float:
    """Open a cut; the time it opened."""
    async with barrier.checkpoint(timeout=timeout):
        return asyncio.get_running_loop().time()


def test_case_C11_an_endless_drain_is_given_up_and_names_its_holders() -> None:
    """The save fails after the limit, the blocked writers proceed, the holder finishes, the next save works."""

    async def main() -> None:
        barrier = CheckpointBarrier(drain_timeout=30.0)
        holder = await holding(barrier, shared, name="refit pump")
        await asyncio.sleep(12.0)
        saver = asyncio.create_task(save(barrier, 30.0), name="saver")
        await turns(3)
        blocked = await holding(barrier, shared)
        assert not blocked.inside
        with pytest.raises(DrainTimeout) as raised:
            await saver
        await turns(1)
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

    run_in_virtual_time(main())


def test_the_place_is_the_line_that_opened_the_section() -> None:
    """It is worked out only when asked for, from what the entry kept."""

    async def main() -> None:
        barrier = CheckpointBarrier()
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

    run_in_virtual_time(main())


def test_the_limit_counts_the_drain_alone() -> None:
    """Not the time behind another checkpoint: that one may hold for an hour."""

    async def main() -> None:
        barrier = CheckpointBarrier()
        start = asyncio.get_running_loop().time()
        first = await holding(barrier, exclusive)
        second = asyncio.create_task(save(barrier, 5.0))
        await asyncio.sleep(3600.0)
        writer = await holding(barrier, shared)
        await first.finish()
        await asyncio.sleep(4.0)
        assert not second.done()
        await writer.finish()
        assert await second == pytest.approx(start + 3604.0)

    run_in_virtual_time(main())


def test_the_clock_starts_when_the_request_comes_to_head_the_queue() -> None:
    """The head is withdrawn: its successor has its whole limit from there."""

    async def main() -> None:
        barrier = CheckpointBarrier()
        writer = await holding(barrier, shared)
        head = asyncio.create_task(save(barrier, None))
        await turns(2)
        successor = asyncio.create_task(save(barrier, 10.0))
        await asyncio.sleep(100.0)
        await cancelled(head)
        started = asyncio.get_running_loop().time()
        with pytest.raises(DrainTimeout):
            await successor
        assert asyncio.get_running_loop().time() == pytest.approx(started + 10.0)
        await writer.finish()
        assert await is_idle(barrier)

    run_in_virtual_time(main())


@pytest.mark.parametrize("release_first", [True, False])
def test_a_grant_beats_an_expiry_of_the_same_turn(release_first: bool) -> None:
    """The last writer leaves in the very turn in which the limit is reached, before or after the timer."""

    async def main() -> None:
        barrier = CheckpointBarrier()
        loop = asyncio.get_running_loop()
        section = barrier.mutation_nowait()
        section.__enter__()
        order: list[str] = []
        limit = loop.time() + 5.0

        def release() -> None:
            order.append("release")
            section.__exit__(None, None, None)

        if release_first:
            loop.call_at(limit - 1e-10, release)
        saver = loop.create_task(save(barrier, 5.0), context=Context())
        await turns(2)
        if not release_first:
            loop.call_at(limit + 1e-10, release)
        opened = await saver
        assert opened == pytest.approx(limit)
        assert order == ["release"]
        assert barrier.statistics().expired_checkpoints == 0
        assert await is_idle(barrier)

    run_in_virtual_time(main())


def test_a_limit_of_zero_opens_a_free_barrier_and_gives_up_on_a_busy_one() -> None:
    """Zero seconds of drain, not zero checkpoints."""

    async def main() -> None:
        barrier = CheckpointBarrier()
        await save(barrier, 0)
        writer = await holding(barrier, shared)
        with pytest.raises(DrainTimeout):
            await save(barrier, 0)
        await writer.finish()
        assert await is_idle(barrier)

    run_in_virtual_time(main())


def test_none_and_unset_are_different_limits() -> None:
    """UNSET takes the barrier's default; None waits for ever."""

    async def main() -> None:
        barrier = CheckpointBarrier(drain_timeout=1.0)
        writer = await holding(barrier, shared)
        endless = asyncio.create_task(save(barrier, None))
        await asyncio.sleep(1000.0)
        assert not endless.done()
        await cancelled(endless)
        with pytest.raises(DrainTimeout):
            async with barrier.checkpoint(timeout=UNSET):
                pass
        await writer.finish()

    run_in_virtual_time(main())


def test_case_B07_an_expired_exclusive_request_subtracts_nothing() -> None:
    """The sister of the cancelled one: counters are back at zero, and both sides work."""

    async def main() -> None:
        barrier = CheckpointBarrier()
        writer = await holding(barrier, shared)
        with pytest.raises(DrainTimeout):
            await save(barrier, 1.0)
        figures = barrier.statistics()
        assert (figures.active_mutations, figures.waiting_checkpoints) == (1, 0)
        await writer.finish()
        assert await is_idle(barrier)

    run_in_virtual_time(main())


@pytest.mark.parametrize("fault", ["expires", "cancelled", "body raises", "cancelled at the grant"])
def test_case_B22_a_cut_that_fails_at_any_step_is_abandoned_completely(fault: str) -> None:
    """Writers proceed, a later checkpoint works, and the error reaches the caller of the save."""

    async def main() -> None:
        barrier = CheckpointBarrier()
        writer = await holding(barrier, shared)

        async def failing_save() -> None:
            async with barrier.checkpoint(timeout=2.0):
                raise OSError("the disk")

        saver = asyncio.create_task(failing_save())
        await turns(3)
        blocked = await holding(barrier, shared)
        expected: type[BaseException] = OSError
        if fault == "expires":
            expected = DrainTimeout
        elif fault == "cancelled":
            saver.cancel()
            expected = asyncio.CancelledError
        elif fault == "cancelled at the grant":
            writer.leave.set()
            await turns(1)
            saver.cancel()
            expected = asyncio.CancelledError
        else:
            writer.leave.set()
        with pytest.raises(expected):
            await saver
        await turns(2)
        assert blocked.inside
        writer.leave.set()
        await writer.task
        await blocked.finish()
        assert await is_idle(barrier)

    run_in_virtual_time(main())


def test_an_expiry_and_a_cancellation_together_leave_one_withdrawal() -> None:
    """Cancelled in the turn in which the limit was reached: the cancellation comes out, nothing is counted twice."""

    async def main() -> None:
        for distance in (0.0, -1e-10, 1e-10):
            events = Events()
            barrier = CheckpointBarrier(trace=events)
            writer = await holding(barrier, shared)
            saver = asyncio.create_task(save(barrier, 5.0))
            await turns(2)
            asyncio.get_running_loop().call_at(asyncio.get_running_loop().time() + 5.0 + distance, saver.cancel)
            with pytest.raises((asyncio.CancelledError, DrainTimeout)):
                await saver
            assert events.actions().count("withdraw_cut") == 1
            await writer.finish()
            assert await is_idle(barrier)

    run_in_virtual_time(main())


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "5", True])
def test_a_limit_that_is_none_is_refused_by_name(value: object) -> None:
    """At construction or at the call, before anything waits for it."""
    for name in ("drain_timeout", "hold_warning"):
        with pytest.raises(UsageError, match=name):
            CheckpointBarrier(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="timeout"):
        CheckpointBarrier().checkpoint(timeout=value)  # type: ignore[arg-type]


def test_hold_warning_logs_slow_holders_of_either_side_once(caplog: pytest.LogCaptureFixture) -> None:
    """Both sides are named with task, kind and place; those that were quick are not."""

    async def main() -> None:
        barrier = CheckpointBarrier(name="run", hold_warning=10.0)
        quick = await holding(barrier, shared)
        await asyncio.sleep(9.0)
        slow = await holding(barrier, shared, name="slow writer")
        await quick.finish()
        await asyncio.sleep(9.0)
        assert caplog.records == []
        await asyncio.sleep(30.0)
        younger = await holding(barrier, shared)
        await asyncio.sleep(5.0)
        await younger.finish()
        await asyncio.sleep(30.0)
        await slow.finish()
        saver = await holding(barrier, exclusive, name="slow saver")
        await asyncio.sleep(30.0)
        await saver.finish()

    with caplog.at_level(logging.WARNING, logger="cleancut.barrier"):
        run_in_virtual_time(main())
    assert [record.name for record in caplog.records] == ["cleancut.barrier"] * 2
    writer, saver = (record.getMessage() for record in caplog.records)
    for part in ("'run'", "slow writer", "'write'", "barrier_holders.py:"):
        assert part in writer
    for part in ("slow saver", "'checkpoint'"):
        assert part in saver


def test_the_hold_timer_rests_when_nobody_holds(caplog: pytest.LogCaptureFixture) -> None:
    """A timer that re-armed itself would keep an idle loop busy for ever."""

    async def main() -> None:
        barrier = CheckpointBarrier(hold_warning=1.0)
        async with barrier.mutation():
            pass
        await asyncio.sleep(10.0)
        loop = asyncio.get_running_loop()
        assert loop._scheduled == []  # type: ignore[attr-defined]
        writer = await holding(barrier, shared)
        await asyncio.sleep(2.0)
        await writer.finish()

    with caplog.at_level(logging.WARNING, logger="cleancut.barrier"):
        run_in_virtual_time(main())
    assert len(caplog.records) == 1
