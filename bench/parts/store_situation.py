"""A run with a full buffer and writers that never rest, for the figures of the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from impl import CheckpointBarrier, Checkpointer, InOrderSampler, Ledger, PromptLoader, ReplayBuffer, TensorPlane
from impl.checkpoint import read_cut
from impl.store import PosixFiles

GROUPS, FIELDS, WRITERS = 256, 3, 8


class SlowFiles(PosixFiles):
    """A disk on which every fsync takes 200 ms longer."""

    def fsync(self, handle: Any) -> None:
        time.sleep(0.2)
        super().fsync(handle)

    def fsync_dir(self, path: str) -> None:
        time.sleep(0.2)
        super().fsync_dir(path)


class Situation:
    """A run whose buffer holds `size` bytes in 256 groups, and its checkpointer."""

    def __init__(self, directory: Path, files: Any = None, trace: Any = None) -> None:
        self.barrier = CheckpointBarrier(trace=trace)
        self.ledger = Ledger(self.barrier)
        self.loader = PromptLoader(list(range(GROUPS)), GROUPS, seed=0)
        self.sampler = InOrderSampler(lookahead=1)
        self.plane = TensorPlane(verify="off")
        self.buffer = ReplayBuffer(self.barrier, 2 * GROUPS, self.plane, self.ledger)
        self.sampler.bind(GROUPS)
        self.checkpointer = Checkpointer(directory, self.barrier, keep=1, verify="off", files=files)
        self.checkpointer.attach(ledger=self.ledger, loader=self.loader, sampler=self.sampler, buffer=self.buffer)
        self._spare_groups = 10**6

    async def fill(self, size: int) -> Situation:
        """Every prompt drawn, admitted and finished."""
        async with self.barrier.mutation("reserve") as cut:
            batch = self.loader.next_batch(cut)
            assert batch is not None
            admission = self.ledger.reserve(cut, batch.keys)
        async with self.barrier.mutation("admit") as cut:
            self.ledger.admit(cut, admission, self.sampler.commit_admission(cut))
        for group in admission.groups:
            entry = self.ledger.entries[group]
            permit = await self.buffer.acquire_permit()
            staged = await self.plane.stage(group, rows(size))
            async with self.barrier.mutation("commit") as cut:
                self.buffer.reserve(cut, group, entry.key, entry.step, 0, permit)
                self.buffer.commit(cut, group, staged)
            self.ledger.remove_committed(group)
        return self

    async def write_for_ever(self) -> None:
        """A live writer: commits small rows under a name no index has, and clears them."""
        small = {"x": torch.ones(8)}
        while True:
            group, self._spare_groups = self._spare_groups, self._spare_groups + 1
            staged = await self.plane.stage(group, small)
            async with self.barrier.mutation("bench") as cut:
                self.plane.commit(cut, group, staged)
                await asyncio.sleep(0)
            async with self.barrier.mutation("bench"):
                self.plane.clear(group)
            await asyncio.sleep(0.0002)

    @asynccontextmanager
    async def among_writers(self) -> AsyncIterator[None]:
        """Eight of them, inside the block."""
        tasks = [asyncio.create_task(self.write_for_ever()) for _ in range(WRITERS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def windows(self, count: int) -> list[float]:
        """How long the cut stays open, without the drain: what `begin_save` does there, and no save after it."""
        parts = self.checkpointer._attached()
        found = []
        for _ in range(count):
            async with self.barrier.checkpoint() as cut:
                opened = perf_counter()
                captured: Any = read_cut(self.barrier, parts, cut, "full", None, perf_counter)
            found.append(perf_counter() - opened)
            captured.rows.drop()
            self.plane.release(captured.rows)
            await asyncio.sleep(0.001)
        return found


def rows(size: int) -> dict[str, torch.Tensor]:
    """One group's share of `size` bytes, really in memory."""
    elements = size // GROUPS // FIELDS // 4
    return {f"field{number}": torch.rand(elements) for number in range(FIELDS)}
