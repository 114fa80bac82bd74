"""A machine read on symbols: its state, constants and index sets of any size, and its actions as expression graphs."""

from __future__ import annotations

import dataclasses
from typing import Any

from spec.language.expression import Domain, Symbol, SymbolicVector, Value
from spec.language.machine import Action, Machine


class SymbolicState:
    """One state of a machine of any size: each variable and each constant of the scope is a symbol of its name.

    An action called on it returns its guard and effects as expression graphs. Reading a name that the machine does not
    declare raises AttributeError, as it would on a plain state.
    """

    def __init__(self, machine: Machine, scope_type: type[Any], at: str = "") -> None:
        """`at` follows the name of every variable, to tell the states of a path apart; constants are shared by all."""
        self._names: dict[str, Value] = {name: Domain(name, None) for name in machine.domains}
        for field in dataclasses.fields(scope_type):
            self._names[field.name] = Symbol("constant", field.name)
        for name, (over, _) in machine.constants.items():
            self._names[name] = SymbolicVector("constant", self._names[over], name)
        for variable in machine.variables.values():
            if variable.over is None:
                self._names[variable.name] = Symbol("variable", variable.name + at)
            else:
                self._names[variable.name] = SymbolicVector("variable", self._names[variable.over], variable.name + at)

    def __getattr__(self, name: str) -> Value:
        try:
            return self._names[name]
        except KeyError:
            raise AttributeError(f"the machine declares no {name!r}") from None


class StateAfter:
    """The state after an action: what the action changes, and everything else as it was."""

    def __init__(self, before: SymbolicState, effects: dict[str, Value]) -> None:
        self._before = before
        self._effects = effects

    def __getattr__(self, name: str) -> Value:
        return self._effects[name] if name in self._effects else getattr(self._before, name)


@dataclasses.dataclass(frozen=True)
class SymbolicStep:
    """One action on symbols: the state before, the index it is taken for, its guard, and the state after."""

    action: Action
    before: SymbolicState
    index: Symbol | None
    guard: Value
    after: StateAfter


def symbolic_step(machine: Machine, before: SymbolicState, action: Action) -> SymbolicStep:
    """Call an action once on symbols. For an action with an index set the index is one symbol, any member of it."""
    index = None if action.each is None else Symbol("constant", f"index of {action.name}")
    _, effects = machine.evaluate(action, before, index)
    return SymbolicStep(action, before, index, guard_of(machine, action, before, index), StateAfter(before, effects))


def guard_of(machine: Machine, action: Action, state: Any, index: Value = None) -> Value:
    """When an action can be taken: its guard, in a scope that has it.

    An action of a feature that is switched off is none that brings a run further.
    """
    guard, _ = machine.evaluate(action, state, index)
    has = True if action.when is None else action.when(state)
    if has is True:
        return guard
    # A feature is switched on by a number of the scope, or a condition says which scopes have it.
    return (has != 0 if isinstance(has, Symbol) and has.operator == "constant" else has) & guard
