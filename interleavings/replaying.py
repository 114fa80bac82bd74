"""Walks a trace again by the names of its steps, in a program that may have been edited since.

Four ends are possible. `reproduced`: every step was there and the failure came. `completed`: every step was there,
the rest ran in FIFO order, and nothing failed. `failed`: a failure came, but not the recorded one. `stale`: a step was
not enabled, or stands in another function now; the schedule no longer exists, which an edit can cause as well as a
fix, so the trace alone says nothing about the program as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cleancut_leaf.words import counted

from .errors import ForbiddenCall
from .report.deadlock import HolderWatch, blocked_tasks
from .report.describe import describe_choice
from .runtime.fence import Fence
from .runtime.frames import function_in
from .runtime.identical import identical_from
from .runtime.result import Failure
from .runtime.run import Rules, Run, Target, is_a_fault
from .runtime.subject import Program
from .runtime.trace import Trace, require_known_budgets
from .search.setting import Setting, look, paused_collection

Outcome: TypeAlias = Literal["reproduced", "completed", "stale", "failed"]
_LONGEST_REST = 10_000


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """How a replay ended.

    `position` is the number of the step at which it stopped being followed, counting from 1, or the number of all
    steps. `moved` counts steps whose function was found at another line.
    """

    outcome: Outcome
    position: int
    failure: Failure | None = None
    asked: str = ""
    enabled: tuple[str, ...] = ()
    moved: int = 0

    @property
    def reproduced(self) -> bool:
        """Whether the recorded failure came again."""
        return self.outcome == "reproduced"

    @property
    def stale(self) -> bool:
        """Whether the trace no longer fits the program."""
        return self.outcome == "stale"

    def describe(self) -> str:
        """Return one line that says how the replay ended."""
        if self.outcome == "stale":
            enabled = "; ".join(self.enabled) or "nothing"
            return (
                f"stale at step {self.position}: asked for {self.asked}; enabled was: {enabled}. The program is not "
                "what it was when the trace was recorded: search it anew, or go back to that version"
            )
        if self.outcome == "completed":
            return f"completed: {counted(self.position, 'step')}, all there, and nothing failed"
        return f"{self.outcome} at step {self.position}: {self.failure}"


def replay(
    program: Program,
    trace: Trace,
    *,
    invariant: Callable[[], object] | None = None,
    allow: tuple[str, ...] = (),
) -> ReplayResult:
    """Walk the steps of a trace in a fresh run of the program. Every position is walked, repeated ones too."""
    budgets = trace.budgets
    require_known_budgets(budgets)
    rules = Rules(
        cancels=budgets.get("cancels", 0),
        crashes=budgets.get("crashes", 0),
        atomic_callbacks=budgets.get("atomic_callbacks", False),
        strict=budgets.get("strict", False),
        timers=budgets.get("timers", "idle"),
        identical=identical_from(budgets["identical"]) if budgets.get("identical") else None,
    )
    with Fence(allow) as fence, paused_collection():
        setting = Setting(program, rules, fence, None, invariant)
        with setting.start() as run:
            return _Replay(run, trace).walk()


class _Replay:
    def __init__(self, run: Run, trace: Trace) -> None:
        self._run = run
        self._trace = trace
        self._watch = HolderWatch()
        self._moved = 0

    def walk(self) -> ReplayResult:
        failure, options = self._look()
        for number, step in enumerate(self._trace.steps, 1):
            if failure is not None:
                return self._failed(failure, number - 1)
            target = options.get(step.key)
            if target is None:
                return self._stale(str(step), number, options)
            found = describe_choice(self._run, step.key, target)
            if step.where and function_in(found.where) != function_in(step.where):
                return self._stale(f"{step}, but it is now at {found.where}", number, options)
            self._moved += found.where != step.where
            self._run.step(target)
            self._watch.after_step(self._run, step.task if step.kind == "task-step" else "")
            failure, options = self._look()
        steps = len(self._trace.steps)
        if failure is None:
            failure = self._rest(options)
        if failure is None and self._trace.failure.kind == "no-progress" and not self._run.mains_ended():
            failure = self._trace.failure
        if failure is not None:
            return self._failed(failure, steps)
        return ReplayResult("completed", steps, moved=self._moved)

    def _look(self) -> tuple[Failure | None, dict[str, Target]]:
        try:
            return look(self._run)
        except ForbiddenCall as call:
            return Failure("forbidden-call", call.name, str(call)), {}

    def _rest(self, options: dict[str, Target]) -> Failure | None:
        """Let the run go to its end in FIFO order, without a cancellation or a crash."""
        failure: Failure | None = None
        for _ in range(_LONGEST_REST):
            onwards = [target for target in options.values() if not is_a_fault(target)]
            if failure is not None or not onwards:
                return failure
            self._run.step(onwards[0])
            failure, options = self._look()
        return failure

    def _stale(self, asked: str, number: int, options: dict[str, Target]) -> ReplayResult:
        enabled = tuple(str(describe_choice(self._run, key, target)) for key, target in options.items())
        return ReplayResult("stale", number, None, asked, enabled, self._moved)

    def _failed(self, failure: Failure, number: int) -> ReplayResult:
        if failure.kind == "deadlock":
            details = blocked_tasks(self._run, self._watch)
            failure = Failure(failure.kind, failure.property, failure.message, details)
        outcome: Outcome = "reproduced" if failure.same_as(self._trace.failure) else "failed"
        return ReplayResult(outcome, number, failure, moved=self._moved)
