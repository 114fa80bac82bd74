"""A search by several owners of states, wherever they are: whoever is asked does what `Owner` does.

Level by level, as every engine, with the same counts, verdict and length of the shortest counterexample. Which of
several shortest ones is found depends on the number of owners, and on nothing else. An owner who dies is replaced: the
new one takes over the levels that had ended, the others go back to there, and the level is searched again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np

from ...language.machine import Machine
from ..outcome import Counts, Progress, outcome
from ..reference import Search, Violation
from ..retrace import Finding, Retrace
from ..symmetry import judged, symmetric_search
from . import library
from .engine import REPORT_EVERY, prepared
from .owner import Expanded, Inserted, Plan, Settled
from .question import Question, question

DEATHS_BORNE: Final = 2
"""Of owners, in one and the same level."""


class OwnersLost(Exception):
    """Owners have died; what was asked may have been done by some of the others."""


class LevelsLost(Exception):
    """What was to be taken over from an owner who died is gone, too."""


class Owners(Protocol):
    """All the owners of one search. Each call may raise `OwnersLost`."""

    number: int

    def begin(self) -> list[tuple[bool, Inserted]]:
        """Put the initial state in."""

    def round(self) -> list[tuple[Expanded, Inserted]]:
        """Take both steps of a round."""

    def settle(self) -> list[Settled]:
        """End a level, and keep what the owners send out; if one is lost, nothing of it."""

    def look(self, owner: int, row: int) -> tuple[list[int], int, int]:
        """A state of an owner, and its parent."""

    def replace_the_lost(self, settled: Sequence[Settled]) -> None:
        """Be as the last level had ended; nothing had, where nothing is settled. Raises `LevelsLost`."""


@dataclass
class _Path:
    """The states on the way to one, numbered from the initial one on."""

    states: Any
    parents: Any


@dataclass
class _Level:
    """What is known of the level under way."""

    transitions: int = 0
    count: int = 0
    used: int = 0
    findings: list[tuple[int, Finding]] = field(default_factory=list)
    """Each with its owner."""
    full: str = ""

    def note(self, depth: int, reports: Sequence[tuple[Expanded, Inserted]]) -> None:
        """Take in what a round came to. Of what breaks, a state that is stuck is one step nearer."""
        for owner, (expanded, inserted) in enumerate(reports):
            self.transitions += expanded.transitions
            if expanded.stalled >= 0:
                self.findings.append((owner, Finding(depth, expanded.stalled, None, True)))
            if expanded.forbidden is not None:
                row, instance, of_progress = expanded.forbidden
                self.findings.append((owner, Finding(depth + 1, row, instance, of_progress)))
            if inserted.broken >= 0:
                self.findings.append((owner, Finding(depth + 1, inserted.broken, None, False)))
            self.full = self.full or inserted.full
        self.count = sum(inserted.count for _, inserted in reports)
        self.used = sum(inserted.used for _, inserted in reports)


def search(
    machine: Machine,
    scope: Any,
    variants: tuple[str, ...],
    hire: Callable[[Plan], Owners],
    owners: int,
    *,
    properties: Iterable[str] | None = None,
    max_states: int | None = None,
    memory_limit: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    together: Sequence[tuple[str, ...]] = (),
    symmetry: bool = False,
) -> Search:
    """Enumerate a machine within a scope with so many owners, which `hire` makes; as `engine.search` does.

    `memory_limit` is for all of them together.
    """
    reduction = None
    wanted = None if properties is None else tuple(properties)
    if symmetry:
        machine, reduction, properties = symmetric_search(machine, scope, variants, properties)
        together, wanted = (), None if properties is None else tuple(properties)
    generated = prepared(machine, scope, variants, together)
    asked = question(machine, generated, wanted, reduction)
    plan = Plan(
        generated.text,
        str(library.cache_directory()),
        asked.initial,
        generated.packing.words,
        owners,
        None if memory_limit is None else memory_limit // owners,
        asked.watch(None),
    )
    return _OwnedSearch(asked, hire(plan)).search(max_states, on_progress)


class _OwnedSearch:
    """One search; see `search`."""

    def __init__(self, asked: Question, owners: Owners) -> None:
        self.asked, self.owners = asked, owners
        self.started = time.perf_counter()
        self.depth = self.transitions = 0
        self.level = _Level()
        self.settled: list[Settled] = []
        self.finding: tuple[int, Finding] | None = None
        self.violation: Violation | None = None
        self.deaths = 0
        self.reported = 0.0
        self.root = 0

    def search(self, max_states: int | None, on_progress: Callable[[Progress], None] | None) -> Search:
        why = ""
        try:
            self.surely(self.begin)
            while not why and self.finding is None and any(each.frontier for each in self.settled):
                why = self.surely(lambda: self.expand_level(max_states, on_progress))
            self.surely(self.take_the_path_again)
        except KeyboardInterrupt:
            why = "interrupted"
        except LevelsLost:
            why = "states were lost together with the machine that kept them"
        except OwnersLost:
            why = "owners of states died again and again; likely cause: memory ran out"
        return self.result(why)

    def surely(self, step: Callable[[], str]) -> str:
        """Do a step, again and again where owners die, but not for ever."""
        while True:
            try:
                done = step()
            except OwnersLost:
                self.recover()
            else:
                self.deaths = 0
                return done

    def recover(self) -> None:
        """Put others in the place of those who died."""
        while True:
            self.deaths += 1
            if self.deaths > DEATHS_BORNE:
                raise OwnersLost
            try:
                self.owners.replace_the_lost(self.settled)
            except OwnersLost:
                continue
            return

    def begin(self) -> str:
        for owner, (mine, inserted) in enumerate(self.owners.begin()):
            if mine:
                self.root = owner
                self.level.count, self.level.used = inserted.count, inserted.used
                if inserted.broken >= 0:
                    self.finding = owner, Finding(0, 0, None, False)
        self.settled = self.owners.settle()
        return ""

    def expand_level(self, max_states: int | None, on_progress: Callable[[Progress], None] | None) -> str:
        """Expand a level to its end, also when something breaks: what is stuck in it is one step nearer."""
        before = sum(each.count for each in self.settled)
        level = self.level = _Level(count=before, used=self.level.used)
        left = True
        while left:
            if max_states is not None and level.count > max_states:
                return f"stopped above the limit of {max_states} states"
            reports = self.owners.round()
            for owner, (expanded, _) in enumerate(reports):
                if expanded.fault is not None:
                    row, instance = expanded.fault
                    retrace, number = self.retrace(owner, row)
                    retrace.fault(number, instance)
            level.note(self.depth, reports)
            if level.full:
                return level.full
            left = any(expanded.left for expanded, _ in reports)
            now = time.perf_counter()
            if on_progress and now - self.reported > REPORT_EVERY:
                self.reported = now
                rate = level.count / max(1e-9, now - self.started)
                on_progress(Progress(self.depth, level.count, level.count - before, rate, level.used))
        self.settled = self.owners.settle()
        self.transitions += level.transitions
        level.transitions = 0
        if level.findings:
            self.finding = min(level.findings, key=lambda each: each[1].length)
        elif any(each.frontier for each in self.settled):
            self.depth += 1
        return ""

    # ------------------------------------------------------------------------------------------ The result

    def retrace(self, owner: int, row: int) -> tuple[Retrace, int]:
        """What takes the path to a state again, and the number of the state on it."""
        path: list[list[int]] = []
        while True:
            words, whose, parent = self.owners.look(owner, row)
            path.append(words)
            if (owner, row) == (self.root, 0):
                break
            owner, row = whose, parent
        path.reverse()
        way = _Path(np.array(path, np.int64), np.arange(-1, len(path) - 1))
        asked = self.asked
        return Retrace(asked.model, asked.generated.form, asked.generated.packing, way, asked.reduction), len(path) - 1

    def take_the_path_again(self) -> str:
        """Make of what was found what the reference engine reports."""
        if self.finding is not None:
            owner, finding = self.finding
            retrace, number = self.retrace(owner, finding.row)
            self.violation = retrace.violation(replace(finding, row=number), self.asked.names)
        return ""

    def result(self, why: str) -> Search:
        asked, settled = self.asked, self.settled
        form = asked.generated.form
        taken = np.sum([each.taken for each in settled], axis=0).tolist() if settled else [0] * len(form.instances)
        missing = np.min([each.missing for each in settled], axis=0).tolist() if settled else [1] * len(form.witnesses)
        transitions = self.transitions + self.level.transitions
        seconds = time.perf_counter() - self.started
        counts = Counts(self.level.count, transitions, self.depth, seconds, taken, missing)
        found = outcome(asked.model, form, asked.names, counts, self.violation, why)
        return found if asked.reduction is None else judged(found)
