"""When a run saves, and what a save in progress, or one that cannot begin, looks like to the watchdog."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, new_controller
from jumping_clock import run_in_virtual_time

from impl import RunStalled, UsageError
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Checkpointer
from impl.controller import GenerationRequest, TrainBatch


class LateExecutor(Executor):
    """Does each job on the loop, so many seconds of its clock after it was handed in."""

    def __init__(self, delay: float = 0.0) -> None:
        self.delay = delay

    def submit(self, job: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def do() -> None:
            try:
                future.set_result(job(*arguments, **named))
            except BaseException as error:
                future.set_exception(error)

        asyncio.get_running_loop().call_later(self.delay, do)
        return future


def saved_steps(record: Record) -> list[int]:
    return [fields["step"] for fields in record.named("publish")]


def slow_train(record: Record, seconds: float) -> Callable[[TrainBatch], Any]:
    async def train(batch: TrainBatch) -> None:
        await asyncio.sleep(seconds)
        await record.train(batch)

    return train


@pytest.mark.parametrize(
    ("period", "steps"), [(1, list(range(1, 9))), (3, [3, 6, 8]), (4, [4, 8]), (100, [8]), (None, [8])]
)
async def test_a_full_save_follows_so_many_steps_and_the_end_of_the_data(
    tmp_path: Path, period: int | None, steps: list[int]
) -> None:
    """The last one at exhaustion, unless the newest save holds all of it already."""
    record = Record()
    report = await new_controller(tmp_path, record, prompts=8, batch_size=1, save_period=period).run()
    assert saved_steps(record) == steps
    assert (report.outcome, report.saves) == ("exhausted", len(steps))


async def test_the_period_counts_from_the_step_that_was_resumed(tmp_path: Path) -> None:
    """A run that resumes owes no save for steps that its checkpoint holds."""
    record, again = Record(), Record()
    await new_controller(tmp_path, record, prompts=8, batch_size=1, save_period=3, max_steps=4).run()
    await new_controller(tmp_path, again, prompts=8, batch_size=1, save_period=3).run()
    assert (saved_steps(record), saved_steps(again)) == ([3, 4], [7, 8])


@pytest.mark.parametrize(("period", "steps"), [(None, [4, 8, 10]), (3, [3, 6, 9, 10]), (5, [4, 8, 10])])
def test_a_deadline_counts_from_the_save_before_whatever_that_was_due_to(
    tmp_path: Path, period: int | None, steps: list[int]
) -> None:
    """Steps of 30 s, a deadline of 100 s: at the next moment between steps, and put off by a save for the period."""
    record = Record()
    checkpointer = Checkpointer(tmp_path, CheckpointBarrier(trace=record.trace), executor=LateExecutor())
    controller = new_controller(
        None, record, prompts=10, batch_size=1, checkpointer=checkpointer, train=slow_train(record, 30.0),
        save_period=period, save_deadline=100.0,
    )  # fmt: skip
    run_in_virtual_time(controller.run())
    assert saved_steps(record) == steps


def test_a_save_that_is_written_for_longer_than_the_limit_is_no_stall(tmp_path: Path) -> None:
    """The trainer waits for the save before its own; nothing moves for hours, and the disk is at work."""
    record = Record()
    checkpointer = Checkpointer(tmp_path, CheckpointBarrier(trace=record.trace), executor=LateExecutor(10_000.0))
    controller = new_controller(None, record, prompts=6, checkpointer=checkpointer, stall_timeout=100.0)
    assert run_in_virtual_time(controller.run()).trained == 6
    assert saved_steps(record) == [1, 2, 3]


def test_a_drain_that_does_not_end_is_a_stall_and_names_the_holder(tmp_path: Path) -> None:
    """No save is in progress then: it cannot begin, and without a drain limit nobody else would say so."""
    record = Record()
    barrier = CheckpointBarrier(trace=record.trace)
    holders: list[asyncio.Task[None]] = []

    async def hold() -> None:
        async with barrier.mutation("stuck"):
            await asyncio.get_running_loop().create_future()

    async def train(batch: TrainBatch) -> None:
        holders.append(asyncio.create_task(hold(), name="somebody"))
        await asyncio.sleep(1.0)

    checkpointer = Checkpointer(tmp_path, barrier, executor=LateExecutor())
    controller = new_controller(None, record, checkpointer=checkpointer, train=train, stall_timeout=100.0)
    with pytest.raises(RunStalled, match=r"1 checkpoint waiting; held by task 'somebody', kind 'stuck'"):
        run_in_virtual_time(controller.run())


async def test_no_error_of_a_task_goes_unseen(caplog: pytest.LogCaptureFixture) -> None:
    """Four generations fail in one turn: one error is the run's, the others are in the log, none is left over."""
    loop = asyncio.get_running_loop()
    unseen: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    arrived, go_on = [], asyncio.Event()

    async def generate(request: GenerationRequest) -> Any:
        arrived.append(request.group)
        if len(arrived) == 4:
            go_on.set()
        await go_on.wait()
        return {}

    controller = new_controller(None, Record(), prompts=4, batch_size=4, generate=generate)
    with caplog.at_level(logging.ERROR, "cleancut.controller"), pytest.raises(UsageError, match="an empty mapping"):
        await controller.run()
    messages = [entry.getMessage() for entry in caplog.records]
    assert len(messages) == 3
    assert all("failed while the run was ending: UsageError" in message for message in messages)
    del controller
    gc.collect()
    await asyncio.sleep(0)
    assert unseen == []
