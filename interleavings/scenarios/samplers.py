"""Each sampler that gives no stamps, in a whole run against a save; `commit` is the one in order.

Two batches of one prompt, a save after each step: the second batch is read, admitted, generated and committed while the
first save waits for its window, is in it, and is written.
"""

from __future__ import annotations

from spec.machines.cut import READY_FIRST, WEIGHT_FIFO, WINDOWED, CutScope

from ..correspondence.refinement import cut_model
from .retries import Retries
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

FAILING_SCOPE = CutScope(
    batches=2, batch_size=1, lookahead=0, saves=2, crashes=0, sampler=WINDOWED, failures=3, retries=1, capacity=2
)
FAILING = whole_run(
    "windowed_failures",
    "2 groups in flight with the windowed sampler: one fails once and may be too old by then, one fails for good",
    FAILING_SCOPE,
    cut_model(FAILING_SCOPE),
    Pinned(states=4_772, schedules=10_577_543_522),
    run_of=Retries,
    turns=False,
    quick=False,
    timers="anytime",
    save_period=1,
    data_retries=1,
    backoff=1.0,
)
