"""The loader over torchdata: every row of every epoch once, in one order, wherever it is saved and restored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import msgspec
import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata_loaders import QUIET, dataloader, loader, prompts

from impl import (
    CheckpointBarrier,
    CheckpointCorrupt,
    CheckpointIncompatible,
    Cut,
    Indexed,
    Key,
    Loader,
    TorchdataLoaderState,
    TorchdataPromptLoader,
    UsageError,
)

pytestmark = QUIET


def collect(source: TorchdataPromptLoader, cut: Cut, batches: int | None = None) -> list[Key]:
    """The keys of the next batches, or of all that are left."""
    found: list[Key] = []
    while batches is None or batches > 0:
        batch = source.next_batch(cut)
        if batch is None:
            break
        assert batch.prompts == tuple(source.payload(key) for key in batch.keys)
        found += batch.keys
        batches = None if batches is None else batches - 1
    return found


def through_a_file(state: TorchdataLoaderState) -> TorchdataLoaderState:
    """The state as a checkpoint brings it back."""
    return msgspec.convert(json.loads(json.dumps(asdict(state))), TorchdataLoaderState, strict=True)


def test_it_is_a_loader() -> None:
    """The controller asks nothing else of it."""
    assert isinstance(loader(), Loader)


async def test_own_batches_are_regrouped_and_each_epoch_has_its_own_order() -> None:
    """Own batches of 3, a run's batches of 4: short at the end of an epoch, none spans two."""
    async with CheckpointBarrier().mutation() as cut:
        source = loader(rows=10, epochs=2)
        seen = []
        while (batch := source.next_batch(cut)) is not None:
            seen.append((len(batch.keys), {key.epoch for key in batch.keys}, batch.ends_epoch, source.exhausted))
        keys = collect(loader(rows=10, epochs=2), cut)
    assert seen == [
        (4, {0}, False, False), (4, {0}, False, False), (2, {0}, True, False),
        (4, {1}, False, False), (4, {1}, False, False), (2, {1}, True, True),
    ]  # fmt: skip
    orders = [[key.index for key in keys if key.epoch == epoch] for epoch in (0, 1)]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({tuple(order) for order in (*orders, range(10))}) == 3


@pytest.mark.parametrize(("own", "batch_size"), [(3, 4), (4, 3), (1, 2), (2, 1), (10, 3), (3, 10), (4, 4)])
async def test_case_A19_a_state_of_any_place_continues_as_if_nothing_had_been(own: int, batch_size: int) -> None:
    """Every place of one, two and three epochs, the very ends included, into a new loader and through a file."""
    async with CheckpointBarrier().checkpoint() as cut:
        for epochs in (1, 2, 3):
            whole = collect(loader(7, own, batch_size, epochs), cut)
            assert len(whole) == 7 * epochs
            running = loader(7, own, batch_size, epochs)
            done: list[Key] = []
            while True:
                resumed = loader(7, own, batch_size, epochs)
                resumed.load_state(through_a_file(running.state()), cut)
                assert resumed.state() == running.state(), "a save soon after a restore is complete"
                assert resumed.exhausted is (len(done) == len(whole))
                assert done + collect(resumed, cut) == whole
                if running.exhausted:
                    break
                done += collect(running, cut, batches=1)


async def test_case_A19_with_worker_processes_every_place_continues_too() -> None:
    """What the workers have read ahead is not counted as handed out."""
    async with CheckpointBarrier().checkpoint() as cut:
        whole = collect(loader(9, 2, 4, 2, num_workers=2), cut)
        assert sorted(whole) == [Key(epoch, row) for epoch in (0, 1) for row in range(9)]
        running = loader(9, 2, 4, 2, num_workers=2)
        done: list[Key] = []
        for _ in range(4):
            done += collect(running, cut, batches=1)
            resumed = loader(9, 2, 4, 2, num_workers=2)
            resumed.load_state(through_a_file(running.state()), cut)
            assert done + collect(resumed, cut) == whole


@pytest.mark.parametrize("same_object", [True, False])
async def test_case_A20_any_number_of_restores_changes_nothing(same_object: bool) -> None:
    """After each batch, into the same object or a new one; the second resume is as right as the first."""
    async with CheckpointBarrier().checkpoint() as cut:
        whole = collect(loader(8, 3, 2, 2), cut)
        source = loader(8, 3, 2, 2)
        done: list[Key] = []
        while not source.exhausted:
            done += collect(source, cut, batches=1)
            state = source.state()
            source = source if same_object else loader(8, 3, 2, 2)
            for _ in range(2):
                source.load_state(state, cut)
                assert source.state() == state
        assert done == whole


async def test_case_A19_an_exhausted_loader_goes_on_when_there_are_more_epochs_now() -> None:
    """And ends at once when there are not."""
    async with CheckpointBarrier().checkpoint() as cut:
        source = loader(6, 4, 3)
        done = collect(source, cut)
        again, longer = loader(6, 4, 3), loader(6, 4, 3, epochs=2)
        again.load_state(source.state(), cut)
        assert again.next_batch(cut) is None
        longer.load_state(source.state(), cut)
        assert done + collect(longer, cut) == collect(loader(6, 4, 3, epochs=2), cut)


async def test_case_A03_what_a_small_step_leaves_over_comes_next() -> None:
    """With and without a save in between; leftovers of the step and of the dataloader's own batch alike."""
    async with CheckpointBarrier().checkpoint() as cut:
        whole = collect(loader(10, 6, 4), cut)
        for restored in (False, True):
            source = loader(10, 6, 4)
            first = source.next_batch(cut, limit=1)
            assert first is not None
            if restored:
                state = source.state()
                source = loader(10, 6, 4)
                source.load_state(state, cut)
            assert [*first.keys, *collect(source, cut)] == whole


async def test_case_A22_what_was_read_ahead_is_part_of_the_state() -> None:
    """`prepare` reads, a save in between keeps it, and it comes first and in order."""
    async with CheckpointBarrier().checkpoint() as cut:
        whole = collect(loader(10, 3, 4), cut)
        source = loader(10, 3, 4)
        await source.prepare()
        assert source.state().own_batches == 2
        assert len(source.state().leftover) == 6
        resumed = loader(10, 3, 4)
        resumed.load_state(through_a_file(source.state()), cut)
        assert collect(resumed, cut) == collect(source, cut) == whole
        await source.prepare()


class Slow(Sequence[str]):
    """Rows that are not there before the test says so, and one that may be broken."""

    def __init__(self) -> None:
        self.rows = prompts(6)
        self.broken: int | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if index == self.broken:
            raise OSError("the disk")
        return self.rows[index]


async def test_a_cancelled_prepare_loses_nothing_of_what_its_thread_reads() -> None:
    """The rows are taken down when they are there, whoever waits for them then."""
    async with CheckpointBarrier().checkpoint() as cut:
        source = loader(6, 2, 2)
        waiting = asyncio.create_task(source.prepare())
        while source._drawing is None:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(UsageError, match=r"load_state was called while prepare\(\) reads"):
            source.load_state(source.state(), cut)
        await asyncio.wait((waiting,))
        await source.prepare()
        assert collect(source, cut) == collect(loader(6, 2, 2), cut)


@pytest.mark.parametrize("how", ["prepare", "next_batch"])
async def test_a_row_that_cannot_be_read_is_read_again_and_nothing_is_skipped(how: str) -> None:
    """The dataloader has moved on by then; it is set back to where the state says."""
    async with CheckpointBarrier().checkpoint() as cut:
        whole = collect(loader(Slow(), 2, 2), cut)
        rows = Slow()
        source = loader(rows, 2, 2)
        found = collect(source, cut, batches=1)
        rows.broken = whole[3].index
        before = source.state()
        for _ in range(2):
            with pytest.raises(OSError, match="the disk"):
                await source.prepare() if how == "prepare" else source.next_batch(cut)
        assert source.state() == before
        rows.broken = None
        assert found + collect(source, cut) == whole


async def test_the_workers_of_a_closed_loader_go_and_it_continues_at_its_place() -> None:
    """A run that ends early must not leave processes behind, and a later one may take the loader again."""
    async with CheckpointBarrier().checkpoint() as cut:
        whole = collect(loader(8, 2, 2, num_workers=2, persistent_workers=True), cut)
        source = loader(8, 2, 2, num_workers=2, persistent_workers=True)
        done = collect(source, cut, batches=2)
        source.close()
        assert done + collect(source, cut) == whole


async def test_a_sampler_without_a_state_of_its_own_is_wound_forward() -> None:
    """torch's own samplers, sequential and random, at every place."""

    samplers: tuple[Callable[[], Any], ...] = (
        lambda: torch.utils.data.SequentialSampler(range(7)),
        lambda: torch.utils.data.RandomSampler(range(7), generator=torch.Generator()),
    )
    async with CheckpointBarrier().checkpoint() as cut:
        for sampler in samplers:
            whole = collect(loader(7, 2, 3, 2, shuffle=False, sampler=sampler()), cut)
            assert sorted(key.index for key in whole if key.epoch == 0) == list(range(7))
            for batches in range(6):
                source, resumed = (loader(7, 2, 3, 2, shuffle=False, sampler=sampler()) for _ in range(2))
                done = collect(source, cut, batches)
                resumed.load_state(source.state(), cut)
                assert done + collect(resumed, cut) == whole


# -- refusals


async def test_a_state_of_another_loader_is_refused_with_each_difference() -> None:
    """A shorter dataset, which torchdata would end early on, before all else; nothing changes."""
    async with CheckpointBarrier().checkpoint() as cut:
        source = loader(10, 3, 4)
        collect(source, cut, batches=1)
        saved = source.state()
        for other, says in (
            (loader(9, 3, 4), "dataset length 10 \\(saved\\) and 9 \\(now\\); dataset digest"),
            (loader([*prompts(9), "x"], 3, 4), "another one: dataset digest"),
            (loader(10, 3, 4, seed=6), "another one: seed 5 \\(saved\\) and 6 \\(now\\)\\. "),
            (loader(10, 3, 5), "another one: batch size 4 \\(saved\\) and 5 \\(now\\)\\. "),
            (loader(10, 2, 4), "another one: batch size of the dataloader 3 \\(saved\\) and 2 \\(now\\)\\. "),
            (loader(10, 3, 4, num_workers=2), "another one: workers of the dataloader 0 \\(saved\\) and 2 \\(now\\)"),
        ):
            before = other.state()
            with pytest.raises(CheckpointIncompatible, match=says):
                other.load_state(saved, cut)
            assert other.state() == before
        with pytest.raises(CheckpointIncompatible, match="epochs=3 or more"):
            loader(10, 3, 4).load_state(replace(saved, epoch=2), cut)


@pytest.mark.parametrize(
    "change",
    [
        {"own_batches": 5},
        {"own_batches": -1},
        {"own_batches": 0},
        {"own_batches": 4},
        {"leftover": (10,)},
        {"leftover": (1, 1)},
        {"dataloader": None},
        {"dataloader": "{"},
        {"dataloader": '{"!":"what"}'},
        {"exhausted": True},
        {"epoch": -1},
    ],
)
async def test_a_state_where_no_loader_can_be_is_corrupt(change: dict[str, Any]) -> None:
    """Damaged or edited; nothing changes."""
    async with CheckpointBarrier().checkpoint() as cut:
        source = loader(10, 3, 4)
        collect(source, cut, batches=1)
        here = loader(10, 3, 4)
        before = here.state()
        with pytest.raises(CheckpointCorrupt):
            here.load_state(replace(source.state(), **change), cut)
        assert here.state() == before


class Longer(torch.utils.data.SequentialSampler):
    """Says another length than it has."""

    says = 4

    def __len__(self) -> int:
        return self.says


async def test_a_dataloader_that_does_not_fit_is_refused_by_name() -> None:
    """When it is made where that can be told, else at the first batch, which then is not handed out."""
    pairs: Any = [(0, "a"), (1, "b")]
    for wrong, says in (
        ([1, 2], "dataloader is a list, but must be a torchdata StatefulDataLoader"),
        (torch.utils.data.DataLoader(pairs), "dataloader is a DataLoader"),
        (StatefulDataLoader(pairs), "its dataset is a list, and a batch of it does not say which rows"),
        (dataloader([], shuffle=False), "its dataset is empty"),
        (dataloader(2, own=3, drop_last=True), "an epoch of it has no batch"),
        (
            dataloader(shuffle=False, sampler=torch.utils.data.RandomSampler(range(10), replacement=True)),
            "draws with replacement",
        ),
        (dataloader(batch_size=1, shuffle=False, own=1, sampler=iter(range(10))), "it has no length"),
    ):
        with pytest.raises(UsageError, match=says):
            TorchdataPromptLoader(wrong, batch_size=2, seed=0)
    Longer.says = 4
    async with CheckpointBarrier().checkpoint() as cut:
        for wrong, says in (
            (dataloader(collate_fn=None), "a batch of it is .* must be a list of .index, prompt. pairs"),
            (dataloader(collate_fn=lambda rows: [row[1] for row in rows]), "collate_fn=list over Indexed"),
            (dataloader(collate_fn=lambda rows: [(10, "x")]), "must be a list of .index, prompt. pairs"),
            (dataloader(collate_fn=lambda rows: [(True, "x")]), "must be a list of .index, prompt. pairs"),
            (dataloader(collate_fn=lambda rows: []), "must be a list of .index, prompt. pairs"),
            (dataloader(collate_fn=lambda rows: [*rows, rows[0]]), "one batch holds a row twice"),
            (dataloader(3, 1, shuffle=False, sampler=Longer(range(3))), "ended after 3 of 4 batches"),
            (dataloader(5, 1, shuffle=False, sampler=Longer(range(5))), "more batches than the 4 of its length"),
        ):
            source = TorchdataPromptLoader(wrong, batch_size=9, seed=0)
            with pytest.raises(UsageError, match=says):
                source.next_batch(cut)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": True}, "batch_size is True"),
        ({"seed": None}, "seed is None"),
        ({"epochs": 1.0}, "epochs is 1.0"),
        ({"fingerprint": ""}, "fingerprint is ''"),
    ],
)
def test_wrong_arguments_are_refused_by_name_and_value(arguments: dict[str, Any], named: str) -> None:
    """As with PromptLoader."""
    with pytest.raises(UsageError, match=named):
        TorchdataPromptLoader(**{"dataloader": dataloader(), "batch_size": 2, "seed": 0, **arguments})


def test_rows_without_numbers_are_refused() -> None:
    """A key is the number of a row."""
    with pytest.raises(UsageError, match="rows is a generator"):
        Indexed(row for row in "ab")  # type: ignore[arg-type]


# -- with the rest of the library
