"""The barrier on trio, where trio differs from asyncio: cancel scopes, interrupts, nurseries, timers, guest runs."""

from __future__ import annotations

import asyncio
import functools
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing
from barrier_holders import Events, Holder, Open, exclusive, holding, is_idle, shared
from front_ends import FrontEnd, run_test_over
from trio_front_end import TrioFrontEnd

import impl
from impl import BarrierReentered, Ledger, PromptLoader, UsageError, WrongLoop
from impl.trio import CheckpointBarrier

on_trio = functools.partial(run_test_over, [TrioFrontEnd])
on_trio_in_virtual_time = functools.partial(run_test_over, [TrioFrontEnd], virtual_time=True)
BOTH_SIDES = pytest.mark.parametrize("side", [shared, exclusive])


# -- cancel scopes


@BOTH_SIDES
@pytest.mark.parametrize("held", [None, shared, exclusive], ids=["free", "shared", "exclusive"])
@on_trio
async def test_case_B05_a_scope_cancelled_before_the_entry_keeps_the_task_out(
    front: FrontEnd, side: Open, held: Open | None
) -> None:
    """Whoever else is there: nothing is held, nothing was asked for, and no event says otherwise."""
    events = Events()
    barrier = front.barrier(trace=events)
    holder = None if held is None else await holding(front, barrier, held)
    before = len(events.seen)
    with trio.CancelScope() as scope:
        scope.cancel()
        async with side(barrier):
            pytest.fail("entered in a cancelled scope")
    assert scope.cancelled_caught
    assert events.actions()[before:] == []
    if holder is not None:
        await holder.finish()
    assert await is_idle(barrier)


@BOTH_SIDES
@on_trio_in_virtual_time
async def test_a_deadline_around_a_waiting_entry_withdraws_it(front: FrontEnd, side: Open) -> None:
    """`trio.move_on_after` is how a trio program limits any wait."""
    barrier = front.barrier()
    holder = await holding(front, barrier, exclusive)
    with trio.move_on_after(5) as scope:
        async with side(barrier):
            pytest.fail("entered past a holder")
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(5)
    await holder.finish()
    assert await is_idle(barrier)


@BOTH_SIDES
@on_trio
async def test_a_section_ends_in_a_cancelled_scope(front: FrontEnd, side: Open) -> None:
    """Cancellation is a level on trio: every later checkpoint raises again, and the release has none."""
    barrier = front.barrier()
    with trio.CancelScope() as scope:
        async with side(barrier):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert await is_idle(barrier)


@on_trio
async def test_checkpoints_on_their_way_keep_their_order_when_the_first_is_cancelled(front: FrontEnd) -> None:
    """The one behind may ask for the one before as well; that one then gives back what it no longer wants."""
    for victim in range(3):
        for when in range(4):
            barrier = front.barrier()
            arrived: list[int] = []
            served: list[int] = []

            async def save(number: int) -> None:
                arrived.append(number)  # noqa: B023 - each round ends before the next
                async with barrier.checkpoint():  # noqa: B023
                    served.append(number)  # noqa: B023

            tasks = [front.start(save, number) for number in range(3)]
            await front.turns(when)
            tasks[victim].cancel()
            for task in tasks:
                await task.wait_done()
            assert served == [number for number in arrived if number in served]
            assert set(served) >= {0, 1, 2} - {victim}
            assert await is_idle(barrier)


@on_trio
async def test_one_section_for_two_tasks_is_refused_to_the_second(front: FrontEnd) -> None:
    """Also while the first is on its way through the loop, where it has asked for nothing yet."""
    barrier = front.barrier()
    section = barrier.checkpoint()

    async def save() -> None:
        async with section:
            await trio.lowlevel.checkpoint()

    outcomes = [await task.raised() for task in [front.start(save), front.start(save)]]
    assert [type(outcome) for outcome in outcomes if outcome is not None] == [UsageError]
    assert await is_idle(barrier)


# -- interrupts


@on_trio
async def test_entering_and_leaving_are_protected_from_interrupts(front: FrontEnd) -> None:
    """trio raises KeyboardInterrupt between any two lines of a task, which would halve a release."""
    protected: list[bool] = []

    def trace(action: str, /, **_: object) -> None:
        protected.append(trio.lowlevel.currently_ki_protected())

    async def sections() -> None:
        barrier = front.barrier(trace=trace)
        for side in (shared, exclusive):
            async with side(barrier):
                assert not trio.lowlevel.currently_ki_protected()
        with barrier.mutation_nowait():
            assert not trio.lowlevel.currently_ki_protected()

    await front.start(sections).value()
    assert protected == [True] * 9


@BOTH_SIDES
@on_trio
async def test_an_interrupt_while_waiting_withdraws_the_request(front: FrontEnd, side: Open) -> None:
    """trio gives Ctrl-C to the main task wherever that sleeps; nothing stays queued for it."""
    barrier = front.barrier()
    holder = await holding(front, barrier, exclusive)

    @trio.lowlevel.enable_ki_protection
    async def interrupt() -> None:
        # In a protected task: else it would be this one that is interrupted, and not the one that waits.
        signal.raise_signal(signal.SIGINT)

    front.start(interrupt)
    with pytest.raises(KeyboardInterrupt):
        async with side(barrier):
            pytest.fail("entered past a holder")
    figures = barrier.statistics()
    assert (figures.waiting_mutations, figures.waiting_checkpoints) == (0, 0)
    await holder.finish()
    assert await is_idle(barrier)


# -- nurseries, callbacks, system tasks


@on_trio
async def test_a_nursery_child_under_a_section_is_refused_and_its_parent_gives_the_section_back(
    front: FrontEnd,
) -> None:
    """The error of the child ends the nursery inside the section, and that the section, in good order."""
    barrier = front.barrier()

    async def child() -> None:
        async with barrier.mutation("child"):
            pytest.fail("entered under its parent")

    with pytest.raises(ExceptionGroup) as raised:
        async with barrier.mutation("parent"), trio.open_nursery() as nursery:
            nursery.start_soon(child)
    (error,) = raised.value.exceptions
    assert isinstance(error, BarrierReentered)
    assert await is_idle(barrier)


@on_trio
async def test_a_detached_child_of_an_outer_nursery_outlives_the_section_it_was_started_in(front: FrontEnd) -> None:
    """A nursery waits for its children; so the nursery has to be the one outside."""
    barrier = front.barrier()
    saved: list[int] = []

    async def save() -> None:
        async with barrier.checkpoint():
            saved.append(barrier.mutation_version)

    async with trio.open_nursery() as nursery, barrier.mutation():
        with barrier.detached():
            nursery.start_soon(save)
        await front.turns()
        assert saved == []
    assert saved == [1]


@on_trio
async def test_what_inherits_no_context_is_not_bound_by_the_sections_of_its_starter(front: FrontEnd) -> None:
    """Calls by token and system tasks: trio starts both in a context of its own."""
    barrier = front.barrier()
    versions: list[int] = []

    def write() -> None:
        with barrier.mutation_nowait("callback"):
            versions.append(barrier.mutation_version)

    async def write_in_task() -> None:
        write()

    async with barrier.mutation("starter"):
        trio.lowlevel.current_trio_token().run_sync_soon(write)
        trio.lowlevel.spawn_system_task(write_in_task)
        await trio.testing.wait_all_tasks_blocked()
    assert versions == [0, 1]
    assert barrier.mutation_version == 3


# -- timers


@on_trio_in_virtual_time
async def test_no_timer_is_left_when_a_drain_ends_before_its_limit(front: FrontEnd) -> None:
    """Timers are system tasks; each one left would sleep for its limit."""
    barrier = front.barrier(drain_timeout=1000.0)
    for _ in range(3):
        writer = await holding(front, barrier, shared)
        saver = await holding(front, barrier, exclusive)
        assert front.timers() == 1
        await writer.finish()
        await saver.finish()
        await front.turns(2)
        assert front.timers() == 0


@on_trio_in_virtual_time
async def test_a_tracer_that_raises_in_a_timer_is_logged_and_the_run_goes_on(
    front: FrontEnd, caplog: pytest.LogCaptureFixture
) -> None:
    """trio ends a whole run for an error in a system task; a faulty tracer is no reason for that."""
    caplog.clear()

    def trace(action: str, /, **_: object) -> None:
        if action == "withdraw_cut":
            raise ValueError("a faulty tracer")

    barrier = front.barrier(trace=trace, drain_timeout=5.0)
    writer = await holding(front, barrier, shared)
    saver = Holder(front, barrier, exclusive)
    await front.sleep(10.0)
    await writer.finish()
    await saver.task.raised()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a faulty tracer"]


# -- runs


def test_a_section_moved_to_the_host_of_a_guest_run_is_given_back_in_the_run() -> None:
    """The host shares the thread with trio and is no part of the run: nothing may be rescheduled from there."""
    events = Events()
    barrier = CheckpointBarrier(trace=events)
    opened: list[object] = []

    async def guest() -> None:
        section = barrier.mutation_nowait()
        section.__enter__()
        opened.append(section)
        with barrier.detached():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(save)

    async def save() -> None:
        async with barrier.checkpoint():
            pass

    async def host() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        trio.lowlevel.start_guest_run(
            guest, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=done.set_result
        )
        while not opened or "request_cut" not in events.actions():
            await asyncio.sleep(0)
        opened[0].__exit__(None, None, None)  # type: ignore[attr-defined]
        (await done).unwrap()

    asyncio.run(host())
    assert events.actions()[-3:] == ["leave_slot", "open_cut", "close_cut"]
    assert barrier._core.free


def test_the_barrier_of_the_other_library_is_refused_and_the_right_one_named() -> None:
    """Both are called CheckpointBarrier, and the import is easily mistaken."""

    async def use(barrier: CheckpointBarrier | impl.CheckpointBarrier) -> None:
        async with barrier.mutation():
            pass

    with pytest.raises(WrongLoop, match=r"impl\.trio\.CheckpointBarrier"):
        trio.run(use, impl.CheckpointBarrier())
    with pytest.raises(WrongLoop, match=r"`impl\.CheckpointBarrier`"):
        asyncio.run(use(CheckpointBarrier()))


@on_trio
async def test_ledger_and_loader_work_with_the_barrier_of_trio(front: FrontEnd) -> None:
    """They open no section by themselves: a cut of their barrier is all they want."""
    barrier, loader = front.barrier(), PromptLoader(["2+2", "3*3", "7-5"], batch_size=2, seed=0)
    ledger = Ledger(barrier)
    async with barrier.mutation("prompt_reservations") as cut:
        batch = loader.next_batch(cut)
        assert batch is not None
        admission = ledger.reserve(cut, batch.keys)
    async with barrier.mutation("admission") as cut:
        ledger.admit(cut, admission, step=0)
    async with barrier.checkpoint() as cut:
        assert loader.state().position == 2
        assert [entry.step for entry in ledger.snapshot(cut, ()).entries.values()] == [0, 0]


def test_without_trio_the_import_says_what_to_install() -> None:
    """`No module named 'trio'` from inside a module called trio would puzzle."""
    program = "import sys; sys.modules['trio'] = None; import impl; import impl.trio"
    root = Path(__file__).parent.parent
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=False)
    assert result.returncode == 1
    assert "pip install 'cleancut[trio]'" in result.stderr.splitlines()[-1]
