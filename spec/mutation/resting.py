"""On what each conjunct of a property rests: a variant or a mutant that the property catches with it alone.

A mutant of a property that asks for less is noticed where something is no longer caught by the property: a variant that
names it, or a mutant of the guards and effects that breaks it. One that asks for more than is true breaks in the right
machine. What of a property neither is so of, nobody would miss.

`rests.json` remembers on what each rests, so that it need not be looked for again; it is tried, never believed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..engines import reference
from ..language.machine import Machine, Progress, Property
from ..language.model import Model, Step
from ..machines.catalogue import scopes_named
from .judging import FAULTS, NOTICED, SURVIVES, Explored, Judge, Judgement, broken_here
from .mutants import Mutant, affected_by, machine_of, mutants_of

RESTS: Final = Path(__file__).with_name("rests.json")
AT_MOST: Final = 40
"""How many wrong machines are searched again for one mutant of a property."""
Path_ = Sequence[tuple[str, int | None]]


@dataclass(frozen=True)
class Wrong:
    """A wrong machine that a property catches: where it was seen to break."""

    name: str
    """`variant x`, or the key of a mutant."""
    breaks: str
    scope: str
    path: Path_

    @property
    def label(self) -> str:
        """How it is remembered."""
        return f"{self.name} ({self.scope})"


class Resting:
    """Judges the mutants of the properties of one machine."""

    def __init__(self, judge: Judge, judged: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """`judged` are the documents of the mutants of the guards and effects, as far as they are known."""
        self.machine, self.own = judge.machine, judge
        self.mutants = {m.key: m for m in mutants_of(self.machine)}
        self.seen = list(_seen(judged or {}))
        self.shown: dict[str, list[Wrong]] = {}
        self.known: dict[str, str] = json.loads(RESTS.read_text(encoding="utf-8")) if RESTS.exists() else {}

    def variants(self, name: str) -> list[Wrong]:
        """The variants that name a property."""
        if name not in self.shown:
            machine = machine_of(self.machine)
            found: list[Wrong] = []
            for variant in machine.variants.values():
                if variant.breaks == name:
                    ((scope, (bounds, _)),) = scopes_named(machine, variant.scope).items()
                    path = _breaking(machine.model(bounds, (*variant.with_variants, variant.name)), name)
                    found += [] if path is None else [Wrong(f"variant {variant.name}", name, scope, path)]
            self.shown[name] = found
        return self.shown[name]

    def judge(self, mutant: Mutant) -> Judgement:
        """What notices a mutant of a property."""
        affected = affected_by(mutant)
        candidates = [wrong for name in affected for wrong in self.variants(name)]
        candidates += [wrong for wrong in self.seen if wrong.breaks in affected]
        remembered = self.known.get(mutant.key, "")
        candidates.sort(key=lambda wrong: wrong.label != remembered)
        if remembered and not any(wrong.label == remembered for wrong in candidates):
            candidates[:0] = self.remembered(remembered, affected)
        searched = 0
        for wrong in candidates:
            if searched >= AT_MOST:
                break
            if self.breaks_there(wrong, mutant):
                continue
            searched += 1
            if not self.caught(wrong, mutant):
                return Judgement(mutant, NOTICED, wrong.breaks, wrong.scope, wrong.label)
        return self.in_the_right_machine(mutant, affected) or Judgement(mutant, SURVIVES)

    def remembers(self, mutant: Mutant) -> Judgement | None:
        """Whether a variant is no longer caught without what a mutant leaves out, though nothing else tells it.

        What an action writes down for a property alone changes no step of the right machine: it is a part of that.
        """
        for name in dict.fromkeys(known.breaks for known in machine_of(self.machine).variants.values()):
            for wrong in self.variants(name):
                if not self.breaks_there(wrong, mutant) and not self.caught(wrong, mutant):
                    return Judgement(mutant, NOTICED, wrong.breaks, wrong.scope, wrong.label)
        return None

    def remembered(self, text: str, affected: Sequence[str]) -> Iterator[Wrong]:
        """The mutant that one is said to rest on, if a search with it does break one of these properties."""
        key, _, scope = text.rpartition(" (")
        mutant = self.mutants.get(key)
        if mutant is None:
            return
        bounds = self.bounds(scope.rstrip(")"))
        for name in affected:
            with mutant.applied() as machine:
                path = _breaking(machine.model(bounds), name)
            if path is not None:
                yield Wrong(key, name, scope.rstrip(")"), path)

    def bounds(self, scope: str) -> Any:
        return self.own.family.bounds[scope]

    @contextmanager
    def model(self, wrong: Wrong) -> Iterator[Model]:
        """A wrong machine in its scope."""
        kind, _, name = wrong.name.partition(" ")
        if kind == "variant":
            machine = machine_of(self.machine)
            yield machine.model(self.bounds(wrong.scope), (*machine.variants[name].with_variants, name))
            return
        with self.mutants[wrong.name].applied() as machine:
            yield machine.model(self.bounds(wrong.scope))

    def breaks_there(self, wrong: Wrong, mutant: Mutant) -> bool:
        """Whether a wrong machine breaks the property with the mutant, too, where it was seen to break."""
        with mutant.applied(), self.model(wrong) as model:
            try:
                return _breaks_at_the_end(model, wrong.breaks, wrong.path)
            except FAULTS:
                return True

    def caught(self, wrong: Wrong, mutant: Mutant) -> bool:
        """Whether the property with the mutant catches a wrong machine anywhere in its scope."""
        with mutant.applied(), self.model(wrong) as model:
            return _breaking(model, wrong.breaks) is not None

    def in_the_right_machine(self, mutant: Mutant, affected: Sequence[str]) -> Judgement | None:
        """Whether the property with the mutant breaks although nothing is wrong."""
        with mutant.applied() as machine:
            properties = [k for n, k in machine.properties.items() if n in affected]
            progress = machine.progress if machine.progress and machine.progress.name in affected else None
            for explored in self.own.family:
                try:
                    if _broken_somewhere(machine, explored, properties, progress):
                        return Judgement(mutant, NOTICED, "the right machine breaks it", explored.name)
                except FAULTS as fault:
                    return Judgement(mutant, NOTICED, f"no text of a machine: {fault}", explored.name)
        return None


def _broken_somewhere(
    machine: Machine, explored: Explored, properties: Sequence[Property], progress: Progress | None
) -> bool:
    """Whether the right machine breaks one of these properties, or the claim of progress, anywhere in a scope."""
    for state, leads in zip(explored.states, explored.after, strict=True):
        if any(broken_here(explored.model, properties, state, None)):
            return True
        for (name, index), target in leads.items():
            step = Step(machine.actions[name], index, explored.states[target])
            if any(broken_here(explored.model, properties, state, step)):
                return True
            if progress and step.action.progress and not progress.rank(step.state) > progress.rank(state):
                return True
        if progress and not any(machine.actions[n].progress for n, _ in leads) and not progress.finished(state):
            return True
    return False


def _seen(judged: Mapping[str, Mapping[str, Any]]) -> Iterator[Wrong]:
    """Where mutants of the guards and effects were seen to break properties."""
    for key, document in judged.items():
        for name, path in document.get("seen", {}).items():
            yield Wrong(key, name, document["scope"], [(action, index) for action, index in path])


def _breaking(model: Model, name: str) -> Path_ | None:
    """The path to where a machine breaks a property, None where it does not, or cannot be searched."""
    try:
        found = reference.search(model, properties=[name], max_states=60_000)
    except FAULTS:
        return None
    return found.violation.steps if found.violation else None


def _breaks_at_the_end(model: Model, name: str, path: Path_) -> bool:
    """Whether a path ends by breaking a property."""
    state, before, last = model.initial, model.initial, None
    for action, index in path:
        last = model.step_named(state, action, index)
        if last is None:
            return False
        before, state = state, last.state
    progress = model.machine.progress
    if progress is not None and name == progress.name:
        if last is not None and last.action.progress and not progress.rank(state) > progress.rank(before):
            return True
        return not model.finished(state) and not any(step.action.progress for step in model.steps(state))
    known = model.machine.properties[name]
    return bool(model.broken_indexes(known, state, None) or (last and model.broken_indexes(known, before, last)))
