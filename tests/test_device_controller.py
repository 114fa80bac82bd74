"""A whole run of the controller on a simulated device: generated on one stream, trained on another, saved meanwhile."""

from __future__ import annotations

from pathlib import Path

from controller_runs import GENERATIONS

from impl import (
    CheckpointBarrier,
    Checkpointer,
    Controller,
    ControllerConfig,
    InOrderSampler,
    Ledger,
    PromptLoader,
    ReplayBuffer,
    RowsBehind,
    TensorPlane,
)
from impl.controller import GenerationRequest, TrainBatch
from interleavings.scenarios import SimulatedDevice


async def test_rows_of_a_stream_of_their_own_are_trained_and_saved_as_they_were_generated(tmp_path: Path) -> None:
    """Every group in every step, with a save after each; the digests of the saves are taken behind the event too."""
    device = SimulatedDevice(16)
    barrier = CheckpointBarrier()
    plane = TensorPlane(accelerator=device)
    buffer = ReplayBuffer(barrier, 4, plane, Ledger(barrier))
    trained: list[tuple[int, list[int]]] = []

    async def generate(request: GenerationRequest) -> RowsBehind:
        with device.on("engine"):
            tokens = device.fill(device.empty(GENERATIONS, 3), request.key.index + 1)
            return RowsBehind({"tokens": tokens}, device.record(None))

    async def train(batch: TrainBatch) -> None:
        for group in batch:
            with device.on("trainer"):
                seen = device.duplicate(group.rows["tokens"])
                done = device.record(None)
            done.synchronize()
            trained.append((group.key.index, sorted(set(seen.flatten().tolist()))))

    controller = Controller(
        loader=PromptLoader(list(range(8)), batch_size=2, seed=0),
        generate=generate,
        train=train,
        sampler=InOrderSampler(lookahead=1),
        checkpointer=Checkpointer(tmp_path, barrier, verify="digest"),
        buffer=buffer,
        config=ControllerConfig(save_period=1, stall_warning=None, generations=GENERATIONS),
    )
    report = await controller.run()
    assert sorted(trained) == [(index, [index + 1]) for index in range(8)]
    assert report.saves >= 4
    statistics = plane.statistics()
    assert (statistics["undigested"], statistics["staging_in_use"], statistics["groups"]) == (0, 0, 0)
