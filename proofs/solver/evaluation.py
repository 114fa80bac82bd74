"""The terms that the solver is given, evaluated on plain states: the way back from z3 to the engines.

A proof is worth as much as its terms are the protocol. So a test takes the terms of every action apart and evaluates
them on what the reference engine explores: each edge must satisfy them, and nothing else may.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import z3

from spec.language.expression import Symbol, SymbolicVector, Value
from spec.language.machine import Action, Machine

from .symbols import SymbolicState, symbolic_step
from .terms import Tally, Terms

Scope = Mapping[str, Any]
"""What the names in a term mean: variables, constants and sizes of a state, and the indexes bound so far."""
Reading = Callable[[Scope], Any]


class Evaluator:
    """Turns terms into functions of a state. A count is counted, a quantifier goes through all members and beyond."""

    def __init__(self, terms: Terms) -> None:
        self._known: dict[int, tuple[Any, Reading]] = {}
        self._tallies: dict[str, Tally] = {t.unknown.decl().name(): t for t in terms.tallies.values()}

    def reading(self, term: Any) -> Reading:
        """The function that a term is."""
        key = term.get_id()
        if key not in self._known:
            self._known[key] = (term, self._read(term))
        return self._known[key][1]

    def _read(self, term: Any) -> Reading:
        if z3.is_int_value(term):
            number = term.as_long()
            return lambda scope: number
        if z3.is_quantifier(term):
            return self._quantified(term)
        name, parts = term.decl().name(), [self.reading(child) for child in term.children()]
        if term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            if name in self._tallies:
                return self._counted(self._tallies[name], parts)
            return (lambda scope: scope[name][parts[0](scope)]) if parts else (lambda scope: scope[name])
        return _MEANINGS[term.decl().kind()](parts)

    def _quantified(self, term: Any) -> Reading:
        bound = [z3.FreshInt(term.var_name(i)) for i in range(term.num_vars())]
        assert len(bound) == 1
        domain, name = term.var_name(0).partition(" at depth ")[0], bound[0].decl().name()
        body = self.reading(z3.substitute_vars(term.body(), *bound))
        every = all if term.is_forall() else any
        # Two integers more on each side: a quantifier that spoke of them would read what is not there.
        return lambda scope: every(body({**scope, name: i}) for i in range(-2, scope[f"size of {domain}"] + 2))

    def _counted(self, tally: Tally, outer: list[Reading]) -> Reading:
        body, name = self.reading(tally.counted), str(tally.variable)
        names = [str(variable) for variable in tally.outer]

        def value(scope: Scope) -> int:
            inner = {**scope, **{n: read(scope) for n, read in zip(names, outer, strict=True)}}
            return sum(int(body({**inner, name: i})) for i in range(scope[f"size of {tally.domain}"]))

        return value


def _difference(parts: list[Reading]) -> Reading:
    first, *rest = parts
    return lambda scope: first(scope) - sum(part(scope) for part in rest)


def _product(parts: list[Reading]) -> Reading:
    first, second = parts
    return lambda scope: first(scope) * second(scope)


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[[list[Reading]], Reading]:
    def make(parts: list[Reading]) -> Reading:
        first, second = parts
        return lambda scope: compare(first(scope), second(scope))

    return make


_MEANINGS: dict[int, Callable[[list[Reading]], Reading]] = {
    z3.Z3_OP_TRUE: lambda parts: lambda scope: True,
    z3.Z3_OP_FALSE: lambda parts: lambda scope: False,
    z3.Z3_OP_AND: lambda parts: lambda scope: all(part(scope) for part in parts),
    z3.Z3_OP_OR: lambda parts: lambda scope: any(part(scope) for part in parts),
    z3.Z3_OP_NOT: lambda parts: lambda scope: not parts[0](scope),
    z3.Z3_OP_IMPLIES: lambda parts: lambda scope: not parts[0](scope) or parts[1](scope),
    z3.Z3_OP_ITE: lambda parts: lambda scope: parts[1](scope) if parts[0](scope) else parts[2](scope),
    z3.Z3_OP_ADD: lambda parts: lambda scope: sum(part(scope) for part in parts),
    z3.Z3_OP_SUB: _difference,
    z3.Z3_OP_MUL: _product,
    z3.Z3_OP_EQ: _compared(lambda a, b: bool(a == b)),
    z3.Z3_OP_DISTINCT: _compared(lambda a, b: bool(a != b)),
    z3.Z3_OP_LT: _compared(lambda a, b: bool(a < b)),
    z3.Z3_OP_LE: _compared(lambda a, b: bool(a <= b)),
    z3.Z3_OP_GT: _compared(lambda a, b: bool(a > b)),
    z3.Z3_OP_GE: _compared(lambda a, b: bool(a >= b)),
}


class Relation:
    """The transition relation of one action, as the solver is given it, on plain states."""

    def __init__(self, machine: Machine, scope_type: type[Any], action: Action) -> None:
        self._machine = machine
        step = symbolic_step(machine, SymbolicState(machine, scope_type), action)
        self._index = None if step.index is None else str(step.index.arguments[0])
        terms = Terms()
        place = Symbol("constant", PLACE)
        guard = terms.term(step.guard)
        after = {
            name: terms.term(value[place] if isinstance(value, SymbolicVector) else value)
            for name in machine.variables
            if (value := getattr(step.after, name)) is not getattr(step.before, name)
        }
        evaluator = Evaluator(terms)
        self._guard = evaluator.reading(guard)
        self._after = {name: evaluator.reading(term) for name, term in after.items()}

    def enabled(self, state: Any, index: int | None) -> bool:
        """Whether the guard holds."""
        return bool(self._guard(self._names(state, index)))

    def holds(self, state: Any, index: int | None, after: Any) -> bool:
        """Whether the step leads from one state to the other: guard, effects, and all else as it was."""
        names = self._names(state, index)
        return bool(self._guard(names)) and all(
            self._value(name, state, names) == getattr(after, name) for name in self._machine.variables
        )

    def _names(self, state: Any, index: int | None) -> dict[str, Any]:
        names = _names(self._machine, state)
        if self._index is not None:
            names[self._index] = index
        return names

    def _value(self, name: str, state: Any, names: dict[str, Any]) -> Any:
        if name not in self._after:
            return getattr(state, name)
        over = self._machine.variables[name].over
        if over is None:
            return self._after[name](names)
        return tuple(self._after[name]({**names, PLACE: i}) for i in getattr(state, over))


class Statement:
    """What is said of a state, a claim or a number, as the solver is given it, on plain states."""

    def __init__(self, machine: Machine, scope_type: type[Any], said: Callable[..., Value], indexes: int) -> None:
        """`said` takes the state and so many indexes."""
        self._machine = machine
        self._indexes = [f"{PLACE} {number}" for number in range(indexes)]
        terms, state = Terms(), SymbolicState(machine, scope_type)
        term = terms.term(said(state, *(Symbol("constant", name) for name in self._indexes)))
        self._reading = Evaluator(terms).reading(term)

    def at(self, state: Any, *indexes: int) -> Any:
        """What it is in this state, at these indexes."""
        return self._reading({**_names(self._machine, state), **dict(zip(self._indexes, indexes, strict=True))})


def _names(machine: Machine, state: Any) -> dict[str, Any]:
    """What the names in a term mean in a plain state: its variables, its constants and the sizes of its domains."""
    state_type: Any = type(state)
    names = dict(_constants(state_type, tuple(machine.domains)))
    names.update(zip(machine.variables, state, strict=True))
    return names


@functools.cache
def _constants(state_type: Hashable, domains: tuple[str, ...]) -> dict[str, Any]:
    """What is the same in all states of a scope: its constants and the sizes of its domains."""
    found = {name: getattr(state_type, name) for name in dir(state_type) if not name.startswith("_")}
    return {**found, **{f"size of {name}": found[name].size for name in domains}}


PLACE = "index read"
"""The index at which the vectors after a step are read."""
