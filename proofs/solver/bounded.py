"""Bounded model checking: the shortest trace that breaks a property within a scope, found by the solver.

The same text as the engines', unrolled step by step with everything written out. Each length is asked for in turn, so
the first trace found is a shortest one, and it is replayed on the plain machine before it is believed. A search that
finds none up to its bound has shown nothing beyond it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from spec.language.expression import SymbolicVector, Value, not_
from spec.language.machine import Action, Claim, Machine
from spec.language.model import Model, Step

from .symbols import StateAfter, SymbolicState
from .terms import Terms


@dataclass(frozen=True)
class Trace:
    """A shortest trace that breaks a property: the steps, each with the index it is taken for."""

    breaks: str
    steps: tuple[tuple[str, int | None], ...]
    seconds: float

    @property
    def length(self) -> int:
        """How many steps."""
        return len(self.steps)


@dataclass(frozen=True)
class NoTrace:
    """No trace of up to `bound` steps breaks the property."""

    bound: int
    seconds: float


@dataclass(frozen=True)
class GaveUp:
    """The solver gave up at this length; nothing is concluded."""

    length: int
    reason: str
    seconds: float


class Unrolling:
    """A machine within a scope as terms over one state, renamed for each step of a path."""

    def __init__(self, machine: Machine, scope: Any, variants: Sequence[str]) -> None:
        self.model: Model = machine.model(scope, variants)
        self.machine = self.model.machine
        sizes = {name: domain.size or 0 for name, domain in self.model.domains.items()}
        self._terms = Terms(sizes)
        self._state = SymbolicState(self.machine, type(scope))
        self._constants = [
            (self._terms.term(getattr(self._state, name)), z3.IntVal(int(getattr(scope, name))))
            for name in scope.__dataclass_fields__
        ]
        for name in self.machine.constants:
            vector = getattr(self._state, name)
            for index, value in enumerate(getattr(self.model.initial, name)):
                self._constants.append((self._terms.element(vector, z3.IntVal(index)), z3.IntVal(value)))
        self.places = {
            place: term for name in self.machine.variables for place, term in self._places(name, self._state)
        }
        self.instances = [
            self._instance(action, index)
            for action in self.machine.actions.values()
            if action.when is None or action.when(scope)
            for index in ([None] if action.each is None else range(sizes[action.each]))
        ]

    def _places(self, name: str, state: Any) -> Iterator[tuple[str, Any]]:
        value = getattr(state, name)
        if not isinstance(value, SymbolicVector) and self.machine.variables[name].over is None:
            yield name, self._terms.term(value)
            return
        for index in range(self._terms.sizes[self.machine.variables[name].over]):  # type: ignore[index]
            yield f"{name}[{index}]", self._terms.element(value, z3.IntVal(index))

    def _instance(self, action: Action, index: int | None) -> Instance:
        guard, effects = self.machine.evaluate(action, self._state, index)
        after = StateAfter(self._state, effects)
        changed = {place: self._in_scope(term) for name in effects for place, term in self._places(name, after)}
        return Instance(action, index, self._in_scope(self._terms.term(guard)), changed)

    def _in_scope(self, term: Any) -> Any:
        return z3.simplify(z3.substitute(term, *self._constants))

    def claim(self, value: Value) -> Any:
        """A claim about the state, as a term with the scope's constants put in."""
        return self._in_scope(self._terms.term(value))

    def at(self, depth: int, term: Any) -> Any:
        """A term about the state, said of the state after `depth` steps."""
        return z3.substitute(term, *((own, z3.Int(f"{place} @ {depth}")) for place, own in self.places.items()))

    def start(self) -> Iterator[Any]:
        """That the path starts where the run does."""
        for name, variable in self.machine.variables.items():
            value = getattr(self.model.initial, name)
            if variable.over is None:
                yield z3.Int(f"{name} @ 0") == value
            else:
                yield from (z3.Int(f"{name}[{k}] @ 0") == v for k, v in enumerate(value))

    def step(self, depth: int) -> Iterator[Any]:
        """That step `depth` is one of the instances, the one that `choice` names."""
        choice = self.choice(depth)
        yield z3.And(choice >= 0, choice < len(self.instances))
        for number, instance in enumerate(self.instances):
            yield z3.Implies(choice == number, self.at(depth, instance.guard))
        for place, own in self.places.items():
            after = self.at(depth, own)
            for number, instance in enumerate(self.instances):
                if place in instance.changed:
                    after = z3.If(choice == number, self.at(depth, instance.changed[place]), after)
            yield z3.Int(f"{place} @ {depth + 1}") == after

    def choice(self, depth: int) -> Any:
        """Which instance is taken at this depth."""
        return z3.Int(f"choice @ {depth}")

    def broken(self, name: str, length: int) -> Iterator[Any]:
        """The ways in which a path of this length ends by breaking the property or the claim of progress."""
        progress = self.machine.progress
        if progress is not None and name == progress.name:
            enabled = [self.at(length, i.guard) for i in self.instances if i.action.progress]
            finished = self.claim(progress.finished(self._state))
            yield z3.And(z3.Not(self.at(length, finished)), *map(z3.Not, enabled))
            if length:
                rank = self.claim(progress.rank(self._state))
                rises = self.at(length, rank) > self.at(length - 1, rank)
                ours = [self.choice(length - 1) == n for n, i in enumerate(self.instances) if i.action.progress]
                yield z3.And(z3.Or(ours), z3.Not(rises))
            return
        for claim in self.machine.properties[name].claims:
            yield from self._claim_broken(name, claim, length)

    def _claim_broken(self, name: str, claim: Claim, length: int) -> Iterator[Any]:
        over = self.machine.properties[name].each
        if claim.of_step:
            if length:
                yield z3.Or(
                    [
                        z3.And(self.choice(length - 1) == n, self.at(length - 1, self.stepped_wrongly(claim, over, i)))
                        for n, i in enumerate(self.instances)
                        if claim.at in (None, i.action.name)
                    ]
                )
            return
        indexes: list[tuple[int, ...]] = [()] if over is None else [(k,) for k in self.model.domains[over]]
        negations = [self.claim(not_(claim.function(self._state, *index))) for index in indexes]
        if claim.at is None:
            yield z3.Or([self.at(length, negation) for negation in negations])
        elif length:
            taken = [self.choice(length - 1) == n for n, i in enumerate(self.instances) if i.action.name == claim.at]
            yield z3.And(z3.Or(taken), z3.Or([self.at(length - 1, negation) for negation in negations]))

    def stepped_wrongly(self, claim: Claim, over: str | None, instance: Instance) -> Any:
        """That the step which an instance takes breaks a claim about steps."""
        _, effects = self.machine.evaluate(instance.action, self._state, instance.index)
        index = () if over is None else (instance.index,)
        return self.claim(not_(claim.function(self._state, StateAfter(self._state, effects), *index)))


@dataclass(frozen=True)
class Instance:
    """One action at one index: its guard, and the value of each place that it changes."""

    action: Action
    index: int | None
    guard: Any
    changed: dict[str, Any]


def shortest_trace(
    machine: Machine, scope: Any, variants: Sequence[str], name: str, bound: int, timeout: int = 60_000
) -> Trace | NoTrace | GaveUp:
    """The shortest trace of at most `bound` steps that breaks the property; `timeout` is in ms for each length."""
    started = time.perf_counter()
    unrolling = Unrolling(machine, scope, variants)
    solver = z3.Solver()
    solver.set("timeout", timeout)
    solver.add(*unrolling.start())
    for length in range(bound + 1):
        if length:
            solver.add(*unrolling.step(length - 1))
        solver.push()
        solver.add(z3.Or(list(unrolling.broken(name, length))))
        answer = solver.check()
        if answer == z3.sat:
            chosen = [solver.model().eval(unrolling.choice(d)).as_long() for d in range(length)]
            steps = tuple((unrolling.instances[n].action.name, unrolling.instances[n].index) for n in chosen)
            require_violation(unrolling.model, name, steps)
            return Trace(name, steps, time.perf_counter() - started)
        if answer != z3.unsat:
            return GaveUp(length, solver.reason_unknown(), time.perf_counter() - started)
        solver.pop()
    return NoTrace(bound, time.perf_counter() - started)


class TraceDoesNotReplay(Exception):
    """A trace of the solver is none of the plain machine: the two readings of the text differ. A fault of ours."""


def require_violation(model: Model, name: str, steps: Sequence[tuple[str, int | None]]) -> None:
    """Replay a trace on the plain machine; raise TraceDoesNotReplay unless it ends by breaking the property."""
    state, before = model.initial, None
    last: Step | None = None
    for action_name, index in steps:
        last = model.step_named(state, action_name, index)
        if last is None:
            raise TraceDoesNotReplay(f"{action_name} of {index} is not enabled in {state}")
        before, state = state, last.state
    if not _breaks(model, name, before, last, state):
        raise TraceDoesNotReplay(f"{name} holds after {steps}")


def _breaks(model: Model, name: str, before: Any, last: Step | None, state: Any) -> bool:
    progress = model.machine.progress
    if progress is not None and name == progress.name:
        stalled = not model.finished(state) and not any(step.action.progress for step in model.steps(state))
        fell = last is not None and last.action.progress and not progress.rank(state) > progress.rank(before)
        return bool(stalled or fell)
    known = model.machine.properties[name]
    return bool(model.broken_indexes(known, state, None) or (last and model.broken_indexes(known, before, last)))
