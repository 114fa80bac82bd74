"""`weight_fifo` and `ready_first` against the table of the design: a gate that counts groups, and what a step takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_turns import turns

from impl import CheckpointIncompatible, InvariantViolated, Key, Slot, UsageError
from impl.barrier import CheckpointBarrier
from impl.run.samplers import CountedGateSampler, ReadyFirstSampler, SamplerState, WeightFifoSampler

BOTH = [WeightFifoSampler, ReadyFirstSampler]
Kind = type[WeightFifoSampler] | type[ReadyFirstSampler]


def index(slots: Sequence[Slot]) -> dict[int, Slot]:
    return {slot.group: slot for slot in slots}


def slot(group: int, weight: int = 0, *, ready: bool = True, claimed: bool = False) -> Slot:
    return Slot(group, Key(0, group), None, weight, ready, claimed)


def bound(kind: Kind, staleness: int, groups: int = 2) -> CountedGateSampler:
    sampler = kind(staleness)
    sampler.bind(groups)
    return sampler


async def admitted_until_shut(sampler: CountedGateSampler) -> int:
    barrier = CheckpointBarrier()
    count = 0
    async with barrier.mutation() as cut:
        while sampler.gate_open:
            assert sampler.commit_admission(cut) is None
            count += 1
    return count


slots_of_any_kind = st.lists(
    st.builds(
        slot, st.integers(0, 30), st.integers(0, 6), ready=st.booleans(), claimed=st.just(False)
    ),
    unique_by=lambda each: each.group,
    max_size=12,
)  # fmt: skip


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("staleness", [0, 1, 3])
async def test_the_gate_shuts_when_the_groups_to_come_fill_the_window(kind: Kind, staleness: int) -> None:
    """From cursor −1 that leaves staleness + 1 admissions; each train step done opens it for one more."""
    sampler = bound(kind, staleness)
    assert await admitted_until_shut(sampler) == staleness + 1
    assert sampler.cursor == staleness
    sampler.advance(1)
    assert await admitted_until_shut(sampler) == 1


@pytest.mark.parametrize("kind", BOTH)
async def test_groups_that_will_not_come_are_not_counted(kind: Kind) -> None:
    """A gate that counted admissions alone would stay shut for ever after a few drops."""
    sampler = bound(kind, 0)
    assert await admitted_until_shut(sampler) == 1
    waiter = asyncio.create_task(sampler.wait_until_admissible())
    await turns()
    assert not waiter.done()
    sampler.record_drop()
    await waiter
    assert await admitted_until_shut(sampler) == 1
    sampler.record_drop()
    sampler.record_drop()
    assert await admitted_until_shut(sampler) == 1


@pytest.mark.parametrize("kind", BOTH)
@given(
    cursor=st.integers(-1, 5), dropped=st.integers(0, 9), version=st.integers(0, 5), staleness=st.integers(0, 3),
    groups=st.integers(1, 4),
)  # fmt: skip
def test_the_gate_is_the_rule_of_the_table(
    kind: Kind, cursor: int, dropped: int, version: int, staleness: int, groups: int
) -> None:
    """Shut while N · cursor − dropped ≥ N · (version + s), word for word, also after a restore."""
    sampler = bound(kind, staleness, groups)
    sampler.load_state(SamplerState(sampler.name, cursor, (), dropped))
    sampler.advance(version)
    assert sampler.gate_open == (not groups * cursor - dropped >= groups * (version + staleness))


@pytest.mark.parametrize("kind", BOTH)
async def test_a_commit_at_a_shut_gate_is_refused_and_changes_nothing(kind: Kind) -> None:
    """There is one admitter, and it waits before it asks for the slot."""
    sampler = bound(kind, 0)
    await admitted_until_shut(sampler)
    before = sampler.state()
    async with CheckpointBarrier().mutation() as cut:
        with pytest.raises(InvariantViolated, match="gate is shut"):
            sampler.commit_admission(cut)
    assert sampler.state() == before


@given(slots=slots_of_any_kind, version=st.integers(0, 6), staleness=st.integers(0, 3), target=st.integers(1, 4))
def test_weight_fifo_takes_the_oldest_up_to_the_lowest_weight_that_still_generates(
    slots: list[Slot], version: int, staleness: int, target: int
) -> None:
    """Compared with the rule of the table: none too old, none younger than the oldest unready slot, ascending."""
    generating = [each.weight for each in slots if not each.ready]
    eligible = [
        each
        for each in slots
        if each.ready
        and version - staleness <= each.weight <= version
        and all(each.weight <= weight for weight in generating)
    ]
    chosen = WeightFifoSampler(staleness).select(index(slots), version, target)
    if len(eligible) < target:
        assert chosen == ()
    else:
        weight_of = {each.group: each.weight for each in eligible}
        assert len(set(chosen)) == target
        assert [weight_of[group] for group in chosen] == sorted(weight_of.values())[:target]


def test_weight_fifo_takes_more_than_the_minimum_weight() -> None:
    """The bare minimum would stall: one group of weight 0 is left, and a step takes two."""
    slots = index([slot(1, 1), slot(2, 0), slot(3, 1), slot(4, 1, ready=False)])
    assert WeightFifoSampler(1).select(slots, 1, 2) == (2, 1)
    assert WeightFifoSampler(1).select(slots, 1, 3) == (2, 1, 3)
    slow = index([slot(1, 1), slot(2, 0), slot(3, 0, ready=False)])
    assert WeightFifoSampler(1).select(slow, 1, 2) == ()


def test_weight_fifo_evicts_ready_groups_only() -> None:
    """A group in flight is never given up for its age, and a claimed one is being trained."""
    slots = index([slot(1, 0), slot(2, 0, ready=False), slot(3, 0, claimed=True), slot(4, 1)])
    assert WeightFifoSampler(1).stale(slots, 2) == (1,)
    assert WeightFifoSampler(1).stale(slots, 1) == ()


@given(slots=slots_of_any_kind, version=st.integers(0, 6), staleness=st.integers(0, 3))
def test_what_weight_fifo_evicts_could_never_be_selected_again(slots: list[Slot], version: int, staleness: int) -> None:
    """Giving up what a later step could train would lose work for nothing."""
    sampler = WeightFifoSampler(staleness)
    stale = set(sampler.stale(index(slots), version))
    for later in range(version, 8):
        for count in range(1, len(slots) + 1):
            assert not stale & set(sampler.select(index(slots), later, count))


@given(slots=slots_of_any_kind, version=st.integers(0, 6), target=st.integers(0, 4))
def test_ready_first_takes_what_arrived_first_however_old(slots: list[Slot], version: int, target: int) -> None:
    """The index lists ready slots in order of arrival; nothing is held back by what still generates."""
    ready = [each.group for each in slots if each.ready and each.weight <= version]
    chosen = ReadyFirstSampler(0).select(index(slots), version, target)
    assert chosen == (tuple(ready[:target]) if 0 < target <= len(ready) else ())
    assert ReadyFirstSampler(0).stale(index(slots), version) == ()


@pytest.mark.parametrize("kind", BOTH)
async def test_cursor_and_drops_are_in_the_state_and_another_samplers_are_refused(kind: Kind) -> None:
    """With a drop forgotten over a restart the gate would shut for ever."""
    sampler = bound(kind, 1)
    await admitted_until_shut(sampler)
    sampler.record_drop()
    state = sampler.state()
    assert (state.cursor, state.dropped, state.shortfalls) == (1, 1, ())
    resumed = bound(kind, 1)
    resumed.load_state(state)
    assert resumed.state() == state
    assert resumed.gate_open
    before = resumed.state()
    with pytest.raises(CheckpointIncompatible, match="in_order"):
        resumed.load_state(SamplerState("in_order", 3))
    assert resumed.state() == before


@pytest.mark.parametrize("kind", BOTH)
def test_an_unbound_gate_says_what_to_do(kind: Kind) -> None:
    """The size of a step comes from the loader, through the controller."""
    with pytest.raises(UsageError, match="bind"):
        _ = kind(0).gate_open
