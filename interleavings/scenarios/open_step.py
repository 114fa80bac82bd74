"""An open train step against a rollout snapshot, with a crash anywhere: claim, write-back, finish.

A full save is taken while the prompt is generated. With its train step a snapshot is asked for, by the first process
alone, which falls before, into or behind the step: while the trainer is at the version of that save it holds the
claimed group as ready, later it is skipped. A crash gives the group back, from the snapshot or from the save.
"""

from __future__ import annotations

from spec.machines.cut import CutScope

from .lives import run_with_crashes
from .scenario import Pinned

SCENARIO = run_with_crashes(
    "open_step",
    "claim, write-back and finish of 1 prompt against a rollout snapshot, with a crash anywhere",
    CutScope(batches=1, batch_size=1, lookahead=0, saves=4, crashes=1, snapshots=1, write_back=1),
    Pinned(states=4_561, schedules=180_182_284_287_767_232),
    generation_seconds=2.0,
    save_period=None,
    save_deadline=1.5,
)
