"""Stalls: those that must not happen, and the report of those that do."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, each_once, new_controller, settled_keys
from jumping_clock import run_in_virtual_time
from loop_turns import until

from impl import DrainTimeout, RunStalled
from impl.barrier import CheckpointBarrier, Cut
from impl.checkpoint import Checkpointer
from impl.controller import GenerationRequest, TrainBatch
from impl.run.samplers import InOrderSampler
from impl.waiting import Wakeup


@pytest.mark.parametrize("lookahead", [0, 1])
async def test_case_B19_waiting_at_the_gate_holds_no_section(tmp_path: Path, lookahead: int) -> None:
    """The gate opens only after the trainer's save, which waits for the sections: also at the last step."""
    record = Record()
    barrier = CheckpointBarrier(drain_timeout=60.0, trace=record.trace)
    controller = new_controller(
        tmp_path, record, prompts=6, batch_size=1, barrier=barrier, sampler=InOrderSampler(lookahead)
    )
    report = await controller.run()
    assert (report.trained, report.saves) == (6, 6)
    assert barrier.statistics().expired_checkpoints == 0


class GateInsideSampler:
    """A sampler without the split: it waits for the trainer in `admit`, inside the slot."""

    name = "gate_inside"
    stamped = True

    def __init__(self) -> None:
        self._inner = InOrderSampler(0)
        self._moved = Wakeup()

    async def admit(self, cut: Cut) -> int | None:
        while not self._inner.gate_open:
            await self._moved.wait()
        return self._inner.commit_admission(cut)

    def advance(self, version: int) -> None:
        self._inner.advance(version)
        self._moved.wake()

    def __getattr__(self, name: str) -> Any:
        if name in ("wait_until_admissible", "commit_admission"):
            raise AttributeError(name)
        return getattr(self._inner, name)


async def test_case_B19_a_sampler_that_waits_inside_its_slot_is_named(tmp_path: Path) -> None:
    """The save waits for the slot, the slot for the trainer, the trainer for the save: the drain limit says so."""
    record = Record()
    barrier = CheckpointBarrier(drain_timeout=0.01, trace=record.trace)
    admitter_seen = False

    async def train(batch: TrainBatch) -> None:
        """The step ends only once the admitter sits inside its slot."""
        nonlocal admitter_seen
        await until(lambda: any(holder.kind == "admissions" for holder in barrier.statistics().holders))
        admitter_seen = True

    controller = new_controller(
        tmp_path, record, prompts=6, batch_size=1, barrier=barrier, sampler=GateInsideSampler(), train=train,
        failed_saves_tolerated=0,
    )  # fmt: skip
    with pytest.raises(DrainTimeout, match=r"rollout-pump.*kind 'admissions'"):
        await controller.run()
    assert admitter_seen


async def test_a_sampler_without_the_split_that_never_waits_works(tmp_path: Path) -> None:
    """The unsplit protocol is accepted; it is right as long as its gate does not need the trainer."""

    class NeverWaits(GateInsideSampler):
        def __init__(self) -> None:
            super().__init__()
            self._inner = InOrderSampler(lookahead=10)

    record = Record()
    controller = new_controller(tmp_path, record, prompts=6, sampler=NeverWaits())
    assert (await controller.run()).trained == 6
    assert record.named("pass_gate") == []
    assert record.trained_keys == each_once(6)


def test_a_hang_is_reported_with_what_everybody_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    """First in the log, then as the error of the run; both name the missing group."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 3:
            await asyncio.get_running_loop().create_future()
        return await record.generate(request)

    controller = new_controller(None, record, prompts=8, generate=generate, stall_warning=100.0, stall_timeout=500.0)
    with caplog.at_level(logging.WARNING, "cleancut.controller"), pytest.raises(RunStalled) as stalled:
        run_in_virtual_time(controller.run())
    report = str(stalled.value)
    assert "train pump: waits for step 1, which needs 2 groups; ready [2], generating [3]" in report
    assert "rollout pump: waits at the in_order gate with admission 3" in report
    assert "generation: 1 group [3]" in report
    warnings = [entry.getMessage() for entry in caplog.records]
    assert len(warnings) == 1
    assert "waits for step 1" in warnings[0]
    assert controller.generation.running == ()


def test_a_group_that_waits_for_its_retry_is_named_as_such() -> None:
    """Nothing hangs then, and no permit is held: the backoff is longer than the stall limit."""

    async def generate(request: GenerationRequest) -> Any:
        raise OSError("the engine")

    controller = new_controller(
        None, Record(), prompts=2, generate=generate, backoff=1000.0, backoff_limit=1000.0, stall_timeout=100.0
    )
    with pytest.raises(RunStalled) as stalled:
        run_in_virtual_time(controller.run())
    assert "waiting for a retry: [0, 1]; with rows to commit: []; in-flight permits: 64 of 64 free" in str(
        stalled.value
    )


def test_a_slow_but_moving_run_is_no_stall() -> None:
    """Each generation takes most of the limit; something moves in between."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        await asyncio.sleep(90.0)
        return await record.generate(request)

    controller = new_controller(None, record, prompts=8, generate=generate, stall_timeout=100.0)
    assert run_in_virtual_time(controller.run()).trained == 8


def test_a_save_in_progress_is_no_stall() -> None:
    """A checkpoint to a slow disk may take longer than the limit."""
    record = Record()
    controller = new_controller(None, record, prompts=8, stall_timeout=100.0)

    async def slow_save() -> None:
        controller._saves.in_window = True
        await asyncio.sleep(10_000.0)
        controller._saves.in_window = False

    controller._saves.save_if_due = slow_save  # type: ignore[method-assign]
    assert run_in_virtual_time(controller.run()).trained == 8
    assert settled_keys(controller) == each_once(8)


def test_a_long_train_step_beyond_the_limit_is_named() -> None:
    """From outside it looks like a stall; the report says that it is the train step."""

    async def train(batch: TrainBatch) -> None:
        await asyncio.get_running_loop().create_future()

    controller = new_controller(None, Record(), prompts=8, train=train, stall_timeout=100.0)
    with pytest.raises(RunStalled, match="train pump: trains step 0 with 2 groups"):
        run_in_virtual_time(controller.run())


async def test_a_deadline_saves_between_steps_also_while_the_trainer_waits(tmp_path: Path) -> None:
    """No step ends for a long time; the work of the generations must become durable all the same."""
    record = Record()
    release = asyncio.Event()
    loop = asyncio.get_running_loop()
    timers: list[Any] = []

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 0:
            await release.wait()
        return await record.generate(request)

    def call_later(delay: float, callback: Any, *arguments: Any, **_: Any) -> asyncio.TimerHandle:
        timers.append(callback)
        return asyncio.TimerHandle(loop.time() + delay, callback, arguments, loop)

    controller = new_controller(
        None, record, prompts=4, generate=generate, save_period=None, save_deadline=3600.0,
        checkpointer=Checkpointer(tmp_path, CheckpointBarrier(trace=record.trace), verify="digest"),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_later", call_later)
        run = asyncio.create_task(controller.run())
        await record.reaches("commit_group", 3)
        assert record.named("publish") == []
        (deadline,) = timers
        deadline()
        await record.reaches("publish", 1)
        release.set()
        report = await run
    assert report.saves == 2
    assert record.named("publish")[0]["step"] == 0
