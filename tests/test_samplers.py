"""The samplers against the table of the design: gate, commit, select, evict, abort, capacity."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impl import CheckpointIncompatible, InvariantViolated, Key, Slot, StaleCut, UsageError
from impl.barrier import CheckpointBarrier
from impl.run.samplers import (
    InOrderSampler,
    ReadyFirstSampler,
    Sampler,
    SamplerState,
    TransactionalSampler,
    WeightFifoSampler,
    WindowedSampler,
)


def index(slots: Sequence[Slot]) -> dict[int, Slot]:
    return {slot.group: slot for slot in slots}


def slot(group: int, *, step: int | None = None, weight: int = 0, ready: bool = True, claimed: bool = False) -> Slot:
    return Slot(group, Key(0, group), step, weight, ready, claimed)


slots_of_any_kind = st.lists(
    st.builds(
        slot,
        group=st.integers(0, 30),
        step=st.integers(0, 4),
        weight=st.integers(0, 6),
        ready=st.booleans(),
        claimed=st.just(False),
    ),
    unique_by=lambda slot: slot.group,
    max_size=12,
)


@pytest.mark.parametrize("sampler", [InOrderSampler(1), WeightFifoSampler(1), ReadyFirstSampler(1), WindowedSampler(1)])
def test_shipped_samplers_satisfy_the_protocols(sampler: object) -> None:
    """The controller tells a sampler with the split from one without by the protocol."""
    assert isinstance(sampler, Sampler)
    assert isinstance(sampler, TransactionalSampler)


@pytest.mark.parametrize("lookahead", [0, 1, 3])
async def test_in_order_stamps_count_up_until_the_gate_shuts(lookahead: int) -> None:
    """Gate shut while cursor ≥ version + lookahead: from cursor −1 that leaves lookahead + 1 admissions."""
    barrier = CheckpointBarrier()
    sampler = InOrderSampler(lookahead)
    sampler.bind(2)
    stamps = []
    async with barrier.mutation() as cut:
        while sampler.gate_open:
            stamps.append(sampler.commit_admission(cut))
    assert stamps == list(range(lookahead + 1))
    assert sampler.cursor == lookahead
    sampler.advance(1)
    assert sampler.gate_open


async def test_commit_at_a_shut_gate_is_refused_and_changes_nothing() -> None:
    """Two admitters would pass one opening of the gate; the second has to be refused."""
    barrier = CheckpointBarrier()
    sampler = InOrderSampler(0)
    sampler.bind(2)
    async with barrier.mutation() as cut:
        sampler.commit_admission(cut)
        before = sampler.state()
        with pytest.raises(InvariantViolated, match="gate is shut"):
            sampler.commit_admission(cut)
    assert sampler.state() == before


async def test_commit_with_an_ended_cut_is_refused() -> None:
    """A cut kept beyond its section proves nothing."""
    barrier = CheckpointBarrier()
    sampler = InOrderSampler(0)
    sampler.bind(2)
    async with barrier.mutation() as cut:
        pass
    with pytest.raises(StaleCut):
        sampler.commit_admission(cut)
    assert sampler.cursor == -1


async def test_case_A14_an_occupied_step_is_refused_by_name_and_number() -> None:
    """A cursor behind the buffer must stop the run; dropping the fresh batch would lose it silently."""
    barrier = CheckpointBarrier()
    sampler = InOrderSampler(1)
    sampler.bind(4, occupants=lambda step: (10, 11, 12) if step == 6 else ())
    sampler.load_state(SamplerState("in_order", cursor=5))
    sampler.advance(6)
    async with barrier.mutation() as cut:
        with pytest.raises(InvariantViolated, match=r"step 6 is to be admitted, but 3 groups are stamped"):
            sampler.commit_admission(cut)
    assert sampler.cursor == 5
    assert not sampler.step_is_free(6)
    assert sampler.step_is_free(7)


async def test_windowed_commit_moves_nothing_and_stamps_nothing() -> None:
    """Without a stamp the dispatch cursor means nothing; it stays at −1 in every checkpoint."""
    barrier = CheckpointBarrier()
    sampler = WindowedSampler(1)
    sampler.bind(2)
    async with barrier.mutation() as cut:
        assert [sampler.commit_admission(cut) for _ in range(5)] == [None] * 5
    assert sampler.cursor == -1


@given(slots=slots_of_any_kind, version=st.integers(0, 4), target=st.integers(1, 4))
def test_in_order_selects_exactly_the_groups_of_the_step(slots: list[Slot], version: int, target: int) -> None:
    """Compared with the rule of the table, word for word."""
    sampler = InOrderSampler(1)
    ready = {slot.group for slot in slots if slot.ready and slot.step == version}
    if len(ready) > target:
        with pytest.raises(InvariantViolated, match=rf"step {version} needs {target} group{'s' * (target > 1)} "):
            sampler.select(index(slots), version, target)
        return
    assert set(sampler.select(index(slots), version, target)) == (ready if len(ready) == target else set())


@given(slots=slots_of_any_kind, version=st.integers(0, 6), staleness=st.integers(0, 3), target=st.integers(1, 4))
def test_windowed_selects_only_inside_the_window(slots: list[Slot], version: int, staleness: int, target: int) -> None:
    """Never too old, never not ready, and the oldest of those there are."""
    inside = [slot for slot in slots if slot.ready and max(0, version - staleness) <= slot.weight <= version]
    chosen = WindowedSampler(staleness).select(index(slots), version, target)
    if len(inside) < target:
        assert chosen == ()
    else:
        weights = {slot.group: slot.weight for slot in inside}
        assert len(chosen) == len(set(chosen)) == target
        assert [weights[group] for group in chosen] == sorted(weights.values())[:target]


@given(slots=slots_of_any_kind, version=st.integers(0, 6), staleness=st.integers(0, 3))
def test_what_is_stale_can_never_be_selected_again(slots: list[Slot], version: int, staleness: int) -> None:
    """Giving up a group that a later step could still train would lose work for nothing."""
    sampler = WindowedSampler(staleness)
    stale = set(sampler.stale(index(slots), version))
    for later in range(version, 8):
        for count in range(1, len(slots) + 1):
            assert not stale & set(sampler.select(index(slots), later, count))


def test_windowed_gives_up_old_groups_ready_or_not_but_no_claimed_one() -> None:
    """A claimed group is being trained; what is in flight is aborted by its caller."""
    slots = index([
        slot(1, weight=0), slot(2, weight=0, ready=False), slot(3, weight=0, claimed=True), slot(4, weight=1),
    ])  # fmt: skip
    assert WindowedSampler(1).stale(slots, version=2) == (1, 2)


def test_in_order_never_gives_up_a_group_in_flight() -> None:
    """A slow generation holds its step back; it is not thrown away."""
    slots = index([slot(1, step=0, ready=False), slot(2, step=0)])
    assert InOrderSampler(1).stale(slots, version=1) == (2,)


def test_capacity_needed_is_the_table() -> None:
    """A sampler with a gate needs a whole window of steps, windowed one step."""
    assert InOrderSampler(0).capacity_needed(4) == 4
    assert InOrderSampler(2).capacity_needed(4) == 12
    assert WeightFifoSampler(2).capacity_needed(4) == 12
    assert ReadyFirstSampler(0).capacity_needed(4) == 4
    assert WindowedSampler(5).capacity_needed(4) == 4


def test_a_short_batch_lowers_the_target_of_its_step_alone() -> None:
    """The credit belongs to one step and goes when the step has passed."""
    sampler = InOrderSampler(1)
    sampler.bind(4)
    sampler.credit(1, 3)
    assert [sampler.target(step) for step in (0, 1, 2)] == [4, 1, 4]
    assert sampler.state().shortfalls == ((1, 3),)
    sampler.advance(2)
    assert sampler.state().shortfalls == ()


def test_crediting_more_than_a_step_is_refused() -> None:
    """A failure counted twice would let a step train without groups that still come."""
    sampler = InOrderSampler(1)
    sampler.bind(2)
    sampler.credit(0, 2)
    with pytest.raises(InvariantViolated, match="fall short by 3 of 2"):
        sampler.credit(0, 1)
    assert sampler.target(0) == 0


def test_state_round_trips_and_another_samplers_state_is_refused() -> None:
    """The cursors of two samplers mean different things."""
    sampler = InOrderSampler(1)
    sampler.bind(4)
    state = SamplerState("in_order", cursor=6, shortfalls=((6, 1),), dropped=2)
    sampler.load_state(state)
    assert sampler.state() == state
    with pytest.raises(CheckpointIncompatible, match="'windowed' sampler and this run uses 'in_order'"):
        sampler.load_state(SamplerState("windowed", cursor=-1))
    assert sampler.state() == state


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", None])
def test_wrong_arguments_are_named(value: object) -> None:
    """A typed error that names the argument."""
    with pytest.raises(UsageError, match="lookahead"):
        InOrderSampler(value)  # type: ignore[arg-type]
    for kind in (WeightFifoSampler, ReadyFirstSampler, WindowedSampler):
        with pytest.raises(UsageError, match="staleness"):
            kind(value)  # type: ignore[arg-type]


def test_an_unbound_sampler_says_what_to_do() -> None:
    """The size of a step comes from the loader, through the controller."""
    with pytest.raises(UsageError, match="bind"):
        InOrderSampler(0).target(0)
