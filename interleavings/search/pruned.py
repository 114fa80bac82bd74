"""The stateful search: breadth first over distinct states, each reached again by replaying its choices.

A state knows what was enabled in it. Whenever a run comes back to it, by replay or by another way, what is enabled is
compared by name, and after a replay the whole state is compared too. A difference means that the program is not
deterministic (or that runs share an object, which comes to the same), and nothing is concluded.

A run that has evaluated the step it was started for goes on into steps nobody has evaluated yet, for at most as long
as its prefix was. That saves about half of all replays and changes nothing in the order in which states are visited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..errors import Diverged, SeenLate
from ..runtime.result import Failure
from ..runtime.run import Run, Target
from ..state.fingerprint import fingerprint
from .setting import Limits, Setting, clock, look

Order: TypeAlias = Literal["breadth", "depth", "fewest-preemptions"]
Progress: TypeAlias = Callable[[int, int, int, float], None]
"""Called now and then with states, transitions, depth and seconds."""

_KINDS = {"task-step": 0, "callback": 1, "timer": 2, "job": 3, "cancel": 4, "crash": 5}
_SHORTEST_CHAIN = 8
_PROGRESS_EVERY = 50
SHARED = "does it use an object that was made outside of it and that an earlier run changed, or a set of objects?"


class State:
    """One distinct state: what is enabled in it, where each choice leads, and the first way it was reached."""

    __slots__ = (
        "depth", "failure", "identity", "idle", "names", "options", "outcome", "parent", "targets", "unknown", "via",
        "way",
    )  # fmt: skip

    def __init__(
        self, options: tuple[str, ...], failure: Failure | None, outcome: str | None, identity: bytes = b""
    ) -> None:
        self.identity = identity  # empty for a failing state, which is one of its own
        self.options = options
        self.names = frozenset(options)
        self.targets: list[State | None] = [None] * len(options)
        self.unknown = 0  # no choice before this index is without a target
        self.failure = failure
        self.outcome = outcome
        self.depth = -1  # not visited yet
        self.idle = 0  # timers fired since a main coroutine last ran
        self.parent: State | None = None
        self.via = ""
        self.way: tuple[str, ...] = ()  # in a folded search: the choices of the run that found it

    def path(self) -> list[str]:
        """Return the names of the choices that first led here."""
        keys: list[str] = []
        state = self
        while state.parent is not None:
            keys.append(state.via)
            state = state.parent
        keys.reverse()
        return keys


@dataclass(slots=True)
class Exploration:
    """What a search covered. `states` are in the order of their first visit; the first is the root."""

    states: list[State] = field(default_factory=list)
    transitions: int = 0
    depth: int = 0
    failing: State | None = None
    stopped: str | None = None  # the bound that ended the search
    stalled: State | None = None  # the state at which patience ran out
    outcomes: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Whether every reachable state was visited."""
        return self.stopped is None and self.stalled is None


class Search:
    """One search over the states of a program."""

    def __init__(
        self,
        setting: Setting,
        limits: Limits,
        *,
        order: Order = "breadth",
        stop_at: Callable[[Failure], bool] = lambda failure: True,
        progress: Progress | None = None,
    ) -> None:
        self._setting = setting
        self._limits = limits
        self._order = order
        self._stop_at = stop_at
        self._progress = progress
        self._report_at = _PROGRESS_EVERY
        self._table: dict[bytes, State] = {}
        self._main_keys: frozenset[str] = frozenset()
        self.found = Exploration()

    def run(self) -> Exploration:
        """Search until a failure, a bound, or the end. Raises `Diverged`, `ForbiddenCall` and `Unwalkable`."""
        found, limits = self.found, self._limits
        root = self._root()
        waiting = deque([root])
        if self._visit(root, None, ""):
            return found
        take = waiting.popleft if self._order == "breadth" else waiting.pop
        while waiting:
            state = take()
            for index in range(len(state.options)):
                target = state.targets[index]
                if target is None:
                    if limits.out_of_time():
                        found.stopped = f"max_seconds={limits.max_seconds} passed"
                        return found
                    target = self._evaluate(state, index)
                found.transitions += 1
                if target.depth >= 0:
                    continue
                if limits.max_states is not None and len(found.states) >= limits.max_states:
                    found.stopped = f"max_states={limits.max_states} reached"
                    return found
                if self._visit(target, state, state.options[index]):
                    return found
                if target.failure is None:
                    waiting.append(target)
            self._report()
        return found

    def keys_to(self, state: State) -> list[str]:
        """Return the choices of the shortest way to a state that was visited."""
        return state.path()

    def _visit(self, state: State, parent: State | None, via: str) -> bool:
        """Count a state in; say whether the search ends here."""
        found = self.found
        state.parent, state.via = parent, via
        state.depth = 0 if parent is None else parent.depth + 1
        if parent is not None and not self._is_main_step(via):
            state.idle = parent.idle + via.startswith("timer ")
        found.states.append(state)
        found.depth = max(found.depth, state.depth)
        if state.outcome is not None:
            found.outcomes.add(state.outcome)
        if state.failure is not None:
            found.outcomes.add(f"{state.failure.kind}: {state.failure.property}")
            if found.failing is None and self._stop_at(state.failure):
                found.failing = state
                return True
        if state.idle > self._limits.patience:
            found.stalled = state
            return True
        return False

    def _is_main_step(self, via: str) -> bool:
        return via in self._main_keys

    def _report(self) -> None:
        found = self.found
        if self._progress is not None and len(found.states) >= self._report_at:
            self._report_at = len(found.states) + _PROGRESS_EVERY
            self._progress(len(found.states), found.transitions, found.depth, clock() - self._limits.started)

    def _root(self) -> State:
        with self._setting.start() as run:
            self._main_keys = frozenset(main.step_key for main in run.mains)
            state, _ = self._recognise(run, 0)
            return state

    def _evaluate(self, state: State, index: int) -> State:
        """Replay the way to a state, do its choice, and go on while there is something new to learn."""
        with self._setting.start() as run:
            options = self._replay(run, state)
            if options is not None:
                return self._chain(run, state, index, options, state.depth)
        raise self._first_difference(state.path(), state)

    def _chain(self, run: Run, state: State, index: int, options: dict[str, Target], number: int) -> State:
        """Do one choice, then others nobody has evaluated, at most as many as there were to get here."""
        first, enabled = self._advance(run, state, index, options, number)
        current = first
        for further in range(max(_SHORTEST_CHAIN, number)):
            following = self._following(current)
            if following is None:
                break
            current, enabled = self._advance(run, current, following, enabled, number + 1 + further)
        return first

    def _following(self, state: State) -> int | None:
        """Return the choice of a state with which a run goes on; None when nothing is left to learn from it."""
        return _first_unknown(state)

    def _replay(self, run: Run, state: State) -> dict[str, Target] | None:
        """Walk a fresh run to a state, comparing what is enabled at each step; return what is enabled there.

        None when everything was enabled and yet it is not the state that was recorded.
        """
        run.observe()
        keys = state.path()
        for number, (key, passed) in enumerate(zip(keys, _states_to(state), strict=False)):
            enabled = run.options()
            self._compare(passed, enabled, number)
            run.step(enabled[key])
            if run.observe() is not None:
                raise Diverged(number + 1, key, (key,), ("a violation that was not there before",))
        options = run.options()
        self._compare(state, options, len(keys))
        return options if fingerprint(run) == state.identity else None

    def _first_difference(self, keys: list[str], state: State) -> Diverged:
        """Replay once more and find the first step after which the state is not the recorded one."""
        passed = _states_to(state)
        with self._setting.start() as run:
            run.observe()
            for number, key in enumerate([*keys, ""]):
                target = run.options().get(key)
                if target is None or fingerprint(run) != passed[number].identity:
                    break
                run.step(target)
                run.observe()
        done = keys[number - 1] if number else "the start"
        return Diverged(number, "", (), (), f"after {done!r} the same choices lead to another state; {SHARED}")

    def _advance(
        self, run: Run, state: State, index: int, options: dict[str, Target], number: int
    ) -> tuple[State, dict[str, Target]]:
        run.step(options[state.options[index]])
        self._main_keys |= {main.step_key for main in run.mains}  # others after a crash
        reached, enabled = self._recognise(run, number + 1)
        state.targets[index] = reached
        return reached, enabled

    def _recognise(self, run: Run, number: int) -> tuple[State, dict[str, Target]]:
        """Judge the state of a run and look it up; a failing one is always a state of its own."""
        failure, options = look(run)
        refuse_late_sights(run)
        if failure is not None:
            return State((), failure, None), options
        identity = fingerprint(run)
        known = self._table.get(identity)
        if known is None:
            known = self._table[identity] = State(in_order(options), None, run.outcome, identity)
        else:
            self._compare(known, options, number)
        return known, options

    @staticmethod
    def _compare(state: State, options: dict[str, Target], number: int) -> None:
        if options.keys() != state.names:
            raise Diverged(number, "", state.options, tuple(options))


def refuse_late_sights(run: Run) -> None:
    """Raise when the program has looked at what the states of this search leave out."""
    late = run.loop.sights - run.rules.sights
    if late:
        raise SeenLate(late)


def in_order(options: Iterable[str]) -> tuple[str, ...]:
    """Sort choices by what they are, the environment's last: the order must not tell by which way a state was met."""
    return tuple(sorted(options, key=_rank))


def _rank(name: str) -> tuple[int, int, str]:
    return _KINDS.get(name.partition(" ")[0], len(_KINDS)), len(name), name


def _states_to(state: State) -> list[State]:
    """Return the states on the first way to a state, the root first, the state itself last."""
    ways = [state]
    while ways[-1].parent is not None:
        ways.append(ways[-1].parent)
    ways.reverse()
    return ways


def _first_unknown(state: State) -> int | None:
    """Return the first choice of a state whose target nobody has evaluated."""
    targets = state.targets
    for index in range(state.unknown, len(targets)):
        if targets[index] is None:
            state.unknown = index
            return index
    state.unknown = len(targets)
    return None
