"""Writes a counterexample as a pytest: it fails while the failure is there and passes when it is gone."""

from __future__ import annotations

import json
import re
from typing import Any

from .errors import ExplorerUsageError
from .in_words import counted
from .trace import Step, Trace

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
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", program_reference):
        raise ExplorerUsageError(
            f"{program_reference!r} is no program reference; it has the form package.module:callable"
        )
    failure = trace.failure
    return _TEMPLATE.format(
        reference=program_reference,
        failure=_one_line(str(failure)),
        reference_text=_literal(program_reference),
        steps="".join(f"    {_step(step)},\n" for step in trace.steps),
        program=_literal(dict(trace.program)),
        kind=_literal(failure.kind),
        property=_literal(failure.property),
        message=_literal(failure.message),
        budgets=_literal(dict(trace.budgets)),
        max_states=f"{max_states:_}",
        python=_literal(trace.python),
        stock=_literal(trace.stock),
        name=_identifier(program_reference, failure.kind, failure.property),
        title=_one_line(f"{failure.kind}: {failure.property}, {counted(len(trace.steps), 'step')}."),
    )


def _step(step: Step) -> str:
    """Write a step as one line, leaving out what has its usual value."""
    parts = [_literal(step.kind), _literal(step.task), _literal(step.where)]
    if step.what:
        parts.append(f"what={_literal(step.what)}")
    if step.occurrence != 1:
        parts.append(f"occurrence={step.occurrence}")
    return f"Step({', '.join(parts)})"


def _literal(value: Any) -> str:
    """Write a JSON value as Python, with double quotes for texts."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=True)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(str(key))}: {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    return repr(value)


def _one_line(text: str) -> str:
    """Make a text safe inside a docstring: one line, no quotes that end it, no backslashes."""
    flat = " ".join(text.split()).replace("\\", "/").replace('"', "'")
    return flat if len(flat) <= 100 else flat[:97] + "..."


def _identifier(*parts: str) -> str:
    text = "_".join(part for part in dict.fromkeys(parts))
    return re.sub(r"\W+", "_", text.rpartition(":")[2] if ":" in text else text).strip("_").lower()
