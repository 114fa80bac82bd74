"""A user of the public surface, for type checkers alone: nobody runs or imports this.

`tests/test_typed_user.py` has it checked strictly from outside the repository. A name that is `Any` to a checker would
pass every use, so what a call returns is asserted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import assert_type

import torch

from impl import (
    Admission,
    BarrierStatistics,
    Batch,
    CheckpointBarrier,
    Checkpointer,
    CheckpointInfo,
    Claim,
    Controller,
    ControllerConfig,
    Cut,
    GenerationRequest,
    HeldCounters,
    Holder,
    InOrderSampler,
    Key,
    Ledger,
    LedgerEntry,
    PendingSave,
    Permit,
    Phase,
    PromptLoader,
    ReplayBuffer,
    Restored,
    RunReport,
    Sampler,
    Slot,
    SnapshotSkipped,
    TensorPlane,
    TorchTrainerState,
    TrainBatch,
    TrainerState,
    TransactionalSampler,
    WindowedSampler,
)
from impl.nemo import DataPlaneCheckpointBarrier, DataPlaneCheckpointBarrierTelemetry, DataPlaneMutationCut


def trace(action: str, /, **fields: object) -> None:
    """A tracer."""


async def barriers() -> None:
    barrier = CheckpointBarrier("mine", drain_timeout=60, hold_warning=5.0, trace=trace)
    async with barrier.mutation("group_commits") as shared:
        assert_type(shared, Cut)
        assert_type(shared.live, bool)
    async with barrier.checkpoint(timeout=None) as exclusive:
        exclusive.require(barrier, exclusive=True)
    with barrier.mutation_nowait() as quick, barrier.detached():
        assert_type(quick, Cut)
    figures = barrier.statistics()
    assert_type(figures, BarrierStatistics)
    assert_type(figures.holders, tuple[Holder, ...])
    assert_type(barrier.mutation_version, int)


async def swapped() -> None:
    barrier = DataPlaneCheckpointBarrier()
    async with barrier.mutation("sibling_seals") as cut:
        assert_type(cut, DataPlaneMutationCut)
        cut.require_live()
    async with barrier.checkpoint() as cut:
        cut.require_live()
    telemetry = await barrier.drain_telemetry()
    assert_type(telemetry, DataPlaneCheckpointBarrierTelemetry)
    assert_type(telemetry.blocked_by_kind, dict[str, int])
    assert_type(telemetry.wait_durations_s, tuple[float, ...])
    base: CheckpointBarrier = barrier
    Ledger(base)


async def parts(directory: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    barrier, counters = CheckpointBarrier(), HeldCounters()
    ledger, loader = Ledger(barrier), PromptLoader(["a", "b"], batch_size=2, seed=0, epochs=3)
    sampler: TransactionalSampler = InOrderSampler(lookahead=1)
    other: Sampler = WindowedSampler(staleness=2)
    buffer = ReplayBuffer(barrier, other.capacity_needed(2), TensorPlane(), ledger)
    async with barrier.mutation() as cut:
        batch = loader.next_batch(cut)
        assert_type(batch, Batch | None)
        assert batch is not None
        admission = ledger.reserve(cut, batch.keys)
        assert_type(admission, Admission)
        assert_type(ledger.admit(cut, admission, sampler.commit_admission(cut)), tuple[int, ...])
    permit = await buffer.acquire_permit()
    assert_type(permit, Permit)
    async with barrier.mutation() as cut:
        assert_type(buffer.reserve(cut, 0, Key(0, 0), 0, 0, permit), Slot)
        buffer.commit(cut, 0, await buffer.plane.stage(0, {"tokens": torch.zeros(2)}))
        claim = buffer.claim(cut, sampler.select(buffer.slots, 0, 1), 0)
        assert_type(claim, Claim)
        buffer.write_back(cut, claim, 0, {"advantages": torch.zeros(2)})
        buffer.finish(cut, claim)
        counters.version += 1
    assert_type(ledger.entries, Mapping[int, LedgerEntry])
    assert_type(ledger.admissions(Phase.ADMITTED), tuple[Admission, ...])
    trainer: TrainerState = TorchTrainerState(model, optimizer)
    async with Checkpointer(directory, barrier, keep=2, verify="off") as checkpointer:
        checkpointer.attach(ledger=ledger, loader=loader, sampler=sampler, buffer=buffer, counters=counters)
        assert_type(await checkpointer.begin_save(trainer), PendingSave)
        assert_type(await checkpointer.begin_snapshot(), PendingSave | SnapshotSkipped)
        assert_type(await checkpointer.save(), CheckpointInfo)
        assert_type(await checkpointer.restore(step=3, load_buffer=False), Restored)


async def generate(request: GenerationRequest) -> Mapping[str, torch.Tensor]:
    return {"tokens": torch.full((request.generations or 1, 4), request.key.index)}


def train(batch: TrainBatch) -> None:
    for group in batch:
        print(batch.step, group.key, group.rows["tokens"])


async def controlled(checkpointer: Checkpointer) -> None:
    controller = Controller(
        loader=PromptLoader(["a"], batch_size=1, seed=0),
        generate=generate,
        train=train,
        sampler=InOrderSampler(lookahead=0),
        checkpointer=checkpointer,
        config=ControllerConfig(generations=1, save_period=2),
    )
    assert_type(await controller.run(), RunReport)
