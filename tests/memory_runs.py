"""Runs of the controller on a disk in memory: fast, and every checkpoint is an image that a crash could leave."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from controller_runs import Record, new_controller, rows_of
from loop_turns import turns

from impl import Key
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Checkpointer
from impl.controller import Controller, GenerationRequest, RunReport, TrainBatch
from impl.run.samplers import InOrderSampler, ReadyFirstSampler, Sampler, WeightFifoSampler, WindowedSampler
from interleavings.scenarios import FakeDisk

DIRECTORY = "/checkpoints"

SAMPLERS: dict[str, Callable[[int], Sampler]] = {
    "in_order": InOrderSampler,
    "weight_fifo": WeightFifoSampler,
    "ready_first": ReadyFirstSampler,
    "windowed": WindowedSampler,
}


class AtOnce(Executor):
    """Runs each job where it is submitted, so that a run takes the same turns every time."""

    def submit(self, job: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Run now."""
        future: Future[Any] = Future()
        try:
            future.set_result(job(*arguments, **options))
        except BaseException as error:
            future.set_exception(error)
        return future


@dataclass(frozen=True)
class Image:
    """The disk right after a publication, and how many train steps the checkpoint counts."""

    disk: FakeDisk
    version: int


class MemoryRun(Record):
    """One process of a run: `failures` says how often each row fails, -1 for ever; `delays` how many turns it takes."""

    def __init__(
        self,
        disk: FakeDisk | None = None,
        *,
        failures: Mapping[int, int] | None = None,
        delays: Mapping[int, int] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.disk = FakeDisk(DIRECTORY) if disk is None else disk
        self.images: list[Image] = []
        self._failures = failures or {}
        self._delays = delays or {}
        barrier = CheckpointBarrier(trace=self.trace)
        checkpointer = Checkpointer(DIRECTORY, barrier, files=self.disk, executor=AtOnce(), verify="digest")
        self.controller: Controller = new_controller(
            None, self, checkpointer=checkpointer, generate=self.generates, train=self.trains, **settings
        )

    def trace(self, action: str, /, **fields: object) -> None:
        super().trace(action, **fields)
        if action == "publish":
            crashed = deepcopy(self.disk)
            # The lock of a process that died is free.
            crashed._locked.clear()
            self.images.append(Image(crashed, int(str(fields["step"]))))

    async def generates(self, request: GenerationRequest) -> Any:
        """Fails as often as it is told, over restarts too: the attempt is part of the checkpoint."""
        self.generated.append(request.key)
        self.requests.append(request)
        await turns(self._delays.get(request.key.index, 1))
        times = self._failures.get(request.key.index, 0)
        if times < 0 or request.attempt < times:
            raise ValueError(f"row {request.key.index} fails")
        return rows_of(request)

    async def trains(self, batch: TrainBatch) -> None:
        await self.train(batch)

    def run(self) -> RunReport:
        """To the end, in a loop of its own."""
        return asyncio.run(self.controller.run())

    def trained_before(self, version: int | None = None) -> Counter[Key]:
        """What this process trained, with `version` only the steps that a checkpoint of that version counts."""
        return Counter(key for step, keys in self.trained if version is None or step < version for key in keys)


def assert_nothing_is_held(controller: Controller) -> None:
    """All permits back, nobody pending, no spare left."""
    figures = controller.statistics()
    assert figures["free"] == figures["capacity"]
    assert figures["in_flight_free"] == figures["in_flight_capacity"]
    assert (figures["pending"], figures["spares"]) == (0, 0)
    assert controller.generation.running == ()
