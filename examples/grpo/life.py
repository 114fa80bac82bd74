"""One process of the run: `python -m examples.grpo.life DIRECTORY`.

It resumes from the checkpoints in DIRECTORY if there are any, else it begins, and runs to the end of the data. This is
the part that a training script of one's own would have; the rest of the example watches it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

import torch
from torchdata.stateful_dataloader import StatefulDataLoader

from impl import (
    CheckpointBarrier,
    Checkpointer,
    Controller,
    ControllerConfig,
    GenerationRequest,
    Indexed,
    InOrderSampler,
    ReadyFirstSampler,
    Sampler,
    TorchdataPromptLoader,
    TrainBatch,
    WeightFifoSampler,
    WindowedSampler,
)

from .arithmetic import dataset
from .learner import Learner, LearnerState
from .objective import group_advantages
from .recording import Recording
from .setting import CHECKPOINTS, Setting

_SAMPLERS: Mapping[str, Callable[[int], Sampler]] = {
    "in_order": InOrderSampler,
    "weight_fifo": WeightFifoSampler,
    "ready_first": ReadyFirstSampler,
    "windowed": WindowedSampler,
}


class Life:
    """The run, in this process."""

    def __init__(self, directory: Path, setting: Setting, events: TextIO) -> None:
        self._setting = setting
        self._learner = Learner(setting)
        self._recording = Recording(directory, events)
        barrier = CheckpointBarrier(trace=self._recording, drain_timeout=60)
        self._checkpointer = Checkpointer(directory / CHECKPOINTS, barrier, verify="digest")
        sampler = _SAMPLERS[setting.sampler](setting.staleness)
        self.controller = Controller(
            loader=_loader(setting),
            generate=self._generate,
            train=self._train,
            sampler=sampler,
            checkpointer=self._checkpointer,
            trainer=LearnerState(self._learner),
            config=ControllerConfig(
                generations=setting.generations,
                capacity=max(sampler.capacity_needed(setting.prompts_per_step), 2 * setting.prompts_per_step),
                max_in_flight=setting.max_in_flight,
                save_period=setting.save_period,
                snapshot_period=setting.snapshot_period,
                backoff=0.01,
                stall_timeout=60.0,
            ),
        )
        self._recording.attach(self.controller)

    async def _generate(self, request: GenerationRequest) -> Mapping[str, torch.Tensor]:
        """One group, in the time that an engine takes: unequal, with a long tail, and now and then with a failure."""
        setting = self._setting
        chance = random.Random(f"{setting.seed}/{request.key}/{request.attempt}/engine")
        await asyncio.sleep(min(8 * setting.latency, chance.expovariate(1 / setting.latency)))
        if chance.random() < setting.lost_attempts:
            raise ConnectionError("the generating worker was lost")
        return await asyncio.to_thread(self._learner.generate, request)

    async def _train(self, batch: TrainBatch) -> None:
        """One train step, in a thread, so that generation goes on beside it."""
        if batch.step % self._setting.save_period == 0:
            # While the trainer stands at a full save: rollout snapshots keep what is generated meanwhile.
            await asyncio.sleep(self._setting.evaluation)
            right = await asyncio.to_thread(self._learner.evaluate)
            self._recording.trained("evaluated", step=batch.step, right=right)
        for group in batch:
            # A derived column: committed rows are never changed, and a restored group gets it anew.
            await batch.write_back(group.group, {"advantage": group_advantages(group.rows["reward"])})
        # In the order of their keys: sums of floats depend on the order, and arrival is a matter of chance.
        groups = sorted(batch, key=lambda group: group.key)
        step = await asyncio.to_thread(self._learner.train, [group.rows for group in groups])
        self._recording.trained(
            "trained",
            step=batch.step,
            keys=[group.key for group in groups],
            ages=[batch.step - group.version for group in groups],
            reward=step.reward,
            exact=step.exact,
            loss=float(step.objective.loss.detach()),
            divergence=step.objective.divergence,
            clipped=step.objective.clipped,
            moved=step.objective.moved,
        )
        self._recording.say("reward", reward=step.reward)

    async def run(self) -> None:
        """Live to the end of the data."""
        if self._checkpointer.latest() is None:
            # An earlier life may have trained steps and been killed before its first save.
            self._recording.trained("resumed", step=0, name=None)
        report = await self.controller.run()
        self._recording.say("ended", outcome=report.outcome, trained=report.trained)


def _loader(setting: Setting) -> TorchdataPromptLoader:
    rows = dataset(setting.rows, setting.operands, setting.broken_every, setting.seed)
    with warnings.catch_warnings():
        # torchdata 0.11 calls a function that torch has deprecated since.
        warnings.filterwarnings("ignore", ".*set_vital", UserWarning)
        dataloader: StatefulDataLoader[object] = StatefulDataLoader(
            Indexed(rows),
            batch_size=setting.loader_batch,
            shuffle=True,
            num_workers=setting.workers,
            collate_fn=list,
            # Every epoch has its own workers; fork is quick, and they touch nothing but the list of prompts.
            multiprocessing_context="fork" if setting.workers else None,
        )
    return TorchdataPromptLoader(dataloader, setting.prompts_per_step, setting.seed, setting.epochs)


def main(directory: str) -> None:
    """Run one life."""
    torch.set_num_threads(1)
    # Retries and lost workers are part of the run; whoever watches shows standard error only when a life fails.
    logging.getLogger("cleancut").setLevel(logging.ERROR)
    asyncio.run(Life(Path(directory), Setting.read(Path(directory)), sys.stdout).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
