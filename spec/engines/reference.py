"""The reference engine: breadth first over plain states, short and obviously right; the oracle of every other engine.

Level by level it takes every enabled action of every state. The first violation it meets is therefore a shortest one,
and it stops there. A search that was cut short says so and is never reported as holding. With a reduction one state of
each orbit is kept (see `symmetry`); the path is then taken again through states of the machine itself.
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..language.machine import Claim, ModelFault, Property
from ..language.model import Model, Step

if TYPE_CHECKING:
    from .symmetry import Reduction

Verdict = Literal["holds", "fails", "bounded", "inconclusive"]


@dataclass(frozen=True)
class Violation:
    """What broke: the property, the indexes it fails at, the path from the initial state, and the states along it."""

    property: str
    sentence: str
    indexes: tuple[int | None, ...]
    steps: tuple[tuple[str, int | None], ...]
    states: tuple[Any, ...]
    at: str | None
    """The action that the broken claim forbids, which is the last step; None when the last state itself is broken."""

    @builtins.property
    def length(self) -> int:
        """How many actions lead to the violation."""
        return len(self.steps)


@dataclass(frozen=True)
class Search:
    """The result of one search of one model."""

    model: Model
    verdict: Verdict
    complete: bool
    states: int
    transitions: int
    depth: int
    seconds: float
    properties: dict[str, Verdict]
    unwitnessed: tuple[str, ...]
    """The claims whose premise never occurred: the property, or `property at action`."""
    taken: dict[str, int] = field(repr=False)
    violation: Violation | None = None
    why: str = ""


class _Searcher:
    """One breadth-first search; see `search`."""

    def __init__(self, model: Model, only: Iterable[str] | None, reduction: Reduction | None) -> None:
        self.model = model
        self.reduction = reduction
        machine = model.machine
        wanted = set(only) if only is not None else None
        chosen = [p for p in machine.properties.values() if wanted is None or p.name in wanted]
        # The claims looked at in every state (None), and as each action is taken by its name.
        claims = [(known, claim) for known in chosen for claim in known.claims]
        self.claims: dict[str | None, list[tuple[Property, Claim]]] = {
            None: [(k, c) for k, c in claims if c.at is None and not c.of_step]
        }
        for name in machine.actions:
            self.claims[name] = [(k, c) for k, c in claims if c.at == name or (c.at is None and c.of_step)]
        progress = machine.progress
        self.progress = progress if progress and (wanted is None or progress.name in wanted) else None
        self.names = [p.name for p in chosen] + ([self.progress.name] if self.progress else [])
        self.unwitnessed = {(p.name, claim.at): claim for p in chosen for claim in p.claims}
        self.parents: dict[Any, tuple[Any, Step] | None] = {}
        self.taken: dict[str, int] = dict.fromkeys(machine.actions, 0)
        self.transitions = 0
        # The shortest violation met so far. One found while expanding level d has length d + 1, but a stall of a later
        # state of the same level has length d, so the level is finished for stalls before the search stops.
        self.found: tuple[int, str, tuple[int | None, ...], Any, Step | None] | None = None

    def note(self, length: int, name: str, indexes: tuple[int | None, ...], state: Any, last: Step | None) -> None:
        if self.found is None or length < self.found[0]:
            self.found = (length, name, indexes, state, last)

    def witness(self, state: Any, at: str | None) -> None:
        """Cross off the claims whose premise occurs here."""
        for key, claim in list(self.unwitnessed.items()):
            if claim.at == at and claim.witness(state):
                del self.unwitnessed[key]

    def look(self, state: Any, length: int, last: Step | None) -> None:
        """Check the claims about a state met for the first time, or about the step about to be taken in it."""
        at = last.action.name if last else None
        claims = self.claims[at]
        if self.unwitnessed and (claims or at is None):
            self.witness(state, at)
        for known, claim in claims:
            broken = self.model.violated_indexes(known.each, claim, state, last)
            if broken:
                self.note(length, known.name, broken, state, last)

    def expand(self, state: Any, depth: int) -> list[Any]:
        """Take every enabled action of a state; return the states met for the first time."""
        fresh: list[Any] = []
        can_go_on = False
        for step in self.model.steps(state):
            self.transitions += 1
            self.taken[step.action.name] += 1
            self.look(state, depth + 1, step)
            if step.action.progress:
                can_go_on = True
                self.check_rank(state, step, depth)
            after = self.reduction.canonical(step.state) if self.reduction else step.state
            if after not in self.parents:
                self.model.check_ranges(after, step.action.name)
                self.parents[after] = (state, step)
                self.look(after, depth + 1, None)
                fresh.append(after)
        if self.progress and not can_go_on and not self.model.finished(state):
            self.note(depth, self.progress.name, (None,), state, None)
        return fresh

    def check_rank(self, state: Any, step: Step, depth: int) -> None:
        if self.progress and not self.progress.rank(step.state) > self.progress.rank(state):
            self.note(depth + 1, self.progress.name, (None,), state, step)

    def violation(self) -> Violation | None:
        if self.found is None:
            return None
        _, name, indexes, state, last = self.found
        steps: list[tuple[str, int | None]] = []
        states = [state]
        parent = self.parents[state]
        while parent is not None:
            before, step = parent
            steps.append((step.action.name, step.index))
            states.append(before)
            parent = self.parents[before]
        steps.reverse()
        states.reverse()
        if last is not None:
            steps.append((last.action.name, last.index))
            states.append(last.state)
        if self.reduction:
            steps, states = self.reduction.taken_again(self.model, steps, states)
        at = last.action.name if last else None
        machine = self.model.machine
        claim = machine.properties.get(name)
        if self.reduction and claim:
            # Of what is broken the indexes are other ones in another state of the orbit.
            before = states[-1] if last is None else states[-2]
            again = None if last is None else Step(last.action, steps[-1][1], states[-1])
            indexes = self.model.broken_indexes(claim, before, again)
        sentence = claim.sentence if claim else machine.progress.sentence if machine.progress else name
        return Violation(name, sentence, indexes, tuple(steps), tuple(states), at)


def search(
    model: Model,
    *,
    properties: Iterable[str] | None = None,
    max_states: int | None = None,
    on_level: Callable[[int, int], None] | None = None,
    reduction: Reduction | None = None,
) -> Search:
    """Enumerate a model breadth first; stop at the first violation, which is a shortest one.

    `properties` restricts the check to those names; None checks all. With `max_states` the search may end early: it is
    then `bounded`, never `holds`. `on_level(depth, states)` is called after each completed level. With a `reduction`
    it is orbits that are counted, and transitions from one state of each.
    """
    started = time.perf_counter()
    known = {*model.machine.properties, *([model.machine.progress.name] if model.machine.progress else [])}
    if properties is not None and (unknown := sorted(set(properties) - known)):
        raise ModelFault(f"machine {model.machine.name!r} has no property {', '.join(unknown)}; it has {sorted(known)}")
    searcher = _Searcher(model, properties, reduction)
    initial = reduction.canonical(model.initial) if reduction else model.initial
    searcher.parents[initial] = None
    searcher.look(initial, 0, None)
    level, depth, cut_short = [initial], 0, ""
    try:
        while level and searcher.found is None and not cut_short:
            following: list[Any] = []
            for state in level:
                if max_states is not None and len(searcher.parents) > max_states:
                    cut_short = f"stopped above the limit of {max_states} states"
                    break
                following += searcher.expand(state, depth)
            if cut_short:
                break
            level = following
            if level:
                depth += 1
            if on_level:
                on_level(depth, len(searcher.parents))
    except KeyboardInterrupt:
        cut_short = "interrupted"
    violation = searcher.violation()
    complete = violation is None and not cut_short
    unwitnessed = tuple(n if at is None else f"{n} at {at}" for n, at in searcher.unwitnessed) if complete else ()
    verdict: Verdict = "fails" if violation else "bounded" if cut_short else "holds"
    verdicts: dict[str, Verdict] = dict.fromkeys(searcher.names, "holds" if complete else "bounded")
    if violation:
        verdicts = dict.fromkeys(searcher.names, "inconclusive")
        verdicts[violation.property] = "fails"
    return Search(
        model=model,
        verdict=verdict,
        complete=complete,
        states=len(searcher.parents),
        transitions=searcher.transitions,
        depth=depth,
        seconds=time.perf_counter() - started,
        properties=verdicts,
        unwitnessed=unwitnessed,
        taken=searcher.taken,
        violation=violation,
        why=f"{cut_short}, all of depth {depth} seen" if cut_short else "",
    )
