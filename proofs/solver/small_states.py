"""States of a small size read off a model of the solver, and how they are shown to people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import z3

from spec.language.expression import SymbolicVector
from spec.language.machine import Machine, Variable

from .obligations import Question
from .symbols import SymbolicState
from .terms import Terms


class Values:
    """The values that a model gives to terms over domains of one size."""

    def __init__(self, model: Any, size: int) -> None:
        self._model = model
        self.size = size

    def of(self, term: Any) -> int:
        """The value of an integer term."""
        return int(self._model.eval(term, model_completion=True).as_long())

    def holds(self, term: Any) -> bool:
        """The value of a truth term."""
        return bool(z3.is_true(self._model.eval(term, model_completion=True)))


def ranges(state: SymbolicState, machine: Machine, size: int) -> Iterator[Any]:
    """That every variable is in its declared range, as far as the range does not depend on the scope."""
    terms = Terms(dict.fromkeys(machine.domains, size))
    for variable in machine.variables.values():
        for _, term in _places(variable, state, terms, size):
            if isinstance(variable.low, int):
                yield term >= variable.low
            if isinstance(variable.high, int):
                yield term <= variable.high


def _places(variable: Variable, state: Any, terms: Terms, size: int) -> Iterator[tuple[str, Any]]:
    """The terms of a variable: one, or one for each index of its domain."""
    value = getattr(state, variable.name)
    if not isinstance(value, SymbolicVector):
        yield variable.name, terms.term(value)
        return
    for index in range(size):
        yield f"{variable.name}[{index}]", terms.element(value, z3.IntVal(index))


def shown(name: str, question: Question, machine: Machine, values: Values) -> str:
    """A counterexample to induction: the state, the step, what it changes, and what is broken."""
    terms = Terms(dict.fromkeys(machine.domains, values.size))
    before = dict(_readings(machine, question.state, terms, values))
    lines = [f"{name}, over {values.size} of each", "  state"]
    lines += [f"    {place} = {value}" for place, value in before.items()]
    if question.step is not None:
        step = question.step
        index = "" if step.index is None else f" of {step.action.each} {values.of(terms.term(step.index))}"
        lines.append(f"  step {step.action.name}{index}")
        after = dict(_readings(machine, step.after, terms, values))
        lines += [f"    {place} = {value}" for place, value in after.items() if value != before[place]]
    broken = [goal for goal, term in question.goals if not values.holds(term)]
    places = [f"{name} = {values.of(z3.Int(name))}" for name in question.indexes if not name.startswith("index of ")]
    lines.append(f"  breaks {', '.join(broken)}{' at ' if places else ''}{', '.join(places)}")
    return "\n".join(lines)


def _readings(machine: Machine, state: Any, terms: Terms, values: Values) -> Iterator[tuple[str, str]]:
    for variable in machine.variables.values():
        for place, term in _places(variable, state, terms, values.size):
            yield place, variable.called(values.of(term))
