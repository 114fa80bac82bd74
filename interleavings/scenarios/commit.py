"""Admission, commit and claim against a save: two batches of one prompt, one step of lookahead, two full saves.

`commit_cancelled` is the same with one task of the run cancelled anywhere, which ends the run. An image past its window
is published all the same, or its failure raised (a save fails when the task that writes it is cancelled before its
first step); permits and sections are given back, and the barrier is closed.
"""

from __future__ import annotations

from spec.cut import CutScope

from ..refinement import cut_model
from .scenario import Pinned
from .whole_run import whole_run

SCOPE = CutScope(batches=2, batch_size=1, lookahead=1, saves=2, crashes=0)

SCENARIO = whole_run(
    "commit",
    "a whole run of 2 batches of 1 prompt on the real controller: admission, commit and claim against a save",
    SCOPE,
    cut_model(SCOPE),
    Pinned(states=2_777, schedules=492_678_285_576),
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
