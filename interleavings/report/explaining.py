"""The trace of a schedule as a page: one lane a task, each step with its source line.

Nothing is run here. What the steps changed is known where the program is followed by a machine: the scenarios, whose
pages are made in `conformance.pages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..runtime.crashing import CRASH
from ..runtime.result import Failure
from ..runtime.trace import Step, Trace
from .page import Page, PageStep, html_of

VERBS = {
    "task-step": "goes on",
    "callback": "callback",
    "timer": "timer fires",
    "cancel": "is cancelled",
    "job": "job completes",
    "crash": "crash",
}
LOOP, ENVIRONMENT = "event loop", "environment"
FORBIDDEN = "forbidden-call"
#: So many lines about a failure stand at the head of the page; more of them at its end.
FEW_DETAILS = 8

Source = Callable[[str], str]


def explain(trace: Trace, source: Source | None = None) -> str:
    """The page of a trace. `source` gives the text of a line for `file.py:12 in function`, or nothing."""
    return html_of(page_of(trace, [step_of(step, source) for step in trace.steps]))


def step_of(step: Step, source: Source | None = None) -> PageStep:
    """One step, with what the trace itself says of it."""
    lane = step.task or (ENVIRONMENT if step.kind == CRASH else LOOP)
    title = VERBS[step.kind] + (f" {step.what}" if step.what else "")
    return PageStep(lane, title, step.where, source(step.where) if source and step.where else "")


def page_of(trace: Trace, steps: Sequence[PageStep], **more: Any) -> Page:
    """A page around steps."""
    failure = trace.failure
    program = str(trace.program.get("scenario") or trace.program.get("reference") or "a program")
    budgets = ", ".join(f"{name} {value}" for name, value in trace.budgets.items() if value and value != "idle")
    facts = [
        ("program", program),
        ("steps", str(len(steps))),
        ("failure", failure.kind),
        ("stock asyncio can do this", trace.stock),
        *([("budgets", budgets)] if budgets else []),
        *([("Python", trace.python)] if trace.python else []),
    ]
    details = [(name, _lines(value)) for name, value in failure.details.items()]
    few = sum(len(lines) for _, lines in details) <= FEW_DETAILS
    return Page(
        title=f"{program}: {failure.property or failure.kind}",
        subtitle="A schedule of the real coroutines, found by the explorer",
        broken=failure.property or failure.kind,
        verb=_verb(failure),
        sentence=failure.message or str(failure),
        concerned=[f"{name}: {line}" for name, lines in details for line in lines] if few else (),
        facts=facts,
        steps=steps,
        details=() if few else details,
        **more,
    )


def _verb(failure: Failure) -> str:
    """What is said of the failure's name: a property is violated, an exception is raised, a deadlock happens."""
    if failure.kind.endswith("exception"):
        return "is raised"
    return "happens" if failure.property in ("", failure.kind) or failure.kind == FORBIDDEN else "is violated"


def _lines(value: Any) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [_flat(item) for item in value] or ["none"]
    if isinstance(value, Mapping):
        return [f"{name}: {_flat(item)}" for name, item in value.items()] or ["none"]
    return [str(value)]


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_flat(item)}" for key, item in value.items() if item not in (None, "", []))
    return str(value)
