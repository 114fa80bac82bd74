"""A crash anywhere, a restore, a crash again, and the run to its end: one prompt, saved while it is generated.

The deadline of a save passes while the prompt is being generated, so a checkpoint holds it ADMITTED; the next process
generates it afresh. The last save holds it trained. A crash before the first checkpoint is durable begins the run anew.
"""

from __future__ import annotations

from spec.machines.cut import CutScope

from .lives import run_with_crashes
from .scenario import Pinned

SCENARIO = run_with_crashes(
    "restart",
    "1 prompt, saved while it is generated and at the end; crashes anywhere, restores, crashes again, finishes",
    CutScope(batches=1, batch_size=1, lookahead=0, saves=4, crashes=2),
    Pinned(states=6_145, schedules=1_711_003_423_545_122_305_536),
    generation_seconds=1.0,
    save_period=None,
    save_deadline=0.6,
)
