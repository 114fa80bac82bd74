"""One event loop at a time: who is refused, who may come after, and that contention makes no difference."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context

import pytest
from barrier_holders import Holder, exclusive, holding, is_idle, shared
from loop_turns import turns

from impl import CheckpointBarrier, WrongLoop


async def contend(barrier: CheckpointBarrier) -> None:
    writer = await holding(barrier, shared)
    savers = [Holder(barrier, exclusive) for _ in range(2)]
    await turns()
    await writer.finish()
    for saver in savers:
        await saver.finish()


async def pass_through(barrier: CheckpointBarrier) -> None:
    async with barrier.mutation():
        pass


@pytest.mark.parametrize("first", [contend, pass_through])
@pytest.mark.parametrize("second", [contend, pass_through])
def test_case_B14_one_loop_after_the_other_is_fine_when_nothing_is_held(first: object, second: object) -> None:
    """Built outside any loop, used in two runs of one process, with contention in either, both or none."""
    barrier = CheckpointBarrier()
    for use in (first, second):
        asyncio.run(use(barrier))  # type: ignore[operator]
    asyncio.run(contend(barrier))
    assert asyncio.run(is_idle(barrier))


@pytest.mark.parametrize("side", ["mutation", "checkpoint", "nowait", "close"])
@pytest.mark.parametrize("held", [False, True])
async def test_case_B14_two_threads_at_once_are_refused_with_and_without_contention(side: str, held: bool) -> None:
    """A second loop that worked as long as nobody contends would fail in the middle of the run."""
    barrier = CheckpointBarrier()
    holder = await holding(barrier, exclusive) if held else None
    await turns()
    if holder is None:
        await pass_through(barrier)

    async def use() -> None:
        if side == "mutation":
            await pass_through(barrier)
        elif side == "checkpoint":
            async with barrier.checkpoint():
                pass
        elif side == "nowait":
            with barrier.mutation_nowait():
                pass
        else:
            barrier.close("from outside")

    # A plain pool, so that the thread does not inherit this task's context.
    with ThreadPoolExecutor(1) as pool, pytest.raises(WrongLoop, match="threadsafe"):
        await asyncio.get_running_loop().run_in_executor(pool, lambda: asyncio.run(use()))
    if holder is not None:
        await holder.finish()
    assert await is_idle(barrier)


async def test_a_thread_without_a_loop_is_refused_with_the_way_to_do_it() -> None:
    """The usual mistake: a worker thread that writes on its own."""
    barrier = CheckpointBarrier()
    await pass_through(barrier)

    def work() -> None:
        with barrier.mutation_nowait():
            pass

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(WrongLoop, match="run_coroutine_threadsafe"):
            await asyncio.get_running_loop().run_in_executor(pool, work)
        way = pool.submit(
            lambda loop: asyncio.run_coroutine_threadsafe(pass_through(barrier), loop).result(),
            asyncio.get_running_loop(),
        )
        await asyncio.wrap_future(way)
    assert barrier.mutation_version == 2


def test_case_B14_a_loop_that_closed_while_a_slot_was_held_is_reported() -> None:
    """Whatever the holder protected may be half changed, so nobody goes on as if nothing had been."""
    barrier = CheckpointBarrier()
    loop = asyncio.new_event_loop()
    section = barrier.mutation("group_commits")
    loop.run_until_complete(section.__aenter__())
    loop.close()
    for use in (pass_through, contend):
        with pytest.raises(WrongLoop, match="group_commits"):
            asyncio.run(use(barrier))


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


async def test_a_section_given_back_in_another_thread_is_given_back_in_the_loop() -> None:
    """A generator may be closed wherever the collector runs; only the loop's thread touches state and waiters."""
    threads: list[tuple[str, int]] = []

    def trace(action: str, /, **_: object) -> None:
        threads.append((action, threading.get_ident()))

    barrier = CheckpointBarrier(trace=trace)
    section = barrier.mutation_nowait()
    section.__enter__()
    saver = asyncio.get_running_loop().create_task(save(barrier), context=Context())
    await turns(3)
    with ThreadPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, section.__exit__, None, None, None)
    await saver
    assert [action for action, _ in threads][-3:] == ["leave_slot", "open_cut", "close_cut"]
    assert {thread for _, thread in threads} == {threading.get_ident()}


async def save(barrier: CheckpointBarrier) -> None:
    async with barrier.checkpoint():
        pass
