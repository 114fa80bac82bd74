"""The pumps, the gate and the barrier of the library in every order, and each stall put in on purpose found in some.

The programs are small, and each search is complete: it says `holds` of every schedule of asyncio's own tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from copy import deepcopy
from typing import Any

import pytest
import torch
from memory_runs import DIRECTORY, SAMPLERS
from store_situations import writer_identity
from test_controller_stall import GateInsideSampler

from impl import BarrierReentered, PromptLoader
from impl.barrier import CheckpointBarrier, asyncio_sections
from impl.checkpoint import Checkpointer
from impl.controller import Controller, ControllerConfig, RolloutPump
from impl.run.samplers import InOrderSampler, Sampler, SamplerState, StepSampler, TransactionalSampler
from interleavings import explore
from interleavings.runtime import Result
from interleavings.scenarios import FakeDisk, register_barrier, register_tensors

ROWS = {"tokens": torch.zeros(1, 1, dtype=torch.uint8)}

Program = Callable[[], Coroutine[Any, Any, None]]


async def generate(request: object) -> dict[str, torch.Tensor]:
    """One group, a turn of the loop later."""
    await asyncio.sleep(0)
    return ROWS


async def train(batch: object) -> None:
    """A step takes a turn of the loop."""
    await asyncio.sleep(0)


def new_controller(sampler: Sampler, prompts: int, batch_size: int, disk: FakeDisk | None, **config: Any) -> Controller:
    """A run over the numbers below `prompts`; without a disk nothing is saved."""
    checkpointer = None
    if disk is not None:
        barrier = CheckpointBarrier()
        checkpointer = Checkpointer(DIRECTORY, barrier, files=disk, executor=None, identity=writer_identity("a"))
    return Controller(
        loader=PromptLoader(list(range(prompts)), batch_size, 0),
        generate=generate,
        train=train,
        sampler=sampler,
        checkpointer=checkpointer,
        config=ControllerConfig(recovery=disk is not None, stall_warning=None, **config),
    )


def searched(program: Program, **options: Any) -> Result:
    """Every schedule of a program over the real library."""

    def begin() -> Coroutine[Any, Any, None]:
        register_barrier()
        register_tensors()
        return program()

    return explore(begin, **options)


async def all_of(**tasks: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start each under its name, and see all of them end."""
    started = [asyncio.create_task(task(), name=name) for name, task in tasks.items()]
    for task in started:
        await task


def assert_stalls(result: Result, *names: str) -> None:
    """Some schedule ends with everybody waiting, and the report names who."""
    assert result.verdict == "fails", result.summary()
    assert result.failure is not None
    assert result.failure.property == "deadlock", result.failure
    text = f"{result.failure.message} {result.failure}"
    assert all(name in text for name in names), text


# ------------------------------------------------------------------------------------------------- after a restore


def disk_with_step_complete(lookahead: int, prompts: int) -> FakeDisk:
    """A checkpoint whose buffer holds all of step 0, and nothing of step 1."""
    disk = FakeDisk(DIRECTORY)

    async def save() -> None:
        controller = new_controller(InOrderSampler(lookahead), prompts, 1, disk)
        checkpointer = controller.checkpointer
        assert checkpointer is not None
        await checkpointer.prepare()
        admission = await controller.rollout_pump.reserve_batch()
        assert admission is not None
        await controller.rollout_pump.admit(admission)
        while controller.ledger.entries:
            await asyncio.sleep(0)
        assert [(slot.step, slot.ready) for slot in controller.buffer.slots.values()] == [(0, True)]
        await checkpointer.save()
        await checkpointer.close()

    asyncio.run(save())
    return disk


def resumed(disk: FakeDisk, lookahead: int, prompts: int) -> Program:
    """The run that comes up from that checkpoint, to the end of the data."""

    async def run() -> None:
        # One save, at the end: what a save in between may meet is the scenarios' matter.
        controller = new_controller(InOrderSampler(lookahead), prompts, 1, deepcopy(disk), save_period=None)
        report = await controller.run()
        assert report.restored is not None
        assert (report.steps, report.trained, report.outcome) == (prompts, prompts, "exhausted")

    return run


@pytest.mark.parametrize("lookahead", [0, 1])
def test_case_A10_the_pumps_produce_the_step_after_a_complete_restored_one_in_every_order(lookahead: int) -> None:
    """Case A10: step 0 is complete and is trained at once; steps 1 and 2 must get their producer all the same."""
    result = searched(resumed(disk_with_step_complete(lookahead, 3), lookahead, 3))
    assert result.verdict == "holds", result.summary()
    assert result.complete


def test_case_A10_a_window_that_begins_too_far_on_is_reported_as_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure on purpose: the restored cursor counts a step as dispatched that is not."""
    disk = disk_with_step_complete(1, 3)
    load = StepSampler.load_state

    def load_too_far(self: StepSampler, state: SamplerState) -> None:
        load(self, state)
        self._cursor += 1

    monkeypatch.setattr(StepSampler, "load_state", load_too_far)
    assert_stalls(searched(resumed(disk, 1, 3)), "rollout-pump", "train-pump")


# ---------------------------------------------------------------------------------------------- the end of the data


def to_the_end(sampler: str) -> Program:
    """Three prompts, two to a step, and three steps wanted: more than there is data for."""

    async def run() -> None:
        controller = new_controller(SAMPLERS[sampler](0 if sampler != "windowed" else 1), 3, 2, None, max_steps=3)
        report = await controller.run()
        assert (report.trained, report.steps, report.outcome) == (3, 2, "exhausted")

    return run


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_case_A35_a_short_last_batch_ends_the_run_in_every_order(sampler: str) -> None:
    """Case A35: the producer ends with the data, and the consumer learns of it whatever comes first."""
    result = searched(to_the_end(sampler))
    assert result.verdict == "holds", result.summary()
    assert result.complete


def test_case_A35_a_producer_that_does_not_say_that_it_ends_hangs_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure on purpose."""
    run = RolloutPump.run

    async def run_silently(self: RolloutPump) -> None:
        await run(self)
        self._parts.fed = False

    monkeypatch.setattr(RolloutPump, "run", run_silently)
    assert_stalls(searched(to_the_end("in_order")), "train-pump")


# -------------------------------------------------------------------------------------------- a section inside one


async def nested_while_a_checkpoint_waits() -> None:
    """A writer that opens a second section, through a helper, beside a save."""
    barrier = CheckpointBarrier()

    async def helper() -> None:
        async with barrier.mutation("inner"):
            pass

    async def writer() -> None:
        async with barrier.mutation("outer"):
            await asyncio.sleep(0)
            with pytest.raises(BarrierReentered, match="task 'writer'"):
                await helper()

    async def saver() -> None:
        async with barrier.checkpoint():
            pass

    await all_of(writer=writer, saver=saver)


def test_case_B09_a_nested_section_is_refused_in_every_order_and_nobody_hangs() -> None:
    """Case B09: also when the checkpoint already waits for the outer section."""
    result = searched(nested_while_a_checkpoint_waits)
    assert result.verdict == "holds", result.summary()
    assert result.complete


def test_case_B09_a_barrier_that_lets_a_nested_section_wait_is_reported_as_a_deadlock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The naive form on purpose: nobody looks which sections the context holds."""
    monkeypatch.setattr(asyncio_sections, "outer_sections", lambda held, barrier: None)
    assert_stalls(searched(nested_while_a_checkpoint_waits), "writer", "saver")


# ---------------------------------------------------------------------------------------------- a gate and the trainer


def admitting_and_saving(sampler: Callable[[], Sampler]) -> Program:
    """The rollout pump admits two batches; the trainer saves before each step that opens the gate, and at the end."""

    async def run() -> None:
        controller = new_controller(sampler(), 2, 1, None)
        pump, barrier = controller.rollout_pump, controller.barrier

        async def admitter() -> None:
            for _ in range(2):
                admission = await pump.reserve_batch()
                assert admission is not None
                if isinstance(controller._parts.sampler, TransactionalSampler):
                    await pump.pass_gate(admission)
                await pump.commit_admission(admission)

        async def trainer() -> None:
            for _ in range(2):
                async with barrier.checkpoint():
                    pass
                async with barrier.mutation("step_finishes") as cut:
                    controller.progress.step_passed(cut)
            async with barrier.checkpoint():
                pass

        await all_of(admitter=admitter, trainer=trainer)
        assert controller._parts.sampler.cursor == 1

    return run


def test_case_B19_with_the_gate_outside_no_order_deadlocks_with_a_save() -> None:
    """Case B19: the gate opens only after the trainer's save, which waits for the slots; the last save too."""
    result = searched(admitting_and_saving(lambda: InOrderSampler(0)))
    assert result.verdict == "holds", result.summary()
    assert result.complete


def test_case_B19_a_sampler_that_waits_inside_its_slot_is_found_by_the_search() -> None:
    """The save waits for the slot, the slot for the trainer, and the trainer for the save."""
    assert_stalls(searched(admitting_and_saving(GateInsideSampler)), "trainer", "admitter")
