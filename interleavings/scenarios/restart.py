"""A crash anywhere, a restore, a crash again, and the run to its end: one batch of one prompt, saved at the end."""

from __future__ import annotations

from spec.cut import CutScope

from .lives import run_with_crashes
from .scenario import Pinned

SCENARIO = run_with_crashes(
    "restart",
    "a run of 1 batch of 1 prompt that crashes anywhere, restores, crashes again and finishes",
    CutScope(batches=1, batch_size=1, lookahead=0, saves=3, crashes=2),
    None,
    save_period=1,
)
