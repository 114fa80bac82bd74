"""Proof obligations as data, and how one is discharged.

A property holds for any number of prompts when a strengthening of it is inductive: it holds at the start (initiation),
every action keeps it (consecution, one obligation an action), and it implies the property (safety). The strengthening
is a list of conjuncts, each a claim at one index. It is assumed at two indexes only, the one in question and the one
the action is taken for; that assumes less than is true, so what is proved holds for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from spec.expression import Symbol, Value
from spec.machine import Machine

from .symbols import Conjunct, SymbolicState, symbolic_step
from .terms import UNKNOWN, Terms

TIMEOUT_MILLISECONDS = 20_000


@dataclass(frozen=True)
class Proved:
    """The obligation holds for every state and every index."""


@dataclass(frozen=True)
class Refuted:
    """A state, not necessarily a reachable one, that breaks the obligation: a counterexample to induction."""

    counterexample: str


@dataclass(frozen=True)
class Unknown:
    """The solver gave up. Never a pass."""

    reason: str


Verdict = Proved | Refuted | Unknown


@dataclass(frozen=True)
class Obligation:
    """One obligation: whatever satisfies the premises satisfies the goal."""

    name: str
    machine: str
    build: Callable[[Terms], tuple[list[Any], Any]]
    assumes: str
    excludes: str


@dataclass(frozen=True)
class Outcome:
    """A discharged obligation."""

    obligation: Obligation
    verdict: Verdict
    seconds: float


@dataclass(frozen=True)
class Induction:
    """Properties to prove by one strengthening, and what the proof assumes and does not speak of."""

    name: str
    machine: Machine
    scope_type: type[Any]
    properties: tuple[str, ...]
    strengthening: Sequence[Conjunct]
    initial: Callable[[Value, Value], Value]
    """Says that a state is the initial one, at one index."""
    assumes: str
    excludes: str


def _all(conjuncts: Sequence[Conjunct], state: Value, index: Value, terms: Terms) -> Any:
    return z3.And([terms.term(conjunct(state, index)) for conjunct in conjuncts])


def obligations_of(induction: Induction) -> list[Obligation]:
    """Every obligation of an induction: initiation, one consecution an action, one safety a claim of a property."""
    machine, scope_type, strengthening = induction.machine, induction.scope_type, induction.strengthening

    def obligation(name: str, build: Callable[[Terms], tuple[list[Any], Any]]) -> Obligation:
        return Obligation(name, machine.name, build, induction.assumes, induction.excludes)

    def initiation(terms: Terms) -> tuple[list[Any], Any]:
        state, p = SymbolicState(machine, scope_type), Symbol("constant", "p")
        return [terms.term(induction.initial(state, p))], _all(strengthening, state, p, terms)

    def consecution(action_name: str) -> Callable[[Terms], tuple[list[Any], Any]]:
        def build(terms: Terms) -> tuple[list[Any], Any]:
            p = Symbol("constant", "p")
            step = symbolic_step(machine, scope_type, machine.actions[action_name])
            premises = [_all(strengthening, step.before, p, terms), terms.term(step.guard)]
            if step.index is not None:
                premises.append(_all(strengthening, step.before, step.index, terms))
            return premises, _all(strengthening, step.after, p, terms)

        return build

    def safety(at: str | None, function: Callable[..., Value]) -> Callable[[Terms], tuple[list[Any], Any]]:
        def build(terms: Terms) -> tuple[list[Any], Any]:
            state, p = SymbolicState(machine, scope_type), Symbol("constant", "p")
            premises = [_all(strengthening, state, p, terms)]
            if at is not None:
                guard, _ = machine.evaluate(machine.actions[at], state)
                premises.append(terms.term(guard))
            return premises, terms.term(function(state, p))

        return build

    found = [obligation(f"{induction.name}: initiation", initiation)]
    found += [obligation(f"{induction.name}: consecution of {name}", consecution(name)) for name in machine.actions]
    for name in induction.properties:
        for claim in machine.properties[name].claims:
            where = f"at {claim.at}" if claim.at else "in every state"
            found.append(obligation(f"{name}: safety {where}", safety(claim.at, claim.function)))
    return found


def discharge(obligation: Obligation, timeout: int = TIMEOUT_MILLISECONDS) -> Outcome:
    """Ask the solver for a state that satisfies the premises and breaks the goal."""
    started = time.perf_counter()
    terms = Terms()
    premises, goal = obligation.build(terms)
    solver = z3.Solver()
    solver.set("timeout", timeout)
    solver.add(*premises, *terms.side_conditions, z3.Not(goal))
    answer = solver.check()
    verdict: Verdict
    if answer == z3.unsat:
        verdict = Proved()
    elif answer == z3.sat:
        verdict = Refuted(_readable(solver.model()))
    else:
        verdict = Unknown(solver.reason_unknown())
    return Outcome(obligation, verdict, time.perf_counter() - started)


def _readable(model: z3.ModelRef) -> str:
    """A counterexample to induction: the scalars, and each vector at the indexes the obligation speaks of."""
    scalars = {d.name(): model[d] for d in model.decls() if d.arity() == 0}
    indexes = {name: value for name, value in scalars.items() if name == "p" or name.startswith("index of ")}
    lines = [f"{name} = {value}" for name, value in scalars.items() if not name.startswith(UNKNOWN)]
    for declaration in model.decls():
        if declaration.arity() == 1:
            lines += [
                f"{declaration.name()}[{name}] = {model.eval(declaration(value), model_completion=True)}"
                for name, value in indexes.items()
            ]
    return "\n".join(f"  {line}" for line in sorted(lines))
