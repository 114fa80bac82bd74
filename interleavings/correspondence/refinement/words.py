"""A machine in words, for the report of a failure: what an action does, when it is disabled, where a state stands.

Everything is the machine's own text: docstrings of its actions, meanings of its variables, names of their values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# What a save has read so far: it fills pages, and says nothing of why an action is disabled.
_READ_SO_FAR = "image_"


class MachineWords:
    """What the follower of a machine says when a step of the implementation does not fit."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._machine = model.machine

    def rule(self, action: str) -> str:
        """Who takes an action, and its own words on what it does and when it is disabled."""
        declared = self._machine.actions.get(action)
        if declared is None:
            return f"the machine has no action {action!r}"
        if action not in {taken.name for taken in self._in_scope()}:
            return f"{action} is no action in this scope: its feature is switched off, or its budget is 0"
        return f"{action} ({declared.who}): {' '.join(declared.meaning.split())}"

    def state(self, state: Any) -> list[str]:
        """One line for each writer, checkpoint or prompt, and one for each number that has moved."""
        return [*self._members(state), *self._numbers(state)]

    def _in_scope(self) -> list[Any]:
        scope = self._model.scope
        return [a for a in self._machine.actions.values() if a.when is None or a.when(scope)]

    def _moved(self, state: Any) -> Iterator[tuple[Any, Any, Any]]:
        for variable, first, value in zip(self._machine.variables.values(), self._model.initial, state, strict=True):
            if value != first and not variable.name.startswith(_READ_SO_FAR):
                yield variable, first, value

    def _members(self, state: Any) -> Iterator[str]:
        describe = self._machine.describe
        domains = {variable.over: None for variable, _, _ in self._moved(state) if variable.over is not None}
        for domain in domains:
            for index in range(self._machine.domains[domain](self._model.scope)):
                values = [
                    f"{variable.name} {variable.called(value[index])}"
                    for variable, first, value in self._moved(state)
                    if variable.over == domain and value[index] != first[index]
                ]
                if values:
                    line = describe(state, domain, index) if describe is not None else f"{domain} {index}"
                    yield f"{line} ({', '.join(values)})"

    def _numbers(self, state: Any) -> Iterator[str]:
        for variable, _, value in self._moved(state):
            if variable.over is None:
                yield f"{variable.name} {variable.called(value)}: {variable.meaning}"
