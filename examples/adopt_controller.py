"""A controller of one's own on the parts of `impl`: kill it anywhere, start it again, and no prompt is lost.

    python examples/adopt_controller.py DIRECTORY

`AdoptedController` is where docs/adopting.md ends: two pumps that might have been there before, on this library's
barrier, ledger, loader, sampler, buffer and checkpointer. Below it stand a toy engine and a toy trainer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping

import torch

from impl import (
    Admission,
    CheckpointBarrier,
    Checkpointer,
    Claim,
    GroupId,
    HeldCounters,
    InOrderSampler,
    Ledger,
    Phase,
    PromptLoader,
    ReplayBuffer,
    TensorPlane,
)

PROMPTS, BATCH = 22, 4


class AdoptedController:
    """`roll_out` reserves, admits and dispatches; `finish` commits; `train` claims, trains and saves."""

    def __init__(self, directory: str) -> None:
        self.barrier = CheckpointBarrier(drain_timeout=300)
        self.ledger, self.sampler, self.trainer = Ledger(self.barrier), InOrderSampler(lookahead=1), HeldCounters()
        self.loader = PromptLoader([f"prompt {row}" for row in range(PROMPTS)], BATCH, seed=0)
        self.buffer = ReplayBuffer(self.barrier, self.sampler.capacity_needed(BATCH), TensorPlane(), self.ledger)
        self.sampler.bind(BATCH)
        self.checkpointer = Checkpointer(directory, self.barrier, verify="digest")
        self.checkpointer.attach(
            ledger=self.ledger, loader=self.loader, sampler=self.sampler, buffer=self.buffer, counters=self.trainer
        )

    async def run(self) -> None:
        if self.checkpointer.latest() is not None:
            await self.checkpointer.restore()
            self.sampler.advance(self.trainer.version)
        say("begun", version=self.trainer.version)
        async with self.checkpointer, asyncio.TaskGroup() as tasks:
            tasks.create_task(self.roll_out(tasks))
            await self.train()

    async def roll_out(self, tasks: asyncio.TaskGroup) -> None:
        for phase in (Phase.ADMITTED, Phase.RESERVED):  # what a restore brought; admitted work may open the gate
            for admission in self.ledger.admissions(phase):
                await self.admit(admission, tasks)
        while True:
            async with self.barrier.mutation("prompt_reservations") as cut:
                if (batch := self.loader.next_batch(cut)) is None:
                    return
                admission = self.ledger.reserve(cut, batch.keys)
            await self.admit(admission, tasks)

    async def admit(self, admission: Admission, tasks: asyncio.TaskGroup) -> None:
        if self.ledger.entries[admission.groups[0]].phase is Phase.RESERVED:
            await self.sampler.wait_until_admissible()  # waits for the trainer, so it holds no slot
            async with self.barrier.mutation("admissions") as cut:
                self.ledger.admit(cut, admission, step := self.sampler.commit_admission(cut))
                if step is not None:
                    self.sampler.credit(step, BATCH - len(admission.groups))  # a short batch is a short step
        for group in admission.groups:
            permit = await self.buffer.acquire_permit()  # waits for the trainer too
            async with self.barrier.mutation("dispatches") as cut:
                entry = self.ledger.entries[group]
                self.buffer.reserve(cut, group, entry.key, entry.step, self.trainer.version, permit)
            tasks.create_task(self.finish(group, self.loader.payload(entry.key)))

    async def finish(self, group: GroupId, prompt: str) -> None:
        staged = await self.buffer.plane.stage(group, await generate(prompt))
        async with self.barrier.mutation("group_commits") as cut:
            self.buffer.commit(cut, group, staged)
        self.ledger.remove_committed(group)

    async def train(self) -> None:
        while self.ledger.entries or self.buffer.slots or not self.loader.exhausted:
            step = self.trainer.version
            while not (chosen := self.sampler.select(self.buffer.slots, step, self.sampler.target(step))):
                await self.buffer.wait_changed()
            async with self.barrier.mutation("step_claims") as cut:
                claim = self.buffer.claim(cut, chosen, step)
            await train_step(claim)
            async with self.barrier.mutation("step_finishes") as cut:
                self.buffer.finish(cut, claim)
                self.trainer.version = step + 1
                self.sampler.advance(step + 1)
            await self.checkpointer.begin_save()  # back after the window; the files are written behind it


async def generate(prompt: str) -> Mapping[str, torch.Tensor]:
    """The inference engine: two completions of a prompt, in a time that depends on it."""
    row = int(prompt.split()[1])
    await asyncio.sleep(0.002 * (row * 7 % 5))
    say("generated", row=row)
    return {"tokens": torch.full((2, 8), row)}


async def train_step(claim: Claim) -> None:
    """The trainer: says what it was given."""
    await asyncio.sleep(0.005)
    say("trained", step=claim.step, rows=[int(claim.rows(group)["tokens"][0, 0]) for group in claim.groups])


def say(event: str, **fields: object) -> None:
    """One line of JSON, written through at once: the process may be gone the next moment."""
    print(json.dumps({"event": event, **fields}), flush=True)


async def main(directory: str) -> None:
    """One life: to the end of the data, or to where it is killed."""
    controller = AdoptedController(directory)
    await controller.run()
    accounts = controller.ledger.accounts
    say("ended", trained=accounts.trained_count, dropped=len(accounts.dropped))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
