"""Runs that are ended: by an error, by a cancellation. Accepted rows are committed, nothing is left running."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, each_once, new_controller, rows_of, settled_keys
from loop_turns import HANG_SECONDS, turns, until

from impl import BarrierClosed, PromptLoader, ReplayBuffer, TensorPlane, UsageError
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Checkpointer
from impl.controller import Controller, ControllerConfig, GenerationRequest, TrainBatch
from impl.rows import Record as RowRecord
from impl.run.samplers import InOrderSampler, WindowedSampler


def assert_ended(controller: Controller) -> None:
    """No task of the run is left, every permit is accounted for, and the barrier admits nobody any more."""
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert controller.generation.running == ()
    assert controller.generation.in_flight.free == controller.config.max_in_flight
    assert controller.buffer.statistics()["permits_held"] == 0
    with pytest.raises(BarrierClosed):
        controller.barrier.mutation_nowait().__enter__()


async def test_an_error_of_train_ends_the_run_and_passes_out(tmp_path: Path) -> None:
    """The groups of the failed step stay untrained; the checkpoint has them."""
    record = Record()

    async def train(batch: TrainBatch) -> None:
        if batch.step == 1:
            raise ArithmeticError("the loss is not a number")
        await record.train(batch)

    controller = new_controller(tmp_path, record, prompts=8, train=train)
    with pytest.raises(ArithmeticError, match="not a number"):
        await controller.run()
    assert_ended(controller)
    assert sum(settled_keys(controller).values()) == 2
    second = new_controller(tmp_path, record, prompts=8)
    assert (await second.run()).trained == 8
    assert record.trained_keys == each_once(8)


async def test_an_error_of_the_dataset_ends_the_run(tmp_path: Path) -> None:
    """The rollout pump's error must not leave the train pump waiting."""

    class Broken(list[int]):
        reads = 0

        def __getitem__(self, index: Any) -> Any:
            Broken.reads += 1
            if Broken.reads > 12:  # the digest of the loader has read every row once
                raise OSError("the data set is gone")
            return super().__getitem__(index)

    controller = new_controller(tmp_path, Record(), prompts=Broken(range(8)))
    with pytest.raises(OSError, match="is gone"):
        await controller.run()
    assert_ended(controller)


@pytest.mark.parametrize("at", [1, 5, 20, 60])
async def test_a_cancelled_run_closes_everything_and_passes_the_cancellation(tmp_path: Path, at: int) -> None:
    """Wherever it is cancelled; what it saved can be resumed to the end."""
    record = Record()
    controller = new_controller(tmp_path, record, prompts=12)
    run = asyncio.create_task(controller.run())
    await turns(at)
    run.cancel("enough")
    with pytest.raises(asyncio.CancelledError):
        await run
    assert_ended(controller)
    second = new_controller(tmp_path, Record(), prompts=12)
    await second.run()
    assert settled_keys(second) == each_once(12)


async def test_a_second_cancellation_does_not_cut_the_closing_short(tmp_path: Path) -> None:
    """A hasty user cancels twice; the lock of the directory must be given back all the same."""
    controller = new_controller(tmp_path, Record(), prompts=12)
    run = asyncio.create_task(controller.run())
    await turns(20)
    for _ in range(3):
        run.cancel()
        await turns(1)
    with pytest.raises(asyncio.CancelledError):
        await run
    assert_ended(controller)
    await new_controller(tmp_path, Record(), prompts=12).run()


async def test_a_closing_that_is_cancelled_itself_is_begun_again(tmp_path: Path) -> None:
    """A program that cancels every task it finds must not leave the directory locked."""
    controller = new_controller(tmp_path, Record(), prompts=12)
    run = asyncio.create_task(controller.run())
    await turns(20)
    run.cancel()
    await turns(1)
    for _ in range(3):
        for task in asyncio.all_tasks():
            if task.get_name() in ("end-run", "close-run"):
                task.cancel()
        await turns(1)
    with pytest.raises(asyncio.CancelledError):
        await run
    assert_ended(controller)
    await new_controller(tmp_path, Record(), prompts=12).run()


class SlowStage(TensorPlane):
    """A plane whose staging waits for a permission: rows are accepted and not yet committed."""

    def __init__(self) -> None:
        super().__init__(verify="digest")
        self.staging: list[int] = []
        self.allowed = asyncio.Event()

    async def stage(self, group: int, rows: Mapping[str, Any], ready: Any = None) -> RowRecord:
        self.staging.append(group)
        await self.allowed.wait()
        return await super().stage(group, rows, ready)


@pytest.mark.parametrize("end", ["error", "cancelled"])
async def test_case_B18_accepted_commits_complete_before_the_run_ends(end: str) -> None:
    """Rows that `generate` has returned are committed, under a collection of garbage in every turn."""

    async def train(batch: TrainBatch) -> None:
        raise ArithmeticError("broken")

    record = Record()
    plane = SlowStage()
    barrier = CheckpointBarrier(trace=record.trace)
    controller = new_controller(None, record, prompts=4, batch_size=2, barrier=barrier, train=train)
    controller.buffer.plane = plane
    run = asyncio.create_task(controller.run())
    await until(lambda: len(plane.staging) == 4)
    gc.freeze()  # only what the run makes from here on is looked at; torch alone would take a tenth of a second a time
    for _ in range(50):
        gc.collect()
        await asyncio.sleep(0)
    gc.unfreeze()
    assert record.named("commit_group") == []
    if end == "cancelled":
        run.cancel()
        await turns(20)
    assert not run.done(), "the run waits for the accepted commits"
    plane.allowed.set()
    with pytest.raises(asyncio.CancelledError if end == "cancelled" else ArithmeticError):
        await run
    assert sorted(fields["group"] for fields in record.named("commit_group")) == [0, 1, 2, 3]
    assert_ended(controller)


async def test_a_cancelled_run_waits_for_the_thread_that_trains() -> None:
    """A thread cannot be interrupted; a run that ended before it would leave a model that still changes."""
    inside, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    finished: list[int] = []

    def train(batch: TrainBatch) -> None:
        loop.call_soon_threadsafe(inside.set)
        assert go_on.wait(HANG_SECONDS)
        finished.append(batch.step)

    controller = new_controller(None, Record(), prompts=4, train=train)
    run = asyncio.create_task(controller.run())
    await inside.wait()
    for _ in range(3):
        run.cancel()
        await turns(20)
    assert not run.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert finished == [0]
    assert_ended(controller)
    assert settled_keys(controller) == {}, "the step did not count"


async def test_a_generation_cancelled_from_outside_ends_the_run() -> None:
    """The group would stay in flight for ever, and the run would wait for it."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 1:
            await asyncio.get_running_loop().create_future()
        return rows_of(request)

    controller = new_controller(None, record, prompts=4, generate=generate)
    run = asyncio.create_task(controller.run())
    await record.reaches("commit_group", 3)
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "generate-1"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError, match="'generate-1' was cancelled from outside"):
        await run
    assert_ended(controller)


async def test_the_error_of_a_background_save_is_raised(tmp_path: Path) -> None:
    """A run whose last checkpoint is not durable has not succeeded."""

    class Unwritable:
        async def stage(self) -> None:
            return None

        def persist(self, staged: None, writer: Any) -> None:
            raise OSError(28, "No space left on device")

        def load(self, reader: Any) -> None:
            raise AssertionError("nothing to load")

    controller = new_controller(tmp_path, Record(), prompts=2, trainer=Unwritable())
    with pytest.raises(Exception, match="No space left") as failed:
        await controller.run()
    assert not isinstance(failed.value, AssertionError)
    assert_ended(controller)


async def test_tasks_are_never_started_inside_a_section(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A task inherits the section of its starter: it could never open one of its own (BarrierReentered)."""
    record = Record()
    controller = new_controller(tmp_path, record, prompts=6, sampler=WindowedSampler(1), capacity=4)
    loop = asyncio.get_running_loop()
    inside: list[str] = []
    create_task = loop.create_task

    def watched(coroutine: Any, **named: Any) -> Any:
        if any(holder.task == _current_name() for holder in controller.barrier.statistics().holders):
            inside.append(str(named.get("name")))
        return create_task(coroutine, **named)

    monkeypatch.setattr(loop, "create_task", watched)
    await controller.run()
    assert inside == []


def _current_name() -> str | None:
    task = asyncio.current_task()
    return None if task is None else task.get_name()


async def test_recovery_without_a_checkpointer_is_refused() -> None:
    """A run that is believed to be saved and is not would be the worst of both."""
    record = Record()
    with pytest.raises(UsageError, match="checkpointer: none was given"):
        Controller(
            loader=PromptLoader([1], batch_size=1, seed=0),
            generate=record.generate,
            train=record.train,
            sampler=InOrderSampler(0),
            config=ControllerConfig(recovery=True),
        )


async def test_parts_of_two_barriers_are_refused(tmp_path: Path) -> None:
    """A cut of one barrier does not keep the writers of another out."""
    record = Record()
    with pytest.raises(UsageError, match="barrier"):
        Controller(
            loader=PromptLoader([1], batch_size=1, seed=0),
            generate=record.generate,
            train=record.train,
            sampler=InOrderSampler(0),
            checkpointer=Checkpointer(tmp_path, CheckpointBarrier()),
            buffer=ReplayBuffer(CheckpointBarrier(), 1, TensorPlane()),
        )
