"""A machine within one scope, written out over scalar elements: what generated code and exports are made from.

Each action is called once per index on symbols; quantifiers, vectors and computed indexes are then unrolled over the
domains of the scope. What comes out has no vectors and no domains any more: a guard and assignments per instance of an
action, one expression per claim and index. An expression speaks of the state *before* the action, and all assignments
of an instance happen at once.

    form = scalar_form(MACHINES["cut"], CutScope(...), ("cursor_ahead",))
    for instance in form.instances:
        instance.guard, instance.assignments        # Node, {position of an element: Node}
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any

from .expression import Domain, Symbol, SymbolicVector, Value
from .machine import Action, Bound, Machine, ModelFault
from .scalar_nodes import Node, Nodes


@dataclass(frozen=True)
class Element:
    """One scalar of the state: a variable, or one place of a vector."""

    name: str
    index: int | None
    low: int
    high: int
    initial: int

    @property
    def label(self) -> str:
        """Its name as an identifier: `cursor`, `ledger_3`."""
        return self.name if self.index is None else f"{self.name}_{self.index}"


@dataclass(frozen=True)
class Instance:
    """One action at one index: enabled where the guard holds; then every assignment happens at once.

    Elements that are not assigned keep their value. `misread` holds where the effects read a vector outside its
    bounds: with the guard a fault of the machine's text.
    """

    action: str
    index: int | None
    progress: bool
    guard: Node
    assignments: Mapping[int, Node]
    misread: Node

    @property
    def label(self) -> str:
        """Its name as an identifier: `publish`, `dispatch_2`."""
        return self.action if self.index is None else f"{self.action}_{self.index}"


@dataclass(frozen=True)
class ScalarClaim:
    """A claim of a property at one index: looked at in every state, or wherever the action `at` is to be taken.

    One about a step is looked at where the instance `taken` is: what it says of the state after, it says of what the
    assignments of that instance put there.
    """

    property: str
    at: str | None
    index: int | None
    holds: Node
    taken: tuple[str, int | None] | None = None

    @builtins.property  # the field `property` hides it here
    def in_states(self) -> bool:
        """Whether it is looked at in every state, whatever is taken there."""
        return self.at is None and self.taken is None


@dataclass(frozen=True)
class Witness:
    """Where the premise of a property's claim occurs."""

    property: str
    at: str | None
    occurs: Node


@dataclass(frozen=True)
class ScalarModel:
    """A machine within one scope, written out."""

    machine: Machine
    """With the variants applied."""
    scope: Any
    variants: tuple[str, ...]
    elements: tuple[Element, ...]
    instances: tuple[Instance, ...]
    """In the order of the text, as the reference engine takes them."""
    claims: tuple[ScalarClaim, ...]
    witnesses: tuple[Witness, ...]
    misread: Node
    """Where a guard or a claim reads a vector outside its bounds: a fault of the machine's text."""
    finished: Node | None
    rank: Node | None
    nodes: Nodes = field(repr=False)
    """Makes further nodes over the same elements."""
    switch: int | None = None
    """The element that says which of several machines this is; it never changes."""

    def flat(self, state: Any) -> tuple[int, ...]:
        """The elements of a plain state of the reference engine, in order; those it lacks have never changed."""
        own: dict[tuple[str, int | None], int] = {}
        for variable in self.machine.variables.values():
            value = getattr(state, variable.name)
            places = [(None, value)] if variable.over is None else enumerate(value)
            own.update(((variable.name, index), int(element)) for index, element in places)
        return tuple(own.get((e.name, e.index), e.initial) for e in self.elements)


def scalar_form(machine: Machine, scope: Any, variants: Sequence[str] = ()) -> ScalarModel:
    """The machine with the variants applied, written out for one scope."""
    return _Writer(machine.varied(variants), scope, tuple(variants)).model()


class _Writer:
    """Calls the text of a machine on symbols and unrolls what it gives."""

    def __init__(self, machine: Machine, scope: Any, variants: tuple[str, ...]) -> None:
        self.machine, self.scope, self.variants = machine, scope, variants
        self.sizes = {name: size(scope) for name, size in machine.domains.items()}
        self.positions: dict[str, int] = {}
        self.elements: list[Element] = []
        for variable in machine.variables.values():
            self.positions[variable.name] = len(self.elements)
            low, high, initial = (self.resolve(b) for b in (variable.low, variable.high, variable.initial))
            indexes = [None] if variable.over is None else range(self.sizes[variable.over])
            self.elements += [Element(variable.name, index, low, high, initial) for index in indexes]
        self.nodes = Nodes([(e.low, e.high) for e in self.elements])
        self.constants = {
            name: [value(scope, i) for i in range(self.sizes[over])]
            for name, (over, value) in machine.constants.items()
        }
        self.state = self.symbols()
        # Per symbol: itself, which keeps its id alive, and the bound indexes it speaks of.
        self.free: dict[int, tuple[object, frozenset[int]]] = {}
        self.written: dict[tuple[object, ...], Node] = {}
        self.misreads: list[Node] = []

    def resolve(self, bound: Bound) -> int:
        return int(bound if isinstance(bound, int) else bound(self.scope))

    def symbols(self) -> SimpleNamespace:
        """The state as the text sees it. What the scope fixes is a plain number, and gone before a node is made."""
        names: dict[str, Any] = {f.name: getattr(self.scope, f.name) for f in fields(self.scope)}
        domains = {name: Domain(name, None) for name in self.sizes}
        names.update(domains)
        for name, (over, _) in self.machine.constants.items():
            names[name] = SymbolicVector("constant", domains[over], name)
        for variable in self.machine.variables.values():
            if variable.over is None:
                names[variable.name] = Symbol("variable", variable.name)
            else:
                names[variable.name] = SymbolicVector("variable", domains[variable.over], variable.name)
        return SimpleNamespace(**names)

    def indexes(self, each: str | None) -> list[tuple[int, ...]]:
        return [()] if each is None else [(i,) for i in range(self.sizes[each])]

    def model(self) -> ScalarModel:
        self.step_claims: list[ScalarClaim] = []
        instances = [
            self.instance(action, *index)
            for action in self.machine.actions.values()
            if action.when is None or action.when(self.scope)
            for index in self.indexes(action.each)
        ]
        claims: list[ScalarClaim] = []
        witnesses: list[Witness] = []
        for known in self.machine.properties.values():
            for claim in known.claims:
                witnesses.append(Witness(known.name, claim.at, self.truth(claim.witness(self.state), known.name)))
                if claim.of_step:
                    claims += [c for c in self.step_claims if (c.property, c.at) == (known.name, claim.at)]
                    continue
                for index in self.indexes(known.each):
                    holds = self.truth(claim.function(self.state, *index), known.name)
                    claims.append(ScalarClaim(known.name, claim.at, index[0] if index else None, holds))
        progress = self.machine.progress
        finished = self.truth(progress.finished(self.state), "finished") if progress else None
        rank = self.nodes.number(self.write(progress.rank(self.state))) if progress else None
        return ScalarModel(
            self.machine,
            self.scope,
            self.variants,
            tuple(self.elements),
            tuple(instances),
            tuple(claims),
            tuple(witnesses),
            self.nodes.any_of(self.misreads),
            finished,
            rank,
            self.nodes,
        )

    def instance(self, action: Action, index: int | None = None) -> Instance:
        guard, effects = self.machine.evaluate(action, self.state, index)
        whole_guard = self.truth(guard, action.name)
        outside, self.misreads = self.misreads, []
        assignments: dict[int, Node] = {}
        for name, value in effects.items():
            variable = self.machine.variables.get(name)
            if variable is None:
                raise ModelFault(f"{action.name} changes a variable that {self.machine.name!r} does not have: {name}")
            first = self.positions[name]
            for (*place,) in self.indexes(variable.over):
                position = first + place[0] if place else first
                node = self.nodes.number(self.element(value, place[0], ()) if place else self.write(value))
                if node is not self.nodes.element(position):
                    assignments[position] = node
        after = SimpleNamespace(**{**vars(self.state), **effects})
        for known in self.machine.properties.values():
            for claim in known.claims:
                if claim.of_step and claim.at in (None, action.name):
                    own = () if known.each is None else (index,)
                    holds = self.truth(claim.function(self.state, after, *own), known.name)
                    taken = (action.name, index)
                    self.step_claims.append(ScalarClaim(known.name, claim.at, index if own else None, holds, taken))
        misread = self.nodes.any_of(self.misreads)
        self.misreads = outside
        return Instance(action.name, index, action.progress, whole_guard, assignments, misread)

    def truth(self, value: Value, origin: str) -> Node:
        node = self.write(value)
        if not node.truth:
            raise ModelFault(
                f"the guard or claim of {origin} gave {node!r}, no truth value; likely cause: `~` or arithmetic in it"
            )
        return node

    # ------------------------------------------------------------------------------------------ Unrolling

    def speaks_of(self, value: object) -> frozenset[int]:
        """The bound indexes that occur free in a value, by id."""
        if not isinstance(value, Symbol | SymbolicVector):
            return frozenset()
        known = self.free.get(id(value))
        if known is None:
            if value.operator == "index":
                found = frozenset([id(value)])
            else:
                found = frozenset[int]().union(*(self.speaks_of(a) for a in value.arguments))
                if value.operator in ("each", "all_of", "any_of", "count", "total"):
                    bound = value.arguments[0 if value.operator == "each" else 1]
                    found -= {id(bound)}
            known = self.free[id(value)] = (value, found)
        return known[1]

    def write(self, value: Value, bound: tuple[tuple[int, int], ...] = ()) -> Node:
        """The node of a symbol, with each bound index (by id) at its value."""
        if not isinstance(value, Symbol):
            return self.nodes.constant(value)
        free = self.speaks_of(value)
        relevant = tuple(pair for pair in bound if pair[0] in free)
        key = (id(value), relevant)
        if key not in self.written:
            self.written[key] = self.unroll(value, relevant)
        return self.written[key]

    def unroll(self, symbol: Symbol, bound: tuple[tuple[int, int], ...]) -> Node:
        operator = symbol.operator
        arguments: Any = symbol.arguments
        if operator == "variable":
            return self.nodes.element(self.positions[arguments[0]])
        if operator == "index":
            return self.nodes.constant(dict(bound)[id(symbol)])
        if operator == "element":
            return self.chosen(arguments[0], self.write(arguments[1], bound), bound)
        if operator in ("all_of", "any_of", "count", "total"):
            domain, index, body = arguments
            parts = [self.write(body, (*bound, (id(index), i))) for i in range(self.sizes[domain.name])]
            if operator == "all_of":
                return self.nodes.all_of(parts)
            if operator == "any_of":
                return self.nodes.any_of(parts)
            result = self.nodes.constant(0)
            for part in parts:
                result = self.nodes.arithmetic("+", result, part)
            return result
        written = [self.write(a, bound) for a in arguments]
        if operator == "&":
            return self.nodes.all_of(written)
        if operator == "|":
            return self.nodes.any_of(written)
        if operator == "implies":
            return self.nodes.any_of([self.nodes.not_(written[0]), written[1]])
        if operator in (">", ">="):
            return self.nodes.compare(operator, *written)
        return self.nodes.rebuilt(operator, written)

    def chosen(self, vector: SymbolicVector, index: Node, bound: tuple[tuple[int, int], ...]) -> Node:
        """The element at an index: of a computed one, a choice among all that it can be."""
        size = self.sizes[vector.domain.name]
        inside = range(max(index.low, 0), min(index.high, size - 1) + 1)
        if index.low < 0 or index.high >= size:
            if not inside:
                raise ModelFault(f"index {index!r} is always outside {vector!r} of {size} elements")
            for outside in (("<", index, self.nodes.constant(0)), (">=", index, self.nodes.constant(size))):
                self.misreads.append(self.nodes.compare(*outside))
        result = self.element(vector, inside[-1], bound)
        for i in reversed(inside[:-1]):
            here = self.nodes.compare("==", index, self.nodes.constant(i))
            result = self.nodes.where(here, self.element(vector, i, bound), result)
        return result

    def element(self, vector: Value, place: int, bound: tuple[tuple[int, int], ...]) -> Node:
        """One element of a vector of symbols, at a plain place."""
        if not isinstance(vector, SymbolicVector):
            return self.nodes.constant(vector[place])
        arguments: Any = vector.arguments
        if vector.operator == "variable":
            return self.nodes.element(self.positions[arguments[0]] + place)
        if vector.operator == "constant":
            return self.nodes.constant(self.constants[arguments[0]][place])
        if vector.operator == "each":
            own, body = arguments
            return self.write(body, (*bound, (id(own), place)))
        if vector.operator == "put":
            base, at, value = arguments
            here = self.nodes.compare("==", self.write(at, bound), self.nodes.constant(place))
            if here.is_constant:
                return self.write(value, bound) if here.value else self.element(base, place, bound)
            return self.nodes.where(here, self.write(value, bound), self.element(base, place, bound))
        condition, then, otherwise = arguments
        holds = self.write(condition, bound)
        return self.nodes.where(holds, self.element(then, place, bound), self.element(otherwise, place, bound))
