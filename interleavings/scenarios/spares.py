"""Groups that fail for good, with a pool of spares and saves: substitute, borrow, shrink, empty steps, and draining.

`spares` has one prompt a step and no lookahead: the first group fails, a spare of the diverted batch takes its place,
and another fails with no spare left. `borrow` has two steps under way: where the later one is ready before the earlier
fails it moves up into the hole, and the spare takes its place. `drain` saves a pool with a spare in it, which is
trained at the end of the data.
"""

from __future__ import annotations

from spec.machines.cut import CutScope

from ..correspondence.refinement import cut_model
from .scenario import Pinned
from .whole_run import whole_run

SPARES_SCOPE = CutScope(batches=3, batch_size=1, lookahead=0, saves=2, crashes=0, failures=2, spares=1)
SPARES = whole_run(
    "spares",
    "3 batches of 1 prompt, one diverted; the first two groups fail for good, with a save in the middle",
    SPARES_SCOPE,
    cut_model(SPARES_SCOPE),
    Pinned(states=1_070, schedules=1_552_936_044),
    failing=frozenset({0, 1}),
    turns=False,
    save_period=2,
)

BORROW_SCOPE = CutScope(batches=3, batch_size=1, lookahead=1, saves=1, crashes=0, failures=1, spares=1, borrow=1)
BORROW = whole_run(
    "borrow",
    "2 steps under way and a spare; the first group fails for good, before or after the second is ready",
    BORROW_SCOPE,
    cut_model(BORROW_SCOPE),
    Pinned(states=1_028, schedules=17_365_110),
    failing=frozenset({0}),
    turns=False,
    quick=False,
    save_period=None,
)

DRAIN_SCOPE = CutScope(batches=2, batch_size=1, lookahead=0, saves=2, crashes=0, spares=1)
DRAIN = whole_run(
    "drain",
    "2 batches of 1 prompt, one diverted: saved in the pool after the first step, then drained and trained",
    DRAIN_SCOPE,
    cut_model(DRAIN_SCOPE),
    Pinned(states=4_380, schedules=65_687_772_204),
    turns=False,
    quick=False,
    save_period=1,
)
