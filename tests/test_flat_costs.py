"""What a prompt costs does not grow with what is pending, and the indexes that make it so answer as a pass would.

No clock: what is counted is the steps of the interpreter, and the memory that a call takes. `bench/scale.py` has the
microseconds.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from buffer_situations import dispatch, make_ready, new_buffer
from hypothesis import given
from hypothesis import strategies as st
from naive_ledger import NaiveLedger

from impl import (
    Admission,
    Batch,
    BufferSnapshot,
    CheckpointBarrier,
    Cut,
    InvariantViolated,
    Key,
    Ledger,
    LedgerEntry,
    Phase,
    Slot,
    SparePool,
)
from impl.run import GroupIndex, PendingGroups

Operation = tuple[str, int, int, int]

operations = st.lists(
    st.tuples(
        st.sampled_from(
            ["reserve", "reserve", "admit", "admit", "remove", "drop", "drop_batch", "replace", "fail", "save"]
        ),
        st.integers(0, 20),
        st.integers(0, 20),
        st.integers(-1, 4),
    ),
    max_size=40,
)


def performed(ledger: Ledger, cut: Cut, made: list[Admission], operation: Operation) -> object:
    """What the ledger says to an operation; a refusal stands as its type."""
    name, number, step, keys, admission = read(operation, made)
    try:
        match name:
            case "reserve":
                return ledger.reserve(cut, keys)
            case "admit":
                return ledger.admit(cut, admission, step)
            case "remove":
                return ledger.remove_committed(number)
            case "drop":
                return ledger.drop(cut, number, "failed")
            case "drop_batch":
                ledger.drop_batch(cut, keys, "remainder")
                return None
            case "replace":
                return ledger.replace(cut, number, keys[0], None, step)
            case "fail":
                return ledger.fail_attempt(cut, number, "transient")
            case _:
                ledger.load(cut, ledger.snapshot(cut, ()))
                return None
    except InvariantViolated:
        return InvariantViolated


def expected(naive: NaiveLedger, made: list[Admission], operation: Operation) -> object:
    """What the naive ledger says to it."""
    name, number, step, keys, admission = read(operation, made)
    try:
        match name:
            case "reserve":
                return naive.reserve(keys)
            case "admit":
                return naive.admit(admission, step)
            case "remove":
                return naive.remove_committed(number)
            case "drop":
                return naive.drop(number, "failed")
            case "drop_batch":
                naive.drop_batch(keys, "remainder")
                return None
            case "replace":
                return naive.replace(number, keys[0], step)
            case "fail":
                return naive.fail_attempt(number)
            case _:
                return None
    except InvariantViolated:
        return InvariantViolated


def read(operation: Operation, made: list[Admission]) -> tuple[str, int, int | None, list[Key], Admission]:
    """The arguments that the numbers of an operation stand for."""
    name, number, other, stamp = operation
    keys = [Key(0, (number + place * (other % 3)) % 25) for place in range(other % 4 + 1)]
    admission = made[number % len(made)] if made else Admission(number, (other,), ())
    return name, number, None if stamp < 0 else stamp, keys, admission


async def agree(script: list[Operation]) -> bool:
    """Whether ledger and naive ledger say the same of everything, after each of the operations."""
    barrier = CheckpointBarrier()
    ledger, naive = Ledger(barrier), NaiveLedger()
    made: list[Admission] = []
    async with barrier.checkpoint() as cut:
        for operation in script:
            found = performed(ledger, cut, made, operation)
            if found != expected(naive, made, operation) or not same_views(ledger, naive):
                return False
            if isinstance(found, Admission):
                made.append(found)
    return True


def same_views(ledger: Ledger, naive: NaiveLedger) -> bool:
    return (
        list(ledger.entries.items()) == list(naive.entries().items())
        and all(ledger.admissions(phase) == naive.admissions(phase) for phase in (None, *Phase))
        and all(ledger.groups_of_step(step) == naive.groups_of_step(step) for step in range(5))
        and all(ledger.group_of(Key(0, index)) == naive.group_of(Key(0, index)) for index in range(25))
        and ledger.phase_counts == naive.phase_counts()
        and ledger.accounts.dropped == naive.dropped
        and list(ledger.accounts.dropped) == list(naive.dropped)
        and (ledger.next_group, ledger.next_admission) == (naive.next_group, naive.next_admission)
    )


@given(operations)
async def test_case_G20_the_indexed_ledger_answers_as_a_pass_over_a_list(script: list[Operation]) -> None:
    """In every order of operations, refusals included: an index may cost nothing in truth."""
    assert await agree(script)


#: Each is what one index would miss, and a script on which that shows.
FORGOTTEN: dict[str, tuple[type, str, Callable[..., Any], list[Operation]]] = {
    "a removed group keeps its key": (
        PendingGroups,
        "remove",
        lambda self, group: self.by_id.pop(group, None) is not None,
        [("reserve", 1, 0, 0), ("remove", 0, 0, 0), ("reserve", 1, 0, 0)],
    ),
    "an admitted group stays without a stamp": (
        PendingGroups,
        "_forget",
        lambda self, entry: self._of_key.pop(entry.key),
        [("reserve", 1, 0, 0), ("admit", 0, 0, 3), ("drop", 0, 0, 0)],
    ),
    "groups come in the order of a set": (
        GroupIndex,
        "of",
        lambda self, name: tuple(sorted(self._groups.get(name, ()), reverse=True)),
        [("reserve", 1, 1, 0), ("admit", 0, 0, 3)],
    ),
    "a name of no group is kept": (
        GroupIndex,
        "discard",
        lambda self, name, group: self._groups[name].discard(group),
        [("reserve", 1, 0, 0), ("drop", 0, 0, 0)],
    ),
}


@pytest.mark.parametrize("forgotten", FORGOTTEN)
async def test_an_index_that_forgets_is_found(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: each index has a wrong version that it finds."""
    owner, name, wrong, script = FORGOTTEN[forgotten]
    assert await agree(script)
    monkeypatch.setattr(owner, name, wrong)
    try:
        noticed = not await agree(script)
    except LookupError:
        noticed = True  # by the index itself, on the way
    assert noticed


def steps_of(call: Callable[[], object]) -> int:
    """How many instructions the interpreter runs in a call; deterministic, as a clock is not."""
    seen = 0

    def count(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        frame.f_trace_opcodes = True
        seen += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(before)
    return seen


def fresh(first: int, count: int = 10) -> tuple[Key, ...]:
    return tuple(Key(1, first + place) for place in range(count))


def batch(keys: tuple[Key, ...]) -> Batch:
    return Batch(keys, (None,) * len(keys), ends_epoch=False)


async def a_run(pending: int) -> tuple[CheckpointBarrier, Ledger, SparePool]:
    """So many groups pending, every other admission past the gate; as many spares, and as many dropped before."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    pool = SparePool(ledger)
    async with barrier.mutation() as cut:
        for number in range(pending // 10):
            admission = ledger.reserve(cut, [Key(0, number * 10 + place) for place in range(10)])
            if number % 2:
                ledger.admit(cut, admission, number)
        pool.divert(cut, batch(tuple(Key(2, index) for index in range(pending))))
        ledger.drop_batch(cut, [Key(3, index) for index in range(pending)], "failed")
    return barrier, ledger, pool


def costs(cut: Cut, ledger: Ledger, pool: SparePool) -> dict[str, int]:
    """The steps of each operation on ten prompts more."""
    admission = ledger.reserve(cut, fresh(0))
    ledger.admit(cut, admission, 10**6)
    waiting = ledger.reserve(cut, fresh(100))
    found = {
        "reserve": steps_of(lambda: ledger.reserve(cut, fresh(200))),
        "admit": steps_of(lambda: ledger.admit(cut, waiting, 10**6 + 1)),
        "groups_of_step": steps_of(lambda: ledger.groups_of_step(10**6)),
        "group_of": steps_of(lambda: ledger.group_of(Key(1, 3))),
        "phase_counts": steps_of(lambda: ledger.phase_counts),
        "replace": steps_of(lambda: ledger.replace(cut, admission.groups[0], Key(1, 300), None, 10**6)),
        "replace, in another step": steps_of(
            lambda: ledger.replace(cut, admission.groups[1], Key(1, 301), None, 10**6 + 1)
        ),
        "fail_attempt": steps_of(lambda: ledger.fail_attempt(cut, admission.groups[2], "transient")),
        "drop": steps_of(lambda: ledger.drop(cut, admission.groups[2], "failed")),
        "remove_committed": steps_of(lambda: ledger.remove_committed(admission.groups[3])),
        "drop_batch": steps_of(lambda: ledger.drop_batch(cut, fresh(400), "remainder")),
        "divert": steps_of(lambda: pool.divert(cut, batch(fresh(500)))),
        "take_many": steps_of(lambda: pool.take_many(cut, 10)),
        "accounts.snapshot": steps_of(ledger.accounts.snapshot),
    }
    committed = BufferSnapshot({4: Slot(4, Key(0, 4), None, 0, ready=True)}, 1)
    ledger.snapshot(cut, committed)  # the first look at a type is remembered by `isinstance`
    return found | {"snapshot": steps_of(lambda: ledger.snapshot(cut, committed))}


async def test_case_G20_no_operation_takes_more_steps_beside_more_pending_groups() -> None:
    """A pass over the ledger made a prompt cost 0.8 ms beside 80,000; bookkeeping may not eat the run."""
    few: list[dict[str, int]] = []
    many: list[dict[str, int]] = []
    for pending, found in ((200, few), (4_000, many)):
        barrier, ledger, pool = await a_run(pending)
        async with barrier.checkpoint() as cut:
            found.append(costs(cut, ledger, pool))
    assert few[0] == many[0]


async def test_a_pass_over_the_ledger_is_found_by_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counting can fail: with a pass it counts more beside more."""

    def naive(self: PendingGroups, key: Key) -> int | None:
        return next((group for group, entry in self.by_id.items() if entry.key == key), None)

    monkeypatch.setattr(PendingGroups, "with_key", naive)
    found = []
    for pending in (200, 400):
        barrier, ledger, pool = await a_run(pending)
        async with barrier.checkpoint() as cut:
            found.append(costs(cut, ledger, pool))
    assert found[0]["reserve"] < found[1]["reserve"]
    assert found[0]["groups_of_step"] == found[1]["groups_of_step"]


def test_case_G20_dropped_accounts_are_not_copied_in_the_window() -> None:
    """A long run has dropped many; the snapshot is the same few bytes, and reads what there was."""
    barrier = CheckpointBarrier()
    accounts = Ledger(barrier).accounts
    for index in range(20_000):
        accounts.drop(Key(0, index), "failed" if index % 2 else "remainder")
    tracemalloc.start()
    try:
        taken = accounts.snapshot()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000  # a copy takes a megabyte
    accounts.drop(Key(0, 20_000), "later")
    assert len(taken.dropped) == 20_000
    assert Key(0, 20_000) not in taken.dropped
    assert taken.dropped.get(Key(0, 20_000)) is None
    assert (taken.dropped[Key(0, 1)], taken.dropped[Key(0, 2)]) == ("failed", "remainder")


def test_a_snapshot_of_dropped_keys_is_read_while_further_ones_are_dropped() -> None:
    """The writer thread walks through it, long after the window: a dictionary would refuse to go on."""
    accounts = Ledger(CheckpointBarrier()).accounts
    for index in range(100):
        accounts.drop(Key(0, index), "failed")
    walk = iter(accounts.snapshot().dropped.items())
    seen = [next(walk)]
    for index in range(100, 1_000):
        accounts.drop(Key(0, index), "later")
    assert [*seen, *walk] == [(Key(0, index), "failed") for index in range(100)]


def test_a_load_leaves_the_snapshots_before_it_as_they_were() -> None:
    """They may be on their way to the disk still."""
    accounts = Ledger(CheckpointBarrier()).accounts
    empty = accounts.snapshot()
    accounts.drop(Key(0, 1), "failed")
    taken = accounts.snapshot()
    accounts.load(empty)
    accounts.drop(Key(0, 2), "other")
    assert dict(taken.dropped) == {Key(0, 1): "failed"}
    assert dict(accounts.dropped) == {Key(0, 2): "other"}


async def test_what_the_buffer_owns_is_subtracted_without_a_test_of_each_entry() -> None:
    """Ready slots are left out, unready ones and what has no slot stay; as with any other container."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.checkpoint() as cut:
        ledger.reserve(cut, fresh(0))
        slots = {group: Slot(group, Key(1, group), None, 0, ready=group % 2 == 0) for group in (1, 2, 4, 50)}
        index = BufferSnapshot(slots, 8)
        taken = ledger.snapshot(cut, index)
        assert taken == ledger.snapshot(cut, {2, 4, 50})
        assert list(taken.entries) == [0, 1, 3, 5, 6, 7, 8, 9]
        assert isinstance(taken.entries[0], LedgerEntry)


async def test_case_G20_the_index_of_the_buffer_follows_every_change_of_a_slot() -> None:
    """The gate asks who has a step before each admission; the answer is what a pass over the slots would find."""
    buffer = new_buffer(capacity=8)

    def by_a_pass() -> list[tuple[int, ...]]:
        slots = buffer.slots.items()
        return [tuple(sorted(group for group, slot in slots if slot.step == step)) for step in range(4)]

    def by_the_index() -> list[tuple[int, ...]]:
        return [buffer.groups_of_step(step) for step in range(4)]

    await dispatch(buffer, 5, 3, 4, step=1)
    await make_ready(buffer, 1, 2, 6, step=0)
    assert by_the_index() == by_a_pass() == [(1, 2, 6), (3, 4, 5), (), ()]
    async with buffer.barrier.mutation() as cut:
        buffer.hand_over(cut, 5, 7, Key(0, 7), 2, 0)
        buffer.restamp(cut, 6, 2)
        buffer.evict(cut, 2)
        buffer.abort_stale(cut, 3)
        buffer.release_unready(cut, 4)
        assert by_the_index() == by_a_pass() == [(1,), (), (6, 7), ()]
        taken = buffer.claim(cut, (1,), 0)
        assert by_the_index() == by_a_pass() == [(1,), (), (6, 7), ()]
        buffer.finish(cut, taken)
    async with buffer.barrier.checkpoint() as cut:
        kept = buffer.snapshot(cut)
        assert by_the_index() == by_a_pass() == [(), (), (6, 7), ()]
        buffer.load(cut, [Slot(9, Key(0, 9), 3, 0), kept.slots[6]])
        assert by_the_index() == by_a_pass() == [(), (), (6,), (9,)]
