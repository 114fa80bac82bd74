"""The search of the compiled engine: the same rule and the same result as the reference engine.

Level by level, blocks of states are expanded by the generated code and what is new is added to the table, in the order
in which the reference engine would meet it. A level in which a violation is found is finished for stalls, which are one
step shorter. The path is then taken again on the reference model, which alone says what broke and how.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ...language.machine import Machine
from ...language.narrowing import narrowed
from ...language.scalar_form import scalar_form
from ...language.switching import Unlike, switched_form
from ..outcome import Counts, Progress, outcome
from ..reference import Search
from ..retrace import Finding, Retrace
from ..symmetry import Reduction, judged, symmetric_search
from . import level_files, library
from .expansion import BLOCK, Alone, Expansion
from .kernels import PARTS
from .level_files import Level
from .question import question
from .source import Generated, generate
from .storage import OutOfMemory, Storage, default_limit
from .team import Team, processors

PUT_ASIDE_EVERY: Final = 60.0
REPORT_EVERY: Final = 0.2


def prepared(
    machine: Machine, scope: Any, variants: tuple[str, ...] = (), together: Sequence[tuple[str, ...]] = ()
) -> Generated:
    """The generated text of a machine within a scope; where they can be, of all variants `together`."""
    if variants in together and len(together) > 1:
        try:
            return generate(narrowed(switched_form(machine, scope, variants, together)))
        except Unlike:
            pass
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
    workers: int | None = None,
    together: Sequence[tuple[str, ...]] = (),
    symmetry: bool = False,
) -> Search:
    """Enumerate a machine within a scope breadth first; stop at the first violation, which is a shortest one.

    `properties` restricts the check to those names. Above `max_states` or at `memory_limit` bytes the search ends early
    and is `bounded`; it is then put aside, as it is when interrupted, and `resume` goes on from its last whole level.
    `functions` takes the place of the compiled text. `workers` threads search large levels, None for one a processor;
    the result is the same for any number. With `max_states` there is one, so that the end is the same too. Variants
    that are searched `together` with these share one compilation. With `symmetry` one state of each orbit is searched,
    and it is orbits that are counted.
    """
    reduction = None
    wanted = None if properties is None else tuple(properties)
    if symmetry:
        machine, reduction, properties = symmetric_search(machine, scope, variants, properties)
        together, wanted = (), None if properties is None else tuple(properties)
    generated = prepared(machine, scope, variants, together)
    functions = functions or library.compiled(generated.text)
    run = _Run(machine, generated, wanted, memory_limit or default_limit(), functions, reduction)
    threads = 1 if max_states is not None else min(workers or processors(), PARTS)
    if threads == 1:
        return run.search(None, max_states, resume, on_progress)
    with Team(run.watch, run.storage, threads) as team:
        return run.search(team, max_states, resume, on_progress)


class _Run:
    """One search; see `search`."""

    def __init__(
        self,
        machine: Machine,
        generated: Generated,
        wanted: tuple[str, ...] | None,
        limit: int,
        functions: Any,
        reduction: Reduction | None,
    ) -> None:
        form = generated.form
        self.started = time.perf_counter()
        self.question = question(machine, generated, wanted, reduction)
        self.key = library.digest(
            f"{generated.text}\n{form.variants}\n{sorted(wanted) if wanted is not None else None}"
            f"{'' if reduction is None else f' symmetry {reduction.blocks}'}"
        )
        self.watch = self.question.watch(functions)
        self.storage = Storage(generated.packing.words, limit)
        self.alone = Alone(self.watch, self.storage)
        self.depth = self.transitions = 0
        # The states from `first` up to `end` are the level that is expanded; later ones are the level after it.
        self.first, self.end = 0, 0
        self.earlier_seconds = 0.0
        self.finding: Finding | None = None

    def search(
        self,
        team: Team | None,
        max_states: int | None,
        resume: bool,
        on_progress: Callable[[Progress], None] | None,
    ) -> Search:
        why = ""
        level: Level | None = None
        put_aside = self.started
        reported = 0.0
        try:
            if not (resume and self.go_on_from_files()):
                self.begin()
            level = self.whole_level()
            while self.first < self.end and self.finding is None and not why:
                first = self.first
                while first < self.end:
                    if max_states is not None and self.storage.count > max_states:
                        why = f"stopped above the limit of {max_states} states"
                        break
                    expansion = None
                    if team is not None and team.is_worth_it(first, self.end):
                        expansion = team.expand(first, self.end, self.depth)
                        # Near the limit of memory one thread gets further.
                        team = team if expansion else None
                    if expansion is None:
                        expansion = self.alone.expand(first, min(first + BLOCK, self.end), self.depth)
                    self.note(expansion)
                    first = expansion.last
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
                    self.put_aside(level)
                    put_aside = time.perf_counter()
        except KeyboardInterrupt:
            why = "interrupted"
        except OutOfMemory as limit:
            why = str(limit)
        if why and level is not None and self.finding is None:
            self.put_aside(level)
        elif not why:
            level_files.forget(self.key)
        return self.result(why)

    def begin(self) -> None:
        """Put the initial state in, and look at it."""
        self.alone.begin(self.question.initial)
        self.end = 1
        if self.watch.broken(self.storage.states, 0, 1) >= 0:
            self.finding = Finding(0, 0, None, False)

    def go_on_from_files(self) -> bool:
        """Take up a search that was put aside; whether there was one."""
        counters = {"taken": len(self.watch.taken), "missing": len(self.watch.missing)}
        level = level_files.load(self.key, self.storage, counters)
        if level is None:
            return False
        self.storage.refill()
        self.depth, self.first, self.end = level.depth, level.first, level.count
        self.transitions = level.transitions
        self.earlier_seconds = level.seconds
        self.watch.taken[:] = level.taken
        self.watch.missing[:] = level.missing
        return True

    def put_aside(self, level: Level) -> None:
        """Keep the search on disk. The time that the disk takes is no part of the search."""
        began = time.perf_counter()
        level_files.save(self.key, level, self.storage)
        self.started += time.perf_counter() - began

    def whole_level(self) -> Level:
        """Where the search stands, between two levels."""
        taken, missing = self.watch.taken.tolist(), self.watch.missing.tolist()
        return Level(self.depth, self.first, self.end, self.transitions, taken, missing, self.seconds)

    @property
    def seconds(self) -> float:
        return self.earlier_seconds + time.perf_counter() - self.started

    def how_far(self, now: float) -> Progress:
        count = self.storage.count
        rate = count / max(1e-9, self.earlier_seconds + now - self.started)
        return Progress(self.depth, count, count - self.end, rate, self.storage.used)

    def note(self, expansion: Expansion) -> None:
        """Count what came of an expansion; of what breaks, keep what the reference engine meets first."""
        if expansion.fault is not None:
            self.retrace().fault(*expansion.fault)
        self.transitions += expansion.transitions
        self.finding = self.finding or expansion.finding
        if expansion.stalled >= 0 and (self.finding is None or self.finding.length > self.depth):
            self.finding = Finding(self.depth, expansion.stalled, None, True)

    # ------------------------------------------------------------------------------------------ The result

    def retrace(self) -> Retrace:
        asked = self.question
        return Retrace(asked.model, asked.generated.form, asked.generated.packing, self.storage, asked.reduction)

    def result(self, why: str) -> Search:
        asked = self.question
        violation = None
        if self.finding is not None:
            violation = self.retrace().violation(self.finding, asked.names)
        taken, missing = self.watch.taken.tolist(), self.watch.missing.tolist()
        counts = Counts(self.storage.count, self.transitions, self.depth, self.seconds, taken, missing)
        found = outcome(asked.model, asked.generated.form, asked.names, counts, violation, why)
        return found if asked.reduction is None else judged(found)
