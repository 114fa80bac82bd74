"""Figures of the proofs: how long they take, and the longer traces that the solver finds.

    python bench/solver.py [--json FILE] [--quick]

Seconds are of processor time, of this process and of those it starts, so that what else the machine does matters less.
The traces are those of the variants whose shortest one has more steps than `make prove` looks for, and at most 18; each
must have the length that the engines find. Beyond that the solver takes minutes for one; the engines have them. Quick,
those of more than 12 steps are left out.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from proofs.checks import LONGEST_TRACE, obligations_discharged, short_variants, traces_found, workers
from proofs.discharging import Proved

LONGEST_QUICK, LONGEST = 12, 18


@dataclass(frozen=True)
class Row:
    """One line of the table; without `to_reach` it is there to compare with."""

    figure: str
    value: float
    to_reach: str
    ok: bool


def processor_seconds() -> float:
    """Processor time of this process and of those it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def rows(quick: bool) -> Iterator[Row]:
    """Every figure, the quick ones first."""
    started = processor_seconds()
    with workers() as pool:
        outcomes = [outcome for found in obligations_discharged(pool) for outcome in found]
    seconds = processor_seconds() - started
    unproved = sum(not isinstance(outcome.verdict, Proved) for outcome in outcomes)
    yield Row("obligations", len(outcomes), "", True)
    yield Row("obligations not proved", unproved, "0", unproved == 0)
    yield Row("all obligations, s of processor time", round(seconds, 1), "<= 10", seconds <= 10)
    longest = LONGEST_QUICK if quick else LONGEST
    names = [name for name in short_variants(longest) if name not in short_variants(LONGEST_TRACE)]
    with workers() as pool:
        for outcome in traces_found(pool, names):
            right = outcome.verdict == "bounded"
            yield Row(f"trace of {outcome.name}, s: {outcome.said}", round(outcome.seconds, 1), "found", right)


def main() -> int:
    """Print the table; exit 1 where something is not reached."""
    parser = argparse.ArgumentParser(description="Figures of the proofs.")
    parser.add_argument("--json", metavar="FILE", help="also write the rows as JSON")
    parser.add_argument("--quick", action="store_true", help="leave out the longest traces")
    chosen = parser.parse_args()
    found = list(rows(chosen.quick))
    table = Table(title="proofs", title_justify="left", box=SIMPLE)
    for heading in ("figure", "value", "to reach", "ok"):
        table.add_column(heading, justify="left" if heading == "figure" else "right", overflow="fold")
    for row in found:
        table.add_row(row.figure, f"{row.value:g}", row.to_reach, "yes" if row.ok else "NO")
    Console(highlight=False).print(table)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps([asdict(row) for row in found], indent=2) + "\n", encoding="utf-8")
    missed = sum(not row.ok for row in found)
    print(f"proofs: {len(found)} figures, {missed} not reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
