"""Every operation of the controller that opens a section, called inside of one: refused, with and without work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from controller_runs import Record, new_controller, rows_of
from loop_turns import turns

from impl import Admission, BarrierReentered
from impl.controller import Controller, TrainBatch
from impl.run.samplers import InOrderSampler

Operation = Callable[[Controller], Awaitable[Any]]


def admission_of(controller: Controller) -> Admission:
    """A reserved admission; where there is none, one that was never reserved."""
    return next(iter(controller.ledger.admissions()), Admission(0, (0,), ()))


OPERATIONS: dict[str, Operation] = {
    "reserve_batch": lambda c: c.rollout_pump.reserve_batch(),
    "commit_admission": lambda c: c.rollout_pump.commit_admission(admission_of(c)),
    "commit_group": lambda c: c.generation.commit_group(0, None),
    "fail_attempt": lambda c: c.generation.fail_attempt(0, ValueError("odd")),
    "retry": lambda c: c.generation.retry(0),
    "fill_place": lambda c: c.generation.fill_place(0),
    "claim": lambda c: c.train_pump.claim(),
    "empty_step": lambda c: c.train_pump.empty_step(),
    "give_up_stale": lambda c: c.train_pump.give_up_stale(),
    "begin_save": lambda c: checkpointer_of(c).begin_save(),
    "begin_snapshot": lambda c: checkpointer_of(c).begin_snapshot(),
    "restore": lambda c: checkpointer_of(c).restore(),
    "save_if_due": lambda c: c._saves.save_if_due(),
}
#: Refused by the open section itself, which it looks for first; see `require_still`.
REFUSED_BEFORE = {"restore"}


def checkpointer_of(controller: Controller) -> Any:
    return controller.checkpointer


async def with_work(controller: Controller) -> None:
    """One group in flight for step 0, the other ready; a batch reserved; a save due."""
    for _ in range(2):
        admission = await controller.rollout_pump.reserve_batch()
        assert admission is not None
    admission = controller.ledger.admissions()[0]
    await controller.rollout_pump.commit_admission(admission)
    for group in admission.groups:
        entry = controller.ledger.entries[group]
        permit = await controller.buffer.acquire_permit()
        async with controller.barrier.mutation() as cut:
            controller.buffer.reserve(cut, group, entry.key, entry.step, 0, permit)
    controller._saves._deadline_passed = True


def seen(controller: Controller) -> dict[str, object]:
    return {
        **controller.statistics(),
        "entries": dict(controller.ledger.entries),
        "slots": dict(controller.buffer.slots),
        "sampler": controller._parts.sampler.state(),
        "place": controller._parts.loader.state(),
        "mutations": controller.barrier.mutation_version,
    }


@pytest.mark.parametrize("work", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
async def test_case_B20_an_operation_inside_a_section_is_refused_with_and_without_work(
    name: str, work: bool, tmp_path: Path
) -> None:
    """Case B20: a wrapped eviction that failed at the first stale group only ended training on most configurations."""
    controller = new_controller(tmp_path, Record(), prompts=8, batch_size=2, sampler=InOrderSampler(1))
    await checkpointer_of(controller).prepare()
    if work:
        await with_work(controller)
    before = seen(controller)
    async with controller.barrier.mutation("outer"):
        error = None
        try:
            await OPERATIONS[name](controller)
        except Exception as raised:
            error = raised
        if name in REFUSED_BEFORE:
            assert "sections are open" in str(error)
        else:
            assert isinstance(error, BarrierReentered), error
            assert "outer" in str(error)
        assert seen(controller) == before
    await turns()
    await checkpointer_of(controller).close()


@pytest.mark.parametrize("columns", [{}, {"advantage": torch.ones(2)}], ids=["nothing", "a column"])
async def test_case_B20_write_back_inside_a_section_is_refused_with_and_without_columns(
    columns: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    """The batch's `write_back` opens a section of its own."""
    refused: list[str] = []

    async def train(batch: TrainBatch) -> None:
        group = batch.groups[0]
        async with controller.barrier.mutation("outer"):
            with pytest.raises(BarrierReentered, match="outer"):
                await batch.write_back(group.group, columns)
        refused.append(str(list(group.rows)))

    controller = new_controller(tmp_path, Record(), prompts=2, batch_size=2, train=train)
    assert (await controller.run()).trained == 2
    assert refused == [str(list(rows_of_any()))]


def rows_of_any() -> dict[str, Any]:
    """The fields that a group has without a column written back."""
    request: Any = type("Request", (), {"key": type("Key", (), {"index": 0})})
    return dict(rows_of(request))


@pytest.mark.parametrize("step", ["finish_step", "claim"])
async def test_case_B20_the_end_of_a_step_inside_a_section_is_refused_and_the_claim_stays_open(
    step: str, tmp_path: Path
) -> None:
    """With an open claim: the step can be finished afterwards, outside."""
    controller = new_controller(tmp_path, Record(), prompts=2, batch_size=1, sampler=InOrderSampler(1))
    await with_work(controller)
    staged = await controller.buffer.plane.stage(0, dict(rows_of_any()))
    await controller.generation.commit_group(0, staged)
    claim = await controller.train_pump.claim()
    assert claim is not None
    before = seen(controller)
    async with controller.barrier.mutation("outer"):
        if step == "finish_step":
            with pytest.raises(BarrierReentered, match="outer"):
                await controller.train_pump.finish_step(claim)
        else:
            with pytest.raises(BarrierReentered, match="outer"):
                await controller.train_pump.claim()
        assert seen(controller) == before
    await controller.train_pump.finish_step(claim)
    assert controller.progress.version == 1
