"""`python -m proofs`: discharge every obligation. Exit 0 all proved · 1 refuted · 2 wrong use · 3 unknown."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from .discharging import Outcome, Proved, Refuted, discharge
from .inductions import ARGUMENTS

PROVED, REFUTED, WRONG_USE, NOT_COMPLETE = 0, 1, 2, 3
WORDS = {Proved: "holds", Refuted: "fails"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (try --help)", file=sys.stderr)
        raise SystemExit(WRONG_USE)


def word(outcome: Outcome) -> str:
    """The verdict in the words of the contract: holds, fails, inconclusive."""
    return WORDS.get(type(outcome.verdict), "inconclusive")


def document(outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    """All outcomes as one JSON object."""
    words = [word(outcome) for outcome in outcomes]
    verdict = "fails" if "fails" in words else "inconclusive" if "inconclusive" in words else "holds"
    return {
        "verdict": verdict,
        "complete": verdict == "holds",
        "seconds": round(seconds, 3),
        "obligations": [
            {
                "obligation": outcome.obligation.name,
                "machine": outcome.obligation.machine.name,
                "verdict": word(outcome),
                "seconds": round(outcome.seconds, 4),
                "assumes": outcome.obligation.assumes,
                "excludes": outcome.obligation.excludes,
            }
            for outcome in outcomes
        ],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = _Parser(
        prog="python -m proofs",
        description="Proofs for any number of prompts, from the same text that the engines enumerate.",
    )
    parser.add_argument("--json", metavar="FILE", help="also write the outcomes as JSON")
    chosen = parser.parse_args(arguments)
    console = Console(highlight=False)
    started = time.perf_counter()
    outcomes = [discharge(obligation) for argument in ARGUMENTS for obligation in argument.obligations()]
    result = document(outcomes, time.perf_counter() - started)
    table = Table(title="obligations, for any number of prompts", title_justify="left", box=SIMPLE)
    for heading in ("obligation", "verdict", "seconds"):
        table.add_column(heading, justify="right" if heading == "seconds" else "left", overflow="fold")
    for outcome in outcomes:
        name = {"holds": "proved", "fails": "refuted", "inconclusive": "unknown"}[word(outcome)]
        table.add_row(outcome.obligation.name, name, f"{outcome.seconds:.3f}")
    console.print(table)
    for outcome in outcomes:
        if isinstance(outcome.verdict, Refuted):
            console.print(f"{outcome.obligation.name} is refuted by:\n{outcome.verdict.counterexample}")
        elif not isinstance(outcome.verdict, Proved):
            console.print(f"{outcome.obligation.name}: unknown, {outcome.verdict.reason}")
    if chosen.json:
        try:
            Path(chosen.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        except OSError as fault:
            print(f"python -m proofs: cannot write {chosen.json}: {fault.strerror}", file=sys.stderr)
            return WRONG_USE
    proved = sum(word(outcome) == "holds" for outcome in outcomes)
    console.print(f"proofs: {result['verdict']}, {proved} of {len(outcomes)} proved, {result['seconds']:.1f} s")
    return {"holds": PROVED, "fails": REFUTED, "inconclusive": NOT_COMPLETE}[result["verdict"]]
