"""A counterexample for people and for programs: a numbered table, and the JSON that `emit` and `replay` read.

The JSON names actions, never indexes into a list of choices, so it says what happened and survives a change of order in
the text of the machine.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..engines.reference import Search, Violation
from ..language.machine import ModelFault
from ..language.model import Model

FORMAT = "cleancut-spec-trace"
VERSION = 1


class TraceStale(Exception):
    """A recorded path does not fit the machine any more."""


def changes(model: Model, before: Any, after: Any) -> list[str]:
    """What a step moved, one phrase a variable: `ledger[0] RESERVED → ADMITTED`."""
    phrases: list[str] = []
    for variable, old, new in zip(model.machine.variables.values(), before, after, strict=True):
        if old == new:
            continue
        if variable.over is None:
            phrases.append(f"{variable.name} {variable.called(old)} → {variable.called(new)}")
        else:
            phrases += [
                f"{variable.name}[{i}] {variable.called(a)} → {variable.called(b)}"
                for i, (a, b) in enumerate(zip(old, new, strict=True))
                if a != b
            ]
    return phrases


def who(model: Model, action: str, index: int | None) -> str:
    """Who takes a step, for people."""
    taker = model.machine.actions[action].who
    if index is None:
        return taker
    return f"{taker} {index}"


def print_table(model: Model, violation: Violation, console: Console) -> None:
    """The path as a table, beneath it the sentence that broke and the thing it broke for."""
    steps = "1 step" if violation.length == 1 else f"{violation.length} steps"
    table = Table(title=f"{violation.property}: shortest counterexample, {steps}", title_justify="left")
    for heading in ("step", "who", "action", "what changed"):
        table.add_column(heading, overflow="fold")
    for number, (action, index) in enumerate(violation.steps, 1):
        moved = changes(model, violation.states[number - 1], violation.states[number])
        table.add_row(str(number), who(model, action, index), action, "\n".join(moved))
    console.print(table)
    console.print(f"broken: {violation.sentence}")
    for line in concerned(model, violation):
        console.print(f"  {line}")


def concerned(model: Model, violation: Violation) -> list[str]:
    """One line for each prompt, writer or step the property fails at; of a run that cannot go on, which half broke."""
    if model.machine.progress is not None and violation.property == model.machine.progress.name:
        return [_no_progress(model, violation)]
    known = model.machine.properties.get(violation.property)
    if known is None or known.each is None or model.machine.describe is None:
        return []
    # A claim about an action is broken in the state before it, which is the one that shows the owners.
    state = violation.states[-1] if violation.at is None else violation.states[-2]
    return [model.machine.describe(state, known.each, i) for i in violation.indexes if i is not None]


def _no_progress(model: Model, violation: Violation) -> str:
    """Whether the run stands still at the end of the path, or its last step brings it no nearer to its end."""
    rank = model.machine.progress.rank if model.machine.progress else None
    if violation.steps and rank is not None:
        last, before, after = violation.steps[-1][0], rank(violation.states[-2]), rank(violation.states[-1])
        if model.machine.actions[last].progress and not after > before:
            return f"{last} brings the run no nearer to its end: the rank goes from {before} to {after}"
    left = model.steps(violation.states[-1])
    names = dict.fromkeys(s.action.name if s.index is None else f"{s.action.name} {s.index}" for s in left)
    if not names:
        return "at the end nothing is possible any more"
    return f"possible at the end: {', '.join(names)}, and none of it brings the run nearer to its end"


def to_document(model: Model, scope_name: str, violation: Violation) -> dict[str, Any]:
    """The counterexample as a JSON document."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "machine": model.machine.name,
        "scope": scope_name,
        "bounds": dataclasses.asdict(model.scope),
        "variants": list(model.variants),
        "property": violation.property,
        "sentence": violation.sentence,
        "indexes": list(violation.indexes),
        "concerned": concerned(model, violation),
        "steps": [
            {
                "action": action,
                "index": index,
                "who": who(model, action, index),
                "changed": changes(model, violation.states[number], violation.states[number + 1]),
            }
            for number, (action, index) in enumerate(violation.steps)
        ],
    }


def save(search: Search, scope_name: str, directory: Path) -> Path:
    """Write the counterexample of a failed search; return its path."""
    assert search.violation is not None
    model = search.model
    name = "-".join([model.machine.name, *model.variants, search.violation.property]) + ".json"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    document = to_document(model, scope_name, search.violation)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def replay(model: Model, steps: list[tuple[str, int | None]]) -> list[Any]:
    """The states along a recorded path, or `TraceStale` at the first step that the machine does not allow."""
    states = [model.initial]
    for number, (action, index) in enumerate(steps, 1):
        try:
            step = model.step_named(states[-1], action, index)
        except (ModelFault, IndexError) as fault:
            raise TraceStale(f"step {number}: {fault}") from None
        if step is None:
            enabled = ", ".join(sorted({s.action.name for s in model.steps(states[-1])})) or "nothing"
            raise TraceStale(f"step {number}: {action} is not enabled there; enabled: {enabled}")
        states.append(step.state)
    return states
