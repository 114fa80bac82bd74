"""Groups that have become too old, given up while they are committed, cleaned up, cancelled and saved.

A windowed run without staleness: both groups are dispatched at version 0, one of them is trained, and the other is too
old from then on. Wherever its task stands, generating, with staged rows, in its commit, or already ready, it is given
up once: aborted in flight, or evicted. `abort_cancelled` lets any task be cancelled besides.
"""

from __future__ import annotations

from spec.machines.cut import WINDOWED, CutScope

from ..correspondence.refinement import cut_model
from .scenario import Pinned
from .whole_run import whole_run

SCOPE = CutScope(batches=2, batch_size=1, lookahead=0, saves=2, crashes=0, sampler=WINDOWED, capacity=2)
SCENARIO = whole_run(
    "abort",
    "2 groups in flight at once with the windowed sampler: when one is trained the other is given up, with 2 saves",
    SCOPE,
    cut_model(SCOPE),
    Pinned(states=3_346, schedules=2_302_324_236),
    quick=False,
    save_period=1,
)

CANCELLED_SCOPE = CutScope(
    batches=2, batch_size=1, lookahead=0, saves=2, crashes=0, sampler=WINDOWED, capacity=2, background=1, failed_saves=1
)
CANCELLED = whole_run(
    "abort_cancelled",
    "the run of abort, of which any task is cancelled at any point",
    CANCELLED_SCOPE,
    cut_model(CANCELLED_SCOPE),
    Pinned(states=12_874, schedules=29_972_375_248),
    turns=False,
    quick=False,
    cancels=1,
    save_period=1,
)
