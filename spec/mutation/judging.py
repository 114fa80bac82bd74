"""What notices a mutant of the guards and effects: a property, a premise that occurs no more, a value out of its range.

Every scope of the family was enumerated once with the right text. In each the mutant is first compared with it, state
by state: where no action differs it cannot be told from the right text there. Where it differs, the steps that are new
are looked at as a search would; if that shows nothing, the scope is searched with the mutant. That counts have moved
is never asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..engines import reference
from ..language.machine import Claim, Machine, ModelFault, Property
from ..language.model import Model, Step
from ..machines.scopes import SMALL
from .mutants import SYSTEM, Mutant, actions_reading, claims_reading, machine_of
from .wider import WIDER

FAULTS: Final = (ModelFault, IndexError, TypeError, ValueError, AttributeError, KeyError)
"""What a wrong text raises where it is not even one of the machine's language, or leaves a range."""
AT_MOST: Final = 400
"""How many differing steps of a scope are looked at before it is searched."""
NOTICED, SURVIVES, ALIKE, UNDECIDED = "noticed", "survives", "not distinguished", "undecided"
RANGE = "every value in its range"
Instance = tuple[str, int | None]
Path = list[Instance]


@dataclass(frozen=True)
class Explored:
    """A scope enumerated with the right text: its states, how each was reached first, and what each leads to."""

    name: str
    model: Model
    states: list[Any]
    came: list[tuple[int, Instance] | None]
    after: list[dict[Instance, int]]
    occurs: frozenset[str]
    """The premises that occur, and the actions that are taken."""


@dataclass
class Judgement:
    """What became of a mutant."""

    mutant: Mutant
    verdict: str
    by: str = ""
    """What noticed it."""
    scope: str = ""
    """Where it was noticed; of a survivor, the first scope in which it does something else."""
    rests: str = ""
    """Of a mutant of a property: the wrong machine that the property catches without it alone."""
    seen: dict[str, Path] = field(default_factory=dict)
    """A way to where each property that was seen to break does."""

    def document(self) -> dict[str, Any]:
        """As one item of the JSON list."""
        mutant = self.mutant
        return {
            "mutant": mutant.key,
            "kind": mutant.kind,
            "place": mutant.place,
            "before": mutant.before,
            "after": mutant.after,
            "verdict": self.verdict,
            "by": self.by,
            "scope": self.scope,
            "rests": self.rests,
            "seen": self.seen,
        }


def label(known: Property, claim: Claim) -> str:
    """How a claim is called in lists of premises."""
    return known.name if claim.at is None else f"{known.name} at {claim.at}"


def explore(machine: Machine, name: str, scope: Any) -> Explored:
    """Enumerate a scope with the text as it is."""
    model = machine.model(scope)
    numbers: dict[Any, int] = {model.initial: 0}
    states, came = [model.initial], [None]  # type: list[Any], list[tuple[int, Instance] | None]
    after: list[dict[Instance, int]] = []
    taken: set[str] = set()
    missing = {label(k, c): c for k in machine.properties.values() for c in k.claims}
    for number, state in enumerate(states):
        leads: dict[Instance, int] = {}
        for step in model.steps(state):
            instance = (step.action.name, step.index)
            if step.state not in numbers:
                numbers[step.state] = len(states)
                states.append(step.state)
                came.append((number, instance))
            leads[instance] = numbers[step.state]
        after.append(leads)
        here = {name for name, _ in leads}
        taken |= here
        for known, claim in list(missing.items()):
            if (claim.at is None or claim.at in here) and claim.witness(state):
                del missing[known]
    everything = {label(k, c) for k in machine.properties.values() for c in k.claims}
    occurs = frozenset((everything - set(missing)) | {f"action {name}" for name in taken})
    return Explored(name, model, states, came, after, occurs)


class Scopes(Sequence[Explored]):
    """Scopes of a machine, each enumerated as it is first asked for."""

    def __init__(self, machine: str, bounds: dict[str, Any]) -> None:
        self.machine, self.bounds = machine, bounds
        self.explored: dict[str, Explored] = {}

    def __len__(self) -> int:
        return len(self.bounds)

    def __getitem__(self, number: int) -> Explored:  # type: ignore[override]
        name = list(self.bounds)[number]
        if name not in self.explored:
            self.explored[name] = explore(machine_of(self.machine), name, self.bounds[name])
        return self.explored[name]

    def enumerate(self) -> None:
        """Enumerate all of them now."""
        for number in range(len(self)):
            self[number]


def family(machine: str) -> Scopes:
    """The scopes in which mutants of a machine are judged, the smallest first."""
    members = sorted(SMALL[machine].items(), key=lambda item: item[1][1].transitions)
    return Scopes(machine, {f"small/{name}": bounds for name, (bounds, _) in members})


def wider(machine: str) -> Scopes:
    """The next larger scopes: where they agree as well, a mutant is taken for the same protocol."""
    return Scopes(machine, {f"wider/{name}": bounds for name, bounds in WIDER[machine].items()})


class Judge:
    """Judges the mutants of one machine."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.family = family(machine)
        self.wider = wider(machine)

    def judge(self, mutant: Mutant) -> Judgement:
        """What notices a mutant of the guards and effects."""
        assert mutant.kind == SYSTEM
        occurs: set[str] = set()
        differs, undecided = "", ""
        for explored in self.family:
            with mutant.applied() as machine:
                looked = _Comparison(machine, mutant, explored)
            if looked.broken:
                return Judgement(mutant, NOTICED, next(iter(looked.broken)), explored.name, seen=looked.broken)
            if looked.fault:
                return Judgement(mutant, NOTICED, looked.fault, explored.name)
            if not looked.wrong:
                occurs |= explored.occurs
                continue
            differs = differs or explored.name
            try:
                limit = 4 * len(explored.states) + 5000
                with mutant.applied():
                    search = reference.search(looked.model, max_states=limit)
            except FAULTS as fault:
                return Judgement(mutant, NOTICED, _fault(fault), explored.name)
            if search.violation is not None:
                by = search.violation.property
                return Judgement(mutant, NOTICED, by, explored.name, seen={by: list(search.violation.steps)})
            if not search.complete:
                undecided = explored.name
            occurs |= occurring(search) if search.complete else explored.occurs
        gone = frozenset[str]().union(*(explored.occurs for explored in self.family)) - occurs
        if gone:
            return Judgement(mutant, NOTICED, f"no longer occurs: {', '.join(sorted(gone))}")
        if undecided:
            return Judgement(mutant, UNDECIDED, scope=undecided)
        if differs:
            return Judgement(mutant, SURVIVES, scope=differs)
        for explored in self.wider:
            with mutant.applied() as machine:
                looked = _Comparison(machine, mutant, explored)
            if looked.wrong or looked.broken or looked.fault:
                return Judgement(mutant, SURVIVES, scope=explored.name)
        return Judgement(mutant, ALIKE)


def occurring(search: reference.Search) -> set[str]:
    """The premises that occurred in a search, and the actions that were taken."""
    everything = {label(k, c) for k in search.model.machine.properties.values() for c in k.claims}
    return (everything - set(search.unwitnessed)) | {f"action {name}" for name, n in search.taken.items() if n}


def broken_here(model: Model, properties: Sequence[Property], before: Any, step: Step | None) -> Iterator[str]:
    """The properties that a state breaks, or a step that is taken in it."""
    for known in properties:
        if model.broken_indexes(known, before, step):
            yield known.name


def _fault(fault: Exception) -> str:
    return RANGE if isinstance(fault, ModelFault) else f"no text of a machine: {fault}"


class _Comparison:
    """A mutant compared with the right text in one scope, and a first look at the steps that differ."""

    def __init__(self, machine: Machine, mutant: Mutant, explored: Explored) -> None:
        self.machine, self.mutant, self.explored = machine, mutant, explored
        self.model = machine.model(explored.model.scope)
        self.broken: dict[str, Path] = {}
        self.fault = ""
        self.wrong: dict[int, dict[Instance, Any]] = {}
        """The differing instances of each state: the state each leads to, None where it is no longer enabled."""
        name = (mutant.module, mutant.function)
        reading = actions_reading(mutant.machine)
        self.instances = [
            (action, index)
            for action, index in self.model.instances
            if name in reading.get(action.name, ()) or mutant.machine == "combined"
        ]
        claims = claims_reading(mutant.machine)
        self.claims = [k for n, k in machine.properties.items() if name in claims.get(n, ())]
        self.compare()
        try:
            if self.wrong:
                self.look()
            elif self.claims:
                self.look_again()
        except FAULTS as fault:
            self.fault = _fault(fault)

    def compare(self) -> None:
        """Where the mutant does something else. A fault of the text ends it: nothing that is true is left to ask."""
        states, evaluate = self.explored.states, self.machine.evaluate
        for number, (state, leads) in enumerate(zip(states, self.explored.after, strict=True)):
            for action, index in self.instances:
                instance = (action.name, index)
                try:
                    guard, effects = evaluate(action, state, index)
                    target = self.model.after(state, action, effects) if guard is True else None
                    if guard is not True and guard is not False:
                        raise ModelFault(f"the guard of {action.name} gave {guard!r}")
                except FAULTS as fault:
                    if self.reachable(number):
                        self.fault = _fault(fault)
                        return
                    continue
                right = leads.get(instance)
                if target != (None if right is None else states[right]):
                    self.wrong.setdefault(number, {})[instance] = target

    def reachable(self, number: int) -> bool:
        """Whether the way by which a state was reached first is still there."""
        came = self.explored.came[number]
        while came is not None:
            before, instance = came
            if instance in self.wrong.get(before, ()):
                return False
            came = self.explored.came[before]
        return True

    def way_to(self, number: int) -> Path:
        """The way by which a state was reached first."""
        steps: Path = []
        came = self.explored.came[number]
        while came is not None:
            before, instance = came
            steps.append(instance)
            came = self.explored.came[before]
        return steps[::-1]

    def look(self) -> None:
        """Look at the differing steps as a search would."""
        properties = list(self.machine.properties.values())
        progress = self.machine.progress
        seen = 0
        for number, instances in self.wrong.items():
            if seen >= AT_MOST:
                return
            if not self.reachable(number):
                continue
            state = self.explored.states[number]
            for (name, index), target in instances.items():
                if target is None:
                    continue
                seen += 1
                step = Step(self.machine.actions[name], index, target)
                self.model.check_ranges(target, name)
                broken = [*broken_here(self.model, properties, state, step)]
                broken += broken_here(self.model, properties, target, None)
                if progress and step.action.progress and not progress.rank(target) > progress.rank(state):
                    broken.append(progress.name)
                self.note(broken, number, (name, index))
            if None in instances.values() and progress and self.stands_still(state):
                self.note([progress.name], number)

    def stands_still(self, state: Any) -> bool:
        return not self.model.finished(state) and not any(s.action.progress for s in self.model.steps(state))

    def look_again(self) -> None:
        """The steps are the same, but claims read what has changed: look at all of them again."""
        states = self.explored.states
        for number, (state, leads) in enumerate(zip(states, self.explored.after, strict=True)):
            self.note(broken_here(self.model, self.claims, state, None), number)
            for (name, index), target in leads.items():
                step = Step(self.machine.actions[name], index, states[target])
                self.note(broken_here(self.model, self.claims, state, step), number, (name, index))
            if self.broken:
                return

    def note(self, found: Iterable[str], number: int, *last: Instance) -> None:
        for name in found:
            if name not in self.broken:
                self.broken[name] = [*self.way_to(number), *last]
