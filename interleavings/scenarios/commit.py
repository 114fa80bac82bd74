"""Admission, commit and claim against a save: two batches of one prompt, one step of lookahead, two full saves.

`commit_cancelled` is the same with one task of the run cancelled anywhere, which ends the run. An image past its window
is published all the same, or its failure raised (a save fails when the task that writes it is cancelled before its
first step); permits and sections are given back, and the barrier is closed.

`late_commits` ends after its first step, in which the second group is dispatched and committed before, in or after the
window of the last save: whatever comes after it is saved once more, so that the run goes on where it has ended.
"""

from __future__ import annotations

from typing import Any

from spec.machines.cut import CutScope

from ..correspondence.refinement import cut_model
from ..errors import Violation
from .scenario import Pinned
from .whole_run import CLAIMS, DIRECTORY, WholeRun, whole_run

SCOPE = CutScope(batches=2, batch_size=1, lookahead=1, saves=2, crashes=0)

SCENARIO = whole_run(
    "commit",
    "a whole run of 2 batches of 1 prompt on the real controller: admission, commit and claim against a save",
    SCOPE,
    cut_model(SCOPE),
    Pinned(states=2_792, schedules=492_678_285_576),
)

CANCELLED_SCOPE = CutScope(batches=2, batch_size=1, lookahead=1, saves=2, crashes=0, background=1, failed_saves=1)
CANCELLED = whole_run(
    "commit_cancelled",
    "a run of 2 batches of 1 prompt with a save after each step, of which any task is cancelled at any point",
    CANCELLED_SCOPE,
    cut_model(CANCELLED_SCOPE),
    Pinned(states=13_687, schedules=1_767_275_728_746),
    turns=False,
    quick=False,
    cancels=1,
)


class LateCommits(WholeRun):
    """A run that ends before its data; its last checkpoint has to hold what was ready when it was asked for."""

    claims = (*CLAIMS, "last_save_holds_what_was_ready")

    def __init__(self, *arguments: Any, **config: Any) -> None:
        super().__init__(*arguments, **config)
        self._save_last = self.controller._saves.save_last
        self.controller._saves.save_last = self.save_last  # type: ignore[method-assign]

    async def save_last(self) -> None:
        """Save the end; then look for the groups that were ready before in the newest checkpoint."""
        ready = {group for group, slot in self.controller.buffer.slots.items() if slot.ready}
        await self._save_last()
        newest = self.checkpointer._newest
        documents = self.disk.documents(f"{DIRECTORY}/{newest}")
        missing = ready - {slot["group"] for slot in documents["buffer.json"]["slots"]}
        if missing:
            raise Violation(
                "last_save_holds_what_was_ready",
                f"{newest}, the last save, has not the groups {sorted(missing)}, which were ready before it",
            )

    def finish(self) -> str | None:
        """The run has ended before its data; nothing is left behind."""
        return self.left_behind()


LATE_SCOPE = CutScope(batches=2, batch_size=1, lookahead=1, saves=3, crashes=0)
LATE = whole_run(
    "late_commits",
    "a run that ends after its first step, while the second group is dispatched and committed: saved to its end",
    LATE_SCOPE,
    cut_model(LATE_SCOPE),
    Pinned(states=1_632, schedules=92_417_196),
    turns=False,
    quick=False,
    run_of=LateCommits,
    save_period=1,
    max_steps=1,
)
