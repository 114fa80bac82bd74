"""The ledger in a checkpoint: without what others own, immutable, and refused when it contradicts itself."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from impl import (
    AccountsSnapshot,
    CheckpointBarrier,
    CheckpointCorrupt,
    Key,
    Ledger,
    LedgerEntry,
    LedgerSnapshot,
    Phase,
)


async def a_snapshot() -> LedgerSnapshot:
    """Two admissions, one of them past the gate; one prompt trained and one dropped."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.checkpoint() as cut:
        ledger.admit(cut, ledger.reserve(cut, [Key(0, index) for index in range(3)]), step=4)
        ledger.reserve(cut, [Key(0, 7)], ["a prompt of its own"])
        ledger.drop(cut, 1, "failed")
        ledger.accounts.train(Key(0, 9))
        return ledger.snapshot(cut, ())


async def test_what_others_own_is_left_out() -> None:
    """On disk a group has one owner: ledger minus ready and claimed."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.checkpoint() as cut:
        ledger.reserve(cut, [Key(0, index) for index in range(4)])
        taken = ledger.snapshot(cut, owned_elsewhere={1, 3})
    assert list(taken.entries) == [0, 2]
    assert list(ledger.entries) == [0, 1, 2, 3]
    assert (taken.next_group, taken.next_admission) == (4, 1)


async def test_a_snapshot_does_not_change_with_the_ledger() -> None:
    """It is written long after the window; what was read stays as it was."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.checkpoint() as cut:
        admission = ledger.reserve(cut, [Key(0, index) for index in range(4)])
        taken = ledger.snapshot(cut, ())
        entries, accounts = dict(taken.entries), (taken.accounts.trained, dict(taken.accounts.dropped))
        ledger.admit(cut, admission, 0)
        ledger.fail_attempt(cut, 0, "transient")
        ledger.drop(cut, 1, "failed")
        ledger.remove_committed(2)
        ledger.accounts.train(Key(0, 2))
        ledger.reserve(cut, [Key(1, 0)])
    assert dict(taken.entries) == entries
    assert (taken.accounts.trained, dict(taken.accounts.dropped)) == accounts
    with pytest.raises(TypeError):
        taken.entries[0] = None  # type: ignore[index]


async def test_load_and_snapshot_are_inverse() -> None:
    """Save, load, save is a fixed point, and ids go on where they were."""
    taken = await a_snapshot()
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.checkpoint() as cut:
        ledger.reserve(cut, [Key(3, 3)])
        ledger.load(cut, taken)
        assert ledger.snapshot(cut, ()) == taken
        assert ledger.reserve(cut, [Key(5, 5)]).groups == (4,)
    assert [admission.groups for admission in ledger.admissions()] == [(0, 2), (3,), (4,)]
    assert [admission.groups for admission in ledger.admissions(Phase.RESERVED)] == [(3,), (4,)]
    assert ledger.groups_of_step(4) == (0, 2)
    assert ledger.entries[3].payload == "a prompt of its own"


async def test_a_loaded_admission_is_admitted_once() -> None:
    """The records that `admissions` rebuilds are as good as those of `reserve`."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    taken = await a_snapshot()
    async with barrier.checkpoint() as cut:
        ledger.load(cut, taken)
        (reserved,) = ledger.admissions(Phase.RESERVED)
        assert ledger.admit(cut, reserved, step=5) == (3,)
    assert ledger.admissions(Phase.RESERVED) == ()


def changed(snapshot: LedgerSnapshot, group: int, entry: LedgerEntry) -> LedgerSnapshot:
    return replace(snapshot, entries=MappingProxyType({**snapshot.entries, group: entry}))


async def contradictions() -> dict[str, LedgerSnapshot]:
    good = await a_snapshot()
    first, reserved = good.entries[0], good.entries[3]
    return {
        "stands under the name": changed(good, 2, first),
        "next group": changed(good, 50, replace(reserved, group=50)),
        "next admission": changed(good, 3, replace(reserved, admission=50)),
        "are both": changed(good, 2, replace(good.entries[2], key=first.key)),
        "was trained or dropped": changed(good, 3, replace(reserved, key=Key(0, 9))),
        "trained or dropped": changed(good, 3, replace(reserved, key=Key(0, 1))),
        "only reserved, but stamped": changed(good, 3, replace(reserved, step=4)),
        "disagree": changed(good, 2, replace(good.entries[2], step=5)),
        "admission 0 disagree": changed(good, 2, replace(good.entries[2], phase=Phase.RESERVED, step=None)),
    }


async def test_a_snapshot_that_contradicts_itself_is_refused_and_changes_nothing() -> None:
    """Each contradiction by itself, named; the ledger stays as it was."""
    for message, snapshot in (await contradictions()).items():
        barrier = CheckpointBarrier()
        ledger = Ledger(barrier)
        async with barrier.checkpoint() as cut:
            ledger.reserve(cut, [Key(8, 8)])
            before = ledger.snapshot(cut, ())
            with pytest.raises(CheckpointCorrupt, match=message):
                ledger.load(cut, snapshot)
            assert ledger.snapshot(cut, ()) == before


def test_an_empty_snapshot_is_consistent() -> None:
    """The first checkpoint of a run may hold nothing at all."""
    LedgerSnapshot(MappingProxyType({}), 0, 0, AccountsSnapshot.empty()).require_consistent()
