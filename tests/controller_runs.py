"""Runs of the controller for tests: small data, rows that tell their group, and a record of all that happened."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from loop_turns import HANG_SECONDS

from impl import Key, PromptLoader, ReplayBuffer, TensorPlane, TrainerState
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Checkpointer
from impl.controller import Controller, ControllerConfig, GenerationRequest, TrainBatch
from impl.run.samplers import InOrderSampler, Sampler
from impl.waiting import Wakeup

GENERATIONS = 2


def rows_of(request: GenerationRequest) -> Mapping[str, torch.Tensor]:
    """Rows that tell the prompt they are of."""
    return {"tokens": torch.full((GENERATIONS, 3), request.key.index, dtype=torch.int64)}


@dataclass
class Record:
    """What the callables of a run saw, in order, and every event of the protocol."""

    generated: list[Key] = field(default_factory=list)
    requests: list[GenerationRequest] = field(default_factory=list)
    trained: list[tuple[int, tuple[Key, ...]]] = field(default_factory=list)
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    _happened: Wakeup = field(default_factory=Wakeup)

    def trace(self, action: str, /, **fields: object) -> None:
        self.events.append((action, fields))
        self._happened.wake()

    async def reaches(self, action: str, count: int) -> None:
        """Wait until an action has happened `count` times. The limit is a safety net, so that a wrong run fails."""
        async with asyncio.timeout(HANG_SECONDS):
            while len(self.named(action)) < count:
                await self._happened.wait()

    def named(self, action: str) -> list[Mapping[str, Any]]:
        """The fields of all events of one action."""
        return [fields for name, fields in self.events if name == action]

    @property
    def trained_keys(self) -> Counter[Key]:
        """How often each key was trained."""
        return Counter(key for _, keys in self.trained for key in keys)

    @property
    def trained_rows(self) -> Counter[int]:
        """How often each row of the dataset was trained, over all epochs."""
        return Counter(key.index for _, keys in self.trained for key in keys)

    async def generate(self, request: GenerationRequest) -> Mapping[str, torch.Tensor]:
        """A generation that takes one turn of the loop."""
        self.generated.append(request.key)
        self.requests.append(request)
        await asyncio.sleep(0)
        return rows_of(request)

    async def train(self, batch: TrainBatch) -> None:
        """A train step that checks that rows and keys belong together."""
        for group in batch:
            assert int(group.rows["tokens"][0, 0]) == group.key.index
        await asyncio.sleep(0)
        self.trained.append((batch.step, tuple(group.key for group in batch)))


def new_controller(
    directory: Path | None,
    record: Record,
    *,
    prompts: int | Sequence[Any] = 8,
    batch_size: int = 2,
    epochs: int = 1,
    sampler: Sampler | None = None,
    generate: Callable[[GenerationRequest], Any] | None = None,
    train: Callable[[TrainBatch], Any] | None = None,
    trainer: TrainerState | None = None,
    barrier: CheckpointBarrier | None = None,
    capacity: int | None = None,
    checkpointer: Checkpointer | None = None,
    **config: Any,
) -> Controller:
    """A run of `prompts` prompts; without a directory it is not saved. Every committed row is digested."""
    if checkpointer is not None:
        barrier = checkpointer.barrier
    barrier = barrier or CheckpointBarrier(trace=record.trace)
    sampler = sampler or InOrderSampler(lookahead=1)
    dataset = list(range(prompts)) if isinstance(prompts, int) else prompts
    loader = PromptLoader(dataset, batch_size=batch_size, seed=0, epochs=epochs)
    if checkpointer is None and directory is not None:
        checkpointer = Checkpointer(directory, barrier, verify="digest")
    settings = {
        "recovery": checkpointer is not None, "generations": GENERATIONS, "save_period": 1, "stall_warning": None,
        "backoff": 0.0, **config,
    }  # fmt: skip
    return Controller(
        loader=loader,
        generate=generate or record.generate,
        train=train or record.train,
        sampler=sampler,
        checkpointer=checkpointer,
        config=ControllerConfig(**settings),
        buffer=ReplayBuffer(barrier, capacity or sampler.capacity_needed(batch_size), TensorPlane(verify="digest")),
        trainer=trainer,
    )


def settled_keys(controller: Controller) -> Counter[Key]:
    """Every key the run's accounts call trained or dropped, with how often."""
    accounts = controller.ledger.accounts
    trained = [
        Key(interval.epoch, index)
        for interval in accounts.trained
        for index in range(interval.first, interval.last + 1)
    ]
    return Counter([*trained, *accounts.dropped])


def each_once(prompts: int, epochs: int = 1) -> Counter[Key]:
    """Every prompt of every epoch, once."""
    return Counter(Key(epoch, index) for epoch in range(epochs) for index in range(prompts))
