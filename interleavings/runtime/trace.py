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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from ..errors import ExplorerUsageError, TraceUnreadable
from .identical import identical_from
from .result import Failure, Stock

FORMAT = "cleancut-interleaving-trace"
VERSION = 1
LONGEST_FILE = 256 << 20
DEEPEST = 50
KINDS = ("task-step", "callback", "timer", "cancel", "job", "crash")


def read_document(path: str | os.PathLike[str]) -> Any:
    """The JSON of a trace file of any format. Raises `TraceUnreadable` in one line that says what is wrong with it."""
    try:
        with open(path, "rb") as file:
            content = file.read(LONGEST_FILE + 1)
    except OSError as error:
        raise TraceUnreadable(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > LONGEST_FILE:
        raise TraceUnreadable(f"{path}: is not a trace: it is longer than {LONGEST_FILE >> 20} MiB")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise TraceUnreadable(f"{path}: is not a trace: it is no UTF-8 text") from None
    try:
        document = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits is a ValueError of its own.
        raise TraceUnreadable(f"{path}: is not a trace: it is no JSON ({error})") from None
    if _is_deep(document):
        raise TraceUnreadable(f"{path}: is not a trace: its values are nested more than {DEEPEST} deep")
    return document


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def _is_deep(document: Any) -> bool:
    """Whether whoever walks the document by calls of itself would not come to its end."""
    level = [document]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        level = [value for value in inner if isinstance(value, (dict, list))]
        if not level:
            return False
    return True


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
        # A second line of a text stands behind the first: it is no line of ours.
        lines = [line.replace("\n", "\n" + " " * 10) for line in lines]
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
        failure = _mapping(document["failure"])
        stock = document.get("stock", "unknown")
        known = [label for label in get_args(Stock) if label == stock]
        if not known:
            raise ValueError(f"stock is {stock!r}")
        return cls(
            program=dict(_mapping(document["program"])),
            steps=tuple(_read_step(step) for step in _sequence(document["steps"])),
            failure=Failure(
                _text(failure["kind"]),
                _text(failure["property"]),
                _text(failure["message"]),
                dict(_mapping(failure.get("details", {}))),
            ),
            budgets=_read_budgets(_mapping(document.get("budgets", {}))),
            python=_text(document.get("python", "")),
            stock=known[0],
        )


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST_FAULTS


def _is_truth(value: object) -> bool:
    return type(value) is bool


def _are_groups(value: object) -> bool:
    if not isinstance(value, (list, tuple)):
        return False
    groups = [value] if all(isinstance(part, str) for part in value) else value
    return all(isinstance(group, (list, tuple)) and all(isinstance(name, str) for name in group) for group in groups)


#: What a replay may have to allow, and whether a value is one of it.
BUDGETS: Mapping[str, Callable[[object], bool]] = {
    "cancels": _is_number,
    "crashes": _is_number,
    "atomic_callbacks": _is_truth,
    "timers": lambda value: value in ("idle", "anytime"),
    "strict": _is_truth,
    "identical": _are_groups,
}
MOST_FAULTS = 1_000_000


def _read_budgets(budgets: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in budgets.items():
        if name in BUDGETS and not BUDGETS[name](value):
            raise ValueError(f"the budget {name} is {value!r}")
    return dict(budgets)


def require_known_budgets(budgets: Mapping[str, Any]) -> None:
    """Refuse to walk a trace under rules that this explorer has not, or that cannot be meant."""
    for name in budgets:
        if name not in BUDGETS:
            raise ExplorerUsageError(
                f"the trace needs {name!r}, which this explorer does not know; it knows {', '.join(BUDGETS)}. Replay "
                "it with the explorer that wrote it"
            )
    _read_budgets(budgets)
    if budgets.get("identical"):
        identical_from(budgets["identical"])


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"expected an object, found {value!r}")
    return value


def _read_step(value: object) -> Step:
    step = _mapping(value)
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
