"""A counterexample of `python -m spec` as a file, and as the text of a pytest that replays it on a controller."""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import TraceUnreadable
from ..trace import read_document

FORMAT, VERSION = "cleancut-spec-trace", 1


@dataclass(frozen=True)
class SpecTrace:
    """The actions of a counterexample, by name, and the property they break in the machine with the variant."""

    machine: str
    scope: str
    bounds: Mapping[str, int]
    variants: tuple[str, ...]
    property: str
    sentence: str
    steps: tuple[tuple[str, int | None, str], ...]
    """Action, index, and who takes it."""
    indexes: tuple[int, ...] = ()
    """The prompts, writers or steps at which the property fails."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SpecTrace:
        """Read a trace; `TraceUnreadable` says in one line what is wrong with the file."""
        return cls.from_document(read_document(path), str(path))

    @classmethod
    def from_document(cls, document: Any, origin: str) -> SpecTrace:
        """Build a trace from its JSON object."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise TraceUnreadable(f"{origin}: is not a trace of a state machine: its format is not {FORMAT!r}")
        if document.get("version") != VERSION:
            found = document.get("version")
            raise TraceUnreadable(f"{origin}: has version {found!r}; this reads version {VERSION}")
        try:
            return cls(
                machine=str(document["machine"]),
                scope=str(document["scope"]),
                bounds={str(name): int(value) for name, value in document["bounds"].items()},
                variants=tuple(str(name) for name in document["variants"]),
                property=str(document["property"]),
                sentence=str(document["sentence"]),
                steps=tuple(
                    (str(step["action"]), None if step["index"] is None else int(step["index"]), str(step["who"]))
                    for step in document["steps"]
                ),
                indexes=tuple(int(index) for index in document.get("indexes", ()) if index is not None),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TraceUnreadable(f"{origin}: is damaged: {error!r}") from None

    @builtins.property
    def name(self) -> str:
        """A name for the test: the variants and the property, or the machine's name without variants."""
        return re.sub(r"\W+", "_", "_".join([*(self.variants or (self.machine,)), self.property]))


_TEMPLATE = '''"""Replays the counterexample of {origin} on a controller, action by action.

{sentence}
Broken in the machine `{machine}`, scope {scope}, {length} steps. The controller is our own; to try another:
CLEANCUT_CONTROLLER=package.module:Class python -m pytest {file}
"""

import os

from interleavings.conformance import controller_named, drive

CONTROLLER = os.environ.get("CLEANCUT_CONTROLLER", "{default}")
BOUNDS = {bounds}
STEPS = (
{steps})


def test_{name}():
    """{sentence}"""
    drive(controller_named(CONTROLLER, BOUNDS), STEPS, property="{property}")
'''
DEFAULTS = {
    "cut": "interleavings.conformance.controller:ImplController",
    "barrier": "interleavings.conformance.barrier:ImplBarrier",
}


def emit(trace: SpecTrace, file_name: str = "test_counterexample.py") -> str:
    """The text of a self-contained pytest; it depends on the trace and the file's name alone."""
    if trace.machine not in DEFAULTS:
        raise TraceUnreadable(f"counterexamples of the machine {trace.machine!r} have no controller to be driven on")
    steps = "".join(f'    ("{action}", {index}),  # {who}\n' for action, index, who in trace.steps)
    bounds = "{" + ", ".join(f'"{name}": {value}' for name, value in trace.bounds.items()) + "}"
    return _TEMPLATE.format(
        origin=" + ".join(trace.variants) or trace.machine,
        sentence=" ".join(trace.sentence.replace("\\", "/").replace('"', "'").split()),
        machine=trace.machine,
        scope=trace.scope,
        length=len(trace.steps),
        file=file_name,
        default=DEFAULTS[trace.machine],
        bounds=bounds,
        steps=steps,
        name=trace.name,
        property=trace.property,
    )
