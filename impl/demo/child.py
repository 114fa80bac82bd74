"""One life of the demo's run, as a process: `python -m impl.demo.child DIRECTORY SEED`.

It resumes from the checkpoints in DIRECTORY if there are any, and runs to the end of the data. Every protocol event
goes to standard output as one line, so that the parent can kill it at a chosen one. What it trains goes to
DIRECTORY/trained.jsonl before the step is finished: a record that owes nothing to the checkpoints.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import torch

from ..barrier import CheckpointBarrier
from ..checkpoint.checkpointer import Checkpointer
from ..controller import Controller, ControllerConfig, GenerationRequest, TrainBatch
from ..loaders.prompt_loader import PromptLoader
from ..run.samplers import InOrderSampler
from ..trainer.torch_trainer_state import TorchTrainerState
from .setting import (
    BROKEN_ROWS,
    CHECKPOINTS,
    EPOCHS,
    GENERATIONS,
    PROMPTS,
    PROMPTS_PER_STEP,
    TRAINED_LOG,
)
from .toy_task import VOCABULARY, ToyTrainer


class Life:
    """The run of one process."""

    def __init__(self, directory: Path, seed: int, events: TextIO) -> None:
        self._events = events
        self._seed = seed
        self._log = (directory / TRAINED_LOG).open("a", encoding="utf-8")
        self._trainer = ToyTrainer(seed)
        barrier = CheckpointBarrier(trace=self._trace)
        self._checkpointer = Checkpointer(directory / CHECKPOINTS, barrier, verify="digest")
        self.controller = Controller(
            loader=PromptLoader([row % VOCABULARY for row in range(PROMPTS)], PROMPTS_PER_STEP, seed, EPOCHS),
            generate=self._generate,
            train=self._train,
            sampler=InOrderSampler(lookahead=1),
            checkpointer=self._checkpointer,
            trainer=TorchTrainerState(self._trainer.policy, self._trainer.optimizer),
            config=ControllerConfig(
                generations=GENERATIONS, max_in_flight=6, save_period=2, backoff=0.005, stall_timeout=30.0
            ),
        )

    def _say(self, **line: Any) -> None:
        # A write of its own for each line: what was said before the kill has arrived.
        self._events.write(json.dumps(line) + "\n")
        self._events.flush()

    def _record(self, **line: Any) -> None:
        # Flushed to the kernel, which outlives the process.
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()

    def _trace(self, action: str, /, **fields: object) -> None:
        if action == "restore":
            self._trainer.publish_weights()
            self._record(event="resumed", step=fields["step"])
        self._say(event=action, version=self.controller.progress.version)

    async def _generate(self, request: GenerationRequest) -> Mapping[str, torch.Tensor]:
        """Sample a group, in the time a generation takes: unequal, with a long tail, and now and then a failure."""
        chance = random.Random(f"{self._seed}/{request.key}/{request.attempt}")
        await asyncio.sleep(min(0.1, 0.004 + chance.expovariate(80)))
        if request.key.index in BROKEN_ROWS:
            raise ValueError(f"row {request.key.index} cannot be generated")
        if chance.random() < 0.05:
            raise ConnectionError("the generating worker was lost")
        return self._trainer.generate(request)

    def _train(self, batch: TrainBatch) -> None:
        reward = self._trainer.train(batch)
        keys = [[group.key.epoch, group.key.index] for group in batch]
        self._record(event="trained", step=batch.step, keys=keys, reward=round(reward, 3))

    async def run(self) -> None:
        """Live to the end of the data."""
        if self._checkpointer.latest() is None:
            # An earlier life may have trained steps and been killed before its first save.
            self._record(event="resumed", step=0)
        report = await self.controller.run()
        self._say(event="ended", outcome=report.outcome, trained=report.trained)


def main(directory: str, seed: str) -> None:
    """Run one life."""
    torch.set_num_threads(1)
    # Retries are part of the demonstration; the parent shows standard error only when a life fails.
    logging.getLogger("cleancut").setLevel(logging.ERROR)
    asyncio.run(Life(Path(directory), int(seed), sys.stdout).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
