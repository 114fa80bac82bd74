"""The end of an epoch and of the data against a save, with a crash anywhere: two epochs of one prompt.

The loader hands out the last prompt of an epoch and turns to the next in one slot, or says that it is exhausted. The
deadline of a save passes while the last prompt of all is generated; a checkpoint has it ADMITTED with the loader
exhausted, and the last one has both prompts trained. The process after a crash must neither read the data again nor
believe that some is left.
"""

from __future__ import annotations

from spec.machines.cut import CutScope

from .lives import run_with_crashes
from .scenario import Pinned

SCENARIO = run_with_crashes(
    "epoch",
    "2 epochs of 1 prompt: the end of an epoch, and of the data, against a save, with a crash anywhere",
    CutScope(batches=1, batch_size=1, lookahead=0, saves=4, crashes=1, epochs=2),
    Pinned(states=1_497, schedules=7_839_225_561_600),
    generation_seconds=1.0,
    save_period=None,
    save_deadline=1.5,
    quick=True,
)
