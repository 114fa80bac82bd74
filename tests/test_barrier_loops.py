"""One event loop, or trio run, at a time: who is refused, who may come after, and that contention changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context

import pytest
from barrier_holders import Holder, exclusive, holding, is_idle, shared
from front_ends import FrontEnd, on_both_front_ends, outside_any_loop

from impl import BarrierClosed, WrongLoop
from impl.barrier import BarrierFrontEnd

Use = Callable[[FrontEnd, BarrierFrontEnd], Awaitable[None]]


async def contend(front: FrontEnd, barrier: BarrierFrontEnd) -> None:
    writer = await holding(front, barrier, shared)
    savers = [Holder(front, barrier, exclusive) for _ in range(2)]
    await front.turns()
    await writer.finish()
    for saver in savers:
        # Both at once: which of them came first is the library's affair.
        saver.leave.set()
    for saver in savers:
        await saver.task.value()


async def pass_through(front: FrontEnd, barrier: BarrierFrontEnd) -> None:
    async with barrier.mutation():
        pass


@pytest.mark.parametrize("first", [contend, pass_through])
@pytest.mark.parametrize("second", [contend, pass_through])
@outside_any_loop
def test_case_B14_one_loop_after_the_other_is_fine_when_nothing_is_held(
    front: FrontEnd, first: Use, second: Use
) -> None:
    """Built outside any loop, used in two runs of one process, with contention in either, both or none."""
    barrier = front.barrier()
    for use in (first, second, contend):
        front.run_alone(use, front, barrier)
    assert front.run_alone(is_idle, barrier)


@pytest.mark.parametrize("side", ["mutation", "checkpoint", "nowait", "close"])
@pytest.mark.parametrize("held", [False, True])
@on_both_front_ends
async def test_case_B14_two_threads_at_once_are_refused_with_and_without_contention(
    front: FrontEnd, side: str, held: bool
) -> None:
    """A second loop that worked as long as nobody contends would fail in the middle of the run."""
    barrier = front.barrier()
    holder = await holding(front, barrier, exclusive) if held else None
    await front.turns()
    if holder is None:
        await pass_through(front, barrier)

    async def use() -> None:
        if side == "mutation":
            await pass_through(front, barrier)
        elif side == "checkpoint":
            async with barrier.checkpoint():
                pass
        elif side == "nowait":
            with barrier.mutation_nowait():
                pass
        else:
            barrier.close("from outside")

    # Without this task's context, so that no section held here is what refuses it.
    with pytest.raises(WrongLoop, match=front.way_in):
        await front.in_bare_thread(lambda: type(front)().run_alone(use))
    if holder is not None:
        await holder.finish()
    assert await is_idle(barrier)


@on_both_front_ends
async def test_a_thread_without_a_loop_is_refused_with_the_way_to_do_it(front: FrontEnd) -> None:
    """The usual mistake: a worker thread that writes on its own. The way that the error names works."""
    barrier = front.barrier()
    await pass_through(front, barrier)

    def write() -> None:
        with barrier.mutation_nowait():
            pass

    with pytest.raises(WrongLoop, match=front.way_in):
        await front.in_bare_thread(write)
    enter = front.from_thread()
    await front.in_bare_thread(lambda: enter(lambda: pass_through(front, barrier)))
    assert barrier.mutation_version == 2


@on_both_front_ends
async def test_closing_from_a_thread_is_refused_while_the_loop_runs(front: FrontEnd) -> None:
    """It would wake tasks from outside their loop; in the loop it works."""
    barrier = front.barrier()
    await pass_through(front, barrier)
    with pytest.raises(WrongLoop, match=front.way_in):
        await front.in_bare_thread(lambda: barrier.close("from outside"))
    await pass_through(front, barrier)
    barrier.close("from inside")
    with pytest.raises(BarrierClosed, match="from inside"):
        await pass_through(front, barrier)


@outside_any_loop
def test_a_barrier_can_be_closed_when_its_loop_is_over(front: FrontEnd) -> None:
    """Nobody waits any more, and nobody comes in later."""
    barrier = front.barrier()
    front.run_alone(contend, front, barrier)
    barrier.close("over")
    with pytest.raises(BarrierClosed, match="over"):
        front.run_alone(pass_through, front, barrier)


@outside_any_loop
def test_case_B14_a_loop_that_ended_while_a_slot_was_held_is_reported(front: FrontEnd) -> None:
    """Whatever the holder protected may be half changed, so nobody goes on as if nothing had been."""
    barrier = front.barrier()
    section = barrier.mutation("group_commits")
    # The context of the entry is thrown away with the loop: the refusal is about the loop, not about nesting.
    copy_context().run(front.run_alone, section.__aenter__)
    for use in (pass_through, contend):
        with pytest.raises(WrongLoop, match="group_commits"):
            front.run_alone(use, front, barrier)


@on_both_front_ends
async def test_a_section_given_back_in_another_thread_is_given_back_in_the_loop(front: FrontEnd) -> None:
    """A generator may be closed wherever the collector runs; only the loop's thread touches state and waiters."""
    threads: list[tuple[str, int]] = []

    def trace(action: str, /, **_: object) -> None:
        threads.append((action, threading.get_ident()))

    barrier = front.barrier(trace=trace)
    without_section = copy_context()
    section = barrier.mutation_nowait()
    section.__enter__()
    saver = without_section.run(front.start, save, barrier)
    await front.turns(3)
    await front.in_bare_thread(lambda: section.__exit__(None, None, None))
    await saver.value()
    assert [action for action, _ in threads][-3:] == ["leave_slot", "open_cut", "close_cut"]
    assert {thread for _, thread in threads} == {threading.get_ident()}


async def save(barrier: BarrierFrontEnd) -> None:
    async with barrier.checkpoint():
        pass


@outside_any_loop
def test_a_section_given_back_after_its_loop_is_over_is_given_back_on_the_spot(front: FrontEnd) -> None:
    """From the collector or from a thread: there is no loop to hand it to, and the next one finds the barrier free."""
    barrier = front.barrier(drain_timeout=1.0, hold_warning=1.0)
    section = barrier.mutation_nowait("left open")
    copy_context().run(front.run_alone, enter, section)
    thread = threading.Thread(target=section.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert barrier.statistics().active_mutations == 0
    front.run_alone(contend, front, barrier)


async def enter(section: object) -> None:
    section.__enter__()  # type: ignore[attr-defined]
