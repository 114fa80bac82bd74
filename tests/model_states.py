"""States of a small model: all that are reachable, and the one after a named path."""

from __future__ import annotations

from typing import Any

from spec.language import Model


def reachable(model: Model) -> list[Any]:
    """Every reachable state of a small model, breadth first, by no engine: the engines are held against it."""
    states, frontier = {model.initial}, [model.initial]
    for state in frontier:
        for step in model.steps(state):
            if step.state not in states:
                states.add(step.state)
                frontier.append(step.state)
    return frontier


def path(model: Model, *steps: str | tuple[str, int], start: Any = None) -> Any:
    """The state after the named steps, from the start of the run or from a state of it."""
    state = model.initial if start is None else start
    for step in steps:
        name, index = step if isinstance(step, tuple) else (step, None)
        taken = model.step_named(state, name, index)
        assert taken is not None, (step, state)
        state = taken.state
    return state
