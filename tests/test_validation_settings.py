"""`validate` on runs with less common settings: write-backs, failing saves, another loader, no recovery."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path
from typing import Any

import pytest
from controller_runs import GENERATIONS, Record
from torchdata_loaders import QUIET, loader
from traced_runs import TracedRun, cut_after

from impl import (
    CheckpointBarrier,
    Checkpointer,
    Controller,
    ControllerConfig,
    DrainTimeout,
    InOrderSampler,
    JsonlTracer,
)
from impl.controller import TrainBatch
from impl.store import Handle
from interleavings.correspondence.validation import validate
from interleavings.scenarios import FakeDisk

pytestmark = pytest.mark.usefixtures("quiet_library")  # groups that fail on purpose warn of it


def accepted(*paths: Path) -> Any:
    """The result, which must be that everything was followed."""
    result = validate(paths)
    assert result.verdict == "holds", json.dumps(result.document(), indent=1)
    return result


class WritesBack(TracedRun):
    """Every train step writes a column into each of its groups."""

    async def trains(self, batch: TrainBatch) -> None:
        for group in batch:
            await batch.write_back(group.group, {"advantages": group.rows["tokens"] * 2})
        await super().trains(batch)


def test_columns_written_back_belong_to_the_open_step(tmp_path: Path) -> None:
    """Group by group, between claim and finish; one that is not claimed has none."""
    path = tmp_path / "trace.jsonl"
    WritesBack(path, prompts=8, batch_size=2).run_to_the_end()
    assert accepted(path).actions["write_back"] == 8
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    at = next(i for i, line in enumerate(lines) if line.get("action") == "write_back")
    lines[at]["fields"]["group"] = 2
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    refusal = validate([path]).refusal
    assert refusal is not None
    assert refusal.line == at + 1


class FailingDisk(FakeDisk):
    """Refuses the n-th write of a manifest."""

    failing = 1

    def write(self, handle: Handle, data: bytes | bytearray | memoryview) -> None:
        if b'"sequence"' in bytes(data) and b'"files"' in bytes(data):
            FailingDisk.failing -= 1
            if FailingDisk.failing == 0:
                raise OSError(errno.EIO, "input/output error")
        super().write(handle, data)


def test_a_save_that_fails_publishes_nothing_and_is_followed(tmp_path: Path) -> None:
    """The run ends with the failure; what was published before is what the next process goes on from."""
    path = tmp_path / "trace.jsonl"
    FailingDisk.failing = 2
    run = TracedRun(path, FailingDisk("/checkpoints"), prompts=8, batch_size=2, failed_saves_tolerated=0)
    with pytest.raises(Exception, match="input/output error"):
        run.run_to_the_end()
    result = accepted(path)
    assert (result.actions["publish"] >= 1, result.actions["fail_save"]) == (True, 1)
    disk = run.images[0].disk
    TracedRun(path, disk, prompts=8, batch_size=2).run_to_the_end()
    assert accepted(path).restores_compared == 1


def test_a_run_without_recovery_goes_on_from_its_trainer_alone(tmp_path: Path) -> None:
    """The data begins anew; the version and the next stamp do not."""
    path = tmp_path / "trace.jsonl"
    run = TracedRun(path, prompts=8, batch_size=2, recovery=False)
    run.run_to_the_end()
    cut_after(path, 1)
    TracedRun(path, run.images[1].disk, prompts=8, batch_size=2, recovery=False).run_to_the_end()
    result = accepted(path)
    assert (result.restores, result.restores_compared) == (1, 0)


@QUIET
async def test_a_loader_that_tells_no_place_is_followed_from_what_it_hands_out(tmp_path: Path) -> None:
    """torchdata counts batches of its own; the second trace alone knows nothing of how far the epoch had come."""
    traces = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for trace, steps in zip(traces, (2, None), strict=True):
        record = Record()
        barrier = CheckpointBarrier(trace=JsonlTracer(trace))
        await Controller(
            loader=loader(list(range(11)), own=3, batch_size=2, epochs=2),
            generate=record.generate,
            train=record.train,
            sampler=InOrderSampler(lookahead=1),
            checkpointer=Checkpointer(tmp_path / "checkpoints", barrier),
            config=ControllerConfig(generations=GENERATIONS, save_period=1, max_steps=steps, stall_warning=None),
        ).run()
    assert accepted(*traces).restores_compared == 1
    alone = accepted(traces[1])
    assert (alone.restores, alone.restores_compared) == (1, 0)
    assert alone.actions["end_epoch"] == 2


async def test_requests_that_are_given_up_are_followed(tmp_path: Path) -> None:
    """A writer cancelled while it waits, a checkpoint cancelled while it drains, and one whose drain expires."""
    path = tmp_path / "trace.jsonl"
    tracer = JsonlTracer(path)
    barrier = CheckpointBarrier(trace=tracer)

    async def write() -> None:
        async with barrier.mutation("writes"):
            pass

    async def save(limit: float | None) -> None:
        async with barrier.checkpoint(timeout=limit):
            pass

    async with barrier.mutation("holds"):
        with barrier.detached():
            saves = [asyncio.create_task(save(limit)) for limit in (None, 0.0)]
            await asyncio.sleep(0)
            writer = asyncio.create_task(write())
            await asyncio.sleep(0)
        for task in (writer, saves[0]):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        with pytest.raises(DrainTimeout):
            await saves[1]
    tracer.close()
    result = accepted(path)
    assert (result.actions["withdraw_slot"], result.actions["withdraw_cut"]) == (1, 2)
