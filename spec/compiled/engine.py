"""The search of the compiled engine: the same rule and the same result as the reference engine.

Level by level, blocks of states are expanded by the generated code and what is new is added to the table, in the order
in which the reference engine would meet it. A level in which a violation is found is finished for stalls, which are one
step shorter. The path is then taken again on the reference model, which alone says what broke and how.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..machine import Machine
from ..reference_engine import Search, Verdict
from ..scalar_form import scalar_form
from . import level_files, library
from .kernels import insert, tally
from .level_files import Level
from .narrowing import narrowed
from .retrace import Finding, Retrace
from .source import Generated, generate
from .storage import OutOfMemory, Storage, default_limit

BLOCK: Final = 1024
PUT_ASIDE_EVERY: Final = 60.0
REPORT_EVERY: Final = 0.2


@dataclass(frozen=True)
class Progress:
    """How far a search is."""

    depth: int
    states: int
    frontier: int
    rate: float
    memory: int

    def __str__(self) -> str:
        return (
            f"depth {self.depth}, {self.states:,} states, frontier {self.frontier:,}, "
            f"{self.rate / 1e6:.2f} million states/s, {self.memory / 2**20:,.0f} MiB"
        )


def prepared(machine: Machine, scope: Any, variants: tuple[str, ...] = ()) -> Generated:
    """The generated text of a machine within a scope."""
    return generate(narrowed(scalar_form(machine, scope, variants)))


def search(
    machine: Machine,
    scope: Any,
    variants: tuple[str, ...] = (),
    *,
    properties: Iterable[str] | None = None,
    max_states: int | None = None,
    memory_limit: int | None = None,
    resume: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    functions: Any = None,
) -> Search:
    """Enumerate a machine within a scope breadth first; stop at the first violation, which is a shortest one.

    `properties` restricts the check to those names. Above `max_states` or at `memory_limit` bytes the search ends early
    and is `bounded`; it is then put aside, as it is when interrupted, and `resume` goes on from its last whole level.
    `functions` takes the place of the compiled text.
    """
    generated = prepared(machine, scope, variants)
    wanted = None if properties is None else tuple(properties)
    run = _Run(machine, generated, wanted, memory_limit or default_limit(), functions or library.compiled(generated))
    return run.search(max_states, resume, on_progress)


class _Run:
    """One search; see `search`."""

    def __init__(
        self, machine: Machine, generated: Generated, wanted: tuple[str, ...] | None, limit: int, functions: Any
    ) -> None:
        form = generated.form
        self.started = time.perf_counter()
        self.generated = generated
        self.functions = functions
        self.model = machine.model(form.scope, form.variants)
        self.key = library.digest(f"{generated.text}\n{sorted(wanted) if wanted is not None else None}")
        chosen = [name for name in self.model.machine.properties if wanted is None or name in wanted]
        self.bits = sum(1 << i for i, name in enumerate(generated.properties) if name in chosen)
        progress = self.model.machine.progress
        self.progress = progress if progress and (wanted is None or progress.name in wanted) else None
        self.names = [*chosen, *([self.progress.name] if self.progress else [])]
        self.storage = Storage(generated.packing.words, limit)
        self.depth = self.transitions = 0
        # The states from `first` up to `end` are the level that is expanded; later ones are the level after it.
        self.first, self.end = 0, 0
        self.earlier_seconds = 0.0
        self.finding: Finding | None = None
        instances = form.instances
        most = BLOCK * max(1, len(instances)) + 1
        self.out = np.zeros((most, generated.packing.words), np.int64)
        self.origin, self.instance = np.zeros(most, np.int64), np.zeros(most, np.int64)
        self.places, self.tags, self.born = np.zeros((3, most), np.int64)
        self.lively = np.zeros(BLOCK, np.int64)
        self.taken = np.zeros(max(1, len(instances)), np.int64)
        self.raises = np.array([i.progress for i in instances] or [False]).astype(np.int64)
        self.looks_before = any(c.at is not None for c in form.claims)
        self.missing = np.array([w.property in chosen for w in form.witnesses] or [False]).astype(np.int64)

    def search(self, max_states: int | None, resume: bool, on_progress: Callable[[Progress], None] | None) -> Search:
        why = ""
        level: Level | None = None
        put_aside = self.started
        reported = 0.0
        try:
            if not (resume and self.go_on_from_files()):
                self.begin()
            level = self.whole_level()
            while self.first < self.end and self.finding is None and not why:
                for first in range(self.first, self.end, BLOCK):
                    if max_states is not None and self.storage.count > max_states:
                        why = f"stopped above the limit of {max_states} states"
                        break
                    self.expand(first, min(first + BLOCK, self.end))
                    now = time.perf_counter()
                    if on_progress and now - reported > REPORT_EVERY:
                        reported = now
                        on_progress(self.how_far(now))
                if why:
                    break
                self.first, self.end = self.end, self.storage.count
                if self.first < self.end:
                    self.depth += 1
                level = self.whole_level()
                if time.perf_counter() - put_aside > PUT_ASIDE_EVERY:
                    level_files.save(self.key, level, self.storage)
                    put_aside = time.perf_counter()
        except KeyboardInterrupt:
            why = "interrupted"
        except OutOfMemory as limit:
            why = str(limit)
        if why and level is not None and self.finding is None:
            level_files.save(self.key, level, self.storage)
        elif not why:
            level_files.forget(self.key)
        return self.result(why)

    def begin(self) -> None:
        """Put the initial state in, and look at it."""
        form, storage = self.generated.form, self.storage
        storage.make_room(1)
        words = np.array([self.generated.packing.packed([e.initial for e in form.elements])], np.int64)
        self.insert(words, 1)
        storage.parents[0] = -1
        self.end = 1
        self.look(0, 1, 0)

    def go_on_from_files(self) -> bool:
        """Take up a search that was put aside; whether there was one."""
        level = level_files.load(self.key, self.storage)
        if level is None:
            return False
        self.storage.refill()
        self.depth, self.first, self.end = level.depth, level.first, level.count
        self.transitions = level.transitions
        self.earlier_seconds = level.seconds
        self.taken[:] = level.taken
        self.missing[:] = level.missing
        return True

    def whole_level(self) -> Level:
        """Where the search stands, between two levels."""
        taken, missing = self.taken.tolist(), self.missing.tolist()
        return Level(self.depth, self.first, self.end, self.transitions, taken, missing, self.seconds)

    @property
    def seconds(self) -> float:
        return self.earlier_seconds + time.perf_counter() - self.started

    def how_far(self, now: float) -> Progress:
        count = self.storage.count
        rate = count / max(1e-9, self.earlier_seconds + now - self.started)
        return Progress(self.depth, count, count - self.end, rate, self.storage.used)

    # ------------------------------------------------------------------------------------------- A block

    def expand(self, first: int, last: int) -> None:
        """Expand a block of states of the level: its transitions, what is new, and what breaks."""
        functions, storage = self.functions, self.storage
        count = int(functions.expand(storage.states, first, last, self.out, self.origin, self.instance))
        if count < 0:
            self.retrace().fault(int(self.origin[-1 - count]), int(self.instance[-1 - count]))
        storage.make_room(count)
        self.transitions += count
        falls = int(tally(self.origin, self.instance, count, first, self.raises, self.taken, self.lively, last - first))
        forbidden = -1
        if self.looks_before:
            arguments = (storage.states, self.origin, self.instance, count)
            forbidden = int(functions.broken_at(*arguments, self.bits))
            if self.missing.any():
                functions.witness_at(*arguments, self.missing)
        before = storage.count
        self.insert(self.out, count)
        broken = self.look(before, storage.count, self.depth + 1, note=False)
        self.note_first(falls if self.progress else -1, forbidden, broken, before)
        if self.progress:
            stalled = int(functions.unfinished(storage.states, first, last, self.lively))
            if stalled >= 0 and (self.finding is None or self.finding.length > self.depth):
                self.finding = Finding(self.depth, stalled, None, True)

    def insert(self, out: Any, count: int) -> None:
        """Add what is new among the first `count` rows of `out` to the states."""
        storage = self.storage
        storage.count = int(
            insert(
                storage.table,
                storage.shift,
                storage.states,
                storage.parents,
                storage.count,
                out,
                self.origin,
                count,
                self.places,
                self.tags,
                self.born,
            )
        )

    def look(self, first: int, last: int, length: int, *, note: bool = True) -> int:
        """Look at states met for the first time; the first that is broken, or -1."""
        states = self.storage.states
        if self.missing.any():
            self.functions.witness(states, first, last, self.missing)
        broken = int(self.functions.broken(states, first, last, self.bits))
        if note and broken >= 0:
            self.finding = Finding(length, broken, None, False)
        return broken

    def note_first(self, falls: int, forbidden: int, broken: int, before: int) -> None:
        """Of what breaks in this block after the same number of steps, keep what the reference engine meets first."""
        if self.finding is not None:
            return
        length = self.depth + 1
        met: list[tuple[int, int, Finding]] = []
        for order, at in ((0, forbidden), (1, falls)):
            if at >= 0:
                number = int(self.instance[at]) % (1 << 20)
                met.append((at, order, Finding(length, int(self.origin[at]), number, order == 1)))
        if broken >= 0:
            met.append((int(self.born[broken - before]), 2, Finding(length, broken, None, False)))
        if met:
            self.finding = min(met, key=lambda item: item[:2])[2]

    # ------------------------------------------------------------------------------------------ The result

    def retrace(self) -> Retrace:
        return Retrace(self.model, self.generated, self.storage)

    def result(self, why: str) -> Search:
        violation = None
        if self.finding is not None:
            violation = self.retrace().violation(self.finding, self.names)
            why = ""
        complete = violation is None and not why
        verdict: Verdict = "fails" if violation else "bounded" if why else "holds"
        verdicts: dict[str, Verdict] = dict.fromkeys(self.names, "holds" if complete else "bounded")
        if violation:
            verdicts = dict.fromkeys(self.names, "inconclusive")
            verdicts[violation.property] = "fails"
        taken = dict.fromkeys(self.model.machine.actions, 0)
        for instance, times in zip(self.generated.form.instances, self.taken.tolist(), strict=False):
            taken[instance.action] += times
        labels = [w.property if w.at is None else f"{w.property} at {w.at}" for w in self.generated.form.witnesses]
        never = tuple(label for label, still in zip(labels, self.missing.tolist(), strict=False) if still)
        return Search(
            model=self.model,
            verdict=verdict,
            complete=complete,
            states=self.storage.count,
            transitions=self.transitions,
            depth=self.depth,
            seconds=self.seconds,
            properties=verdicts,
            unwitnessed=never if complete else (),
            taken=taken,
            violation=violation,
            why=f"{why}, all of depth {self.depth} seen" if why else "",
        )
