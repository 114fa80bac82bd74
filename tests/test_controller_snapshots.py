"""Rollout snapshots of a run: when they are taken, what a crash after one costs, and how they end with the run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, each_once, new_controller
from jumping_clock import run_in_virtual_time
from loop_turns import HANG_SECONDS
from test_controller_saves import LateExecutor, slow_train

from impl import StoreFull, UsageError
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Checkpointer
from impl.controller import ControllerConfig, TrainBatch


def published(record: Record) -> list[tuple[str, int]]:
    return [(fields["kind"], fields["step"]) for fields in record.named("publish")]


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        (None, []),
        # Steps of 30 s, a save after every second: the claim of the step after it is kept once, and nothing more
        # happens in that step; in the one after that the trainer is past its save.
        (10.0, [2, 4]),
        # At 80 s, in the step after the save at 60 s; at 160 s the trainer is past the save at 120 s.
        (80.0, [2]),
        (1000.0, []),
    ],
)
def test_a_snapshot_is_taken_only_while_the_trainer_is_where_a_durable_save_left_it(
    tmp_path: Path, period: float | None, expected: list[int]
) -> None:
    """Any other would be skipped, at the price of a window; and one without news would be the one before again."""
    record = Record()
    checkpointer = Checkpointer(tmp_path, CheckpointBarrier(trace=record.trace), executor=LateExecutor())
    controller = new_controller(
        None, record, prompts=6, batch_size=1, checkpointer=checkpointer, train=slow_train(record, 30.0),
        save_period=2, snapshot_period=period,
    )  # fmt: skip
    report = run_in_virtual_time(controller.run())
    assert [step for kind, step in published(record) if kind == "rollout"] == expected
    assert report.snapshots == len(expected)
    assert [step for kind, step in published(record) if kind == "full"] == [2, 4, 6]
    assert record.named("skip_snapshot") == []


def test_no_snapshot_is_taken_while_its_full_save_is_still_being_written(tmp_path: Path) -> None:
    """It would belong to a save that may never come to be."""
    record = Record()
    checkpointer = Checkpointer(tmp_path, CheckpointBarrier(trace=record.trace), executor=LateExecutor(40.0))
    controller = new_controller(
        None, record, prompts=6, batch_size=1, checkpointer=checkpointer, train=slow_train(record, 30.0),
        save_period=2, snapshot_period=10.0,
    )  # fmt: skip
    assert run_in_virtual_time(controller.run()).snapshots == 0
    assert {kind for kind, _ in published(record)} == {"full"}


async def test_a_crash_after_a_snapshot_repeats_no_generation_that_the_snapshot_holds(tmp_path: Path) -> None:
    """The trainer is that of the full save, the groups are those of the snapshot; every prompt is trained once."""
    record, again = Record(), Record()

    async def everything_is_in_a_snapshot() -> None:
        await record.reaches("commit_group", 6)
        sixth = [place for place, (action, _) in enumerate(record.events) if action == "commit_group"][5]
        async with asyncio.timeout(HANG_SECONDS):
            while "read_buffer" not in (action for action, _ in record.events[sixth:]):
                await asyncio.sleep(0.001)
            while published(record)[-1] != ("rollout", 1):
                await asyncio.sleep(0.001)

    async def train(batch: TrainBatch) -> None:
        if batch.step == 1:
            # Both groups of this step and both of the next are ready when the trainer dies.
            await everything_is_in_a_snapshot()
            raise RuntimeError("the trainer died")
        await record.train(batch)

    with pytest.raises(RuntimeError, match="the trainer died"):
        await new_controller(tmp_path, record, train=train, snapshot_period=0.001).run()
    report = await new_controller(tmp_path, again).run()
    assert report.restored is not None
    assert (report.restored.step, report.restored.buffered) == (1, 4)
    assert len(again.generated) == 2
    assert record.trained_keys + again.trained_keys == each_once(8)


def test_a_snapshot_that_fails_ends_the_run_as_a_save_that_fails_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that does not take the small ones will not take the large ones; nobody should find out at the end."""
    record = Record()
    checkpointer = Checkpointer(tmp_path, CheckpointBarrier(trace=record.trace), executor=LateExecutor())
    controller = new_controller(
        None, record, checkpointer=checkpointer, train=slow_train(record, 30.0), snapshot_period=10.0,
        failed_saves_tolerated=0,
    )  # fmt: skip

    async def failing() -> None:
        raise StoreFull("no space is left")

    monkeypatch.setattr(checkpointer, "begin_snapshot", failing)
    with pytest.raises(StoreFull, match="no space is left"):
        run_in_virtual_time(controller.run())


@pytest.mark.parametrize("period", [0, -1.0, "soon", float("nan"), True])
def test_a_period_that_is_none_is_refused_by_name(period: Any) -> None:
    """Zero seconds would save without a pause."""
    with pytest.raises(UsageError, match=r"snapshot_period is .*; it must be a number of seconds above 0, or None"):
        ControllerConfig(snapshot_period=period)


def test_without_recovery_there_are_no_snapshots() -> None:
    """Its checkpoints hold no prompts, and a snapshot holds nothing else."""
    with pytest.raises(UsageError, match=r"snapshot_period is 5.0; it must be None without recovery"):
        ControllerConfig(recovery=False, snapshot_period=5.0)
