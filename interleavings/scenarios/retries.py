"""Failing attempts and their back-off against a save: budgets are kept, and no permit is held while backing off.

One generation runs at a time, so that a permit kept over a back-off would stop the other group. The first group fails
once and is generated at its second attempt; the second fails at each, beyond its budget, and its step passes empty. The
time is virtual and a back-off ends at any moment, whatever else could run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from spec.cut import CutScope
from spec.cut.state import NO_ENTRY

from ..errors import Violation
from ..refinement import cut_model
from .scenario import Pinned
from .whole_run import CLAIMS, DIRECTORY, WholeRun, whole_run

FAILS = {0: 1, 1: 2}
"""How many attempts of each group fail."""


class Retries(WholeRun):
    """A run in which attempts fail, with an eye on permits and on the budgets in the files."""

    claims = (*CLAIMS, "no_permit_while_backing_off", "budgets_are_saved")

    def __init__(self, *arguments: Any, **config: Any) -> None:
        super().__init__(*arguments, **config)
        # For each image: the failures that the machine has counted of each pending prompt.
        self.tries: list[dict[int, int]] = []

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

    def on_action(self, action: str, before: Any) -> None:
        """As ever; and keep the failures that the machine has counted of each pending prompt at the cut."""
        super().on_action(action, before)
        if action == "publish":
            pending = [p for p, entry in enumerate(before.image_ledger) if entry != NO_ENTRY and before.image_tries[p]]
            self.tries.append({p: before.image_tries[p] for p in pending})

    def check_published(self, name: str) -> None:
        """As ever; and each pending group has in the files the failures that were counted at the cut."""
        prompts = self.images[0][1]
        super().check_published(name)
        saved: Counter[int] = Counter()
        for cause, count in self.disk.documents(f"{DIRECTORY}/{name}")["trainer.json"]["budgets"].items():
            saved[prompts.of_group(int(cause.partition("/")[0]))] += count
        counted = self.tries.pop(0)
        if dict(saved) != counted:
            raise Violation(
                "budgets_are_saved",
                f"{name} does not hold the failures that were counted at its cut",
                {"failures of each prompt at the cut": counted, "on disk": dict(saved)},
            )


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
