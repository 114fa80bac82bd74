"""Runs a counterexample again before anybody sees it, and writes down its steps by name.

A failure that does not come again on the same choices is no failure of the program's schedules: the program is not
deterministic, and that is what is reported.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import Diverged
from ..runtime.result import Failure, Stock
from ..runtime.subject import identity_of
from ..runtime.trace import Step, Trace
from ..search.setting import Setting, look
from .deadlock import HolderWatch, blocked_tasks, who_waits_for_whom
from .describe import describe_choice

NO_PROGRESS = "no-progress"


def retrace(setting: Setting, keys: Sequence[str], failure: Failure) -> tuple[tuple[Step, ...], Failure]:
    """Run the choices again and return their steps and the failure with all its details.

    Raises `Diverged` when the failure does not come again, or comes earlier.
    """
    watch = HolderWatch()
    steps: list[Step] = []
    with setting.start() as run:
        found, options = look(run)
        for number, key in enumerate(keys, 1):
            target = options.get(key)
            if target is None or found is not None:
                raise Diverged(number, key, (key,), tuple(options))
            step = describe_choice(run, key, target)
            steps.append(step)
            run.step(target)
            watch.after_step(run, step.task if step.kind == "task-step" else "")
            found, options = look(run)
            if run.subject.narrate is not None:
                steps[-1] = dataclasses.replace(step, did=tuple(run.subject.narrate()))
        if failure.kind == NO_PROGRESS:
            if found is not None:
                raise Diverged(len(keys), "", (str(failure),), (str(found),))
            return tuple(steps), dataclasses.replace(failure, details=blocked_tasks(run, watch))
        if found is None or not failure.same_as(found):
            raise Diverged(len(keys), "", (str(failure),), (str(found or "no failure"),))
        if found.kind == "deadlock":
            details = blocked_tasks(run, watch)
            circle = who_waits_for_whom(details)
            message = f"{found.message}; {circle}" if circle else found.message
            found = dataclasses.replace(found, message=message, details=details)
        return tuple(steps), found


def build_trace(setting: Setting, keys: Sequence[str], failure: Failure, stock: Stock) -> Trace:
    """Return the trace of a failure that was run again."""
    steps, confirmed = retrace(setting, keys, failure)
    return Trace(
        program=identity_of(setting.program),
        steps=steps,
        failure=confirmed,
        budgets=budgets_of(setting),
        python=platform.python_version(),
        stock=stock,
    )


def budgets_of(setting: Setting) -> Mapping[str, Any]:
    """Return what a replay has to allow for the steps to be possible."""
    rules = setting.rules
    budgets: dict[str, Any] = {
        "cancels": rules.cancels,
        "crashes": rules.crashes,
        "atomic_callbacks": rules.atomic_callbacks,
        "timers": rules.timers,
    }
    if rules.strict:
        budgets["strict"] = True
    if rules.identical is not None:  # it decides in which order a set of tasks is gone through
        budgets["identical"] = [list(group) for group in rules.identical.groups]
    return budgets
