"""Follows a state machine by the events an implementation emits, step by step, and compares the two ends.

After every step of the implementation each event it emitted must be an action that the machine enables, one after the
other, or a stutter that has a name; and the machine's state must then show the same as the implementation does. A step
without events must leave everything as it was: that is the same comparison.

This file knows nothing of our protocol; what maps to what stands in `refinement`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import Violation


class MachineModel(Protocol):
    """What is needed of a machine in one scope: where it starts, and whether a named step is enabled."""

    initial: Any

    def step_named(self, state: Any, name: str, index: int | None) -> Any: ...

    def steps(self, state: Any) -> Iterable[Any]: ...


class Words(Protocol):
    """A machine in words, for the report of a failure."""

    def rule(self, action: str) -> str:
        """What an action does and when it is disabled."""

    def state(self, state: Any) -> list[str]:
        """Where a state stands."""


class Remembered:
    """A model that works each step and each view out once: a search replays the same prefixes over and over."""

    def __init__(self, model: MachineModel, view: Callable[[Any], View], words: Words | None = None) -> None:
        self.initial = model.initial
        self.steps = model.steps
        self.words = words
        self._model = model
        self._view = view
        self._steps: dict[tuple[Any, str, int | None], Any] = {}
        self._views: dict[Any, View] = {}
        self._after: dict[Any, frozenset[Any]] = {}
        self._shown: dict[Any, frozenset[Any]] = {}

    def step_named(self, state: Any, name: str, index: int | None) -> Any:
        """The step of that action and index, or None where it is not enabled."""
        key = (state, name, index)
        if key not in self._steps:
            self._steps[key] = self._model.step_named(state, name, index)
        return self._steps[key]

    def states_that_show(self, view: View, states: frozenset[Any], longest: int) -> frozenset[Any]:
        """The states that show the same as `view`, at most `longest` actions away from some of `states`."""
        key = (tuple(view.items()), states, longest)
        if key not in self._shown:
            reached, edge = set(states), set(states)
            for _ in range(longest):
                edge = {after for state in edge for after in self._successors(state)} - reached
                reached |= edge
            self._shown[key] = frozenset(state for state in reached if self.view(state) == view)
        return self._shown[key]

    def _successors(self, state: Any) -> frozenset[Any]:
        if state not in self._after:
            self._after[state] = frozenset(step.state for step in self._model.steps(state))
        return self._after[state]

    def view(self, state: Any) -> View:
        """What is compared of a state of the machine."""
        if state not in self._views:
            self._views[state] = self._view(state)
        return self._views[state]


#: Numbers that tell events apart, and tell a reader nothing.
ONLY_NUMBERS = frozenset({"fence", "section", "sequence"})


@dataclass(frozen=True)
class Event:
    """One event of the implementation."""

    action: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        left_out = {*ONLY_NUMBERS, *(name for name, value in self.fields.items() if value is None or value is False)}
        shown = ", ".join(f"{name}={_plain(value)}" for name, value in self.fields.items() if name not in left_out)
        return f"{self.action}({shown})"


@dataclass(frozen=True)
class Stutter:
    """An event that moves nothing in the machine, with the name of the reason."""

    reason: str


@dataclass(frozen=True)
class Resumed:
    """An event after which the machine goes on from another state: a process that starts from what one left."""

    action: str
    """The machine's action that leads there, from where the other process was."""
    state: Any


Path = Sequence[tuple[str, int | None]]
"""Actions of the machine to take one after the other, each with its index."""

Rule = Callable[[Event, Any], Path | Stutter | Resumed]
"""What an event means for the machine in its present state."""

View = Mapping[str, Hashable]
"""What is compared: a few named aspects, seen alike in the machine's state and in the implementation."""


@dataclass
class Coverage:
    """Counted over all runs of a search: machine actions taken, and stutters used."""

    actions: Counter[str] = field(default_factory=Counter)
    stutters: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        """Count from nothing again."""
        self.actions.clear()
        self.stutters.clear()

    def merge(self, other: Coverage) -> None:
        """Add what was counted elsewhere."""
        self.actions.update(other.actions)
        self.stutters.update(other.stutters)


class Follower:
    """One machine, followed through one run. Call it as a tracer; call `observe` after every step."""

    def __init__(
        self,
        name: str,
        model: Remembered,
        rules: Mapping[str, Rule],
        ignored: frozenset[str],
        of_implementation: Callable[[], View],
        coverage: Coverage,
    ) -> None:
        self.name = name
        self.state = model.initial
        self._model = model
        self._rules = rules
        self._ignored = ignored
        self._of_implementation = of_implementation
        self._coverage = coverage
        self._pending: list[Event] = []
        self.history: list[Event] = []
        """What was followed so far, for the report of a failure."""
        self._last: list[Event] = []

    def with_rules(self, rules: Mapping[str, Rule]) -> Follower:
        """The same follower, where these events mean something else."""
        self._rules = {**self._rules, **rules}
        return self

    def __call__(self, action: str, /, **fields: Any) -> None:
        """Take an event down; it is followed at the end of the step. Never raises into the implementation."""
        self._pending.append(Event(action, fields))

    def did(self) -> list[str]:
        """The events of the last step, in words. Put into words here, since a search asks for few of its steps."""
        return [str(event) for event in self._last if event.action in self._rules]

    def observe(self, on_action: Callable[[str, Any], None] | None = None) -> Hashable:
        """Follow the events of the step that just ended and compare; return the machine's state.

        `on_action(action, state)` is called before each action of the machine, with the state it is taken in.
        """
        events, self._pending = self._pending, []
        self._last = events
        taken: list[str] = []
        for event in events:
            taken += self._follow(event, on_action)
        machine, implementation = self._model.view(self.state), self._of_implementation()
        if machine != implementation:
            different = [n for n in machine if machine[n] != implementation.get(n)]
            raise Violation(
                "refinement",
                f"after this step the implementation and the machine {self.name!r} disagree about "
                f"{', '.join(different)}; likely cause: a change of state without its event, or the other way round",
                {
                    "what its events should have moved": self._rules_of(taken) or ["nothing: it had no events"],
                    **{
                        f"{name}, where they differ": _apart(machine[name], implementation.get(name))
                        for name in different
                    },
                },
            )
        return self.state  # type: ignore[no-any-return]

    def _follow(self, event: Event, on_action: Callable[[str, Any], None] | None) -> list[str]:
        """Take the actions that an event stands for; return their names."""
        rule = self._rules.get(event.action)
        if rule is None:
            if event.action in self._ignored:
                return []
            raise Violation(
                "refinement",
                f"the implementation emitted {event}, which the machine {self.name!r} neither follows nor ignores; "
                "name the event in interleavings/refinement.py",
            )
        self.history.append(event)
        path = rule(event, self.state)
        if isinstance(path, Stutter):
            self._coverage.stutters[path.reason] += 1
            return []
        if isinstance(path, Resumed):
            self._coverage.actions[path.action] += 1
            self.state = path.state
            return [path.action]
        for action, index in path:
            step = self._model.step_named(self.state, action, index)
            if step is None:
                raise self._not_enabled(event, action, index)
            self._coverage.actions[action] += 1
            if on_action is not None:
                on_action(action, self.state)
            self.state = step.state
        return [action for action, _ in path]

    def _rules_of(self, actions: Iterable[str]) -> list[str]:
        words = self._model.words
        return [action if words is None else words.rule(action) for action in dict.fromkeys(actions)]

    def _not_enabled(self, event: Event, action: str, index: int | None) -> Violation:
        enabled = sorted({f"{s.action.name}{'' if s.index is None else f'({s.index})'}" for s in self._steps()})
        named = action if index is None else f"{action}({index})"
        words = self._model.words
        rule = {} if words is None else {"the rule": words.rule(action), "the machine is at": words.state(self.state)}
        return Violation(
            "refinement",
            f"the implementation did {event} where the protocol forbids it: the machine {self.name!r} does not enable "
            f"{named} there",
            {**rule, "what may happen there": ", ".join(enabled) or "nothing"},
        )

    def _steps(self) -> Iterable[Any]:
        return self._model.steps(self.state)


class EventlessFollower:
    """One machine, followed through a run that emits nothing, as a run in production does.

    After each step it keeps every state in which the machine may be: those that show what the implementation shows,
    at most `longest` actions away from where it may have been. A step that leads to none of them is a violation. So a
    wrong step is noticed where it shows, later than by a follower that is told what happened, and never earlier.
    """

    def __init__(self, name: str, model: Remembered, of_implementation: Callable[[], View], longest: int) -> None:
        self.name = name
        self.states: frozenset[Any] = frozenset([model.initial])
        self._model = model
        self._of_implementation = of_implementation
        self._longest = longest

    def observe(self) -> Hashable:
        """Find where the machine may be now; return all of it, in one order."""
        view, before = self._of_implementation(), self.states
        self.states = self._model.states_that_show(view, before, self._longest)
        if not self.states:
            nearest = self._model.view(next(iter(before)))
            different = [name for name in view if view[name] != nearest.get(name)]
            raise Violation(
                "refinement",
                f"this step changed {', '.join(different) or 'nothing'}, and no {self._longest} actions of the machine "
                f"{self.name!r} lead to what the implementation shows now",
                {f"{name} now": _in_words(view[name]) for name in view},
            )
        return tuple(sorted(self.states))


def _plain(value: Any) -> Any:
    """Named tuples without their names, however deep."""
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _apart(machine: Any, implementation: Any) -> str:
    """What each side has that the other has not; of what is no set, both."""
    if isinstance(machine, frozenset) and isinstance(implementation, frozenset):
        machine, implementation = machine - implementation, implementation - machine
    return f"{_in_words(machine)} in the machine, {_in_words(implementation)} in the implementation"


def _in_words(value: Any) -> str:
    if not isinstance(value, frozenset | tuple):
        return str(value)
    parts = sorted(map(str, value)) if isinstance(value, frozenset) else [str(part) for part in value]
    return ", ".join(parts) or "nothing"
