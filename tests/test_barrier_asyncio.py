"""The barrier on asyncio, where asyncio differs from trio: loops that pause, callbacks, weakly held and eager tasks."""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import AbstractAsyncContextManager

import pytest

from impl import BarrierReentered, CheckpointBarrier, Cut, WrongLoop


async def pass_through(barrier: CheckpointBarrier) -> None:
    async with barrier.mutation():
        pass


async def test_a_free_checkpoint_lets_everybody_who_is_ready_run_before_the_gate_shuts() -> None:
    """asyncio runs them in order, so the one turn in between is theirs alone."""
    barrier = CheckpointBarrier()
    ran: list[bool] = []
    asyncio.get_running_loop().call_soon(lambda: ran.append(barrier.statistics().waiting_checkpoints == 0))
    async with barrier.checkpoint():
        assert ran == [True]


def test_case_B14_a_paused_loop_with_an_open_section_keeps_the_barrier() -> None:
    """It is not closed and may go on; moving the barrier away would strand its sections."""
    barrier = CheckpointBarrier()
    loop = asyncio.new_event_loop()
    section = barrier.mutation()
    loop.run_until_complete(section.__aenter__())
    with pytest.raises(WrongLoop, match="former"):
        asyncio.run(pass_through(barrier))
    loop.run_until_complete(section.__aexit__(None, None, None))
    asyncio.run(pass_through(barrier))
    loop.close()


def test_a_section_whose_task_was_dropped_with_its_loop_is_given_back_when_collected() -> None:
    """The collector closes the coroutine, whose exit finds a closed loop; nothing may raise in there."""
    barrier = CheckpointBarrier()
    loop = asyncio.new_event_loop()

    async def hold_for_ever() -> None:
        async with barrier.mutation():
            await asyncio.Event().wait()

    coroutine = hold_for_ever()
    loop.run_until_complete(start(coroutine))
    assert barrier.statistics().active_mutations == 1
    loop.close()
    coroutine.close()
    del coroutine
    gc.collect()
    assert barrier.statistics().active_mutations == 0
    asyncio.run(pass_through(barrier))


async def start(coroutine: object) -> None:
    """Run a coroutine by hand up to its first wait, within a loop but without a task of its own."""
    coroutine.send(None)  # type: ignore[attr-defined]


async def test_waiting_tasks_are_kept_alive_by_the_barrier() -> None:
    """The loop keeps weak references only: a task that waits at the barrier must not be collected."""
    barrier = CheckpointBarrier()
    done: list[int] = []

    async def write(number: int) -> None:
        async with barrier.mutation():
            done.append(number)

    async with barrier.checkpoint():
        with barrier.detached():
            for number in range(3):
                asyncio.create_task(write(number))  # noqa: RUF006 - nobody keeps it, on purpose
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
    while len(done) < 3:
        await asyncio.sleep(0)
    assert sorted(done) == [0, 1, 2]


async def test_a_section_of_a_callback_has_no_task() -> None:
    """Its events and messages say so; a callback of trio runs in a task of its own."""
    tasks: list[object] = []
    barrier = CheckpointBarrier(trace=lambda action, /, **fields: tasks.append(fields["task"]))

    def callback() -> None:
        with barrier.mutation_nowait():
            assert "no task (a callback)" in str(barrier.statistics().holders[0])

    asyncio.get_running_loop().call_soon(callback)
    await asyncio.sleep(0)
    assert tasks == [None, None, None]


async def opened(section: AbstractAsyncContextManager[Cut]) -> str:
    try:
        async with section:
            return "opened"
    except BarrierReentered:
        return "refused"


if sys.version_info >= (3, 12):
    # Before, it is absent and not skipped: test_other_pythons.py sees to it that another Python runs it.

    async def test_an_eager_child_is_refused_like_any_other() -> None:
        """It starts inside its creator's stretch of code, with a context of its own."""
        barrier = CheckpointBarrier()
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with barrier.mutation():
            child = asyncio.create_task(opened(barrier.mutation()))
            assert child.done(), "not eager"
            with barrier.detached():
                sibling = asyncio.create_task(opened(barrier.mutation()))
                saver = asyncio.create_task(opened(barrier.checkpoint()))
            assert sibling.done()
            await asyncio.sleep(0)
            assert not saver.done()
        assert [await child, await sibling, await saver] == ["refused", "opened", "opened"]
