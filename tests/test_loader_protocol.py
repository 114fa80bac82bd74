"""Loaders of the user's own: what the controller asks of one, and that it says by name what does not fit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, each_once

from impl import (
    Batch,
    CheckpointBarrier,
    Checkpointer,
    Controller,
    ControllerConfig,
    Cut,
    InOrderSampler,
    Key,
    Ledger,
    Loader,
    PromptLoader,
    ReplayBuffer,
    TensorPlane,
    UsageError,
    steps,
)
from impl.inspection.survey import survey
from impl.store import PosixFiles


class OwnLoader:
    """The least that satisfies the protocol, with a way to hand out something wrong."""

    batch_size = 2

    def __init__(self, wrong: object = None) -> None:
        self._inner = PromptLoader(list(range(4)), batch_size=2, seed=0)
        self._wrong = wrong

    @property
    def exhausted(self) -> bool:
        return self._inner.exhausted

    def next_batch(self, cut: Cut) -> Any:
        batch = self._inner.next_batch(cut)
        return self._wrong if self._wrong is not None and batch is not None else batch

    def payload(self, key: Key) -> Any:
        return self._inner.payload(key)

    def state(self) -> Any:
        return self._inner.state()

    def load_state(self, state: Any) -> None:
        self._inner.load_state(state)


class Preparing(OwnLoader):
    """Reads ahead outside of any section, and counts that."""

    prepared = 0

    async def prepare(self) -> None:
        await asyncio.sleep(0)
        self.prepared += 1

    def next_batch(self, cut: Cut) -> Any:
        assert self.prepared, "prepare comes first"
        return super().next_batch(cut)


def controller_over(loader: Any, record: Record) -> Controller:
    return Controller(
        loader=loader,
        generate=record.generate,
        train=record.train,
        sampler=InOrderSampler(1),
        config=ControllerConfig(recovery=False, stall_warning=None),
    )


async def test_a_loader_of_the_users_own_is_enough_with_and_without_prepare() -> None:
    """`prepare` is awaited before each batch, where there is one, and outside of any section."""
    for loader in (OwnLoader(), Preparing()):
        assert isinstance(loader, Loader)
        record = Record()
        report = await controller_over(loader, record).run()
        assert (report.trained, record.trained_keys) == (4, each_once(4))
    assert isinstance(loader, Preparing)
    assert loader.prepared == 3


class Counting(OwnLoader):
    """Its state is a dictionary, whose position counts batches, in an order of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    @property
    def exhausted(self) -> bool:
        return self.batches == 2

    def next_batch(self, cut: Cut) -> Batch | None:
        if self.exhausted:
            return None
        self.batches += 1
        last = 4 - 2 * self.batches
        return Batch((Key(0, last), Key(0, last + 1)), (last, last + 1), ends_epoch=self.exhausted)

    def state(self) -> dict[str, object]:
        of_the_data = {"dataset_length": 4, "dataset_digest": "four", "seed": 0, "batch_size": 2}
        return {**of_the_data, "epoch": 0, "position": self.batches}

    def load_state(self, state: Any) -> None:
        self.batches = state["position"]


async def test_a_state_may_be_a_dictionary_and_is_no_prompt_loaders_because_it_looks_like_one(tmp_path: Path) -> None:
    """Taken for one it would not be restored, since 2 prompts have an owner and not 1; and `fsck` would miss rows."""

    def parts() -> tuple[Ledger, Counting, Checkpointer]:
        barrier, sampler, loader = CheckpointBarrier(), InOrderSampler(1), Counting()
        sampler.bind(2)
        ledger, checkpointer = Ledger(barrier), Checkpointer(tmp_path, barrier)
        buffer = ReplayBuffer(barrier, 4, TensorPlane(), ledger)
        checkpointer.attach(ledger=ledger, loader=loader, sampler=sampler, buffer=buffer)
        return ledger, loader, checkpointer

    ledger, loader, checkpointer = parts()
    async with checkpointer:
        await steps.reserve(ledger, loader)
        await checkpointer.save()
    found = survey(PosixFiles(), str(tmp_path), digests=True)
    assert found.verdict == "holds"
    assert any("does not say which prompts it handed out" in notice for notice in found.notices)
    again, loader, checkpointer = parts()
    async with checkpointer:
        await checkpointer.restore()
    assert loader.batches == 1
    assert [entry.key for entry in again.entries.values()] == [Key(0, 2), Key(0, 3)]


async def test_prepare_holds_no_section() -> None:
    """It may take long; whoever saves meanwhile must not wait for it."""
    held: list[int] = []

    class Watching(Preparing):
        async def prepare(self) -> None:
            held.append(controller.barrier.statistics().active_mutations)
            assert not any(holder.task == "rollout-pump" for holder in controller.barrier.statistics().holders)
            await super().prepare()

    controller = controller_over(Watching(), Record())
    await controller.run()
    assert len(held) == 3


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ([Key(0, 1)], "next_batch returned a list; it must return a Batch"),
        (Batch((), (), False), "0 keys; there must be 1 to 2"),
        (Batch((Key(0, 0), Key(0, 1), Key(0, 2)), ("a", "b", "c"), False), "3 keys; there must be 1 to 2"),
        (Batch((Key(0, 0), Key(0, 1)), ("a",), False), "1 prompt for 2 keys"),
        (Batch((Key(0, 0), Key(1, 1)), ("a", "b"), False), r"keys of the epochs \[0, 1\]"),
        (Batch((Key(0, -1),), ("a",), False), r"Key\(epoch=0, index=-1\) among its keys"),
        (Batch(("ab",), ("a",), False), "'ab' among its keys"),  # type: ignore[arg-type]
        (Batch(((True, 0),), ("a",), False), r"\(True, 0\) among its keys"),  # type: ignore[arg-type]
    ],
)
async def test_a_batch_that_does_not_fit_ends_the_run_and_is_named(batch: object, says: str) -> None:
    """Before anything of it is reserved."""
    record = Record()
    controller = controller_over(OwnLoader(batch), record)
    with pytest.raises(UsageError, match=f"loader: next_batch returned .*{says.removeprefix('next_batch returned ')}"):
        await controller.run()
    assert (len(controller.ledger.entries), record.generated) == (0, [])


def test_what_is_no_loader_is_refused_at_once() -> None:
    """A bare dataset is the usual mistake."""
    with pytest.raises(UsageError, match=r"loader is a list, .* Put the dataset into a PromptLoader"):
        controller_over([1, 2, 3], Record())
