"""The loader hands out every prompt of every epoch once, whatever it is saved and restored between."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from impl import (
    CheckpointBarrier,
    CheckpointCorrupt,
    CheckpointIncompatible,
    Cut,
    ForeignCut,
    Key,
    LoaderState,
    PromptLoader,
    StaleCut,
    UsageError,
)
from impl.loaders import EpochOrder

ROOT = Path(__file__).parent.parent
PINNED = (
    [5, 7, 6, 4, 8, 1, 9, 0, 2, 3],
    [2, 6, 7, 1, 9, 4, 3, 0, 8, 5],
    [199316, 622494, 748067],
)


def prompts(count: int) -> list[str]:
    return [f"prompt {number}" for number in range(count)]


def collect(loader: PromptLoader, cut: Cut, batches: int | None = None) -> list[Key]:
    """The keys of the next batches, or of all that are left."""
    found: list[Key] = []
    while batches is None or batches > 0:
        batch = loader.next_batch(cut)
        if batch is None:
            break
        assert batch.prompts == tuple(loader.dataset[key.index] for key in batch.keys)
        found += batch.keys
        batches = None if batches is None else batches - 1
    return found


async def test_every_epoch_hands_out_every_row_once_in_its_own_order() -> None:
    """No row twice, none missing, and the second epoch is shuffled anew."""
    barrier = CheckpointBarrier()
    loader = PromptLoader(prompts(50), batch_size=8, seed=3, epochs=3)
    async with barrier.mutation() as cut:
        keys = collect(loader, cut)
    orders = [[key.index for key in keys if key.epoch == epoch] for epoch in range(3)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in (*orders, range(50))}) == 4
    assert [key.epoch for key in keys] == [0] * 50 + [1] * 50 + [2] * 50


async def test_a_short_last_batch_is_handed_out_short() -> None:
    """No batch spans two epochs; each end is marked, and the bit is set with the very last batch."""
    barrier = CheckpointBarrier()
    loader = PromptLoader(prompts(5), batch_size=2, seed=0, epochs=2)
    seen = []
    async with barrier.mutation() as cut:
        while (batch := loader.next_batch(cut)) is not None:
            seen.append((len(batch.keys), batch.ends_epoch, loader.epoch, loader.position, loader.exhausted))
    assert seen == [
        (2, False, 0, 2, False),
        (2, False, 0, 4, False),
        (1, True, 1, 0, False),
        (2, False, 1, 2, False),
        (2, False, 1, 4, False),
        (1, True, 1, 5, True),
    ]
    assert loader.exhausted


async def test_case_A03_what_a_small_step_leaves_over_comes_next() -> None:
    """One open slot of a batch of four: the other three come before anything else, with and without a save."""
    barrier = CheckpointBarrier()
    async with barrier.checkpoint() as cut:
        whole = collect(PromptLoader(prompts(12), 4, seed=1), cut)
        for restored in (False, True):
            loader = PromptLoader(prompts(12), 4, seed=1)
            first = loader.next_batch(cut, limit=1)
            assert first is not None
            if restored:
                state = loader.state()
                loader = PromptLoader(prompts(12), 4, seed=1)
                loader.load_state(state, cut)
            rest = loader.next_batch(cut, limit=3)
            assert rest is not None
            assert [*first.keys, *rest.keys, *collect(loader, cut)] == whole


async def test_case_A19_a_state_of_any_place_continues_as_if_nothing_had_been() -> None:
    """Every place of one, two and three epochs, the very ends included, into a new loader."""
    barrier = CheckpointBarrier()
    async with barrier.checkpoint() as cut:
        for length, batch_size, epochs in itertools.product((1, 5, 6), (1, 2, 3, 7), (1, 2, 3)):

            def fresh(length: int = length, batch_size: int = batch_size, epochs: int = epochs) -> PromptLoader:
                return PromptLoader(prompts(length), batch_size, seed=11, epochs=epochs)

            whole = collect(fresh(), cut)
            assert len(whole) == length * epochs
            running = fresh()
            done: list[Key] = []
            while True:
                resumed = fresh()
                resumed.load_state(running.state(), cut)
                assert resumed.state() == running.state()
                assert resumed.exhausted is (len(done) == len(whole))
                assert done + collect(resumed, cut) == whole
                if running.exhausted:
                    break
                done += collect(running, cut, batches=1)


async def test_case_A19_an_exhausted_run_ends_and_goes_on_when_there_are_more_epochs_now() -> None:
    """After the boundary save the finished pass is not repeated, as one epoch or as the first of two."""
    barrier = CheckpointBarrier()
    async with barrier.checkpoint() as cut:
        loader = PromptLoader(prompts(6), 3, seed=2, epochs=1)
        done = collect(loader, cut)
        again = PromptLoader(prompts(6), 3, seed=2, epochs=1)
        again.load_state(loader.state(), cut)
        assert again.next_batch(cut) is None
        longer = PromptLoader(prompts(6), 3, seed=2, epochs=2)
        longer.load_state(loader.state(), cut)
        assert done + collect(longer, cut) == collect(PromptLoader(prompts(6), 3, seed=2, epochs=2), cut)


RESTORES = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12)


@given(length=st.integers(1, 12), batch_size=st.integers(1, 5), epochs=st.integers(1, 3), restores=RESTORES)
@example(length=12, batch_size=1, epochs=1, restores=[(1, True)] * 5)
@example(length=12, batch_size=1, epochs=1, restores=[(1, False)] * 5)
def test_case_A20_any_number_of_restores_changes_nothing(
    length: int, batch_size: int, epochs: int, restores: list[tuple[int, bool]]
) -> None:
    """Batches between two restores, into the same object or a new one: the second resume is as right as the first."""

    async def main() -> None:
        barrier = CheckpointBarrier()
        async with barrier.checkpoint() as cut:
            whole = collect(PromptLoader(prompts(length), batch_size, 5, epochs), cut)
            loader = PromptLoader(prompts(length), batch_size, 5, epochs)
            done: list[Key] = []
            for batches, into_a_new_one in restores:
                done += collect(loader, cut, batches=batches)
                state = loader.state()
                if into_a_new_one:
                    loader = PromptLoader(prompts(length), batch_size, 5, epochs)
                loader.load_state(state, cut)
                assert loader.state() == state
            assert done + collect(loader, cut) == whole

    asyncio.run(main())


NEW_PROCESS = """
import asyncio, json, sys
from impl import CheckpointBarrier, LoaderState, PromptLoader

async def main():
    barrier = CheckpointBarrier()
    loader = PromptLoader([f"prompt {n}" for n in range(20)], batch_size=3, seed=9, epochs=2)
    async with barrier.checkpoint() as cut:
        loader.load_state(LoaderState(**json.loads(sys.argv[1])), cut)
        print(json.dumps([loader.next_batch(cut).keys for _ in range(3)]))

asyncio.run(main())
"""


async def test_case_A27_the_same_object_a_new_object_and_a_new_process_continue_alike() -> None:
    """A flag outside the state would make a fresh loader differ from the one that was saved."""
    barrier = CheckpointBarrier()

    def fresh() -> PromptLoader:
        return PromptLoader(prompts(20), batch_size=3, seed=9, epochs=2)

    def next_three(loader: PromptLoader) -> list[list[list[int]]]:
        batches = [loader.next_batch(cut) for _ in range(3)]
        return [[list(key) for key in batch.keys] for batch in batches if batch is not None]

    async with barrier.checkpoint() as cut:
        for place in (0, 1, 5, 7):
            same = fresh()
            collect(same, cut, batches=place)
            state = same.state()
            expected = next_three(same)
            same.load_state(state, cut)
            new = fresh()
            new.load_state(state, cut)
            command = [sys.executable, "-c", NEW_PROCESS, json.dumps(asdict(state))]
            process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
            assert next_three(same) == next_three(new) == json.loads(process.stdout) == expected


def test_the_order_of_an_epoch_is_pinned() -> None:
    """A checkpoint of an older version is resumed by a place in this order: it may never change."""
    assert [EpochOrder(10, 7, 0)[place] for place in range(10)] == PINNED[0]
    assert [EpochOrder(10, 7, 1)[place] for place in range(10)] == PINNED[1]
    assert [EpochOrder(1_000_000, 0, 0)[place] for place in (0, 1, 999_999)] == PINNED[2]


@given(st.integers(1, 300), st.integers(-(2**70), 2**70), st.integers(0, 1000))
def test_an_epoch_order_is_a_permutation(length: int, seed: int, epoch: int) -> None:
    """For every length, also those that fill their square badly."""
    order = EpochOrder(length, seed, epoch)
    assert sorted(order[place] for place in range(len(order))) == list(range(length))
    for place in (-1, length):
        with pytest.raises(IndexError):
            order[place]


async def test_next_batch_wants_a_live_cut_of_one_barrier() -> None:
    """The cursor and the ledger move in one section; the loader belongs to the barrier of its first cut."""
    barrier, other = CheckpointBarrier(), CheckpointBarrier()
    loader = PromptLoader(prompts(4), 2, seed=0)
    async with other.mutation() as stale:
        pass
    with pytest.raises(StaleCut):
        loader.next_batch(stale)
    async with barrier.mutation() as cut:
        assert loader.next_batch(cut) is not None
        state = loader.state()
        async with other.mutation() as foreign:
            with pytest.raises(ForeignCut):
                loader.next_batch(foreign)
        with pytest.raises(ForeignCut, match="exclusive"):
            loader.load_state(state, cut)
    assert loader.state() == state


class Broken(list[str]):
    """A dataset with one row that cannot be read."""

    broken = False

    def __getitem__(self, index: Any) -> Any:
        if self.broken and index == 3:
            raise OSError("the disk")
        return super().__getitem__(index)


async def test_a_row_that_cannot_be_read_leaves_the_loader_where_it_is() -> None:
    """Moved first and read then, the batch would be behind the cursor and in nobody's hands."""
    barrier = CheckpointBarrier()
    dataset = Broken(prompts(4))
    loader = PromptLoader(dataset, 4, seed=0)
    dataset.broken = True
    async with barrier.mutation() as cut:
        before = loader.state()
        with pytest.raises(OSError, match="the disk"):
            loader.next_batch(cut)
        assert loader.state() == before
        dataset.broken = False
        assert len(collect(loader, cut)) == 4


async def test_a_state_of_another_loader_is_refused_with_each_difference() -> None:
    """Both values, and the ways out; nothing changes."""
    barrier = CheckpointBarrier()
    loader = PromptLoader(prompts(6), 2, seed=0)
    async with barrier.checkpoint() as cut:
        collect(loader, cut, batches=1)
        here = loader.state()
        for changed, label in (
            (PromptLoader(prompts(7), 2, seed=0), "dataset length 7 \\(saved\\) and 6 \\(now\\); dataset digest"),
            (PromptLoader(["x", *prompts(6)[1:]], 2, seed=0), "another one: dataset digest"),
            (PromptLoader(prompts(6), 2, seed=1), "another one: seed 1 \\(saved\\) and 0 \\(now\\)\\. "),
            (PromptLoader(prompts(6), 3, seed=0), "another one: batch size 3 \\(saved\\) and 2 \\(now\\)\\. "),
        ):
            with pytest.raises(CheckpointIncompatible, match=label):
                loader.load_state(changed.state(), cut)
            assert loader.state() == here


@pytest.mark.parametrize(
    "change",
    [
        {"position": -1},
        {"position": 7},
        {"position": 6},
        {"position": 3, "exhausted": True},
        {"epoch": -1},
    ],
)
async def test_a_state_where_no_loader_can_be_is_corrupt(change: dict[str, Any]) -> None:
    """Out of the epoch, or an end without the bit, or the bit without the end."""
    loader = PromptLoader(prompts(6), 2, seed=0)
    state = replace(loader.state(), **change)
    with pytest.raises(CheckpointCorrupt):
        loader.load_state(state)
    assert loader.state() == PromptLoader(prompts(6), 2, seed=0).state()


async def test_a_state_beyond_the_epochs_of_now_is_refused_with_the_way_out() -> None:
    """Ending at once would be a success without the work."""
    loader = PromptLoader(prompts(6), 2, seed=0, epochs=1)
    state = replace(loader.state(), epoch=2, position=2)
    with pytest.raises(CheckpointIncompatible, match="epochs=3 or more"):
        loader.load_state(state)


def test_payload_reads_a_prompt_again_and_checks_its_place() -> None:
    """Pending prompts are saved as keys; a key of a longer dataset is not some other row."""
    loader = PromptLoader(prompts(6), 2, seed=0)
    assert loader.payload(Key(3, 5)) == "prompt 5"
    for index in (-1, 6):
        with pytest.raises(CheckpointIncompatible, match="6 rows"):
            loader.payload(Key(0, index))


class MapStyle:
    """Nothing but a length and rows by number, as torch calls a map-style dataset."""

    def __init__(self, rows: dict[int, str], length: int) -> None:
        self._rows = rows
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> str:
        return self._rows[index]


async def test_any_map_style_dataset_is_handed_out_as_a_list_is() -> None:
    """A length and rows by number are all that is asked for; slices, iteration and `in` are not."""
    async with CheckpointBarrier().mutation() as cut:
        expected = collect(PromptLoader(prompts(7), 3, seed=4), cut)
        loader = PromptLoader(MapStyle(dict(enumerate(prompts(7))), 7), 3, seed=4)
        assert loader.state() == PromptLoader(prompts(7), 3, seed=4).state()
        assert collect(loader, cut) == expected


class Overstated(MapStyle):
    """Says that it is longer than it is."""

    def __init__(self) -> None:
        super().__init__(dict(enumerate("abc")), 5)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"dataset": iter("abc")}, "dataset is a str_iterator|dataset is a str_ascii_iterator"),
        ({"dataset": []}, "dataset is empty"),
        ({"dataset": {"a": 1, "b": 2}}, "dataset: it has a length of 2, but no row 0"),
        ({"dataset": Overstated()}, "dataset: it has a length of 5, but no row 3"),
        ({"dataset": None}, "dataset is a NoneType"),
        ({"batch_size": -2}, "batch_size is -2"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 2.0}, "batch_size is 2.0"),
        ({"batch_size": True}, "batch_size is True"),
        ({"epochs": 0}, "epochs is 0"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"seed": None}, "seed is None"),
        ({"fingerprint": ""}, "fingerprint is ''"),
    ],
)
def test_wrong_arguments_are_refused_by_name_and_value(arguments: dict[str, Any], named: str) -> None:
    """When the loader is made, not at the first batch."""
    with pytest.raises(UsageError, match=named):
        PromptLoader(**{"dataset": prompts(3), "batch_size": 2, "seed": 0, **arguments})


async def test_a_limit_is_at_least_one() -> None:
    """A batch of nothing would be taken for the end of the data."""
    barrier = CheckpointBarrier()
    loader = PromptLoader(prompts(3), 2, seed=0)
    async with barrier.mutation() as cut:
        with pytest.raises(UsageError, match="limit is 0"):
            loader.next_batch(cut, limit=0)


def test_the_state_is_plain_and_immutable() -> None:
    """It is read in a window and written later, field by field."""
    state = PromptLoader(prompts(3), 2, seed=0).state()
    assert LoaderState(**json.loads(json.dumps(asdict(state)))) == state
    with pytest.raises(AttributeError):
        state.position = 1  # type: ignore[misc]
