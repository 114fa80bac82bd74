"""Reads back what the lives of a run have written: the account of the prompts, and the steps that count.

A life that resumed at step s has forgotten the steps from s on that an earlier life had done. They were done again, and
are kept apart here: the curves show them faintly, the account leaves them out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impl import Key
from impl.demo import Audit
from impl.demo.audit import audit

from .setting import CHECKPOINTS, MEASURED_LOG, TRAINED_LOG


@dataclass(frozen=True)
class Step:
    """One train step."""

    step: int
    keys: tuple[Key, ...]
    #: How many steps older than the trainer the policy was that wrote each group.
    ages: tuple[int, ...]
    reward: float
    exact: float


@dataclass(frozen=True)
class Lived:
    """One life: the step it began at, and the checkpoint it resumed from (None: from nothing)."""

    resumed_at: int
    checkpoint: str | None
    #: Steps that it trained, in order; those that the next life forgot included.
    steps: tuple[Step, ...]
    #: Step and share of right answers of each evaluation.
    evaluations: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Occupancy:
    """What the slots of the buffer were doing from this moment on; seconds since the beginning of the run."""

    at: float
    generating: int
    ready: int
    claimed: int


@dataclass(frozen=True)
class Save:
    """A durable save and its durations in seconds."""

    kind: str
    at: float
    drain: float
    window: float
    persist: float
    bytes: int


@dataclass(frozen=True)
class Outcome:
    """A whole run, over all its lives."""

    account: Audit
    #: Keys that the loader gave out in any life, as the lives have noted them.
    handed_out: frozenset[Key]
    lives: tuple[Lived, ...]
    #: For each life, what became of the buffer; its first sample is the moment the life began.
    occupancy: tuple[tuple[Occupancy, ...], ...]
    capacity: int
    saves: tuple[Save, ...]

    @property
    def steps(self) -> list[Step]:
        """The steps that count, in order."""
        counting: dict[int, Step] = {}
        for life in self.lives:
            counting = {step: done for step, done in counting.items() if step < life.resumed_at}
            counting |= {done.step: done for done in life.steps}
        return [counting[step] for step in sorted(counting)]


def read_outcome(directory: Path) -> Outcome:
    """Everything that there is to say about the run in this directory; it must have come to the end of its data."""
    trained, measured = (_lines(directory / name) for name in (TRAINED_LOG, MEASURED_LOG))
    begun = next(line["at"] for line in measured if line["event"] == "life")
    return Outcome(
        account=audit(directory / CHECKPOINTS, directory / TRAINED_LOG),
        handed_out=frozenset(Key(*key) for line in trained if line["event"] == "handed_out" for key in line["keys"]),
        lives=tuple(_life(part) for part in _split(trained, "resumed")),
        occupancy=tuple(_occupancy(part, begun) for part in _split(measured, "life")),
        capacity=next(line["capacity"] for line in measured if line["event"] == "life"),
        saves=tuple(_save(line, begun) for line in measured if line["event"] == "save"),
    )


def _lines(path: Path) -> list[Any]:
    """The whole lines of a log; a kill may have cut one short."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def _split(lines: Sequence[Any], first: str) -> list[list[Any]]:
    """The lines in parts, each of which begins with an event of this name."""
    parts: list[list[Any]] = []
    for line in lines:
        if line["event"] == first:
            parts.append([])
        parts[-1].append(line)
    return parts


def _life(lines: Sequence[Any]) -> Lived:
    steps = [
        Step(line["step"], tuple(Key(*key) for key in line["keys"]), tuple(line["ages"]), line["reward"], line["exact"])
        for line in lines
        if line["event"] == "trained"
    ]
    evaluations = [(line["step"], line["right"]) for line in lines if line["event"] == "evaluated"]
    return Lived(lines[0]["step"], lines[0]["name"], tuple(steps), tuple(evaluations))


def _occupancy(lines: Sequence[Any], begun: float) -> tuple[Occupancy, ...]:
    first = Occupancy(lines[0]["at"] - begun, 0, 0, 0)
    rest = [
        Occupancy(line["at"] - begun, line["generating"], line["ready"], line["claimed"])
        for line in lines
        if line["event"] == "occupancy"
    ]
    return (first, *rest)


def _save(line: Any, begun: float) -> Save:
    return Save(line["kind"], line["at"] - begun, line["drain"], line["window"], line["persist"], line["bytes"])
