"""Each sampler that gives no stamps, in a whole run against a save; `commit` is the one in order.

Two batches of one prompt, a save after each step: the second batch is read, admitted, generated and committed while the
first save waits for its window, is in it, and is written.
"""

from __future__ import annotations

from spec.cut import READY_FIRST, WEIGHT_FIFO, WINDOWED, CutScope

from ..refinement import cut_model
from .scenario import Pinned, Scenario
from .whole_run import whole_run


def of_sampler(name: str, number: int, pinned: Pinned) -> Scenario:
    """The scenario of one sampler, with no staleness allowed."""
    scope = CutScope(batches=2, batch_size=1, lookahead=0, saves=2, crashes=0, sampler=number)
    return whole_run(
        name,
        f"a whole run of 2 batches of 1 prompt with the {name} sampler, with a save after each step",
        scope,
        cut_model(scope),
        pinned,
        quick=False,
        turns=False,
        save_period=1,
    )


BY_WEIGHT = of_sampler("weight_fifo", WEIGHT_FIFO, Pinned(states=2_788, schedules=31_029_848_748))
FIRST_READY = of_sampler("ready_first", READY_FIRST, Pinned(states=2_788, schedules=31_029_848_748))
IN_A_WINDOW = of_sampler("windowed", WINDOWED, Pinned(states=1_929, schedules=31_029_848_748))
