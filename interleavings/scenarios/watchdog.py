"""The watchdog of a run beside a save, in virtual time: a long save is no stall, and a stall is reported.

`watchdog` writes for as long as it likes: whenever nothing else can run, either the writer's job ends or time goes on
and the watchdog looks again, any number of times. No schedule may report a stall. All that is done with the clock is to
take distances and compare them with the limit, so that there are finitely many states and the search is complete.

`stall` has a generation that never returns, beside a save: every schedule ends with the report, once nothing is being
saved, and it says what everybody waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from impl.errors import RunStalled
from spec.machines.cut import CutScope

from ..correspondence.refinement import cut_model
from ..errors import Violation
from .scenario import Pinned
from .whole_run import CLAIMS, WholeRun, whole_run

LIMIT = 40.0


class Hangs(WholeRun):
    """The second group's generation never returns, which has to be reported."""

    claims = (*CLAIMS, "stall_says_who_waits")
    report = ""
    has_to_say = (
        "train pump: waits for step 1, which needs 1 group; ready [], generating [1]",
        "generation: 1 group [1]",
        "rollout pump: finished",
        "0 sections open",
    )

    async def generate(self, request: Any) -> Mapping[str, Any]:
        if request.group == 1:
            await asyncio.get_running_loop().create_future()
        return self.rows

    async def main(self) -> None:
        """The stall ends the run, with a report that says what everybody waits for."""
        try:
            await super().main()
        except RunStalled as stalled:
            self.report = str(stalled)
            missing = [text for text in self.has_to_say if text not in self.report]
            if missing:
                says = f"the report of the stall does not say {missing[0]!r}"
                raise Violation("stall_says_who_waits", says, {"it says": self.report}) from stalled

    def finish(self) -> str | None:
        """Reported, and everything closed."""
        return self.left_behind() if self.report else "a generation hangs for ever, and no stall was reported"


SCOPE = CutScope(batches=2, batch_size=1, lookahead=1, saves=2, crashes=0)
WATCHDOG = whole_run(
    "watchdog",
    "a whole run of 2 batches of 1 prompt with a watchdog, whose saves take any time: none is taken for a stall",
    SCOPE,
    cut_model(SCOPE),
    Pinned(states=13_423, schedules=None),
    turns=False,
    quick=False,
    horizon=LIMIT,
    save_period=1,
    stall_timeout=LIMIT,
)
STALL = whole_run(
    "stall",
    "a generation that hangs beside a save, with a watchdog: reported with what everybody waits for",
    SCOPE,
    cut_model(SCOPE),
    Pinned(states=826, schedules=None),
    turns=False,
    quick=False,
    run_of=Hangs,
    horizon=LIMIT,
    save_period=1,
    stall_timeout=LIMIT,
)
