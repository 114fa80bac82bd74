"""Admission, commit and claim against a save: two batches of one prompt, one step of lookahead, two full saves."""

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
    Pinned(states=2_820, schedules=9_853_565_711_520),
)
