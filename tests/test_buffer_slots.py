"""The replay buffer's slots: who may do what when, and that a refusal changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import torch
from buffer_situations import claim, commit, dispatch, make_ready, new_buffer, rows_of
from loop_turns import turns

from impl import (
    CheckpointIncompatible,
    CleancutError,
    ForeignCut,
    InvariantViolated,
    Key,
    ReplayBuffer,
    Slot,
    StaleCut,
    UsageError,
)
from impl.barrier import CheckpointBarrier, Cut


async def test_the_permit_belongs_to_the_slot_until_the_step_is_finished() -> None:
    """Given back at claim, a snapshot of claimed groups would exceed the capacity on restore."""
    buffer = new_buffer(capacity=2)
    await make_ready(buffer, 1, 2)
    assert buffer.permits == 0
    opened = await claim(buffer, (1, 2))
    assert buffer.permits == 0
    async with buffer.barrier.mutation() as cut:
        buffer.finish(cut, opened)
    assert buffer.permits == 2
    assert dict(buffer.slots) == {}
    assert list(buffer.plane.groups()) == []
    assert buffer.statistics()["free"] == 2


async def test_a_waiting_dispatch_is_served_by_the_finished_step() -> None:
    """The permit of a trained group goes to the oldest waiter in the same section."""
    buffer = new_buffer(capacity=1)
    await make_ready(buffer, 1)
    waiter = asyncio.create_task(dispatch(buffer, 2))
    await turns()
    assert buffer.waiting_for_permit == 1
    opened = await claim(buffer, (1,))
    async with buffer.barrier.mutation() as cut:
        buffer.finish(cut, opened)
    await waiter
    assert list(buffer.slots) == [2]


async def test_case_B23_a_ready_group_is_never_in_nobodys_hands() -> None:
    """The consumer that was woken is cancelled in the same turn: the group stays, and the second consumer takes it."""
    buffer = new_buffer()
    await dispatch(buffer, 1, 2)
    taken: list[tuple[str, int]] = []

    async def consume(name: str) -> None:
        while not any(slot.ready and not slot.claimed for slot in buffer.slots.values()):
            await buffer.wait_changed()
        async with buffer.barrier.mutation() as cut:
            group = next(slot.group for slot in buffer.slots.values() if slot.ready and not slot.claimed)
            buffer.claim(cut, (group,), 0)
            taken.append((name, group))

    first, second = asyncio.create_task(consume("first")), asyncio.create_task(consume("second"))
    await turns()
    staged = await buffer.plane.stage(2, rows_of(2))
    async with buffer.barrier.mutation() as cut:
        buffer.commit(cut, 2, staged)
        first.cancel()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    assert taken == [("second", 2)]
    statistics = buffer.statistics()
    assert (statistics["unready"], statistics["ready"], statistics["claimed"]) == (1, 0, 1)


async def test_ready_slots_are_listed_in_order_of_arrival() -> None:
    """Samplers that take the earliest arrival read the index in its order, in memory and after a restore."""
    buffer = new_buffer()
    await dispatch(buffer, 1, 2, 3)
    await commit(buffer, 3, 1)
    assert list(buffer.slots) == [2, 3, 1]


async def test_a_claim_sees_columns_written_back_and_the_plane_does_not() -> None:
    """Derived columns live in the claim: a crash before the step ends must not leave half of them on disk."""
    buffer = new_buffer()
    await make_ready(buffer, 1, 2)
    opened = await claim(buffer, (1, 2))
    before = opened.rows(1)
    async with buffer.barrier.mutation() as cut:
        buffer.write_back(cut, opened, 1, {"advantage": torch.ones(2)})
    assert set(opened.rows(1)) == {"tokens", "reward", "advantage"}
    assert set(opened.rows(2)) == set(buffer.plane.rows(1)) == set(before) == {"tokens", "reward"}


async def test_rows_of_a_finished_claim_are_refused() -> None:
    """They may be gone; a reader that kept the claim has to be told."""
    buffer = new_buffer()
    await make_ready(buffer, 1)
    opened = await claim(buffer, (1,))
    async with buffer.barrier.mutation() as cut:
        buffer.finish(cut, opened)
    with pytest.raises(InvariantViolated, match="finished"):
        opened.rows(1)


Refused = Callable[[ReplayBuffer, Cut], object]


async def _one_of_each() -> ReplayBuffer:
    """Group 1 in flight, group 2 ready, group 3 claimed by step 0; one permit free."""
    buffer = new_buffer()
    await dispatch(buffer, 1)
    await make_ready(buffer, 2, 3)
    await claim(buffer, (3,))
    return buffer


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (InvariantViolated, lambda b, cut: b.commit(cut, 9, b.staged[9])),
        (InvariantViolated, lambda b, cut: b.commit(cut, 2, b.staged[2])),
        (InvariantViolated, lambda b, cut: b.commit(cut, 1, b.staged[9])),
        (InvariantViolated, lambda b, cut: b.claim(cut, (2,), 1)),
        (InvariantViolated, lambda b, cut: b.evict(cut, 1)),
        (InvariantViolated, lambda b, cut: b.evict(cut, 3)),
        (InvariantViolated, lambda b, cut: b.evict(cut, 9)),
        (InvariantViolated, lambda b, cut: b.abort_stale(cut, 2)),
        (InvariantViolated, lambda b, cut: b.release_unready(cut, 2)),
        (InvariantViolated, lambda b, cut: b.release_unready(cut, 9)),
        (InvariantViolated, lambda b, cut: b.reserve(cut, 1, Key(0, 1), None, 0, b.permit)),
    ],
    ids=[
        "commit of an unknown group",
        "commit of a ready group",
        "commit of another group's rows",
        "claim while one is open",
        "eviction of an unready slot",
        "eviction of a claimed group",
        "eviction of an unknown group",
        "abort of a ready group",
        "release of a ready group",
        "release of an unknown group",
        "second slot for a group",
    ],
)
async def test_a_refused_action_changes_nothing(error: type[CleancutError], refused: Refused) -> None:
    """Refusing leaves slots, rows and permits as they were, and the buffer in balance."""
    buffer = await _one_of_each()
    buffer.staged = {group: await buffer.plane.stage(group, rows_of(group)) for group in (1, 2, 9)}  # type: ignore[attr-defined]
    buffer.permit = await buffer.acquire_permit()  # type: ignore[attr-defined]
    before = (dict(buffer.slots), sorted(buffer.plane.groups()), buffer.statistics())
    async with buffer.barrier.mutation() as cut:
        with pytest.raises(error):
            refused(buffer, cut)
    assert (dict(buffer.slots), sorted(buffer.plane.groups()), buffer.statistics()) == before


@pytest.mark.parametrize(
    "action",
    [
        lambda b, cut: b.commit(cut, 1, None),
        lambda b, cut: b.claim(cut, (2,), 1),
        lambda b, cut: b.evict(cut, 2),
        lambda b, cut: b.abort_stale(cut, 1),
        lambda b, cut: b.release_unready(cut, 1),
        lambda b, cut: b.snapshot(cut),
        lambda b, cut: b.load(cut, ()),
        lambda b, cut: b.reserve(cut, 8, Key(0, 8), None, 0, None),
    ],
    ids=["commit", "claim", "evict", "abort_stale", "release_unready", "snapshot", "load", "reserve"],
)
async def test_ended_and_foreign_cuts_are_refused(action: Refused) -> None:
    """A writer proves that it is inside a section of this very barrier."""
    buffer = await _one_of_each()
    before = dict(buffer.slots)
    async with buffer.barrier.mutation() as ended:
        pass
    with pytest.raises(StaleCut):
        action(buffer, ended)
    async with CheckpointBarrier("other").mutation() as foreign:
        with pytest.raises(ForeignCut):
            action(buffer, foreign)
    assert dict(buffer.slots) == before


async def test_a_claim_takes_each_group_once_and_at_least_one() -> None:
    """Both would corrupt the count of trained groups."""
    buffer = new_buffer()
    await make_ready(buffer, 1)
    async with buffer.barrier.mutation() as cut:
        for wrong in ((), (1, 1)):
            with pytest.raises(UsageError, match="groups"):
                buffer.claim(cut, wrong, 0)
    assert not buffer.claim_open


async def test_a_snapshot_is_not_changed_by_what_comes_later() -> None:
    """The window hands out references; the live index goes on."""
    buffer = await _one_of_each()
    async with buffer.barrier.checkpoint() as cut:
        snapshot = buffer.snapshot(cut)
    before = dict(snapshot.slots)
    async with buffer.barrier.mutation() as cut:
        buffer.evict(cut, 2)
        buffer.release_unready(cut, 1)
    assert dict(snapshot.slots) == before
    assert snapshot.claimed == {3}
    assert [group for group in (1, 2, 3, 4) if group in snapshot] == [2, 3]


async def test_a_restored_index_takes_a_permit_for_each_slot() -> None:
    """Claimed slots come back as ready ones: the step that had them never finished."""
    buffer = new_buffer(capacity=3)
    async with buffer.barrier.checkpoint() as cut:
        buffer.load(cut, [Slot(7, Key(0, 7), 1, 0, ready=True, claimed=True), Slot(8, Key(0, 8), 1, 0, ready=True)])
    assert buffer.permits == 1
    assert [(slot.ready, slot.claimed) for slot in buffer.slots.values()] == [(True, False)] * 2


async def test_a_restore_that_does_not_fit_is_refused_with_both_numbers_and_the_ways_out() -> None:
    """Truncating would lose prompts in silence."""
    buffer = new_buffer(capacity=1)
    await make_ready(buffer, 1)
    async with buffer.barrier.checkpoint() as cut:
        with pytest.raises(CheckpointIncompatible, match=r"2 buffered groups.*capacity of 1.*load_buffer=False"):
            buffer.load(cut, [Slot(7, Key(0, 7), 1, 0, True), Slot(8, Key(0, 8), 1, 0, True)])
    assert list(buffer.slots) == [1]


async def test_a_restore_under_open_permits_is_refused() -> None:
    """The pumps must not run yet: a permit that is out would exceed the capacity later."""
    buffer = new_buffer()
    permit = await buffer.acquire_permit()
    async with buffer.barrier.checkpoint() as cut:
        with pytest.raises(InvariantViolated, match="before the pumps start"):
            buffer.load(cut, ())
    buffer.give_back(permit)
    assert buffer.permits == buffer.capacity


async def test_statistics_notice_rows_that_nobody_names() -> None:
    """Rows in the plane without a ready slot are lost memory at best, a wrong checkpoint at worst."""
    buffer = new_buffer()
    await make_ready(buffer, 1)
    buffer.plane.clear(1)
    with pytest.raises(InvariantViolated, match=r"groups \[1\] are in only one"):
        buffer.statistics()


async def test_a_committed_group_never_waits_for_the_ones_before_it() -> None:
    """`wait_changed` wakes everybody at once; each looks for itself."""
    buffer = new_buffer()
    await dispatch(buffer, 1)
    seen: list[str] = []

    async def look(name: str, action: Callable[[], Awaitable[None]]) -> None:
        await action()
        seen.append(name)

    watchers = [asyncio.create_task(look(name, buffer.wait_changed)) for name in ("a", "b", "c")]
    await turns()
    await commit(buffer, 1)
    await asyncio.gather(*watchers)
    assert seen == ["a", "b", "c"]
