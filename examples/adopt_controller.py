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
    PromptLoader,
    ReplayBuffer,
    TensorPlane,
    steps,
)

PROMPTS, BATCH = 22, 4


class AdoptedController:
    """`roll_out` reserves, admits and dispatches; `finish` commits; `train` claims, trains and saves."""

    def __init__(self, directory: str) -> None:
        self.barrier = CheckpointBarrier(drain_timeout=300)
        self.ledger, self.sampler, self.trainer = Ledger(self.barrier), InOrderSampler(lookahead=1), HeldCounters()
        self.loader = PromptLoader([f"prompt {row}" for row in range(PROMPTS)], BATCH, seed=0)
        capacity = self.sampler.capacity_needed(self.loader.batch_size)
        self.buffer = ReplayBuffer(self.barrier, capacity, TensorPlane(), self.ledger)
        self.checkpointer = Checkpointer(directory, self.barrier, verify="digest")
        self.checkpointer.attach(
            ledger=self.ledger, loader=self.loader, sampler=self.sampler, buffer=self.buffer, counters=self.trainer
        )

    async def run(self) -> None:
        await steps.resume(self.checkpointer, self.sampler)
        say("begun", version=self.trainer.version)
        async with self.checkpointer, asyncio.TaskGroup() as tasks:
            tasks.create_task(self.roll_out(tasks))
            await self.train()

    async def roll_out(self, tasks: asyncio.TaskGroup) -> None:
        for admission in steps.pending(self.ledger):  # what a restore brought
            await self.generate_all(admission, tasks)
        while (fresh := await steps.reserve(self.ledger, self.loader)) is not None:
            await self.generate_all(fresh, tasks)

    async def generate_all(self, admission: Admission, tasks: asyncio.TaskGroup) -> None:
        await steps.admit(self.ledger, self.sampler, admission)
        for group in admission.groups:
            entry = await steps.dispatch(self.ledger, self.buffer, group, self.trainer.version)
            tasks.create_task(self.finish(group, self.loader.payload(entry.key)))

    async def finish(self, group: GroupId, prompt: str) -> None:
        await steps.commit(self.ledger, self.buffer, group, await generate(prompt))

    async def train(self) -> None:
        while self.ledger.entries or self.buffer.slots or not self.loader.exhausted:
            claim = await steps.claim(self.buffer, self.sampler, self.trainer.version, self.loader)
            if claim is not None:  # else all of its groups were given up
                await train_step(claim)
            await steps.finish(self.buffer, self.sampler, self.trainer, claim)
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
