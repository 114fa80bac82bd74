"""`python -m proofs`: discharge every obligation. Exit 0 all proved · 1 refuted · 2 wrong use · 3 unknown."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from cleancut_leaf.terminal import (
    CannotWrite,
    Parser,
    Screen,
    complain,
    complete_files,
    how_far,
    require_writable,
    write_file,
)

from . import report
from .checks import (
    BoundedOutcome,
    contracts_checked,
    obligations_discharged,
    short_variants,
    traces_found,
    workers,
)
from .claims.inductions import ARGUMENTS
from .solver.discharging import Outcome, Proved, Refuted

PROVED, REFUTED, WRONG_USE, NOT_COMPLETE = 0, 1, 2, 3
EXAMPLES = """examples:
  python -m proofs --quick               the proofs alone, some seconds
  python -m proofs --json proofs.json    everything, one row an obligation
"""
WORDS = {Proved: "holds", Refuted: "fails"}


def word(outcome: Outcome) -> str:
    """The verdict in the words of the contract: holds, fails, inconclusive."""
    return WORDS.get(type(outcome.verdict), "inconclusive")


def _why(outcome: Outcome) -> str:
    """What refutes an obligation, state and step, or why nothing is known of it; empty for one that is proved."""
    verdict = outcome.verdict
    if isinstance(verdict, Proved):
        return ""
    return verdict.counterexample if isinstance(verdict, Refuted) else verdict.reason


def document(outcomes: Sequence[Outcome], bounded: Sequence[BoundedOutcome], seconds: float) -> dict[str, Any]:
    """All outcomes as one JSON object; what is bounded stands apart and is never counted as proved."""
    words = [word(outcome) for outcome in outcomes] + [outcome.verdict for outcome in bounded]
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
                "why": _why(outcome),
                "seconds": round(outcome.seconds, 4),
                "assumes": outcome.obligation.assumes,
                "excludes": outcome.obligation.excludes,
            }
            for outcome in outcomes
        ],
        "bounded": [
            {"check": o.kind, "of": o.name, "verdict": o.verdict, "said": o.said, "seconds": round(o.seconds, 3)}
            for o in bounded
        ],
    }


def show(console: Console, outcomes: Sequence[Outcome], bounded: Sequence[BoundedOutcome]) -> None:
    """The obligations, what refutes them, and apart from them what is bounded."""
    table = Table(title="obligations, for any size", title_justify="left", box=SIMPLE)
    for heading in ("obligation", "verdict", "seconds"):
        table.add_column(heading, justify="right" if heading == "seconds" else "left", overflow="fold")
    for outcome in outcomes:
        name = {"holds": "proved", "fails": "refuted", "inconclusive": "unknown"}[word(outcome)]
        table.add_row(outcome.obligation.name, name, f"{outcome.seconds:.3f}")
    console.print(table)
    for outcome in outcomes:
        if isinstance(outcome.verdict, Refuted):
            console.print(f"{outcome.obligation.name} is refuted by:\n{outcome.verdict.counterexample}", markup=False)
        elif not isinstance(outcome.verdict, Proved):
            console.print(f"{outcome.obligation.name}: unknown, {outcome.verdict.reason}", markup=False)
    if bounded:
        console.print("within bounds, never proved:")
    for found in bounded:
        line = f"  {found.kind} {found.name}: {found.verdict}, {found.said}, {found.seconds:.1f} s"
        console.print(line, markup=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = Parser(
        completes=True,
        prog="python -m proofs",
        description="Proofs for any size, from the same text that the engines enumerate; and checks within bounds.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--json", metavar="FILE", help="also write the outcomes as JSON")
    parser.add_argument("--quick", action="store_true", help="the proofs only, nothing that is checked within bounds")
    parser.add_argument("--readme", action="store_true", help="also write proofs/README.md from the outcomes")
    complete_files(parser)
    chosen = parser.parse_args(arguments)
    if chosen.quick and chosen.readme:
        parser.error("--readme needs the outcome of everything, so it cannot be --quick")
    try:
        return run(chosen)
    except KeyboardInterrupt:
        complain("proofs", "interrupted; nothing is concluded")
        return NOT_COMPLETE
    except CannotWrite as fault:
        complain("python -m proofs", fault)
        return WRONG_USE


def run(chosen: argparse.Namespace) -> int:
    """Run what is asked for, show and write it; return the exit status."""
    # Imported here: the contracts load the library, which the proofs do without.
    from .contracts.functions import CONTRACTS
    from .contracts.runs import SECONDS
    from .contracts.wrong_versions import WRONG_VERSIONS

    require_writable(chosen.json)
    console = Screen(highlight=False)
    started = time.perf_counter()
    bounded: list[BoundedOutcome] = []
    names = [] if chosen.quick else short_variants()
    everything = sum(len(argument.obligations()) for argument in ARGUMENTS) + len(names)
    with how_far(console, "discharging …", "obligations") as shown, workers() as pool:
        by_argument = obligations_discharged(pool, lambda done: shown.at(done, everything))
        before = everything - len(names)
        bounded += traces_found(pool, names, lambda done: shown.at(before + done, everything, "traces …"))
    if not chosen.quick:
        with how_far(console, "contracts …", "contracts") as shown:
            bounded += contracts_checked(shown.one_more(len(CONTRACTS) + len(WRONG_VERSIONS)))
    outcomes = [outcome for found in by_argument for outcome in found]
    result = document(outcomes, bounded, time.perf_counter() - started)
    show(console, outcomes, bounded)
    if chosen.json:
        write_file(chosen.json, json.dumps(result, indent=2) + "\n")
    if chosen.readme:
        write_file(report.README, report.text(by_argument, bounded, SECONDS))
    proved = sum(word(outcome) == "holds" for outcome in outcomes)
    apart = f", {sum(o.verdict == 'bounded' for o in bounded)} of {len(bounded)} bounded checks as they should be"
    said = f"{proved} of {len(outcomes)} proved{apart if bounded else ''}"
    console.print(f"proofs: {result['verdict']}, {said}, {result['seconds']:.1f} s", soft_wrap=True)
    return {"holds": PROVED, "fails": REFUTED, "inconclusive": NOT_COMPLETE}[result["verdict"]]
