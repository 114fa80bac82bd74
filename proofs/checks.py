"""What `python -m proofs` runs: every obligation and, unless it is to be quick, what is checked within bounds only.

Each obligation, trace and contract is one piece of work; two processes share them. What a process sends back is plain
values: an obligation holds functions, which do not travel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

from spec.machines.catalogue import all_variants, scopes_named, variant_named

from .claims.inductions import ARGUMENTS
from .solver.bounded import GaveUp, Trace, TraceDoesNotReplay, shortest_trace
from .solver.discharging import Outcome, Verdict, discharge

WORKERS = 2
AT_ONCE = 12
"""Obligations that a process discharges before it takes the next ones."""
LONGEST_TRACE = 8
"""Variants with a longer shortest trace are searched by bench/solver.py."""
LONGEST_IN_BENCH = 18
ALSO_IN_BENCH = ("loader_from_version", "snapshot_past_anchor")
"""Longer ones that the solver finds within a minute too. For the rest it takes more; the engines have them."""


@dataclass(frozen=True)
class BoundedOutcome:
    """Something checked within bounds: never proved, and listed apart."""

    kind: str
    """trace, contract, or wrong version."""
    name: str
    verdict: str
    """bounded: as it should be within the bounds; fails; inconclusive."""
    said: str
    seconds: float


Done = Callable[[int], None]
"""Told how many are done so far."""


def unheard(done: int) -> None:
    """Nobody wants to know."""


@contextmanager
def workers() -> Iterator[Executor]:
    """Two processes, started afresh: the solver keeps state that a fork would share."""
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        yield pool


def _discharged(argument: int, start: int) -> list[tuple[Verdict, float]]:
    chosen = ARGUMENTS[argument].obligations()[start : start + AT_ONCE]
    return [(outcome.verdict, outcome.seconds) for outcome in map(discharge, chosen)]


def obligations_discharged(pool: Executor, done: Done = unheard) -> list[list[Outcome]]:
    """The outcome of every obligation, by argument."""
    by_argument = [argument.obligations() for argument in ARGUMENTS]
    pieces = [
        [pool.submit(_discharged, number, start) for start in range(0, len(obligations), AT_ONCE)]
        for number, obligations in enumerate(by_argument)
    ]
    found: list[list[tuple[Verdict, float]]] = []
    for own in pieces:
        found.append([])
        for piece in own:
            found[-1] += piece.result()
            done(sum(map(len, found)))
    return [
        [Outcome(obligation, *verdict) for obligation, verdict in zip(obligations, own, strict=True)]
        for obligations, own in zip(by_argument, found, strict=True)
    ]


def short_variants(longest: int = LONGEST_TRACE) -> list[str]:
    """The variants whose shortest trace is at most so long."""
    return [variant.name for _, variant in all_variants() if variant.length <= longest]


def variants_in_bench() -> list[str]:
    """The variants whose shortest trace bench/solver.py looks for, those of ALSO_IN_BENCH last."""
    up_to_there, here = short_variants(LONGEST_IN_BENCH), short_variants()
    return [name for name in up_to_there if name not in here] + list(ALSO_IN_BENCH)


def variants_of_the_engines_alone() -> list[str]:
    """The variants whose shortest trace nobody looks for with the solver."""
    searched = {*short_variants(), *variants_in_bench()}
    return [variant.name for _, variant in all_variants() if variant.name not in searched]


def trace_of(name: str) -> BoundedOutcome:
    """Search the shortest trace of a variant: it must have the length that the engines give."""
    machine, variant = variant_named(name)
    ((scope, _),) = scopes_named(machine, variant.scope).values()
    started = time.perf_counter()
    names = (*variant.with_variants, variant.name)
    try:
        found = shortest_trace(machine, scope, names, variant.breaks, variant.length)
    except TraceDoesNotReplay as fault:
        return BoundedOutcome("trace", name, "fails", str(fault), time.perf_counter() - started)
    if isinstance(found, Trace) and found.length == variant.length:
        verdict, said = "bounded", f"{variant.breaks} at length {found.length}, as the engines"
    elif isinstance(found, GaveUp):
        verdict, said = "inconclusive", f"the solver gave up at length {found.length}: {found.reason}"
    else:
        found_length = found.length if isinstance(found, Trace) else "none"
        verdict, said = "fails", f"{variant.breaks}: length {found_length}, but the engines find {variant.length}"
    return BoundedOutcome("trace", name, verdict, said, time.perf_counter() - started)


def traces_found(pool: Executor, names: Sequence[str], done: Done = unheard) -> list[BoundedOutcome]:
    """The outcome of every one of these variants."""
    found = []
    for outcome in pool.map(trace_of, names):
        found.append(outcome)
        done(len(found))
    return found


def contracts_checked(ended: Callable[[], None] = lambda: None) -> list[BoundedOutcome]:
    """What CrossHair says of the contracts, and of the wrong versions that it must refute."""
    # Imported here: the contracts load the library, which the proofs do without.
    from .contracts.runs import contracts_held, is_refuted, wrong_versions_refuted

    found = [BoundedOutcome("contract", o.name, o.verdict, o.said, o.seconds) for o in contracts_held(ended=ended)]
    for outcome in wrong_versions_refuted(ended=ended):
        verdict = "bounded" if is_refuted(outcome) else "inconclusive" if outcome.verdict == "inconclusive" else "fails"
        said = f"refuted, as it must be: {outcome.said}" if verdict == "bounded" else f"not refuted: {outcome.said}"
        found.append(BoundedOutcome("wrong version", outcome.name, verdict, said, outcome.seconds))
    return found
