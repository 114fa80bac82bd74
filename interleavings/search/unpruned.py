"""Enumerates every schedule, one run each, without comparing states: slow, and beyond any doubt about fingerprints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import Diverged
from ..runtime.result import Failure
from ..runtime.run import Run
from .setting import Limits, Setting, clock, look

_LONGEST_SCHEDULE = 10_000
_PROGRESS_EVERY = 50


@dataclass(slots=True)
class Branch:
    """A point of the schedule under way: what was enabled and which of it is being followed."""

    options: tuple[str, ...]
    chosen: int = 0


@dataclass(slots=True)
class Enumeration:
    """What an enumeration covered."""

    schedules: int = 0
    transitions: int = 0
    depth: int = 0
    failure: Failure | None = None
    path: list[str] = field(default_factory=list)
    stopped: str | None = None
    outcomes: set[str] = field(default_factory=set)


def enumerate_schedules(
    setting: Setting,
    limits: Limits,
    stop_at: Callable[[Failure], bool] = lambda failure: True,
    progress: Callable[[int, int, int, float], None] | None = None,
) -> Enumeration:
    """Run every schedule, depth first. `max_states` bounds the number of schedules here.

    `progress` is told now and then of schedules, transitions, depth and seconds.
    """
    found = Enumeration()
    branches: list[Branch] = []
    while True:
        if limits.out_of_time():
            found.stopped = f"max_seconds={limits.max_seconds} passed"
            return found
        if limits.max_states is not None and found.schedules >= limits.max_states:
            found.stopped = f"max_states={limits.max_states} schedules reached"
            return found
        try:
            failure = _one_schedule(setting, branches, found)
        except KeyboardInterrupt:
            found.stopped = "interrupted"
            return found
        found.schedules += 1
        found.depth = max(found.depth, len(branches))
        if progress is not None and found.schedules % _PROGRESS_EVERY == 0:
            progress(found.schedules, found.transitions, found.depth, clock() - limits.started)
        if failure is not None:
            if found.failure is None:
                found.failure = failure
                found.path = [branch.options[branch.chosen] for branch in branches]
            if stop_at(failure):
                return found
        while branches and branches[-1].chosen + 1 == len(branches[-1].options):
            branches.pop()
        if not branches:
            return found
        branches[-1].chosen += 1


def _one_schedule(setting: Setting, branches: list[Branch], found: Enumeration) -> Failure | None:
    """Follow the branches, then take the first choice until the run ends; extend the branches on the way."""
    with setting.start() as run:
        failure, options = look(run)
        depth = 0
        while failure is None and options:
            if depth < len(branches):
                branch = branches[depth]
                if tuple(options) != branch.options:
                    raise Diverged(depth, "", branch.options, tuple(options))
            elif depth == _LONGEST_SCHEDULE:
                found.stopped = f"a schedule longer than {_LONGEST_SCHEDULE} steps was cut"
                return None
            else:
                branch = Branch(tuple(options))
                branches.append(branch)
            run.step(options[branch.options[branch.chosen]])
            found.transitions += 1
            depth += 1
            failure, options = look(run)
        _note_outcome(run, failure, found)
        return failure


def _note_outcome(run: Run, failure: Failure | None, found: Enumeration) -> None:
    if failure is not None:
        found.outcomes.add(f"{failure.kind}: {failure.property}")
    elif run.outcome is not None:
        found.outcomes.add(run.outcome)
