"""One life of the first historical run, as a process of its own: `python history_process.py PART DIRECTORY LOG LIFE`.

Parts `a` and `b` are the two settings of tests/test_history_inflight_loss.py. In its first life the process brings the
run to the recorded state, saves, and is gone without any clean-up; in its second it resumes and finishes. The log gets
one JSON line for each group generated, trained or restored, flushed at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from impl import (
    CheckpointBarrier,
    Checkpointer,
    Controller,
    ControllerConfig,
    GenerationRequest,
    InOrderSampler,
    PromptLoader,
    TrainBatch,
    WindowedSampler,
)
from impl.waiting import Wakeup

# Groups are numbered in the order of their batch, so these are places in the batch of 30.
FINISHED = {*range(10), 12, *range(15, 24)}
IN_FLIGHT = {10, 11, 13, 14, 24, 25}
NEVER_DISPATCHED = {26, 27, 28, 29}


class Life:
    """A controller whose generations end when this class lets them, and whose process ends where it says."""

    def __init__(self, part: str, directory: Path, log: Path, life: int) -> None:
        self.part = part
        self.first = life == 1
        self.life = life
        self._log = log.open("a", encoding="utf-8")
        self._committed: set[int] = set()
        self._changed = Wakeup()
        barrier = CheckpointBarrier(trace=self._trace)
        self.checkpointer = Checkpointer(directory, barrier, verify="digest")
        if part == "a":
            prompts, batch_size, capacity, sampler = 30, 30, 30, InOrderSampler(lookahead=0)
            settings: dict[str, Any] = {"max_in_flight": 6, "save_period": None}
        else:
            prompts, batch_size, capacity = 16, 2, 4
            sampler = WindowedSampler(staleness=8)  # type: ignore[assignment]
            settings = {"save_period": 2}
        self.controller = Controller(
            loader=PromptLoader([f"prompt {row}" for row in range(prompts)], batch_size=batch_size, seed=7),
            generate=self.generate,
            train=self.train,
            sampler=sampler,
            checkpointer=self.checkpointer,
            config=ControllerConfig(capacity=capacity, generations=1, stall_warning=None, **settings),
        )

    def say(self, event: str, **fields: Any) -> None:
        """One line of the log, written through at once: the process may be gone the next moment."""
        print(json.dumps({"life": self.life, "event": event, **fields}), file=self._log, flush=True)

    def _trace(self, action: str, /, **fields: Any) -> None:
        if action == "commit_group":
            self._committed.add(fields["group"])
            self._changed.wake()
        elif action == "restore":
            self._say_restored()
        elif action == "publish" and self.first and self.part == "b":
            os._exit(9)

    def _say_restored(self) -> None:
        controller = self.controller
        self.say(
            "restored",
            ready=sorted(controller.buffer.slots),
            pending={group: entry.phase.value for group, entry in controller.ledger.entries.items()},
            next_batch=controller.rollout_pump._parts.loader.state().position
            // controller.rollout_pump._parts.groups_per_step
            + 1,
        )

    async def generate(self, request: GenerationRequest) -> Mapping[str, torch.Tensor]:
        """Generations of the first life end as recorded; those in flight never do."""
        stuck = IN_FLIGHT if self.part == "a" else {6, 7}
        if self.first and request.group in stuck:
            await asyncio.get_running_loop().create_future()
        self.say("generated", group=request.group, row=request.key.index)
        return {"life": torch.tensor([self.life]), "row": torch.tensor([request.key.index])}

    async def train(self, batch: TrainBatch) -> None:
        """Part b: the second step lasts until batch 3 is ready, and the third is under way when the process is gone."""
        if self.first and batch.step == 1:
            while not {4, 5} <= self._committed:
                await self._changed.wait()
        if self.first and batch.step == 2:
            await asyncio.get_running_loop().create_future()
        self.say(
            "trained",
            step=batch.step,
            rows=[group.key.index for group in batch],
            made_in_life=[int(group.rows["life"][0]) for group in batch],
        )

    async def run(self) -> None:
        """Live, and in the first life of part a save by hand in the recorded state and drop everything."""
        run = asyncio.ensure_future(self.controller.run())
        if self.first and self.part == "a":
            while self._committed != FINISHED:
                await self._changed.wait()
            while set(self.controller.generation.running) != IN_FLIGHT:
                await asyncio.sleep(0)
            assert NEVER_DISPATCHED.issubset(self.controller.ledger.entries)
            assert NEVER_DISPATCHED.isdisjoint(self.controller.buffer.slots)
            await self.checkpointer.save()
            os._exit(9)
        report = await run
        self.say("ended", outcome=report.outcome, trained=report.trained, dropped=report.dropped)


if __name__ == "__main__":
    part, directory, log, life = sys.argv[1:]
    asyncio.run(Life(part, Path(directory), Path(log), int(life)).run())
