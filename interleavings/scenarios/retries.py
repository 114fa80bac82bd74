"""Failing attempts and their back-off against a save: budgets are kept, and no permit is held while backing off.

One generation runs at a time, so that a permit kept over a back-off would stop the other group. The first group fails
once and is generated at its second attempt; the second fails at each, beyond its budget, and its step passes empty. The
time is virtual and a back-off ends at any moment, whatever else could run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spec.machines.cut import CutScope

from ..correspondence.refinement import cut_model
from ..errors import Violation
from .scenario import Pinned
from .whole_run import CLAIMS, WholeRun, whole_run

FAILS = {0: 1, 1: 2}
"""How many attempts of each group fail."""


class Retries(WholeRun):
    """A run in which attempts fail, with an eye on permits; the budgets in the files are part of every image."""

    claims = (*CLAIMS, "no_permit_while_backing_off")

    async def generate(self, request: Any) -> Mapping[str, Any]:
        if request.attempt < FAILS[request.group]:
            raise ValueError(f"attempt {request.attempt} of group {request.group} fails")
        return self.rows

    def observe(self) -> Any:
        """As ever; and nobody holds a permit while it backs off."""
        state = super().observe()
        generation, pump = self.controller.generation, self.controller.rollout_pump
        held = generation.in_flight.capacity - generation.in_flight.free
        backing_off = tuple(generation._backing_off)
        dispatching = pump._doing.startswith(("waits for an in-flight permit", "dispatches group"))
        entitled = len(generation.running) - len(backing_off) + dispatching
        if held > entitled:
            raise Violation(
                "no_permit_while_backing_off",
                f"{held} in-flight permits are taken and {entitled} may be: groups {list(backing_off)} wait for their "
                "next attempt and must hold none meanwhile",
                {"groups with a task": str(list(generation.running)), "the rollout pump": pump.describe()},
            )
        return state


SCOPE = CutScope(batches=2, batch_size=1, lookahead=1, saves=2, crashes=0, failures=3, retries=1, in_flight=1)
SCENARIO = whole_run(
    "retries",
    "2 groups, one generation at a time: one fails once, one for good, backing off meanwhile, against a save each step",
    SCOPE,
    cut_model(SCOPE),
    Pinned(states=2_334, schedules=1_466_047_156_734),
    turns=False,
    quick=False,
    timers="anytime",
    run_of=Retries,
    save_period=1,
    data_retries=1,
    backoff=1.0,
)
CANCELLED_SCOPE = CutScope(
    batches=1, batch_size=1, lookahead=0, saves=1, crashes=0, failures=2, retries=1, background=1, failed_saves=1
)
CANCELLED = whole_run(
    "retries_cancelled",
    "1 group that fails once and is tried again, with a save, of which any task is cancelled at any point",
    CANCELLED_SCOPE,
    cut_model(CANCELLED_SCOPE),
    Pinned(states=1_491, schedules=199_565_676),
    turns=False,
    quick=False,
    cancels=1,
    timers="anytime",
    run_of=Retries,
    save_period=1,
    data_retries=1,
    backoff=1.0,
)
