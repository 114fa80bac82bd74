"""How an obligation is discharged: a proof for any size, or a counterexample to induction of a small one.

First the solver looks for a counterexample of any size. When there is none the obligation is proved, provided that a
state satisfies its premises at all. When there may be one, it is looked for again with everything written out, counts
included, over one, two and three members of each domain: only a counterexample found there refutes. What is neither
proved nor refuted is unknown, and never a pass.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import z3

from .obligations import Obligation, Question
from .small_states import Values, ranges, shown
from .terms import Tally, Terms

TIMEOUT_MILLISECONDS = 20_000
IMPATIENT_MILLISECONDS = 3_000
SIZES = (1, 2, 3)
"""Members of every domain in the states that are written out."""


@dataclass(frozen=True)
class Proved:
    """The obligation holds for every state and every index.

    And a state with `witness` members, every variable in its declared range, meets its premises.
    """

    witness: int


@dataclass(frozen=True)
class Refuted:
    """A state, not necessarily a reachable one, that breaks the obligation: a counterexample to induction."""

    counterexample: str


@dataclass(frozen=True)
class Unknown:
    """Neither proved nor refuted. Never a pass."""

    reason: str


Verdict = Proved | Refuted | Unknown


@dataclass(frozen=True)
class Outcome:
    """A discharged obligation."""

    obligation: Obligation
    verdict: Verdict
    seconds: float


def discharge(obligation: Obligation, timeout: int = TIMEOUT_MILLISECONDS) -> Outcome:
    """Prove an obligation, or refute it by a small state; `timeout` is for one call of the solver."""
    started = time.perf_counter()
    # A solver that does not find a proof soon is often looking for a counterexample of no size in particular.
    verdict = _proved(obligation, min(timeout, IMPATIENT_MILLISECONDS))
    verdict = verdict or _refuted(obligation, SIZES, timeout) or _proved(obligation, timeout)
    verdict = verdict or _unknown(obligation, timeout)
    return Outcome(obligation, verdict, time.perf_counter() - started)


def _solver(timeout: int) -> Any:
    solver = z3.Solver()
    solver.set("timeout", timeout)
    return solver


def _not_all(question: Question) -> Any:
    return z3.Not(z3.And([goal for _, goal in question.goals]))


def _ask(obligation: Obligation, timeout: int) -> tuple[Any, str]:
    """Whether a state of any size breaks the obligation, and why the solver does not know."""
    question = obligation.ask(Terms())
    solver = _solver(timeout)
    solver.add(*question.premises, _not_all(question))
    return solver.check(), solver.reason_unknown()


def _proved(obligation: Obligation, timeout: int) -> Verdict | None:
    answer, _ = _ask(obligation, timeout)
    if answer != z3.unsat:
        return None
    for size in SIZES:
        question = _written_out(obligation, size)
        solver = _solver(timeout)
        # A state out of the declared ranges is none that a run has, so it would be no witness.
        solver.add(*question.premises, *ranges(question.state, obligation.machine, size))
        if solver.check() == z3.sat:
            return Proved(size)
    return Unknown(f"no state of up to {SIZES[-1]} members meets the premises, so nothing would be proved")


def _written_out(obligation: Obligation, size: int) -> Question:
    return obligation.ask(Terms(dict.fromkeys(obligation.machine.domains, size)))


def _refuted(obligation: Obligation, sizes: Sequence[int], timeout: int) -> Verdict | None:
    """A counterexample of a small size, if it can be with every variable in its declared range."""
    for in_range in (True, False):
        for size in sizes:
            question = _written_out(obligation, size)
            solver = _solver(timeout)
            solver.add(*question.premises, _not_all(question))
            if in_range:
                solver.add(*ranges(question.state, obligation.machine, size))
            if solver.check() == z3.sat:
                return Refuted(shown(obligation.name, question, obligation.machine, Values(solver.model(), size)))
    return None


def allowed_by_the_laws(obligation: Obligation, timeout: int = TIMEOUT_MILLISECONDS) -> str | None:
    """A small state that breaks the obligation if counts may be any numbers that the laws of counting allow; or None.

    Where the true counts exclude it, by a principle that is none of the laws, the obligation is true and what is stated
    does not prove it: nothing refutes it, but that it is not proved is then certain, and not for lack of time.
    """
    for size in SIZES:
        terms = Terms()
        question = obligation.ask(terms)
        solver = _solver(timeout)
        solver.add(*question.premises, _not_all(question))
        solver.add(*(terms.size(domain) == size for domain in obligation.machine.domains))
        if solver.check() == z3.sat:
            values = Values(solver.model(), size)
            counted = [f"  with {values.of(t.unknown)} as the {t.operator} of {t.counted}" for t in _closed(terms)]
            return "\n".join([shown(obligation.name, question, obligation.machine, values), *counted])
    return None


def _closed(terms: Terms) -> list[Tally]:
    return [tally for tally in terms.tallies.values() if not tally.outer]


def _unknown(obligation: Obligation, timeout: int) -> Verdict:
    answer, reason = _ask(obligation, timeout)
    found = "a counterexample of any size may rest on a count" if answer == z3.sat else f"the solver gave up: {reason}"
    return Unknown(f"{found}; over up to {SIZES[-1]} members there is none")
