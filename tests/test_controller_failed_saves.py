"""A save that fails: how often the run goes on, what ends it at once, and that the last save is made good or told."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from controller_runs import Record, each_once, new_controller, rows_of, settled_keys
from jumping_clock import run_in_virtual_time
from prometheus_client import CollectorRegistry
from run_situations import NumberTrainer
from test_controller_saves import LateExecutor, slow_train

from impl import (
    CheckpointIncompatible,
    CleancutError,
    CommittedTensorModified,
    DrainTimeout,
    DurabilityUnknown,
    InvariantViolated,
    StoreBusy,
    StoreFailed,
    StoreFull,
    StoreOvertaken,
    UsageError,
)
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Checkpointer
from impl.controller import Controller, GenerationRequest, RunReport, SaveFailures, SaveSchedule, TrainBatch, may_pass
from impl.prometheus import CleancutCollector
from impl.store import Handle, PosixFiles


class FlakyDisk(PosixFiles):
    """Its fsync fails in the saves with these numbers, counted from 1 by the directories that are begun."""

    def __init__(self, failing: Callable[[int], bool], number: int = errno.EIO) -> None:
        super().__init__()
        self.failing = failing
        self.number = number
        self.saves = 0

    def mkdir(self, path: str) -> None:
        """Count the save that begins with the directory it stages in."""
        if Path(path).name.startswith(".staging-"):
            self.saves += 1
        super().mkdir(path)

    def fsync(self, handle: Handle) -> None:
        """Fail, as the disk would."""
        if self.saves and self.failing(self.saves):
            raise OSError(self.number, "the disk says no")
        super().fsync(handle)


def controller_on(directory: Path, files: PosixFiles | None = None, record: Record | None = None, **config: Any) -> Any:
    """A run of 12 steps, each saved, on a loop whose clock jumps."""
    record = record or Record()
    checkpointer = Checkpointer(
        directory, CheckpointBarrier(trace=record.trace), files=files, executor=LateExecutor(), verify="digest"
    )
    settings: dict[str, Any] = {"prompts": 12, "batch_size": 1, "train": slow_train(record, 30.0), **config}
    return new_controller(None, record, checkpointer=checkpointer, **settings)


def steps_on_disk(directory: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step_").split("-")[0]) for path in directory.glob("step_*"))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("failing", [{1}, {2}, {5}, {2, 3, 4}, {1, 3, 5, 7, 9}, {1, 2, 3, 5, 6, 7}, {12}])
def test_case_G05_a_few_failed_saves_in_a_row_do_not_end_a_run(tmp_path: Path, number: int, failing: set[int]) -> None:
    """The words say so; before, one EIO at one save ended a run of days at its next save."""
    record = Record()
    controller = controller_on(tmp_path, FlakyDisk(failing.__contains__, number), record)
    report: RunReport = run_in_virtual_time(controller.run())
    assert (report.outcome, report.trained) == ("exhausted", 12)
    assert [failure.final for failure in report.save_failures] == [False] * len(failing)
    assert {failure.kind for failure in report.save_failures} == {"full"}
    assert report.saves == len(record.named("publish"))
    assert record.named("publish")[-1]["step"] == 12
    assert settled_keys(controller) == each_once(12)


@pytest.mark.parametrize("tolerated", [0, 1, 3])
@pytest.mark.parametrize("first", [1, 4])
def test_case_G05_one_failure_more_than_is_tolerated_ends_the_run(tmp_path: Path, tolerated: int, first: int) -> None:
    """A run that can never save again must not go on for days; with 0 it ends as it did before."""
    disk = FlakyDisk(lambda number: number >= first)
    controller = controller_on(tmp_path, disk, failed_saves_tolerated=tolerated)
    with pytest.raises(StoreFailed) as raised:
        run_in_virtual_time(controller.run())
    assert disk.saves == first + tolerated
    assert [failure.final for failure in controller.save_failures.all] == [False] * tolerated + [True]
    assert f"failed_saves_tolerated is {tolerated}" in "".join(getattr(raised.value, "__notes__", []))


def test_case_G05_a_durable_save_begins_the_count_anew(tmp_path: Path) -> None:
    """Three of four fail, for ever: the run goes to its end, and has a checkpoint of every fourth step."""
    controller = controller_on(tmp_path, FlakyDisk(lambda number: number % 4 != 0), prompts=24)
    report = run_in_virtual_time(controller.run())
    assert report.trained == 24
    assert controller.save_failures.in_row == {"full": 0, "rollout": 0}
    assert len(report.save_failures) == 3 * report.saves


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_case_G05_the_last_save_is_made_good_before_the_run_reports_success(tmp_path: Path, failures: int) -> None:
    """There is no next save that would keep what it would have; the pause doubles, so that a full disk may be freed."""
    controller = controller_on(
        tmp_path, FlakyDisk(lambda number: number <= failures), save_period=None, backoff=5.0, backoff_limit=100.0
    )

    async def timed() -> tuple[RunReport, float]:
        return await controller.run(), asyncio.get_running_loop().time()

    report, ended = run_in_virtual_time(timed())
    assert (report.saves, len(report.save_failures), steps_on_disk(tmp_path)) == (1, failures, [12])
    assert ended >= 12 * 30.0 + 5.0 * (2**failures - 1)


@pytest.mark.parametrize("period", [None, 1])
def test_case_G05_a_run_whose_last_save_fails_reports_no_success(tmp_path: Path, period: int | None) -> None:
    """Neither silently nor with a report: the error is that of the disk."""
    controller = controller_on(tmp_path, FlakyDisk(lambda number: number >= (12 if period else 1)), save_period=period)
    with pytest.raises(StoreFailed):
        run_in_virtual_time(controller.run())
    assert 12 not in steps_on_disk(tmp_path)


FATAL = [
    StoreBusy,
    StoreOvertaken,
    CommittedTensorModified,
    InvariantViolated,
    UsageError,
    CheckpointIncompatible,
    CleancutError,
]


@pytest.mark.parametrize("error", FATAL)
@pytest.mark.parametrize("where", ["begin", "background"])
def test_case_G05_what_would_do_harm_ends_the_run_at_once(
    tmp_path: Path, error: type[CleancutError], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another owner of the directory, rows that were changed, a broken rule: another try cannot make these good."""
    controller = controller_on(tmp_path)

    def failing(*_: object) -> None:
        raise error("said the test")

    name = {"begin": "next_number", "background": "publish"}[where]
    monkeypatch.setattr(controller.checkpointer._store, name, failing)
    with pytest.raises(error, match="said the test"):
        run_in_virtual_time(controller.run())
    assert controller.progress.version <= 2
    assert [failure.final for failure in controller.save_failures.all] == [True]


def test_case_G05_rows_that_were_changed_in_place_end_the_run_at_its_first_save(tmp_path: Path) -> None:
    """With the real thing: somebody keeps the rows that `generate` returned, and normalises them in place."""
    kept: list[torch.Tensor] = []

    async def generate(request: GenerationRequest) -> Any:
        rows = rows_of(request)
        kept.append(rows["tokens"])
        return rows

    async def train(batch: TrainBatch) -> None:
        await asyncio.sleep(30.0)
        for tokens in kept:
            tokens.add_(1)

    controller = controller_on(tmp_path, generate=generate, train=train)
    with pytest.raises(CommittedTensorModified):
        run_in_virtual_time(controller.run())
    assert len(controller.save_failures.all) == 1


@pytest.mark.parametrize(
    "error", [StoreFull("full"), StoreFailed("refused"), OSError("odd"), RuntimeError("no memory")]
)
def test_case_G05_a_trainer_that_cannot_be_copied_once_does_not_end_the_run(tmp_path: Path, error: Exception) -> None:
    """The error comes out of `begin_save` and not out of the background; it is a failed save all the same."""
    trainer = NumberTrainer()

    async def train(batch: TrainBatch) -> None:
        trainer.failure = error if 2 <= batch.step < 5 else None

    controller = controller_on(tmp_path, train=train, trainer=trainer)
    report = run_in_virtual_time(controller.run())
    assert (report.trained, len(report.save_failures)) == (12, 3)
    assert steps_on_disk(tmp_path)[-1] == 12


def test_case_G05_a_drain_that_runs_out_once_does_not_end_the_run(tmp_path: Path) -> None:
    """The save has not even begun then; the runbook says that the writers proceed."""
    record = Record()
    barrier = CheckpointBarrier(trace=record.trace, drain_timeout=50.0)

    async def hold() -> None:
        async with barrier.mutation("a slow remote call"):
            await asyncio.sleep(120.0)

    holders: list[asyncio.Task[None]] = []

    async def train(batch: TrainBatch) -> None:
        if batch.step == 3:
            holders.append(asyncio.create_task(hold()))
        await asyncio.sleep(1.0)

    checkpointer = Checkpointer(tmp_path, barrier, executor=LateExecutor())
    controller = new_controller(
        None, record, prompts=12, batch_size=1, checkpointer=checkpointer, train=train, save_period=2
    )
    report = run_in_virtual_time(controller.run())
    assert report.trained == 12
    assert [failure.error.split("(")[0] for failure in report.save_failures] == ["DrainTimeout"] * 2
    assert checkpointer.statistics().failed == 2


def test_case_G05_failed_snapshots_are_counted_apart_and_end_the_run_in_the_same_way(tmp_path: Path) -> None:
    """Between two full saves many may fail that a full save makes up for; more in a row than tolerated may not."""
    controller = controller_on(tmp_path, prompts=4, train=slow_train(Record(), 100.0), snapshot_period=10.0)
    attempts: list[float] = []

    async def failing() -> None:
        attempts.append(asyncio.get_running_loop().time())
        raise StoreFull("no space is left")

    controller.checkpointer.begin_snapshot = failing
    with pytest.raises(StoreFull, match="no space is left"):
        run_in_virtual_time(controller.run())
    assert len(attempts) == 4
    assert controller.save_failures.in_row == {"full": 0, "rollout": 4}
    assert {failure.kind for failure in controller.save_failures.all} == {"rollout"}


def test_case_G05_no_snapshot_is_anchored_on_a_full_save_that_failed(tmp_path: Path) -> None:
    """The trainer is past the newest durable full save then; a snapshot would be skipped, and is not asked for."""
    record = Record()
    controller = controller_on(
        tmp_path, FlakyDisk({2}.__contains__), record, prompts=3, train=slow_train(record, 100.0), snapshot_period=10.0
    )
    report = run_in_virtual_time(controller.run())
    assert (report.trained, len(report.save_failures)) == (3, 1)
    assert record.named("skip_snapshot") == []


def test_case_G05_a_failed_save_is_logged_counted_and_shown_to_prometheus(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has an alert on it hears of the first one, not of the one that ends the run."""
    seen: list[tuple[float, float]] = []
    registry = CollectorRegistry()

    async def train(batch: TrainBatch) -> None:
        await asyncio.sleep(30.0)
        in_row = registry.get_sample_value("cleancut_saves_failed_in_row", {"run": "", "kind": "full"})
        failed = registry.get_sample_value("cleancut_saves_total", {"run": "", "outcome": "failed"})
        assert in_row is not None
        assert failed is not None
        seen.append((in_row, failed))

    controller: Controller = controller_on(tmp_path, FlakyDisk({2, 3}.__contains__), prompts=6, train=train)
    registry.register(CleancutCollector.of(controller))
    with caplog.at_level(logging.ERROR, "cleancut.controller"):
        run_in_virtual_time(controller.run())
    assert [failed for _, failed in seen] == [0, 0, 1, 2, 2, 2]
    assert max(in_row for in_row, _ in seen) == 2
    assert seen[-1][0] == 0
    assert registry.get_sample_value("cleancut_saves_failed_tolerated", {"run": ""}) == 3
    messages = [entry.getMessage() for entry in caplog.records if entry.name == "cleancut.controller"]
    assert [("number 1 in a row" in text, "number 2 in a row" in text) for text in messages] == [
        (True, False), (False, True)
    ]  # fmt: skip


def test_case_G05_after_a_failed_save_no_other_is_begun_before_the_pause_is_over(tmp_path: Path) -> None:
    """What has to pass, as a disk that is full for a moment, may last longer than a few short train steps."""
    record = Record()
    freed = 6.5

    class FullForAMoment(PosixFiles):
        def fsync(self, handle: Handle) -> None:
            if asyncio.get_running_loop().time() < freed and record.trained:
                raise OSError(errno.ENOSPC, "no space is left")
            super().fsync(handle)

    controller = controller_on(
        tmp_path, FullForAMoment(), record, prompts=200, train=slow_train(record, 0.1), backoff=1.0, capacity=4
    )
    report = run_in_virtual_time(controller.run())
    assert report.trained == 200
    assert 1 <= len(report.save_failures) <= 3


def test_case_G05_a_save_for_the_deadline_that_failed_is_made_up_for_while_the_trainer_waits(tmp_path: Path) -> None:
    """Nothing wakes the train pump for hours: a timer has to, when the pause is over."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 3:
            await asyncio.sleep(10_000.0)
        return await record.generate(request)

    controller = controller_on(
        tmp_path, FlakyDisk({1}.__contains__), record, prompts=4, generate=generate, train=slow_train(record, 1.0),
        save_period=None, save_deadline=100.0, backoff=20.0,
    )  # fmt: skip

    async def watched() -> tuple[RunReport, list[int]]:
        running = asyncio.create_task(controller.run())
        await asyncio.sleep(1_000.0)
        saved = [fields["step"] for fields in record.named("publish")]
        return await running, saved

    report, saved = run_in_virtual_time(watched())
    assert report.trained == 4
    assert saved != []


async def test_case_G05_whoever_calls_the_parts_still_gets_the_error(tmp_path: Path) -> None:
    """Tolerance is the controller's; a checkpointer of one's own says what happened, each time."""
    checkpointer = Checkpointer(tmp_path, CheckpointBarrier(), files=FlakyDisk(lambda number: number <= 2))
    new_controller(None, Record(), checkpointer=checkpointer)
    await checkpointer.prepare()
    with pytest.raises(StoreFailed):
        await checkpointer.save()
    pending = await checkpointer.begin_save()
    await pending.wait_done()
    with pytest.raises(StoreFailed):
        await checkpointer.begin_save()
    await checkpointer.save()
    await checkpointer.close()


def test_case_G05_every_error_of_the_library_is_either_passing_or_fatal_on_purpose() -> None:
    """A new error is fatal until somebody says otherwise; the three that the report named are."""
    assert may_pass(DrainTimeout("slow"))
    assert may_pass(StoreFull("full"))
    assert may_pass(OSError("odd"))
    assert may_pass(DurabilityUnknown("the last fsync failed", "step_1-1"))
    assert not any(may_pass(error("said")) for error in FATAL)
    assert not may_pass(KeyboardInterrupt())


# -- who checks the check: wrong versions, and what shows of them ------------------------------------------------------


def test_a_last_save_that_is_not_waited_for_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that tolerates the failure of its last save like any other reports success without a checkpoint."""

    async def tolerant(schedule: SaveSchedule) -> None:
        if await schedule._save():
            assert schedule._pending is not None
            await schedule._pending.wait_done()
            schedule._look()

    monkeypatch.setattr(SaveSchedule, "save_last", tolerant)
    controller = controller_on(tmp_path, FlakyDisk({1}.__contains__), save_period=None)
    run_in_virtual_time(controller.run())
    assert steps_on_disk(tmp_path) == []


def test_a_count_that_is_never_forgotten_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a run dies of its fourth failed save in a month."""
    monkeypatch.setattr(SaveFailures, "forget", lambda *_: None)
    controller = controller_on(tmp_path, FlakyDisk(lambda number: number % 4 != 0), prompts=24)
    with pytest.raises(StoreFailed):
        run_in_virtual_time(controller.run())
