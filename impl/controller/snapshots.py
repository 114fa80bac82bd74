"""Rollout snapshots between full saves: what was generated since is kept, and the trainer is not copied again.

A snapshot belongs to the newest durable full save, and to no other version of the trainer. So one is taken at most
every `snapshot_period` seconds, while the trainer is still in the step after that save, and only if anything has
changed. The checkpointer would skip any other; it is not even asked, since that would open a window for nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..checkpoint.pending import PendingSave
from .parts import RunParts
from .saves import SaveSchedule

if TYPE_CHECKING:
    from ..checkpoint.checkpointer import Checkpointer


class SnapshotSchedule:
    """Takes rollout snapshots by the clock; a task of the run, ended before its last save."""

    def __init__(self, parts: RunParts, checkpointer: Checkpointer | None, saves: SaveSchedule) -> None:
        self._parts = parts
        self._checkpointer = checkpointer
        self._saves = saves
        # How many mutations had ended when the newest snapshot was asked for.
        self._mutations: int | None = None
        self.taken = 0

    @property
    def wanted(self) -> bool:
        """Whether the run takes snapshots at all."""
        return self._checkpointer is not None and self._parts.config.snapshot_period is not None

    async def run(self) -> None:
        """Take one whenever the period has gone by and there is something to keep.

        One that fails is tried again after the next period, while failures are tolerated.
        """
        period = self._parts.config.snapshot_period
        assert period is not None
        while True:
            await asyncio.sleep(period)
            if self._saves.anchored and self._mutations != self._parts.barrier.mutation_version:
                try:
                    await self.take()
                except Exception as error:
                    # Before it begins it may raise the failure of the full save, which the train pump looks for.
                    if not self._saves.has_failed_with(error):
                        self._saves.failures.meet("rollout", error)

    async def take(self) -> None:
        """Take one snapshot, unless the trainer moves on first, and wait until it is durable."""
        assert self._checkpointer is not None
        mutations = self._parts.barrier.mutation_version
        pending = await self._checkpointer.begin_snapshot()
        if isinstance(pending, PendingSave):
            pending.watch()
            await pending.durable()
            self._saves.failures.forget("rollout")
            self._mutations = mutations
            self.taken += 1
