"""A machine within one scope: plain states, their successors, and the properties to hold."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from .expression import Domain, Each, Value, Vector
from .machine import Action, Bound, Claim, Machine, ModelFault, Property, Variable


@dataclass(frozen=True)
class Step:
    """One enabled action of a state: its name, the index it is taken for, and the state it leads to."""

    action: Action
    index: int | None
    state: Any


class Model:
    """A machine within one scope: plain states, their successors, and the properties to hold.

    A state is a named tuple of integers and vectors, so it is frozen, hashable and cheap to compare; the constants of
    the scope are attributes of its class, so an action reads both the same way.
    """

    def __init__(self, machine: Machine, scope: Any, variants: tuple[str, ...]) -> None:
        self.machine = machine
        self.scope = scope
        self.variants = variants
        self.domains = {name: Domain(name, size(scope)) for name, size in machine.domains.items()}
        base = collections.namedtuple(f"{machine.name.capitalize()}State", list(machine.variables))  # type: ignore[misc]
        attributes: dict[str, object] = {"__slots__": ()}
        attributes.update({f.name: getattr(scope, f.name) for f in fields(scope)})
        attributes.update(self.domains)
        for name, (over, value) in machine.constants.items():
            attributes[name] = Vector(value(scope, i) for i in range(machine.domains[over](scope)))
        clash = set(attributes) & set(machine.variables)
        if clash:
            raise ModelFault(f"machine {machine.name!r}: {sorted(clash)} named both as variable and as constant")
        self.state_type: Any = type(base.__name__, (base,), attributes)
        self._ranges = [
            (v.name, self._resolve(v.low), self._resolve(v.high), v.over) for v in machine.variables.values()
        ]
        self.instances: list[tuple[Action, int | None]] = [
            (action, index)
            for action in machine.actions.values()
            if action.when is None or action.when(scope)
            for index in self._indexes(action.each)
        ]
        self.initial = self.state_type(*(self._initial(v) for v in machine.variables.values()))
        self.check_ranges(self.initial, "the initial state")

    def _resolve(self, bound: Bound) -> int:
        return bound if isinstance(bound, int) else bound(self.scope)

    def _initial(self, variable: Variable) -> int | Vector:
        value = self._resolve(variable.initial)
        if variable.over is None:
            return value
        return Vector([value] * self.machine.domains[variable.over](self.scope))

    def _indexes(self, each: str | None) -> Iterator[int | None]:
        if each is None:
            yield None
        else:
            yield from range(self.machine.domains[each](self.scope))

    def check_ranges(self, state: Any, origin: str) -> None:
        """Refuse a state with a value outside its declared range: the text of the machine is wrong."""
        for (name, low, high, over), value in zip(self._ranges, state, strict=True):
            values = value if over is not None else (value,)
            for item in values:
                if not low <= item <= high:
                    raise ModelFault(f"{origin} sets {name} to {value}, outside [{low}, {high}]")

    def steps(self, state: Any) -> Iterator[Step]:
        """The enabled actions of a state, in the fixed order of the text, so that a path replays."""
        for action, index in self.instances:
            guard, effects = self.machine.evaluate(action, state, index)
            if guard is True:
                yield Step(action, index, self.after(state, action, effects))
            elif guard is not False:
                raise ModelFault(
                    f"the guard of {action.name} gave {guard!r}, no truth value; likely cause: `~` or arithmetic in it"
                )

    def after(self, state: Any, action: Action, effects: dict[str, Value]) -> Any:
        """The state that the effects of an action lead to."""
        try:
            return state._replace(**{n: v.vector() if type(v) is Each else v for n, v in effects.items()})
        except (TypeError, ValueError) as fault:
            raise ModelFault(
                f"{action.name} changes a variable that {self.machine.name!r} does not have: {fault}"
            ) from None

    def step_named(self, state: Any, name: str, index: int | None) -> Step | None:
        """The step of that action and index if it is enabled in this state."""
        action = self.machine.actions.get(name)
        if action is None:
            raise ModelFault(f"machine {self.machine.name!r} has no action {name!r}")
        if (action, index) not in self.instances:
            return None
        guard, effects = self.machine.evaluate(action, state, index)
        return Step(action, index, self.after(state, action, effects)) if guard is True else None

    def finished(self, state: Any) -> bool:
        """Whether nothing is left to do."""
        assert self.machine.progress is not None
        return bool(self.machine.progress.finished(state))

    @staticmethod
    def looks(claim: Claim, step: Step | None) -> bool:
        """Whether a claim is looked at where this step is taken, or, of None, in every state."""
        if claim.at is None:
            return claim.of_step == (step is not None)
        return step is not None and claim.at == step.action.name

    def violated_indexes(
        self, each: str | None, claim: Claim, state: Any, step: Step | None = None
    ) -> tuple[int | None, ...]:
        """The indexes at which a state breaks a claim; (None,) for one without index; empty when it holds.

        A claim about a step is asked of the state before and the step, at the index that this is taken for.
        """
        if claim.of_step:
            assert step is not None
            index = () if each is None else (step.index,)
            return () if claim.function(state, step.state, *index) else (step.index if each else None,)
        if each is None:
            return () if claim.function(state) else (None,)
        return tuple(i for i in range(self.machine.domains[each](self.scope)) if not claim.function(state, i))

    def broken_indexes(self, known: Property, state: Any, step: Step | None) -> tuple[int | None, ...]:
        """The indexes at which a state, or a step taken in it, breaks the first broken claim looked at there."""
        for claim in known.claims:
            if self.looks(claim, step) and (found := self.violated_indexes(known.each, claim, state, step)):
                return found
        return ()
