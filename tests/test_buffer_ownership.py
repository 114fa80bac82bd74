"""The buffer against the ledger: at no time a group without an owner, nor one that comes back after it was settled."""

from __future__ import annotations

import pytest
from buffer_situations import rows_of

from impl import Admission, InvariantViolated, Key, Ledger, ReplayBuffer, TensorPlane, UsageError
from impl.barrier import CheckpointBarrier

STEP = 0


class Pair:
    """A ledger and the buffer bound to it, with one admission of three groups, admitted for step 0."""

    def __init__(self) -> None:
        self.barrier = CheckpointBarrier()
        self.ledger = Ledger(self.barrier)
        self.buffer = ReplayBuffer(self.barrier, 4, TensorPlane(verify="digest"), self.ledger)

    async def reserve(self) -> Admission:
        async with self.barrier.mutation() as cut:
            return self.ledger.reserve(cut, [Key(0, 10), Key(0, 11), Key(0, 12)])

    async def admit(self) -> Admission:
        admission = await self.reserve()
        async with self.barrier.mutation() as cut:
            self.ledger.admit(cut, admission, STEP)
        return admission

    async def dispatch(self, group: int, step: int | None = STEP) -> None:
        permit = await self.buffer.acquire_permit()
        try:
            async with self.barrier.mutation() as cut:
                self.buffer.reserve(cut, group, Key(0, 10 + group), step, 0, permit)
        finally:
            self.buffer.give_back(permit)

    async def commit(self, group: int) -> None:
        """Commit, and leave the ledger's entry behind, as a task that was held up in between would."""
        staged = await self.buffer.plane.stage(group, rows_of(group))
        async with self.barrier.mutation() as cut:
            self.buffer.commit(cut, group, staged)

    async def ready(self, *groups: int) -> Pair:
        await self.admit()
        for group in groups:
            await self.dispatch(group)
            await self.commit(group)
        return self


async def test_only_an_admitted_group_is_dispatched_and_with_its_own_stamp() -> None:
    """A slot for a group that nobody owns, or with another stamp, would be a second truth; the permit comes back."""
    pair = Pair()
    await pair.reserve()
    with pytest.raises(InvariantViolated, match="RESERVED"):
        await pair.dispatch(0, None)
    pair = Pair()
    await pair.admit()
    with pytest.raises(InvariantViolated, match="no entry"):
        await pair.dispatch(7)
    with pytest.raises(InvariantViolated, match="step 0"):
        await pair.dispatch(0, step=1)
    assert dict(pair.buffer.slots) == {}
    assert pair.buffer.permits == pair.buffer.capacity


async def test_a_group_the_ledger_has_given_up_is_not_committed() -> None:
    """A late result of a dropped group must not make it live again."""
    pair = Pair()
    await pair.admit()
    await pair.dispatch(0)
    async with pair.barrier.mutation() as cut:
        pair.ledger.drop(cut, 0, "failed")
    with pytest.raises(InvariantViolated, match="does not own it any more"):
        await pair.commit(0)
    assert list(pair.buffer.plane.groups()) == []


async def test_claim_takes_a_lingering_ledger_entry_with_it() -> None:
    """Else a group trained before its entry is gone comes back from the next checkpoint."""
    pair = await Pair().ready(0, 1)
    assert set(pair.ledger.entries) == {0, 1, 2}
    async with pair.barrier.mutation() as cut:
        claim = pair.buffer.claim(cut, (0, 1), STEP)
        assert set(pair.ledger.entries) == {2}, "in the same section"
    assert pair.ledger.remove_committed(0) is False, "the task that comes later finds nothing to do"
    async with pair.barrier.mutation() as cut:
        pair.buffer.finish(cut, claim)
    assert [pair.ledger.accounts.settled(Key(0, index)) for index in (10, 11, 12)] == ["was trained"] * 2 + [None]


async def test_evict_takes_a_lingering_ledger_entry_with_it_and_accounts_for_the_key() -> None:
    """The prompt has one end: dropped as stale."""
    pair = await Pair().ready(0)
    async with pair.barrier.mutation() as cut:
        pair.buffer.evict(cut, 0)
    assert set(pair.ledger.entries) == {1, 2}
    assert dict(pair.ledger.accounts.dropped) == {Key(0, 10): "stale_ready"}
    assert pair.buffer.permits == pair.buffer.capacity


async def test_abort_stale_drops_slot_and_entry_in_one_section() -> None:
    """In flight the ledger owns the group: it goes from there."""
    pair = Pair()
    await pair.admit()
    await pair.dispatch(0)
    async with pair.barrier.mutation() as cut:
        pair.buffer.abort_stale(cut, 0)
        assert (0 in pair.ledger.entries, 0 in pair.buffer.slots) == (False, False)
    assert dict(pair.ledger.accounts.dropped) == {Key(0, 10): "stale_inflight"}
    assert pair.buffer.statistics()["free"] == pair.buffer.capacity


async def test_a_refused_eviction_or_abort_leaves_slot_and_entry() -> None:
    """A key that is settled already, or an entry that is gone: nothing moves."""
    pair = await Pair().ready(0)
    await pair.dispatch(1)
    pair.ledger.accounts.train(Key(0, 10))
    pair.ledger.remove_committed(1)
    before = (set(pair.ledger.entries), dict(pair.buffer.slots))
    async with pair.barrier.mutation() as cut:
        with pytest.raises(InvariantViolated, match="already was trained"):
            pair.buffer.evict(cut, 0)
        with pytest.raises(InvariantViolated, match="the ledger does not own it"):
            pair.buffer.abort_stale(cut, 1)
    assert (set(pair.ledger.entries), dict(pair.buffer.slots)) == before
    with pytest.raises(InvariantViolated, match=r"groups \[1\] have a slot and a permit, and no entry in the ledger"):
        pair.buffer.check()


@pytest.mark.parametrize("removed_first", [True, False])
async def test_on_disk_a_committed_group_has_one_owner_whether_or_not_its_entry_is_gone(removed_first: bool) -> None:
    """The cut subtracts what the buffer owns, so it does not matter on which side of it the removal falls."""
    pair = await Pair().ready(0)
    if removed_first:
        pair.ledger.remove_committed(0)
    async with pair.barrier.checkpoint() as cut:
        index = pair.buffer.snapshot(cut)
        ledger = pair.ledger.snapshot(cut, index)
    assert set(ledger.entries) == {1, 2}
    assert [group for group in range(3) if group in index] == [0]


async def test_a_claimed_group_is_the_buffers_on_disk() -> None:
    """A crash before the step ends gives it back as ready; forgotten, it would be lost."""
    pair = await Pair().ready(0)
    async with pair.barrier.mutation() as cut:
        pair.buffer.claim(cut, (0,), STEP)
    async with pair.barrier.checkpoint() as cut:
        index = pair.buffer.snapshot(cut)
        ledger = pair.ledger.snapshot(cut, index)
    assert 0 in index
    assert 0 not in ledger.entries
    assert index.claimed == {0}


@pytest.mark.parametrize("settled", [10, 11])
async def test_a_key_is_trained_once(settled: int) -> None:
    """Two groups of one prompt: the second finish is refused before anything moves."""
    pair = await Pair().ready(0, 1)
    async with pair.barrier.mutation() as cut:
        claim = pair.buffer.claim(cut, (0, 1), STEP)
    pair.ledger.accounts.train(Key(0, settled))
    async with pair.barrier.mutation() as cut:
        with pytest.raises(InvariantViolated, match="already was trained"):
            pair.buffer.finish(cut, claim)
    assert set(pair.buffer.slots) == {0, 1}
    assert claim.open
    assert pair.ledger.accounts.trained_count == 1


async def test_one_buffer_has_one_ledger_of_its_own_barrier() -> None:
    """A second ledger would be a second owner; one of another barrier would not be in the cut."""
    pair = Pair()
    pair.buffer.bind_ledger(pair.ledger)
    with pytest.raises(UsageError, match="another ledger"):
        pair.buffer.bind_ledger(Ledger(pair.barrier))
    with pytest.raises(UsageError, match="different barriers"):
        ReplayBuffer(CheckpointBarrier(), 1, TensorPlane(), pair.ledger)
