"""A run whose finished groups lie on a device, saved by the real checkpointer."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from impl import CheckpointBarrier, Checkpointer, InOrderSampler, Ledger, PromptLoader, ReplayBuffer, TensorPlane
from impl.store import Buffer, Handle, PosixFiles

from .device_lab import Lab

FIELDS = ("tokens", "mask", "logprobs")


class DiscardingFiles(PosixFiles):
    """Real files, but what is written of rows goes nowhere: for figures in which the disk has no part."""

    def __init__(self) -> None:
        super().__init__()
        self._discarded: set[Handle] = set()

    def open_new(self, path: str) -> Handle:
        handle = super().open_new(path)
        if path.endswith(".safetensors"):
            self._discarded.add(handle)
        return handle

    def write(self, handle: Handle, data: Buffer) -> None:
        if handle not in self._discarded:
            super().write(handle, data)

    def close(self, handle: Handle) -> None:
        self._discarded.discard(handle)
        super().close(handle)


class DeviceRun:
    """`groups` groups of three tensors of `elements` bytes each, all of one step."""

    def __init__(
        self,
        directory: Path,
        lab: Lab | None,
        groups: int,
        files: Any = None,
        verify: Any = "off",
        device: str | torch.device = "cpu",
    ) -> None:
        self.barrier = CheckpointBarrier()
        self.ledger = Ledger(self.barrier)
        self.loader = PromptLoader(range(groups), groups, seed=0)
        self.sampler = InOrderSampler(lookahead=1)
        self.sampler.bind(groups)
        self.plane = TensorPlane(accelerator=None if lab is None else lab.accelerator, device=device)
        self.buffer = ReplayBuffer(self.barrier, groups, self.plane, self.ledger)
        self.checkpointer = Checkpointer(directory, self.barrier, keep=1, verify=verify, files=files)
        self.checkpointer.attach(ledger=self.ledger, loader=self.loader, sampler=self.sampler, buffer=self.buffer)
        self._lab = lab

    async def admit(self) -> tuple[int, ...]:
        """Draw everything, and pass it through the gate."""
        async with self.barrier.mutation() as cut:
            batch = self.loader.next_batch(cut)
            assert batch is not None
            admission = self.ledger.reserve(cut, batch.keys)
            self.ledger.admit(cut, admission, self.sampler.commit_admission(cut))
        return admission.groups

    async def commit(self, group: int, rows: dict[str, torch.Tensor], ready: Any = None) -> None:
        """Finish one group."""
        entry = self.ledger.entries[group]
        permit = await self.buffer.acquire_permit()
        staged = await self.plane.stage(group, rows, ready)
        async with self.barrier.mutation() as cut:
            self.buffer.reserve(cut, group, entry.key, entry.step, 0, permit)
            self.buffer.commit(cut, group, staged, ready)
        self.ledger.remove_committed(group)

    async def produce(self, group: int, value: int) -> None:
        """A group whose rows are behind a slow kernel; every other one on a stream of its own, with its event."""
        assert self._lab is not None
        lab, rows, ready = self._lab, {}, None
        with lab.side() if group % 2 else nullcontext():
            lab.slow()
            for place, field in enumerate(FIELDS):
                rows[field] = lab.row()
                lab.fill(rows[field], value + place)
            if group % 2:
                ready = lab.accelerator.record(lab.accelerator.where(rows["tokens"]))
        await self.commit(group, rows, ready)

    def holds(self, group: int, value: int, size: int) -> bool:
        """Whether the rows of a group are those that `produce` makes of that value."""
        rows = self.plane.rows(group)
        return rows.keys() == set(FIELDS) and all(
            torch.equal(rows[field].cpu(), torch.full((size,), value + place, dtype=torch.uint8))
            for place, field in enumerate(FIELDS)
        )

    async def train(self, groups: tuple[int, ...]) -> None:
        """One train step over all of it: claimed, finished, cleared."""
        async with self.barrier.mutation() as cut:
            claim = self.buffer.claim(cut, groups, 0)
            self.buffer.finish(cut, claim)


async def whole_checkpoint(lab: Lab, directory: Path, verify: str) -> bool:
    """Slow kernels, commit, cut, clear, new tensors in the memory; durable, and restored to the host: equal bytes.

    With `verify="digest"` every group is copied before its commit, so that nothing is late any more when it is saved.
    """
    run = DeviceRun(directory, lab, groups=6, verify=verify)
    groups = await run.admit()
    for group in groups:
        await run.produce(group, 3 * group + 1)
    pending = await run.checkpointer.begin_save()
    await run.train(groups)
    others = [lab.row() for _ in range(6)]
    for other in others:
        lab.fill(other, 0xEE)
    if verify == "off":
        lab.still_busy("the groups were trained and cleared")
    await pending.durable()
    await run.checkpointer.close()
    lab.finish_all()
    again = DeviceRun(directory, None, groups=6)
    await again.checkpointer.restore()
    await again.checkpointer.close()
    return all(again.holds(group, 3 * group + 1, lab.row_bytes) for group in groups)
