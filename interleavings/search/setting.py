"""What stays the same over all runs of one search: the program, the rules, the fence, and the garbage collector."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ..runtime.fence import Fence
from ..runtime.result import Failure
from ..runtime.run import Rules, Run, Target, unawaited_as_it_is
from ..runtime.subject import Program
from .judging import judge

# Taken at import: during a search the module's own attributes are the fence's.
clock = time.perf_counter
_YOUNG_EVERY = 200
_OLD_EVERY = 4_000


@dataclass(slots=True)
class Limits:
    """Where a search stops although it is not complete."""

    max_states: int | None = None
    max_seconds: float | None = None
    patience: int = 1_000
    started: float = field(default_factory=clock)

    def out_of_time(self) -> bool:
        """Say whether `max_seconds` have passed."""
        return self.max_seconds is not None and clock() - self.started > self.max_seconds

    def left(self) -> float | None:
        """Return how many seconds are left; None when there is no limit."""
        return None if self.max_seconds is None else max(0.0, self.max_seconds - (clock() - self.started))


@dataclass(slots=True)
class Setting:
    """Makes runs of one program under one set of rules, and counts them."""

    program: Program
    rules: Rules
    fence: Fence
    state: Callable[[], Any] | None
    invariant: Callable[[], object] | None
    runs: int = 0
    # What observers returned, numbered in the order of first sight: states hold the number.
    observed: dict[Hashable, Any] = field(default_factory=dict)

    def start(self) -> Run:
        """Start a fresh run; now and then collect the cycles that earlier runs left."""
        self.runs += 1
        if self.runs % _YOUNG_EVERY == 0:
            with unawaited_as_it_is():
                gc.collect(1 if self.runs % _OLD_EVERY == 0 else 0)
        return Run(self.program, self.rules, self.fence, self.state, self.invariant, self.observed)

    def under(self, rules: Rules) -> Setting:
        """Return the same setting under other rules, with its own count of runs."""
        return replace(self, rules=rules, runs=0, observed={})


def look(run: Run) -> tuple[Failure | None, dict[str, Target]]:
    """Observe and judge the state a run has just come to. Raises the forbidden call that led there, if any."""
    failure = run.observe()
    options = run.options()
    if failure is None:
        failure = judge(run, options)
    forbidden = run.forbidden_call()
    if forbidden is not None:
        raise forbidden
    return failure, options


@contextmanager
def paused_collection() -> Iterator[None]:
    """Switch the automatic garbage collector off for a search; runs collect at fixed points instead.

    A collection at any moment may run finalizers in the middle of a step, which no replay would repeat.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
