"""Writes a counterexample as a pytest: it fails while the failure is there and passes when it is gone."""

from __future__ import annotations

import re

from cleancut_leaf.words import counted

from ..errors import ExplorerUsageError
from ..runtime.trace import Step, Trace, require_known_budgets
from .source_text import literal, python_source, words

_TEMPLATE = '''"""Replays one schedule of {reference}.

Generated from a counterexample: {failure}
Fails while that failure is there. Once the program has changed so much that the schedule does not exist any more,
only a complete search of all schedules passes it; otherwise it fails as stale.
"""

from importlib import import_module

import pytest

from interleavings import Failure, Step, Trace, explore, replay

PROGRAM = {reference_text}
BUDGETS = {budgets}
MAX_STATES = {max_states}
STEPS = (
{steps})
TRACE = Trace(
    program={program},
    steps=STEPS,
    failure=Failure({kind}, {property}, {message}),
    budgets=BUDGETS,
    python={python},
    stock={stock},
)


def test_{name}():
    """{title}"""
    module, _, path = PROGRAM.partition(":")
    program = import_module(module)
    for part in path.split("."):
        program = getattr(program, part)
    result = replay(program, TRACE)
    if result.stale:
        found = explore(program, max_states=MAX_STATES, **BUDGETS)
        if found.verdict != "holds":
            pytest.fail(
                f"stale trace: {{result.describe()}}\\nEvery schedule was asked instead: {{found.summary()}}\\n"
                "Explore the program again and emit the new counterexample; delete this file if there is none."
            )
    assert result.failure is None, result.describe()
'''


def emit(trace: Trace, program_reference: str, *, max_states: int = 20_000) -> str:
    """Return the source text of a pytest that replays the trace on `module:callable`.

    The text depends on the arguments alone. `max_states` bounds the search with which the test settles a stale trace.
    """
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", program_reference, re.ASCII):
        raise ExplorerUsageError(
            f"{program_reference!r} is no program reference; it has the form package.module:callable"
        )
    require_known_budgets(trace.budgets)
    failure = trace.failure
    return python_source(
        _TEMPLATE,
        name="_".join(dict.fromkeys((program_reference.rpartition(":")[2], failure.kind, failure.property))).lower(),
        literals={
            "reference_text": program_reference,
            "program": dict(trace.program),
            "kind": failure.kind,
            "property": failure.property,
            "message": failure.message,
            "budgets": dict(trace.budgets),
            "max_states": max_states,
            "python": trace.python,
            "stock": trace.stock,
        },
        texts={
            "reference": program_reference,
            "failure": words(str(failure)),
            "title": words(f"{failure.kind}: {failure.property}, {counted(len(trace.steps), 'step')}."),
        },
        lines={"steps": "".join(f"    {_step(step)},\n" for step in trace.steps)},
    )


def _step(step: Step) -> str:
    """Write a step as one line, leaving out what has its usual value."""
    parts = [literal(step.kind), literal(step.task), literal(step.where)]
    if step.what:
        parts.append(f"what={literal(step.what)}")
    if step.occurrence != 1:
        parts.append(f"occurrence={literal(step.occurrence)}")
    return f"Step({', '.join(parts)})"
