"""The ledger owns every prompt that was handed out; each write wants a cut, and a refusal changes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from barrier_holders import Events

from impl import (
    Admission,
    CheckpointBarrier,
    Cut,
    ForeignCut,
    InvariantViolated,
    Key,
    Ledger,
    LedgerEntry,
    Phase,
    StaleCut,
    UsageError,
)


def keys(*indexes: int, epoch: int = 0) -> tuple[Key, ...]:
    return tuple(Key(epoch, index) for index in indexes)


def contents(ledger: Ledger) -> tuple[object, ...]:
    """Everything a refusal must leave as it was."""
    return (dict(ledger.entries), ledger.next_group, ledger.next_admission, ledger.accounts.snapshot())


@contextlib.contextmanager
def unchanged(ledger: Ledger) -> Iterator[None]:
    before = contents(ledger)
    yield
    assert contents(ledger) == before


async def test_a_group_goes_from_reserved_to_admitted_to_gone() -> None:
    """The whole life, with its events: each told in the stretch that changes the state."""
    events = Events()
    barrier = CheckpointBarrier(trace=events)
    ledger = Ledger(barrier)
    async with barrier.mutation() as cut:
        admission = ledger.reserve(cut, keys(5, 2))
        assert admission == Admission(0, (0, 1), keys(5, 2))
        assert ledger.entries[0] == LedgerEntry(0, Key(0, 5), Phase.RESERVED, 0)
    async with barrier.mutation() as cut:
        assert ledger.admit(cut, admission, step=7) == (0, 1)
        assert ledger.entries[1] == LedgerEntry(1, Key(0, 2), Phase.ADMITTED, 0, step=7)
    assert ledger.remove_committed(0)
    assert not ledger.remove_committed(0)
    assert list(ledger.entries) == [1]
    assert [event for event in events.seen if "section" not in event[1]] == [
        ("reserve_batch", {"admission": 0, "groups": (0, 1), "keys": keys(5, 2), "reason": None}),
        ("commit_admission", {"admission": 0, "groups": (0, 1), "step": 7}),
        ("remove_committed", {"group": 0}),
    ]


async def test_ids_are_never_given_twice() -> None:
    """Not after a drop, nor after a removal: a late result of the first must not meet the second."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.mutation() as cut:
        first = ledger.reserve(cut, keys(0, 1))
        ledger.drop(cut, first.groups[1], "failed")
        ledger.remove_committed(first.groups[0])
        second = ledger.reserve(cut, keys(2, 3))
    assert (first.groups, second.groups) == ((0, 1), (2, 3))
    assert (first.id, second.id) == (0, 1)


async def test_equal_prompts_of_two_rows_and_two_epochs_are_different_groups() -> None:
    """Identity is the key, never the content."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.mutation() as cut:
        one = ledger.reserve(cut, keys(0, 1), ["same text", "same text"])
        two = ledger.reserve(cut, keys(0, 1, epoch=1), ["same text", "same text"])
    assert len({*one.groups, *two.groups}) == 4


def reserve(ledger: Ledger, cut: Cut) -> object:
    return ledger.reserve(cut, keys(90))


def admit(ledger: Ledger, cut: Cut) -> object:
    return ledger.admit(cut, ledger.admissions(Phase.RESERVED)[0], 3)


def drop(ledger: Ledger, cut: Cut) -> object:
    return ledger.drop(cut, 0, "failed")


def fail(ledger: Ledger, cut: Cut) -> object:
    return ledger.fail_attempt(cut, 0, "transient")


def snapshot(ledger: Ledger, cut: Cut) -> object:
    return ledger.snapshot(cut, ())


@pytest.mark.parametrize("write", [reserve, admit, drop, fail, snapshot])
async def test_case_B20_every_write_wants_a_live_cut_of_its_barrier(write: Callable[[Ledger, Cut], object]) -> None:
    """Refused before any change, the same whether there is work or not; under a right cut it goes through."""
    barrier, other = CheckpointBarrier(), CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.mutation() as stale:
        ledger.reserve(stale, keys(0, 1))
    with unchanged(ledger):
        with pytest.raises(StaleCut):
            write(ledger, stale)
        async with other.checkpoint() as foreign:
            with pytest.raises(ForeignCut):
                write(ledger, foreign)
    async with barrier.checkpoint() as cut:
        write(ledger, cut)


async def test_a_snapshot_and_a_load_want_the_exclusive_cut() -> None:
    """Between two sections the buffer may own what the ledger still lists."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.checkpoint() as cut:
        taken = ledger.snapshot(cut, ())
    async with barrier.mutation() as cut:
        with pytest.raises(ForeignCut):
            ledger.snapshot(cut, ())
        with pytest.raises(ForeignCut):
            ledger.load(cut, taken)


async def test_case_A14_an_occupied_step_stops_the_run_and_names_step_and_groups() -> None:
    """The branch that once dropped a whole fresh batch with a printed line."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.mutation() as cut:
        first = ledger.reserve(cut, keys(0, 1, 2))
        ledger.admit(cut, first, step=4)
        second = ledger.reserve(cut, keys(3, 4))
        with unchanged(ledger), pytest.raises(InvariantViolated, match="step 4, but 3 groups") as raised:
            ledger.admit(cut, second, step=4)
        assert "Nothing was discarded" in str(raised.value)
        assert ledger.admit(cut, second, step=5) == second.groups


async def test_unstamped_admissions_never_occupy_a_step() -> None:
    """A windowed sampler stamps nothing, which does not mean that nothing was admitted."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.mutation() as cut:
        for index in range(3):
            ledger.admit(cut, ledger.reserve(cut, keys(index)), step=None)
    assert [entry.phase for entry in ledger.entries.values()] == [Phase.ADMITTED] * 3


async def test_an_admission_passes_once() -> None:
    """A second time is a second admitter; an admission of another ledger is a mix-up."""
    barrier = CheckpointBarrier()
    ledger, other = Ledger(barrier), Ledger(barrier)
    async with barrier.mutation() as cut:
        admission = ledger.reserve(cut, keys(0, 1))
        ledger.admit(cut, admission, step=None)
        foreign = other.reserve(cut, keys(0, 1, 2))
        with unchanged(ledger):
            with pytest.raises(InvariantViolated, match="admitted before"):
                ledger.admit(cut, admission, step=3)
            with pytest.raises(InvariantViolated, match="has 0 groups of it"):
                ledger.admit(cut, Admission(9, (40,), keys(7)), step=3)
        with unchanged(other), pytest.raises(InvariantViolated, match="not those"):
            other.admit(cut, admission, step=3)
        assert foreign.groups == (0, 1, 2)


async def test_an_admission_whose_groups_were_partly_dropped_admits_the_rest() -> None:
    """Groups may fail before the gate opens; the others go on, together."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.mutation() as cut:
        admission = ledger.reserve(cut, keys(0, 1, 2))
        ledger.drop(cut, 1, "failed")
        assert ledger.admit(cut, admission, step=0) == (0, 2)


async def test_a_prompt_has_one_owner() -> None:
    """Pending, trained or dropped: reserving its key again is refused, and so is the same key twice in one batch."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.mutation() as cut:
        ledger.reserve(cut, keys(0, 1, 2))
        ledger.drop(cut, 1, "failed")
        ledger.remove_committed(2)
        ledger.accounts.train(Key(0, 2))
        with unchanged(ledger):
            with pytest.raises(InvariantViolated, match="group 0 is made of it already"):
                ledger.reserve(cut, keys(7, 0))
            with pytest.raises(InvariantViolated, match="dropped \\('failed'\\)"):
                ledger.reserve(cut, keys(7, 1))
            with pytest.raises(InvariantViolated, match="was trained"):
                ledger.reserve(cut, keys(7, 2))
            with pytest.raises(InvariantViolated, match="already"):
                ledger.reserve(cut, keys(8, 8))


async def test_wrong_arguments_are_named() -> None:
    """Nothing is reserved for half a batch."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.mutation() as cut:
        with unchanged(ledger):
            with pytest.raises(UsageError, match="payloads has 1 value for 2 keys"):
                ledger.reserve(cut, keys(0, 1), ["one"])
            with pytest.raises(UsageError, match="keys is empty"):
                ledger.reserve(cut, ())
        ledger.reserve(cut, keys(0))
        with unchanged(ledger), pytest.raises(UsageError, match="reason"):
            ledger.drop(cut, 0, "")


async def test_drop_accounts_for_the_key_and_refuses_what_is_gone() -> None:
    """A dropped prompt is done on purpose; dropping nothing would be an accounting error."""
    events = Events()
    barrier = CheckpointBarrier(trace=events)
    ledger = Ledger(barrier)
    async with barrier.mutation() as cut:
        ledger.reserve(cut, keys(4, 6))
        assert ledger.drop(cut, 1, "stale_inflight").key == Key(0, 6)
        assert events.seen[-1] == ("drop", {"group": 1, "reason": "stale_inflight"})
        assert ledger.accounts.dropped == {Key(0, 6): "stale_inflight"}
        with unchanged(ledger), pytest.raises(InvariantViolated, match="no such entry"):
            ledger.drop(cut, 1, "failed")


async def test_a_failed_attempt_keeps_the_group_and_is_counted() -> None:
    """The ledger owns the prompt across retries; the event names the attempt that failed."""
    events = Events()
    barrier = CheckpointBarrier(trace=events)
    ledger = Ledger(barrier)
    async with barrier.mutation() as cut:
        ledger.admit(cut, ledger.reserve(cut, keys(0), ["prompt"]), step=2)
        for attempt in range(2):
            ledger.fail_attempt(cut, 0, "transient")
            assert events.seen[-1] == ("fail_attempt", {"group": 0, "attempt": attempt, "cause": "transient"})
        assert ledger.entries[0] == LedgerEntry(0, Key(0, 0), Phase.ADMITTED, 0, 2, "prompt", attempt=2)
        with unchanged(ledger), pytest.raises(InvariantViolated):
            ledger.fail_attempt(cut, 5, "transient")


async def test_remove_committed_needs_no_slot_and_no_loop_turn() -> None:
    """It may fall into an open window: the cut stores the same with and without the entry."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.mutation() as cut:
        ledger.reserve(cut, keys(0, 1))
    async with barrier.checkpoint() as cut:
        before = ledger.snapshot(cut, owned_elsewhere={0})
        assert ledger.remove_committed(0)
        assert ledger.snapshot(cut, owned_elsewhere={0}) == before


async def test_entries_are_a_read_only_view() -> None:
    """Whoever reads cannot write past the cut."""
    ledger = Ledger(CheckpointBarrier())
    with pytest.raises(TypeError):
        ledger.entries[0] = None  # type: ignore[index]


async def test_case_A24_a_payload_changed_by_its_owner_afterwards_is_saved_as_it_was_reserved() -> None:
    """The ledger keeps a copy: a save may write it long after, on another thread."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    turns = [1]
    payload = {"text": "as reserved", "turns": turns}
    async with barrier.mutation() as cut:
        admission = ledger.reserve(cut, [Key(0, 0)], payloads=[payload])
    payload["text"] = "changed"
    turns.append(2)
    assert ledger.entries[admission.groups[0]].payload == {"text": "as reserved", "turns": [1]}
