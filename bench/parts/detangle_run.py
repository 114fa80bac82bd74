"""One exhaustive search of detangle in a process of its own, on the barrier of `condition_barrier`.

    python bench/parts/detangle_run.py MUTATORS WRITES SEEDED SECONDS

Prints a JSON object: verdict, runs, and whether the search came to its end. It is stopped after so many seconds of
processor time.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from parts.condition_barrier import gathered

_NO_BOUND = 10**9  # of deviations from the order of asyncio, and of runs


def main(arguments: list[str]) -> int:
    mutators, writes, seeded, seconds = int(arguments[0]), int(arguments[1]), arguments[2] == "1", float(arguments[3])
    detangle: Any = importlib.import_module("detangle")
    strategies: Any = importlib.import_module("detangle.strategies")
    end = time.process_time() + seconds

    class Stopped(strategies.DFS):  # type: ignore[misc]
        late = False
        runs = 0

        def finish(self, decisions: Any, failed: bool) -> None:
            super().finish(decisions, failed)
            self.runs += 1
            if time.process_time() > end:
                self.late = True

        @property
        def exhausted(self) -> bool:
            return bool(super().exhausted) or self.late

    strategy = Stopped(max_delays=_NO_BOUND, max_branch=_NO_BOUND)
    verdict = "holds"
    try:
        detangle.explore(
            gathered(mutators, writes, waits_once=seeded),
            runs=_NO_BOUND,
            strategy=strategy,
            shrink=False,
            database=False,
        )
    except detangle.BugFound:
        verdict = "fails"
    print(json.dumps({"verdict": verdict, "runs": strategy.runs, "complete": not strategy.late}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
