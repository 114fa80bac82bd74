"""What a tracer is told, in which order, and that each event falls into the stretch that changes the state."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from barrier_holders import Events, Holder, cancelled, exclusive, holding, shared
from loop_turns import turns

from impl import BarrierClosed, BarrierReentered, CheckpointBarrier, DrainTimeout, WouldBlock


def traced(hold_warning: float | None = None) -> tuple[CheckpointBarrier, Events]:
    events = Events()
    return CheckpointBarrier(trace=events, hold_warning=hold_warning), events


async def test_a_free_entry_is_a_request_and_then_an_entry() -> None:
    """With the number of the section, the task and the kind; the number is the same from request to end."""
    barrier, events = traced()
    task = asyncio.current_task()
    assert task is not None
    task.set_name("me")
    async with barrier.mutation("writes"):
        assert events.actions() == ["request_slot", "enter_slot"]
    with barrier.mutation_nowait("now"):
        pass
    async with barrier.checkpoint():
        pass
    assert events.seen == [
        (action, {"section": section, "task": "me", "kind": kind})
        for section, kind, actions in (
            (1, "writes", ("request_slot", "enter_slot", "leave_slot")),
            (2, "now", ("request_slot", "enter_slot", "leave_slot")),
            (3, "checkpoint", ("request_cut", "open_cut", "close_cut")),
        )
        for action in actions
    ]


async def test_a_grant_is_told_inside_the_release_that_gives_it() -> None:
    """Not when the waiting task runs: the section counts from the release on."""
    barrier, events = traced()
    with barrier.mutation_nowait():
        with barrier.detached():
            saver = Holder(barrier, exclusive)
        await turns(3)
        before = len(events.seen)
    assert events.short()[before:] == ["leave_slot 1", "open_cut 2"]
    assert not saver.inside
    await saver.finish()


async def test_a_closing_cut_is_told_before_the_batch_it_lets_in_oldest_first() -> None:
    """And the next drain begins after the batch, not before."""
    barrier, events = traced()
    saver = await holding(barrier, exclusive)
    writers = [await holding(barrier, shared) for _ in range(3)]
    second = await holding(barrier, exclusive)
    before = len(events.seen)
    saver.leave.set()
    await turns(1)
    assert events.short()[before:] == ["close_cut 1", "enter_slot 2", "enter_slot 3", "enter_slot 4"]
    for writer in writers:
        await writer.finish()
    await second.finish()
    assert events.short()[-5:] == ["leave_slot 2", "leave_slot 3", "leave_slot 4", "open_cut 5", "close_cut 5"]


async def test_a_withdrawal_tells_its_reason_and_then_whom_it_lets_in() -> None:
    """Cancelled, expired and closed are different outcomes for whoever follows the trace."""
    barrier, events = traced()
    writer = await holding(barrier, shared)
    saver = await holding(barrier, exclusive)
    blocked = await holding(barrier, shared)
    await cancelled(saver.task)
    assert events.short()[-2:] == ["withdraw_cut 2", "enter_slot 3"]
    assert events.seen[-2][1]["reason"] == "cancelled"
    with suppress(DrainTimeout):
        async with barrier.checkpoint(timeout=0):
            pass
    assert events.seen[-1] == (
        "withdraw_cut",
        {"section": 4, "task": events.seen[-1][1]["task"], "kind": "checkpoint", "reason": "expired"},
    )
    waiting = [await holding(barrier, exclusive), await holding(barrier, shared)]
    barrier.close("over")
    assert events.short()[-2:] == ["withdraw_slot 6", "withdraw_cut 5"]
    assert [fields["reason"] for _, fields in events.seen[-2:]] == ["closed", "closed"]
    for each in waiting:
        with pytest.raises(BarrierClosed):
            await each.task
    for each in (writer, blocked):
        await each.finish()


async def test_a_cancelled_mutation_is_withdrawn_and_a_granted_one_leaves() -> None:
    """A section granted and then cancelled before it resumes was inside, however shortly."""
    barrier, events = traced()
    saver = await holding(barrier, exclusive)
    waiting, granted = await holding(barrier, shared), await holding(barrier, shared)
    await cancelled(waiting.task)
    assert events.short()[-1] == "withdraw_slot 2"
    saver.leave.set()
    await turns(1)
    await cancelled(granted.task)
    assert events.short()[-3:] == ["close_cut 1", "enter_slot 3", "leave_slot 3"]
    writer = await holding(barrier, shared)
    second = await holding(barrier, exclusive)
    writer.leave.set()
    await turns(1)
    await cancelled(second.task)
    assert events.short()[-2:] == ["open_cut 5", "close_cut 5"]


async def test_a_refused_section_is_no_event() -> None:
    """Nothing changed, so there is nothing to follow."""
    barrier, events = traced()
    async with barrier.mutation():
        seen = list(events.seen)
        with pytest.raises(BarrierReentered), barrier.mutation_nowait():
            pass
    async with barrier.checkpoint():
        pass
    saver = await holding(barrier, exclusive)
    before = len(events.seen)
    with pytest.raises(WouldBlock), barrier.mutation_nowait():
        pass
    assert len(events.seen) == before
    assert events.seen[: len(seen)] == seen
    await saver.finish()


async def test_a_callback_has_no_task() -> None:
    """A section opened by a callback is nobody's task."""
    barrier, events = traced()

    def callback() -> None:
        with barrier.mutation_nowait():
            pass

    asyncio.get_running_loop().call_soon(callback)
    await turns(1)
    assert [fields["task"] for _, fields in events.seen] == [None, None, None]


async def test_other_parts_speak_through_the_barrier() -> None:
    """`emit` passes an event on as it is, and is silent without a tracer."""
    barrier, events = traced()
    barrier.emit("publish", name="step_3", step=3)
    assert events.seen == [("publish", {"name": "step_3", "step": 3})]
    CheckpointBarrier().emit("publish", name="step_3")


def test_the_hold_watch_and_the_tracer_see_the_same_sections() -> None:
    """Both ask for the slower way through a section; one must not switch the other off."""

    async def main() -> list[str]:
        barrier, events = traced(hold_warning=100.0)
        async with barrier.mutation():
            pass
        return events.actions()

    assert asyncio.run(main()) == ["request_slot", "enter_slot", "leave_slot"]
