"""A counterexample as a versioned JSON file: each step by task and source line, never by index.

{"format": "cleancut-interleaving-trace", "version": 1, "program": {...}, "python": "3.11.7",
 "budgets": {"cancels": 1, ...}, "steps": [{"kind": "task-step", "task": "inc-1", "what": "",
 "where": "counter.py:12 in inc", "occurrence": 1}, ...],
 "failure": {"kind": ..., "property": ..., "message": ..., "details": {...}}, "stock": "yes"}
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from .errors import TraceUnreadable
from .result import Failure, Stock

FORMAT = "cleancut-interleaving-trace"
VERSION = 1
KINDS = ("task-step", "callback", "timer", "cancel", "job", "crash")


def read_document(path: str | os.PathLike[str]) -> Any:
    """The JSON of a trace file of any format. Raises `TraceUnreadable` in one line that says what is wrong with it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise TraceUnreadable(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise TraceUnreadable(f"{path}: is not a trace: it is no UTF-8 text") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits is a ValueError of its own.
        raise TraceUnreadable(f"{path}: is not a trace: it is no JSON ({error})") from None


@dataclass(frozen=True, slots=True)
class Step:
    """One choice by name. `what` names the callback, timer or job, or what a crash leaves.

    `where` is for the reader and tells an edit.
    """

    kind: str
    task: str
    where: str = ""
    what: str = ""
    occurrence: int = 1
    did: tuple[str, ...] = ()
    """What the step did, in the program's own words, where it says so. For the reader."""

    @property
    def key(self) -> str:
        """The name under which a run offers this choice."""
        if self.kind in ("task-step", "cancel"):
            name = f"{self.kind} {self.task}"
        elif self.kind == "callback":
            name = f"callback {self.what}"
        elif self.kind == "crash":
            name = f"crash {self.what}".rstrip()
        else:
            name = f"{self.kind} {self.what} of {self.task}"
        return name if self.occurrence == 1 else f"{name} #{self.occurrence}"

    def __str__(self) -> str:
        who = f"{self.kind} {self.task}".rstrip()
        place, _, function = self.where.partition(" in ")
        where = place if function and self.what.startswith(function) else self.where
        return f"{who}: {self.what or self.where}" + (f" at {where}" if self.what and where else "")


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps to a failure, the failure, and what is needed to walk them again."""

    program: Mapping[str, Any]
    steps: tuple[Step, ...]
    failure: Failure
    budgets: Mapping[str, Any] = field(default_factory=dict)
    python: str = ""
    stock: Stock = "unknown"

    def describe(self) -> str:
        """Return the steps one a line, then the failure with its details."""
        lines = []
        for number, step in enumerate(self.steps, 1):
            lines.append(f"{number:4d}  {step}")
            lines.extend(f"        {did}" for did in step.did)
        lines.append(f"      {self.failure}")
        lines.extend(_detail_lines(self.failure.details))
        lines.append(f"      stock asyncio can do this: {self.stock}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the trace as a JSON object."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "program": dict(self.program),
            "python": self.python,
            "budgets": dict(self.budgets),
            "steps": [
                {"kind": s.kind, "task": s.task, "what": s.what, "where": s.where, "occurrence": s.occurrence}
                | ({"did": list(s.did)} if s.did else {})
                for s in self.steps
            ],
            "failure": {
                "kind": self.failure.kind,
                "property": self.failure.property,
                "message": self.failure.message,
                "details": _plain(self.failure.details),
            },
            "stock": self.stock,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace; details that JSON has no form for are written as text."""
        text = json.dumps(self.to_json(), indent=2, ensure_ascii=True, allow_nan=False)
        Path(path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a trace. Raises `TraceUnreadable` in one line that says what is wrong with the file."""
        return cls.from_json(read_document(path), str(path))

    @classmethod
    def from_json(cls, document: Any, origin: str = "trace") -> Trace:
        """Build a trace from a JSON object, checking every part."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise TraceUnreadable(f"{origin}: is not a trace: its format is not {FORMAT!r}")
        version = document.get("version")
        if type(version) is not int or version < 1:
            raise TraceUnreadable(f"{origin}: has no valid version (found {version!r}, this explorer reads {VERSION})")
        if version > VERSION:
            raise TraceUnreadable(
                f"{origin}: has version {version}, this explorer reads up to {VERSION}; replay it with a newer one"
            )
        try:
            return cls._read(document)
        except (KeyError, TypeError, ValueError) as error:
            raise TraceUnreadable(f"{origin}: is damaged: {error!r}") from None

    @classmethod
    def _read(cls, document: Mapping[str, Any]) -> Trace:
        failure = document["failure"]
        stock = document.get("stock", "unknown")
        if stock not in get_args(Stock):
            raise ValueError(f"stock is {stock!r}")
        return cls(
            program=dict(document["program"]),
            steps=tuple(_read_step(step) for step in _sequence(document["steps"])),
            failure=Failure(
                _text(failure["kind"]),
                _text(failure["property"]),
                _text(failure["message"]),
                dict(failure.get("details", {})),
            ),
            budgets=dict(document.get("budgets", {})),
            python=_text(document.get("python", "")),
            stock=stock,
        )


def _read_step(step: Mapping[str, Any]) -> Step:
    kind = _text(step["kind"])
    if kind not in KINDS:
        raise ValueError(f"unknown kind of step {kind!r}")
    occurrence = step.get("occurrence", 1)
    if type(occurrence) is not int or occurrence < 1:
        raise ValueError(f"occurrence is {occurrence!r}")
    did = tuple(_text(did) for did in _sequence(step.get("did", [])))
    return Step(kind, _text(step["task"]), _text(step.get("where", "")), _text(step.get("what", "")), occurrence, did)


def _plain(value: Any) -> Any:
    """Turn a detail into what strict JSON can hold: anything else becomes its text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return value
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {value!r}")
    return value


def _sequence(value: object) -> Sequence[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {value!r}")
    return value


def _detail_lines(details: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in details.items():
        if isinstance(value, list):
            lines.append(f"      {name}:")
            lines.extend(f"        - {_flat(item)}" for item in value)
        else:
            lines.append(f"      {name}: {_flat(value)}")
    return lines


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items() if item not in (None, "", []))
    return str(value)
