"""When a full save is due, the one that is being written, and what becomes of a run whose saves fail.

Saves are taken by the train pump between steps: after `save_period` steps, when `save_deadline` seconds have gone by,
and at the end of the run. One is in flight at a time; the checkpointer holds the second back before it captures.

A save that fails does not end a run that could go on: what it would have kept is in the next one. So
`failed_saves_tolerated` failures in a row are logged and counted, and the one after them is raised. The last save of a
run has no next one; it is tried again until it is durable or that many have failed, and then the run has failed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ..errors import (
    CheckpointDamaged,
    CleancutError,
    DrainTimeout,
    GuardUnreachable,
    HostUnreachable,
    StoreBusy,
    StoreFailed,
    StoreFull,
)
from .parts import RunParts
from .report import SaveFailure, SaveKind

if TYPE_CHECKING:
    from ..checkpoint.checkpointer import Checkpointer
    from ..checkpoint.pending import PendingSave
    from ..trainer.trainer_state import TrainerState

logger = logging.getLogger("cleancut.controller")

#: Errors of the library after which another try may succeed. Each of the others says that somebody else owns the
#: directory, that what would be saved is not what was there at the cut, that the caller has made a mistake, or that
#: the program was told to stop.
PASSING = (StoreFailed, StoreFull, CheckpointDamaged, DrainTimeout, HostUnreachable, GuardUnreachable)


def may_pass(error: BaseException) -> bool:
    """Whether a save that failed with this may be tried again, so that the run need not end.

    What is no error of the library comes from the caller's parts, as a trainer state that cannot be copied just now.
    """
    if isinstance(error, CleancutError):
        # A writer that was overtaken sees a call that failed as well as somebody else in its directory.
        return isinstance(error, PASSING) and not isinstance(error, StoreBusy)
    return isinstance(error, Exception)


class SaveFailures:
    """The failed saves of a run: logs each, and raises the one that is too much."""

    def __init__(self, parts: RunParts) -> None:
        self._parts = parts
        #: Failed saves since one was durable, by kind.
        self.in_row: dict[SaveKind, int] = {"full": 0, "rollout": 0}
        #: All of them, oldest first.
        self.all: list[SaveFailure] = []

    @property
    def tolerated(self) -> int:
        """How many in a row the run goes on after."""
        return self._parts.config.failed_saves_tolerated

    def forget(self, kind: SaveKind) -> None:
        """One of this kind is durable. A full save holds all that a snapshot would, so it begins both counts anew."""
        self.in_row["rollout"] = 0
        if kind == "full":
            self.in_row["full"] = 0

    def meet(self, kind: SaveKind, error: BaseException) -> None:
        """Count a failed save; raises its error unless that is one to be tolerated. Once for each failure."""
        self.in_row[kind] += 1
        count, tolerated, version = self.in_row[kind], self.tolerated, self._parts.progress.version
        final = count > tolerated or not may_pass(error)
        self.all.append(SaveFailure(kind, version, repr(error), final))
        if not final:
            logger.error(
                "A %s at version %d has failed: %r. It is number %d in a row, and the run goes on: "
                "failed_saves_tolerated is %d, and what this save would have kept is in the next one.",
                "full save" if kind == "full" else "rollout snapshot", version, error, count, tolerated,
            )  # fmt: skip
            return
        if may_pass(error):
            error.add_note(
                f"The run ended with this failed save, number {count} in a row: failed_saves_tolerated is {tolerated}. "
                "What was done since the newest checkpoint is not saved; resume from there once the cause is mended."
            )
        raise error


class SaveSchedule:
    """Full saves by period and deadline; without a checkpointer none is ever due."""

    def __init__(
        self,
        parts: RunParts,
        checkpointer: Checkpointer | None,
        trainer: TrainerState | None,
        failures: SaveFailures,
    ) -> None:
        self._parts = parts
        self._checkpointer = checkpointer
        self._trainer = trainer
        self.failures = failures
        # The newest save until its end is known here.
        self._pending: PendingSave | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline_passed = False
        # After a failure: the time of the loop before which no other save is begun.
        self._not_before: float | None = None
        # The version at which period and deadline began to count.
        self._counted_from = parts.progress.version
        # How many mutations had ended when the newest full save was asked for; None where that has failed.
        self._saved_mutations: int | None = None
        # The trainer's version in the newest durable full save, `_pending` left out; None before the first.
        self._anchor: int | None = None
        self.in_window = False
        #: Full saves of this process whose window is over, without those that are known to have failed.
        self.published = 0

    @property
    def in_progress(self) -> bool:
        """Whether a save waits for the one before, is in its window, or is being written.

        One that waits for open sections is not: those may be waiting for the trainer, and so for this save.
        """
        barrier = self._parts.barrier.statistics()
        if barrier.waiting_checkpoints and not barrier.checkpoint_active:
            return False
        return self.in_window or (self._pending is not None and not self._pending.done)

    def has_failed_with(self, error: BaseException) -> bool:
        """Whether this is the failure of the newest full save, which another save may raise before it begins."""
        return self._pending is not None and self._pending.failure is error

    @property
    def anchored(self) -> bool:
        """Whether the trainer is where the newest full save left it, and that one is durable."""
        pending, anchor = self._pending, self._anchor
        if pending is not None:
            if not pending.done:
                return False
            anchor = pending.step if pending.failure is None else anchor
        return anchor == self._parts.progress.version

    def start(self, *, resumed: bool) -> None:
        """Count period and deadline from here: a run that begins, or has resumed, owes no save yet."""
        self._anchor = self._parts.progress.version if resumed else None
        self._count_from_here()

    def stop(self) -> None:
        """No deadline comes after this."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def due(self) -> bool:
        """Whether a save is due now, at a moment between steps."""
        if self._checkpointer is None or (
            self._not_before is not None and asyncio.get_running_loop().time() < self._not_before
        ):
            return False
        period = self._parts.config.save_period
        steps = self._parts.progress.version - self._counted_from
        return self._deadline_passed or (period is not None and steps >= period)

    async def save_if_due(self) -> None:
        """Take a full save if one is due; returns when the window is over, while it is still being written.

        A failure is raised unless it is tolerated, that of the save before included.
        """
        self._parts.barrier.require_outside()
        # How a save has ended matters now if it failed, or others before it did; else it is enough to know at the next.
        if self._pending is not None and (self._pending.failure is not None or any(self.failures.in_row.values())):
            self._look()
        if self.due:
            await self._save()

    async def save_last(self) -> None:
        """Save the end of the run unless the newest save holds it already, and wait until it is durable.

        One that fails is tried again after a pause that doubles, while failures are tolerated: a run that returned
        without it would call what is not on the disk a success.
        """
        if self._checkpointer is None:
            return
        while True:
            if self._saved_mutations == self._parts.barrier.mutation_version or await self._save():
                if self._pending is not None:
                    await self._pending.wait_done()
                self._look()
                if self._saved_mutations is not None:
                    return
            await asyncio.sleep(self._pause())

    async def settle(self) -> None:
        """Wait until the newest save is durable, at the end of a run that has failed; raises its failure."""
        pending, self._pending = self._pending, None
        if pending is not None:
            await pending.durable()

    async def _save(self) -> bool:
        """Take a full save; whether its window is over and it may become durable."""
        assert self._checkpointer is not None
        mutations = self._parts.barrier.mutation_version
        self.in_window = True
        try:
            pending = await self._checkpointer.begin_save(trainer=self._trainer)
        except Exception as error:
            before_failed = self.has_failed_with(error)
            self._look()
            if not before_failed:
                self._count_from_here()
                self._failed(error)
            # Otherwise this one has not begun, and stays due.
            return False
        finally:
            self.in_window = False
        self._look()
        self._pending = pending
        self.published += 1
        self._saved_mutations = mutations
        self._count_from_here()
        return True

    def _look(self) -> None:
        """Take note of how the pending save has ended, if it has."""
        pending = self._pending
        if pending is None or not pending.done:
            return
        self._pending = None
        pending.watch()
        if pending.failure is None:
            self._anchor = pending.step
            self._not_before = None
            self.failures.forget("full")
        else:
            self.published -= 1
            self._failed(pending.failure)

    def _failed(self, error: BaseException) -> None:
        """The next save comes when it is due, and not before a pause; raises what is not tolerated."""
        self.failures.meet("full", error)
        self._saved_mutations = None
        loop = asyncio.get_running_loop()
        self._not_before = loop.time() + self._pause()
        if self._deadline_passed:
            # It was held against a save that has not come; the trainer may be waiting for groups when the pause ends.
            self.stop()
            self._timer = loop.call_later(self._pause(), self._deadline_reached)

    def _pause(self) -> float:
        """Seconds before a save is tried again: what has to pass first may last longer than a train step."""
        return self._parts.config.delay_before(self.failures.in_row["full"])

    def _count_from_here(self) -> None:
        self.stop()
        self._counted_from = self._parts.progress.version
        self._deadline_passed = False
        deadline = self._parts.config.save_deadline
        if deadline is not None and self._checkpointer is not None:
            loop = asyncio.get_running_loop()
            if self._not_before is not None:
                deadline = max(deadline, self._not_before - loop.time())
            self._timer = loop.call_later(deadline, self._deadline_reached)

    def _deadline_reached(self) -> None:
        self._timer = None
        self._deadline_passed = True
        self._parts.buffer.wake()
