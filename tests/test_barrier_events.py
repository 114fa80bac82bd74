"""What a tracer is told, in which order, and that each event falls into the stretch that changes the state."""

from __future__ import annotations

from contextlib import suppress

import pytest
from barrier_holders import Events, Holder, exclusive, holding, shared
from front_ends import FrontEnd, on_both_front_ends

from impl import BarrierClosed, BarrierReentered, DrainTimeout, WouldBlock
from impl.barrier import BarrierFrontEnd


def traced(front: FrontEnd, hold_warning: float | None = None) -> tuple[BarrierFrontEnd, Events]:
    events = Events()
    return front.barrier(trace=events, hold_warning=hold_warning), events


@on_both_front_ends
async def test_a_free_entry_is_a_request_and_then_an_entry(front: FrontEnd) -> None:
    """With the number of the section, the task and the kind; the number is the same from request to end."""
    barrier, events = traced(front)

    async def each_once() -> None:
        async with barrier.mutation("writes"):
            assert events.actions() == ["request_slot", "enter_slot"]
        with barrier.mutation_nowait("now"):
            pass
        async with barrier.checkpoint():
            pass

    await front.start(each_once, name="me").value()
    assert events.seen == [
        (action, {"section": section, "task": "me", "kind": kind})
        for section, kind, actions in (
            (1, "writes", ("request_slot", "enter_slot", "leave_slot")),
            (2, "now", ("request_slot", "enter_slot", "leave_slot")),
            (3, "checkpoint", ("request_cut", "open_cut", "close_cut")),
        )
        for action in actions
    ]


@on_both_front_ends
async def test_a_grant_is_told_inside_the_release_that_gives_it(front: FrontEnd) -> None:
    """Not when the waiting task runs: the section counts from the release on."""
    barrier, events = traced(front)
    with barrier.mutation_nowait():
        with barrier.detached():
            saver = Holder(front, barrier, exclusive)
        await front.turns(3)
        before = len(events.seen)
    assert events.short()[before:] == ["leave_slot 1", "open_cut 2"]
    assert not saver.inside
    await saver.finish()


@on_both_front_ends
async def test_a_closing_cut_is_told_before_the_batch_it_lets_in_oldest_first(front: FrontEnd) -> None:
    """And the next drain begins after the batch, not before."""
    barrier, events = traced(front)
    saver = await holding(front, barrier, exclusive)
    writers = [await holding(front, barrier, shared) for _ in range(3)]
    second = await holding(front, barrier, exclusive)
    before = len(events.seen)
    saver.leave.set()
    await front.turns(3)
    assert events.short()[before:] == ["close_cut 1", "enter_slot 2", "enter_slot 3", "enter_slot 4"]
    for writer in writers:
        await writer.finish()
    await second.finish()
    assert events.short()[-5:] == ["leave_slot 2", "leave_slot 3", "leave_slot 4", "open_cut 5", "close_cut 5"]


@on_both_front_ends
async def test_a_withdrawal_tells_its_reason_and_then_whom_it_lets_in(front: FrontEnd) -> None:
    """Cancelled, expired and closed are different outcomes for whoever follows the trace."""
    barrier, events = traced(front)
    writer = await holding(front, barrier, shared)
    saver = await holding(front, barrier, exclusive)
    blocked = await holding(front, barrier, shared)
    await saver.task.cancel_and_wait()
    assert events.short()[-2:] == ["withdraw_cut 2", "enter_slot 3"]
    assert events.seen[-2][1]["reason"] == "cancelled"
    with suppress(DrainTimeout):
        async with barrier.checkpoint(timeout=0):
            pass
    assert events.seen[-1] == (
        "withdraw_cut",
        {"section": 4, "task": events.seen[-1][1]["task"], "kind": "checkpoint", "reason": "expired"},
    )
    waiting = [await holding(front, barrier, exclusive), await holding(front, barrier, shared)]
    barrier.close("over")
    assert events.short()[-2:] == ["withdraw_slot 6", "withdraw_cut 5"]
    assert [fields["reason"] for _, fields in events.seen[-2:]] == ["closed", "closed"]
    for each in waiting:
        with pytest.raises(BarrierClosed):
            await each.task.value()
    for each in (writer, blocked):
        await each.finish()


@on_both_front_ends
async def test_a_cancelled_mutation_is_withdrawn_and_a_granted_one_leaves(front: FrontEnd) -> None:
    """A section granted and then cancelled before it resumes was inside, however shortly."""
    barrier, events = traced(front)
    async with barrier.checkpoint():
        with barrier.detached():
            waiting, granted = await holding(front, barrier, shared), await holding(front, barrier, shared)
        await waiting.task.cancel_and_wait()
        assert events.short()[-1] == "withdraw_slot 2"
    granted.task.cancel()
    await granted.task.wait_done()
    assert events.short()[-3:] == ["close_cut 1", "enter_slot 3", "leave_slot 3"]
    async with barrier.mutation():
        with barrier.detached():
            saver = await holding(front, barrier, exclusive)
    saver.task.cancel()
    await saver.task.wait_done()
    assert events.short()[-3:] == ["leave_slot 4", "open_cut 5", "close_cut 5"]


@on_both_front_ends
async def test_a_section_cancelled_first_and_granted_in_the_same_stretch_was_inside_too(front: FrontEnd) -> None:
    """The release knows nothing of the cancellation; who follows the trace sees a grant and a release."""
    barrier, events = traced(front)
    async with barrier.checkpoint():
        with barrier.detached():
            writer = await holding(front, barrier, shared)
        writer.task.cancel()
    await writer.task.wait_done()
    assert writer.task.cancelled
    assert events.short()[-3:] == ["close_cut 1", "enter_slot 2", "leave_slot 2"]


@on_both_front_ends
async def test_a_refused_section_is_no_event(front: FrontEnd) -> None:
    """Nothing changed, so there is nothing to follow."""
    barrier, events = traced(front)
    async with barrier.mutation():
        seen = list(events.seen)
        with pytest.raises(BarrierReentered), barrier.mutation_nowait():
            pass
    async with barrier.checkpoint():
        pass
    saver = await holding(front, barrier, exclusive)
    before = len(events.seen)
    with pytest.raises(WouldBlock), barrier.mutation_nowait():
        pass
    assert len(events.seen) == before
    assert events.seen[: len(seen)] == seen
    await saver.finish()


@on_both_front_ends
async def test_other_parts_speak_through_the_barrier(front: FrontEnd) -> None:
    """`emit` passes an event on as it is, and is silent without a tracer."""
    barrier, events = traced(front)
    barrier.emit("publish", name="step_3", step=3)
    assert events.seen == [("publish", {"name": "step_3", "step": 3})]
    front.barrier().emit("publish", name="step_3")


@on_both_front_ends
async def test_the_hold_watch_and_the_tracer_see_the_same_sections(front: FrontEnd) -> None:
    """Both ask for the slower way through a section; one must not switch the other off."""
    barrier, events = traced(front, hold_warning=100.0)
    async with barrier.mutation():
        pass
    assert events.actions() == ["request_slot", "enter_slot", "leave_slot"]
