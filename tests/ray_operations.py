"""The run that the tests of the Ray barrier have behind it, in the process of the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from impl import (
    Checkpointer,
    Cut,
    GroupId,
    HeldCounters,
    InOrderSampler,
    Key,
    Ledger,
    PromptLoader,
    ReplayBuffer,
    TensorPlane,
)
from impl.leases import HostedBarrier

PROMPTS, BATCH = 12, 2


class Operations:
    """Loader, ledger, sampler, buffer, plane and checkpointer of a run, and what writers elsewhere may do with them."""

    def __init__(self, barrier: HostedBarrier, directory: Path) -> None:
        self.barrier = barrier
        self.ledger = Ledger(barrier)
        self.loader = PromptLoader(list(range(PROMPTS)), batch_size=BATCH, seed=0)
        self.sampler = InOrderSampler(lookahead=PROMPTS)
        self.sampler.bind(groups_per_step=BATCH)
        self.buffer = ReplayBuffer(barrier, self.sampler.capacity_needed(BATCH), TensorPlane(), self.ledger)
        self.checkpointer = Checkpointer(directory, barrier)
        self.checkpointer.attach(
            ledger=self.ledger, loader=self.loader, sampler=self.sampler, buffer=self.buffer, counters=HeldCounters()
        )
        self._staged: dict[GroupId, Any] = {}

    # -- in a section; what moves together is one operation

    def admit_batch(self, cut: Cut) -> list[GroupId]:
        """The next batch, reserved and admitted; empty at the end of the data."""
        batch = self.loader.next_batch(cut)
        if batch is None:
            return []
        admission = self.ledger.reserve(cut, batch.keys)
        self.ledger.admit(cut, admission, self.sampler.commit_admission(cut))
        return list(admission.groups)

    def commit(self, cut: Cut, group: GroupId) -> None:
        """The staged rows of a group become visible, and it leaves the ledger."""
        self.buffer.commit(cut, group, self._staged[group])
        self.ledger.remove_committed(group)

    def owners(self, cut: Cut) -> tuple[int, set[Key], set[Key]]:
        """How many prompts are handed out, those in the buffer, those in the ledger, in the one instant of a cut."""
        ready = {group: slot.key for group, slot in self.buffer.slots.items() if slot.ready}
        pending = self.ledger.snapshot(cut, ready).entries.values()
        return self.loader.state().position, set(ready.values()), {entry.key for entry in pending}

    # -- outside of any section of the caller

    async def stage(self, group: GroupId) -> None:
        """Take permit and slot for a group if it has none, and stage its rows."""
        entry = self.ledger.entries[group]
        if group not in self.buffer.slots:
            permit = await self.buffer.acquire_permit()
            async with self.barrier.mutation("dispatches") as cut:
                self.buffer.reserve(cut, group, entry.key, entry.step, 0, permit)
        self._staged[group] = await self.buffer.plane.stage(group, {"tokens": torch.full((4,), entry.key.index)})

    async def save(self) -> str:
        """A durable checkpoint."""
        return (await self.checkpointer.save()).name

    def pending(self) -> list[GroupId]:
        """The groups that the ledger owns."""
        return list(self.ledger.entries)


class MakeOperations:
    """The run in this directory, as its newest checkpoint has it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def __call__(self, barrier: HostedBarrier) -> Operations:
        operations = Operations(barrier, self._directory)
        if operations.checkpointer.latest() is not None:
            await operations.checkpointer.restore()
        return operations
