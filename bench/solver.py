"""Figures of the proofs: how long they take, and the longer traces that the solver finds.

    python bench/solver.py [--json FILE] [--quick]

Seconds are of processor time, of this process and of those it starts, so that what else the machine does matters less.
The traces are those of the variants whose shortest one has more steps than `make prove` looks for, and at most 18, and
of two longer ones; each must have the length that the engines find. For the rest the solver takes more than a minute
each; the engines have them. Quick, those of more than 12 steps are left out.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator

from parts.figures import Row, at_most, only_shown, options_of, reported

from proofs.checks import (
    WORKERS,
    obligations_discharged,
    short_variants,
    traces_found,
    variants_in_bench,
    variants_of_the_engines_alone,
    workers,
)
from proofs.solver import Proved

LONGEST_QUICK = 12


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
    yield only_shown("obligations", len(outcomes))
    yield at_most("obligations not proved", unproved, 0)
    yield at_most(f"all obligations, s of processor time on each of {WORKERS} cores", round(seconds / WORKERS, 1), 10)
    names = [name for name in variants_in_bench() if not quick or name in short_variants(LONGEST_QUICK)]
    yield only_shown("variants whose trace the engines alone find", len(variants_of_the_engines_alone()))
    with workers() as pool:
        for outcome in traces_found(pool, names):
            right = outcome.verdict == "bounded"
            yield Row(f"trace of {outcome.name}, s: {outcome.said}", round(outcome.seconds, 1), "found", right)


def main(arguments: list[str]) -> int:
    options = options_of("Figures of the proofs.", "leave out the longest traces").parse_args(arguments)
    return reported("proofs", list(rows(options.quick)), options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
