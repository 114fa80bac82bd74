"""One worker of a shared search: it evaluates the states it is given, goes on from there, and tells what it learnt.

It keeps a table of its own: what it or another worker has evaluated it does not evaluate again. All that it sends are
identities, names and numbers, and at the end what the program's runs counted for the caller: its attribute `collected`,
with `clear()` and `merge(other)`.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...errors import Diverged, ExplorerUsageError, ForbiddenCall, SeenLate, Unwalkable
from ...runtime.result import Failure
from ...runtime.run import Run, Target
from ...state.fingerprint import fingerprint, reading_of
from ..pruned import SHARED, Search, State
from ..setting import Limits, Setting

Known: TypeAlias = "tuple[bytes, int]"
"""A state and one of its choices: somebody has evaluated it."""


@dataclass(frozen=True, slots=True)
class Job:
    """A state to evaluate: the way to it, what it is, what is enabled in it, and which of that is wanted."""

    keys: tuple[str, ...]
    identity: bytes
    options: tuple[str, ...]
    wanted: tuple[int, ...]


@dataclass(slots=True)
class Learnt:
    """What a worker found out: states as (options, outcome), and where choices lead; a failure leads nowhere."""

    states: dict[bytes, tuple[tuple[str, ...], str | None]] = field(default_factory=dict)
    targets: list[tuple[bytes, int, bytes | tuple[str, str, str]]] = field(default_factory=list)
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Raised:
    """What stopped a worker: the kind of exception and its text."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Farewell:
    """A worker's last word: what its runs collected for the caller."""

    collected: Any


class Answers(dict[Any, Any]):
    """Numbers what observers return alike in every process: by its content, not by the order of first sight."""

    def setdefault(self, answer: Any, number: Any = None) -> Any:
        known = self.get(answer)
        if known is None:
            known = self[answer] = reading_of(_alike(answer))
        return known


def _alike(answer: Any) -> Any:
    """Return the same form for answers that are equal: numbers of any type, tuples with and without names."""
    if isinstance(answer, tuple):
        return tuple(_alike(part) for part in answer)
    if isinstance(answer, int):
        return int(answer)
    if isinstance(answer, float) and answer.is_integer():
        return int(answer)
    return answer


class WorkerSearch(Search):
    """The part of the search that runs programs; the order of the visits is the coordinator's."""

    def __init__(self, setting: Setting, backwards: bool) -> None:
        super().__init__(setting, Limits())
        self._backwards = backwards
        self._job = Job((), b"", (), ())
        self._elsewhere: dict[bytes, set[int]] = {}
        self._somewhere = State((), None, None)
        self._learnt = Learnt()

    def learn(self, news: list[Known]) -> None:
        """Take note of what others have evaluated."""
        for identity, index in news:
            state = self._table.get(identity)
            if state is None:
                self._elsewhere.setdefault(identity, set()).add(index)
            elif state.targets[index] is None:
                state.targets[index] = self._somewhere

    def work(self, jobs: list[Job]) -> Learnt:
        """Evaluate what is wanted of the jobs and is not known yet."""
        self._learnt = Learnt()
        before = self._setting.runs
        for job in jobs:
            self._job = job
            state = self._table.get(job.identity) or self._new_state(State(job.options, None, None, job.identity))
            state.depth = len(job.keys)
            for index in job.wanted:
                if state.targets[index] is None:
                    self._evaluate(state, index)
        self._learnt.runs = self._setting.runs - before
        return self._learnt

    def _new_state(self, state: State) -> State:
        self._table[state.identity] = state
        for index in self._elsewhere.pop(state.identity, ()):
            state.targets[index] = self._somewhere
        return state

    def _replay(self, run: Run, state: State) -> dict[str, Target] | None:
        run.observe()
        job = self._job
        for number, key in enumerate(job.keys):
            enabled = run.options()
            if key not in enabled:
                raise Diverged(number, key, (key,), tuple(enabled))
            run.step(enabled[key])
            if run.observe() is not None:
                raise Diverged(number + 1, key, (key,), ("a violation that was not there before",))
        enabled = run.options()
        self._compare(state, enabled, len(job.keys))
        if fingerprint(run) != state.identity:
            raise Diverged(len(job.keys), "", (), (), f"the same choices lead to another state; {SHARED}")
        return enabled

    def _advance(
        self, run: Run, state: State, index: int, options: dict[str, Target], number: int
    ) -> tuple[State, dict[str, Target]]:
        known = len(self._table)
        reached, enabled = super()._advance(run, state, index, options, number)
        learnt = self._learnt
        if reached.failure is not None:
            failure: Failure = reached.failure
            learnt.targets.append((state.identity, index, (failure.kind, failure.property, failure.message)))
            return reached, enabled
        if len(self._table) != known:
            self._new_state(reached)
            learnt.states[reached.identity] = (reached.options, reached.outcome)
        learnt.targets.append((state.identity, index, reached.identity))
        return reached, enabled

    def _following(self, state: State) -> int | None:
        """Every other worker begins at the other end, so that two which meet do not do the same."""
        if not self._backwards:
            return super()._following(state)
        for index in range(len(state.targets) - 1, -1, -1):
            if state.targets[index] is None:
                return index
        return None


def answer_to(search: WorkerSearch, news: list[Known], jobs: list[Job]) -> Learnt | Raised:
    """Do what is asked for; what stops it is an answer, too."""
    search.learn(news)
    try:
        return search.work(jobs)
    except Unwalkable as error:
        return Raised("Unwalkable", error.reason)
    except (Diverged, ForbiddenCall, ExplorerUsageError, SeenLate) as error:
        return Raised(type(error).__name__, str(error))
    except BaseException:
        return Raised("unexpected", traceback.format_exc())


def begin_collecting(setting: Setting) -> Any:
    """Empty what the program's runs collect for the caller, and return it: it is the worker's own from here on."""
    collected = getattr(setting.program, "collected", None)
    if collected is not None:
        collected.clear()
    return collected
