"""The end of an epoch and of the data against a save, with a crash anywhere: two epochs of one prompt.

The loader hands out the last prompt of the first epoch and turns to the next in one slot; the prompt of the second
epoch, the last of all, is saved RESERVED, ADMITTED and trained, each time with the loader exhausted.
"""

from __future__ import annotations

from spec.cut import CutScope

from .lives import Timing, run_with_crashes

SCENARIO = run_with_crashes(
    "epoch",
    "2 epochs of 1 prompt: the end of an epoch, and of the data, against a save, with a crash anywhere",
    CutScope(batches=1, batch_size=1, lookahead=0, saves=4, crashes=1, epochs=2),
    None,
    timing=Timing(slow_loader=True),
    save_period=None,
    save_deadline=1.0,
)
