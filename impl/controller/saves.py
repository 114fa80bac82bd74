"""When a full save is due, and the one that is being written.

Saves are taken by the train pump between steps: after `save_period` steps, when `save_deadline` seconds have gone by,
and at the end of the run. One is in flight at a time; the checkpointer holds the second back before it captures. A
failure in the background is raised by the next save, or by `settle`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .parts import RunParts

if TYPE_CHECKING:
    from ..checkpointer import Checkpointer, PendingSave
    from ..trainer_state import TrainerState


class SaveSchedule:
    """Full saves by period and deadline; without a checkpointer none is ever due."""

    def __init__(self, parts: RunParts, checkpointer: Checkpointer | None, trainer: TrainerState | None) -> None:
        self._parts = parts
        self._checkpointer = checkpointer
        self._trainer = trainer
        self._pending: PendingSave | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline_passed = False
        # What the newest save holds at least: version, and how many mutations had ended when it was asked for.
        self._saved_version = parts.progress.version
        self._saved_mutations: int | None = None
        # The version of the trainer that the newest full save holds; None before the first of a run.
        self._anchor: int | None = None
        self.in_window = False
        self.begun = 0

    @property
    def in_progress(self) -> bool:
        """Whether a save waits for the one before, is in its window, or is being written.

        One that waits for open sections is not: those may be waiting for the trainer, and so for this save.
        """
        barrier = self._parts.barrier.statistics()
        if barrier.waiting_checkpoints and not barrier.checkpoint_active:
            return False
        return self.in_window or (self._pending is not None and not self._pending.done)

    @property
    def anchored(self) -> bool:
        """Whether the trainer is where the newest full save left it, and that one is durable."""
        written = self._pending is None or self._pending.done
        return written and self._anchor == self._parts.progress.version

    def start(self, *, resumed: bool) -> None:
        """Count period and deadline from here: a run that begins, or has resumed, owes no save yet."""
        self._saved_version = self._parts.progress.version
        self._anchor = self._saved_version if resumed else None
        self._arm()

    def stop(self) -> None:
        """No deadline comes after this."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def due(self) -> bool:
        """Whether a save is due now, at a moment between steps."""
        if self._checkpointer is None:
            return False
        period = self._parts.config.save_period
        steps = self._parts.progress.version - self._saved_version
        return self._deadline_passed or (period is not None and steps >= period)

    async def save_if_due(self) -> None:
        """Take a full save if one is due; returns when the window is over, while it is still being written."""
        self._parts.barrier.require_outside()
        if self.due:
            await self._save()

    async def save_last(self) -> None:
        """Save the end of the run unless the newest save holds it already, and wait until it is durable."""
        if self._checkpointer is None:
            return
        unchanged = self._saved_mutations == self._parts.barrier.mutation_version
        if not unchanged:
            await self._save()
        await self.settle()

    async def settle(self) -> None:
        """Wait until the newest save is durable; raises its failure."""
        pending, self._pending = self._pending, None
        if pending is not None:
            await pending.durable()

    async def _save(self) -> None:
        assert self._checkpointer is not None
        mutations = self._parts.barrier.mutation_version
        self.in_window = True
        try:
            self._pending = await self._checkpointer.begin_save(trainer=self._trainer)
        finally:
            self.in_window = False
        self.begun += 1
        self._saved_version = self._anchor = self._parts.progress.version
        self._saved_mutations = mutations
        self._arm()

    def _arm(self) -> None:
        self.stop()
        self._deadline_passed = False
        deadline = self._parts.config.save_deadline
        if deadline is not None and self._checkpointer is not None:
            self._timer = asyncio.get_running_loop().call_later(deadline, self._deadline_reached)

    def _deadline_reached(self) -> None:
        self._timer = None
        self._deadline_passed = True
        self._parts.buffer.wake()
