"""Runs without recovery: they train the same, save the trainer alone, and never let that pass for more."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, each_once, new_controller
from run_situations import NumberTrainer, documents

from impl import CheckpointCorrupt, CheckpointIncompatible, UsageError
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Checkpointer, SnapshotSkipped
from impl.controller import RunReport, TrainBatch
from impl.run.samplers import InOrderSampler, Sampler, WindowedSampler

SAMPLERS: Mapping[str, Callable[[], Sampler]] = {
    "in_order, lookahead 0": lambda: InOrderSampler(0),
    "in_order, lookahead 2": lambda: InOrderSampler(2),
    "windowed": lambda: WindowedSampler(1),
}


async def run_of(
    directory: Path, record: Record, recovery: bool, trainer: NumberTrainer | None = None, **options: Any
) -> RunReport:
    """A run of 8 prompts in batches of 2, or what `options` say, that counts its steps in the trainer."""
    trainer = trainer or NumberTrainer()

    async def train(batch: TrainBatch) -> None:
        await record.train(batch)
        trainer.value = batch.step + 1

    options = {"prompts": 8, **options}
    return await new_controller(directory, record, recovery=recovery, trainer=trainer, train=train, **options).run()


async def test_it_trains_the_same(tmp_path: Path) -> None:
    """The same groups in the same steps; only the checkpoints differ, and the report says so."""
    records, reports = [], []
    for recovery in (True, False):
        record = Record()
        reports.append(await run_of(tmp_path / str(recovery), record, recovery))
        records.append([step for step, _ in record.trained] + sorted(key for _, keys in record.trained for key in keys))
    assert records[0] == records[1]
    assert [report.saves for report in reports] == [4, 4]
    assert [report.recovery for report in reports] == [True, False]
    assert (reports[1].trained, reports[1].steps, reports[1].windows.count) == (8, 4, 4)


async def test_the_window_reads_the_version_and_the_checkpoint_holds_the_trainer_alone(tmp_path: Path) -> None:
    """The same window, one read in it; no ledger, buffer, rows or loader on disk, not even empty ones."""
    record = Record()
    await run_of(tmp_path, record, recovery=False)
    names = [action for action, _ in record.events if action.startswith("read_")]
    assert names == ["read_trainer"] * 4
    published = record.named("publish")
    assert {fields["kind"] for fields in published} == {"trainer"}
    newest = published[-1]["name"]
    assert documents(tmp_path, newest).keys() == {"progress.json", "trainer/value.json"}
    assert documents(tmp_path, newest)["progress.json"] == b'{"version":4,"step":4,"cursor":3}\n'


@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_it_resumes_with_the_trainer_and_says_what_it_cannot_bring_back(
    tmp_path: Path, sampler: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The trainer goes on at its version, the data begins anew; the loss is in the log and in the report."""
    first, second, trainer = Record(), Record(), NumberTrainer()
    await run_of(tmp_path, first, recovery=False, max_steps=2, sampler=SAMPLERS[sampler]())
    with caplog.at_level(logging.WARNING, "cleancut.checkpointer"):
        report = await run_of(tmp_path, second, recovery=False, trainer=trainer, sampler=SAMPLERS[sampler]())
    assert trainer.value == report.steps == 6
    assert [step for step, _ in second.trained] == [2, 3, 4, 5]
    assert second.trained_keys == each_once(8)
    assert report.restored is not None
    assert (report.restored.step, report.restored.admitted, report.restored.buffered) == (2, 0, 0)
    assert "the prompts that were in flight or buffered then were not saved and are not recoverable" in (
        report.restored.notice
    )
    assert [entry.getMessage() for entry in caplog.records] == [report.restored.notice]


async def test_a_run_with_recovery_refuses_such_a_checkpoint_and_changes_nothing(tmp_path: Path) -> None:
    """It would believe that nothing was in flight."""
    await run_of(tmp_path, Record(), recovery=False, max_steps=2)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    record, trainer = Record(), NumberTrainer()
    with pytest.raises(
        CheckpointIncompatible, match=r"step_2-\d+ was saved by a run without recovery.*not recoverable"
    ):
        await run_of(tmp_path, record, recovery=True, trainer=trainer)
    assert (record.generated, trainer.value) == ([], 0)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before


async def test_a_full_checkpoint_can_be_taken_up_without_its_prompts(tmp_path: Path) -> None:
    """The report says how many prompts were left; the full checkpoint stays, for a run that wants them."""
    await run_of(tmp_path, Record(), recovery=True, max_steps=2)
    full = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    record = Record()
    report = await run_of(tmp_path, record, recovery=False)
    assert report.restored is not None
    (pending, buffered) = re.findall(
        r"its prompts, (\d) pending and (\d) buffered, are not taken up", report.restored.notice
    )[0]
    assert int(pending) + int(buffered) == 4
    assert [step for step, _ in record.trained] == [2, 3, 4, 5]
    assert full <= {path.name for path in tmp_path.iterdir()}


async def test_a_trainer_that_refuses_leaves_the_run_unusable(tmp_path: Path) -> None:
    """As with recovery: nothing is admitted over a trainer that is not the saved one."""
    await run_of(tmp_path, Record(), recovery=False, max_steps=2)
    record, trainer = Record(), NumberTrainer()
    trainer.refusal = CheckpointCorrupt("not this one")
    with pytest.raises(CheckpointCorrupt, match="not this one"):
        await run_of(tmp_path, record, recovery=False, trainer=trainer)
    assert record.generated == []


async def test_a_saved_trainer_that_nobody_takes_is_an_error(tmp_path: Path) -> None:
    """The run would count steps that its model has not seen."""
    await run_of(tmp_path, Record(), recovery=False, max_steps=2)
    with pytest.raises(UsageError, match="trainer: none was given"):
        await new_controller(tmp_path, Record(), recovery=False).run()


async def test_a_rollout_snapshot_is_skipped_with_the_reason(tmp_path: Path) -> None:
    """There is nothing in it that recovery=False would keep."""
    record = Record()
    checkpointer = Checkpointer(tmp_path, CheckpointBarrier(trace=record.trace))
    skipped: list[object] = []

    async def train(batch: TrainBatch) -> None:
        skipped.append(await checkpointer.begin_snapshot())

    await new_controller(None, record, checkpointer=checkpointer, recovery=False, prompts=2, train=train).run()
    assert skipped == [SnapshotSkipped("recovery is off, so no prompt in flight is saved")]
    assert record.named("skip_snapshot") == [{"reason": "recovery is off, so no prompt in flight is saved"}]
    assert checkpointer.statistics().skipped == 1


async def test_the_figures_name_what_each_artifact_took_of_the_window(tmp_path: Path) -> None:
    """With recovery every artifact, without it the trainer's version; their sum lies within the window."""
    found = []
    for recovery in (True, False):
        checkpointer = Checkpointer(tmp_path / str(recovery), CheckpointBarrier())
        await new_controller(None, Record(), checkpointer=checkpointer, recovery=recovery).run()
        for save in checkpointer.statistics().saves:
            assert 0 <= sum(save.artifacts.values()) <= save.window_seconds
        found.append(list(checkpointer.statistics().saves[-1].artifacts))
    assert found == [["sampler", "loader", "spares", "buffer", "ledger", "trainer", "rows"], ["trainer"]]


def test_a_run_without_a_checkpointer_has_nothing_it_must_resume() -> None:
    """`resume="must"` is a promise that needs a directory."""
    with pytest.raises(UsageError, match="none was given, and ControllerConfig\\.resume is 'must'"):
        new_controller(None, Record(), recovery=False, resume="must")
