"""Symmetry: states that differ only in which of several alike prompts or writers is which are searched as one.

A group of permutations of indexes acts on the states. If whatever a state can do, its permuted state can do too, and
leads to the permuted state or one that a further permutation makes of it, then a search that keeps one state of each
orbit finds every violation at the same shortest length, provided that no property tells permuted states apart. Nothing
of this is taken on trust:

- `require_symmetric` compares the machine, written out for the scope with its variants, with itself permuted, instance
  by instance and claim by claim; what it cannot see to be the same is refused, with its name.
- An action that takes the first of several indexes is not the same permuted. It is let pass only if those it chooses
  among are alike in all they have of their own; that is a property of its own (`ALIKE`), looked at in every state.
- A path found is taken again on the whole machine, so that a trace is one of the machine and not of its orbits.
"""

from __future__ import annotations

import copy
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..language.expression import Value, Vector, all_of, implies
from ..language.machine import Claim, Machine, Property, Symmetry
from ..language.model import Model, Step
from ..language.narrowing import narrowed
from ..language.scalar_checks import add_terms
from ..language.scalar_form import Instance, ScalarModel, scalar_form
from ..language.scalar_nodes import Node, in_order
from . import reference as reference_engine
from .reference import Search

ALIKE: Final = "ties_are_between_alike"
COMMUTATIVE: Final = ("and", "or", "==", "!=")


class NotSymmetric(Exception):
    """The machine in this scope is not symmetric, so a search of one state for many could miss something."""


@dataclass(frozen=True)
class Block:
    """Indexes that may change places, and the vectors that have an element for each."""

    domain: str
    indexes: tuple[int, ...]
    vectors: tuple[str, ...]


class Reduction:
    """The one state of each orbit: in every block what the indexes have of their own stands in ascending order."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = tuple(blocks)

    def canonical(self, state: Any) -> Any:
        """The state that stands for the orbit of this one."""
        changed: dict[str, list[int]] = {}
        for block in self.blocks:
            vectors = [changed.get(name) or getattr(state, name) for name in block.vectors]
            own = [tuple(vector[i] for vector in vectors) for i in block.indexes]
            ordered = sorted(own)
            if ordered == own:
                continue
            for place, name in enumerate(block.vectors):
                vector = changed.setdefault(name, list(getattr(state, name)))
                for index, values in zip(block.indexes, ordered, strict=True):
                    vector[index] = values[place]
        return state._replace(**{name: Vector(values) for name, values in changed.items()}) if changed else state

    def taken_again(
        self, model: Model, steps: Sequence[tuple[str, int | None]], states: Sequence[Any]
    ) -> tuple[list[tuple[str, int | None]], list[Any]]:
        """A path of states that stand for orbits as one of the machine: the same actions, through the same orbits."""
        path: list[tuple[str, int | None]] = []
        walked = [model.initial]
        for (action, _), after in zip(steps, states[1:], strict=True):
            step = self.step_into(model, walked[-1], after, action)
            path.append((step.action.name, step.index))
            walked.append(step.state)
        return path, walked

    def step_into(self, model: Model, state: Any, orbit: Any, action: str | None = None) -> Step:
        """A step of the machine that leads into the orbit of a state, by that action or by any."""
        target = self.canonical(orbit)
        for step in model.steps(state):
            if action in (None, step.action.name) and self.canonical(step.state) == target:
                return step
        raise NotSymmetric(f"no step of {state} leads into the orbit of {orbit}: the symmetry was declared wrongly")


def declared(machine: Machine, scope: Any) -> bool:
    """Whether a machine declares a symmetry for a scope."""
    return any(s.when is None or s.when(scope) for s in machine.symmetries)


def symmetries_of(machine: Machine, scope: Any) -> list[Symmetry]:
    """The symmetries that a machine declares for a scope; none is refused."""
    found = [s for s in machine.symmetries if s.when is None or s.when(scope)]
    if not found:
        raise NotSymmetric(f"the machine {machine.name!r} declares no symmetry for this scope; leave --symmetry out")
    return found


def reduction_of(machine: Machine, scope: Any) -> Reduction:
    """The reduction of a machine (with its variants applied) within a scope."""
    blocks: list[Block] = []
    for symmetry in symmetries_of(machine, scope):
        members: dict[int, list[int]] = defaultdict(list)
        for index in range(machine.domains[symmetry.domain](scope)):
            block = 0 if symmetry.blocks is None else machine.constants[symmetry.blocks][1](scope, index)
            members[block].append(index)
        vectors = tuple(v.name for v in machine.variables.values() if v.over == symmetry.domain)
        blocks += [Block(symmetry.domain, tuple(m), vectors) for m in members.values() if len(m) > 1]
    return Reduction(blocks)


def with_ties(machine: Machine, scope: Any) -> Machine:
    """The machine with the property that whatever an action takes the first of is alike."""
    judged = [s for s in symmetries_of(machine, scope) if s.alike is not None]
    if not judged:
        return machine
    result = copy.copy(machine)
    result.properties = dict(machine.properties)

    def ties_are_between_alike(s: Value) -> Value:
        """Indexes of one block of which an action takes the first have everything of their own in common."""
        holds: Value = True
        for symmetry in judged:
            holds = _alike(s, symmetry, machine) & holds
        return holds

    result.properties[ALIKE] = Property(ALIKE, None, (Claim(None, ties_are_between_alike, lambda s: True),))
    return result


def _alike(s: Value, symmetry: Symmetry, machine: Machine) -> Value:
    domain = getattr(s, symmetry.domain)
    vectors = [getattr(s, v.name) for v in machine.variables.values() if v.over == symmetry.domain]
    alike = symmetry.alike
    assert alike is not None

    def same(p: Value, q: Value) -> Value:
        block = getattr(s, symmetry.blocks) if symmetry.blocks else None
        premise = alike(s, p) & alike(s, q) & (True if block is None else block[p] == block[q])
        equal: Value = True
        for vector in vectors:
            equal = (vector[p] == vector[q]) & equal
        return implies(premise, equal)

    return all_of(domain, lambda p: all_of(domain, lambda q: same(p, q)))


def symmetric_search(
    machine: Machine, scope: Any, variants: tuple[str, ...], properties: Iterable[str] | None
) -> tuple[Machine, Reduction, list[str] | None]:
    """The machine to search, the reduction, and the properties to look at; refused where it would not be sound."""
    judging = with_ties(machine, scope)
    reduction = reduction_of(machine.varied(variants), scope)
    require_symmetric(narrowed(scalar_form(judging, scope, variants)), reduction)
    wanted = None if properties is None else [*properties, *([ALIKE] if ALIKE in judging.properties else [])]
    return judging, reduction, wanted


def search(
    machine: Machine,
    scope: Any,
    variants: tuple[str, ...] = (),
    properties: Iterable[str] | None = None,
    on_level: Callable[[int, int], None] | None = None,
) -> Search:
    """Search one state of each orbit with the reference engine."""
    judging, reduction, wanted = symmetric_search(machine, scope, variants, properties)
    model = judging.model(scope, variants)
    return judged(reference_engine.search(model, properties=wanted, on_level=on_level, reduction=reduction))


def judged(found: Search) -> Search:
    """The result of a search over orbits, or NotSymmetric where it turned out that ties are between unlike indexes."""
    if found.violation is not None and found.violation.property == ALIKE:
        raise NotSymmetric(
            f"after {found.violation.length} steps an action takes the first of several indexes that are not alike: "
            f"{found.violation.states[-1]}; the machine {found.model.machine.name!r} is not symmetric in this scope"
        )
    return found


# ------------------------------------------------------------------------------------- Whether it is symmetric


def require_symmetric(form: ScalarModel, reduction: Reduction) -> None:
    """Compare a machine written out with itself permuted; raise NotSymmetric where they are not seen to be the same.

    Neighbours of each block changing places generate all permutations of it.
    """
    ties = {name for s in symmetries_of(form.machine, form.scope) for name in s.ties}
    names = _Names()
    for block in reduction.blocks:
        for one, other in itertools.pairwise(block.indexes):
            _compare(form, names, block.domain, {one: other, other: one}, ties)


def _compare(form: ScalarModel, names: _Names, domain: str, swap: Mapping[int, int], ties: set[str]) -> None:
    variables = form.machine.variables
    at = {(e.name, e.index): position for position, e in enumerate(form.elements)}
    places = list(range(len(form.elements)))
    for (name, index), position in at.items():
        if index is not None and variables[name].over == domain:
            places[position] = at[name, swap.get(index, index)]
    as_is, moved = _Named(names, None), _Named(names, places)
    where = f"with {domain} {min(swap)} and {max(swap)} changed"

    def refuse(what: str) -> None:
        raise NotSymmetric(
            f"{what} is not the same {where}: the machine {form.machine.name!r} is not symmetric in this scope"
        )

    table = {(i.action, i.index): i for i in form.instances}
    for instance in form.instances:
        index = instance.index
        if index is not None and form.machine.actions[instance.action].each == domain:
            index = swap.get(index, index)
        twin = table.get((instance.action, index))
        if twin is None or not _same(instance, twin, as_is, moved, places, guards=instance.action not in ties):
            refuse(f"the action {instance.action}")
    claims: dict[tuple[str, str | None, tuple[str, int | None] | None], list[Node]] = defaultdict(list)
    for claim in form.claims:
        claims[claim.property, claim.at, claim.taken].append(claim.holds)
    for (property_name, place, taken), nodes in claims.items():
        # What is said of a step by one index must be said of that by the other.
        other = taken
        if taken is not None and taken[1] is not None and form.machine.actions[taken[0]].each == domain:
            other = (taken[0], swap.get(taken[1], taken[1]))
        if sorted(map(as_is, claims[property_name, place, other])) != sorted(map(moved, nodes)):
            refuse(f"the property {property_name}")
    for label, node in (
        ("what is finished", form.finished),
        ("the rank", form.rank),
        ("what is misread", form.misread),
    ):
        if node is not None and as_is(node) != moved(node):
            refuse(label)
    for witness in form.witnesses:
        if as_is(witness.occurs) != moved(witness.occurs):
            refuse(f"the premise of {witness.property}")


def _same(one: Instance, twin: Instance, as_is: _Named, moved: _Named, places: list[int], *, guards: bool) -> bool:
    if one.progress != twin.progress or (guards and moved(one.guard) != as_is(twin.guard)):
        return False
    permuted = {places[position]: moved(node) for position, node in one.assignments.items()}
    return permuted == {position: as_is(node) for position, node in twin.assignments.items()}


class _Names:
    """A number for each expression, equal where two differ only in the order of what may be in any order."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[object, ...], int] = {}

    def number(self, *key: object) -> int:
        return self.numbers.setdefault(key, len(self.numbers))


class _Named:
    """Names expressions, with each element at the place of another where `places` says so."""

    def __init__(self, names: _Names, places: Sequence[int] | None) -> None:
        self.names, self.places = names, places
        self.known: dict[Node, int] = {}

    def __call__(self, root: Node) -> int:
        for node in in_order([root]):
            if node not in self.known:
                self.known[node] = self.named(node)
        return self.known[root]

    def named(self, node: Node) -> int:
        if node.operator == "constant":
            return self.names.number("constant", node.truth, node.value)
        if node.operator == "element":
            return self.names.number("element", node.value if self.places is None else self.places[node.value])
        if node.operator in ("+", "-", "*"):
            terms: dict[Node, int] = defaultdict(int)
            base = add_terms(node, 1, terms)
            if list(terms) == [node]:  # a product of two unknowns
                return self.names.number("*", *sorted(self.known[a] for a in node.arguments))
            times: dict[int, int] = defaultdict(int)
            for term, factor in terms.items():
                times[self.known[term]] += factor
            return self.names.number("sum", base, *sorted((t, f) for t, f in times.items() if f))
        parts = [self.known[a] for a in node.arguments]
        return self.names.number(node.operator, *(sorted(parts) if node.operator in COMMUTATIVE else parts))
