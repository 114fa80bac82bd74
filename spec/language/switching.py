"""Several variants of one scope as one model: which of them is searched is a value of the state that never changes.

So they share one text and one compilation, which takes far longer than their searches. Where the variants say the same,
nothing is added; where they differ, the text asks the switch. The order of the actions is that of each variant.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from .machine import Machine
from .scalar_form import Element, Instance, ScalarClaim, ScalarModel, Witness, scalar_form
from .scalar_nodes import Node, Nodes

SWITCH = "variant"
Variants = tuple[str, ...]
_Item = TypeVar("_Item")


class Unlike(Exception):
    """Variants that cannot be one model: a variable starts at another value, or actions come in another order."""


def switched_form(machine: Machine, scope: Any, variants: Variants, members: Sequence[Variants]) -> ScalarModel:
    """The model of `members` together, switched to `variants`, which is one of them."""
    joint = _joint(machine, scope, tuple(members))
    number = list(members).index(variants)
    elements = (*joint.elements[:-1], replace(joint.elements[-1], initial=number))
    return replace(joint, machine=machine.varied(variants), variants=variants, elements=elements)


@functools.lru_cache(maxsize=32)
def _joint(machine: Machine, scope: Any, members: tuple[Variants, ...]) -> ScalarModel:
    forms = [scalar_form(machine, scope, variants) for variants in members]
    elements = _merged([[((e.name, e.index), e) for e in form.elements] for form in forms])
    for form in forms:
        for e in form.elements:
            known = elements[e.name, e.index]
            if known.initial != e.initial:
                raise Unlike(f"the first value of {e.label}")
            elements[e.name, e.index] = replace(known, low=min(known.low, e.low), high=max(known.high, e.high))
    switch = Element(SWITCH, None, 0, len(members) - 1, 0)
    return _Joiner(forms, (*elements.values(), switch)).model()


def _merged(lists: Iterable[Iterable[tuple[Hashable, _Item]]]) -> dict[Any, _Item]:
    """All items by their keys, in an order in which those of every list keep theirs; of equal keys the first."""
    order: list[Hashable] = []
    items: dict[Hashable, _Item] = {}
    for pairs in lists:
        at = 0
        for key, item in pairs:
            if key in items:
                place = order.index(key)
                if place < at:
                    raise Unlike(f"the order of {key}")
                at = place + 1
            else:
                items[key] = item
                order.insert(at, key)
                at += 1
    return {key: items[key] for key in order}


class _Joiner:
    """Brings forms over different elements together, over the elements of all."""

    def __init__(self, forms: Sequence[ScalarModel], elements: tuple[Element, ...]) -> None:
        self.forms, self.elements = forms, elements
        self.nodes = Nodes([(e.low, e.high) for e in elements])
        self.switch = self.nodes.element(len(elements) - 1)
        places = {(e.name, e.index): position for position, e in enumerate(elements)}
        self.positions = [[places[e.name, e.index] for e in form.elements] for form in forms]
        self.known: list[dict[Node, Node]] = [{} for _ in forms]

    def model(self) -> ScalarModel:
        first = self.forms[0]
        return ScalarModel(
            first.machine,
            first.scope,
            first.variants,
            self.elements,
            tuple(self.instances()),
            tuple(self.claims()),
            tuple(self.witnesses()),
            self.truth([form.misread for form in self.forms]),
            self.truth([form.finished for form in self.forms]) if first.finished is not None else None,
            self.value([self.over(i, form.rank) for i, form in enumerate(self.forms) if form.rank is not None])
            if first.rank is not None
            else None,
            self.nodes,
            switch=len(self.elements) - 1,
        )

    def instances(self) -> Iterable[Instance]:
        # Where an action is progress in some variants only, it is two.
        tables = [{(i.action, i.index, i.progress): i for i in form.instances} for form in self.forms]
        for key, any_one in _merged([table.items() for table in tables]).items():
            each = [table.get(key) for table in tables]
            assigned = {p for m, i in enumerate(each) if i is not None for p in self.targets(m, i)}
            yield replace(
                any_one,
                guard=self.truth([None if i is None else i.guard for i in each]),
                assignments={p: self.value(self.values_at(p, each)) for p in sorted(assigned)},
                misread=self.nodes.any_of(
                    [self.truth([None if i is None else i.misread for i in each]), self.truth(self.outside(each))]
                ),
            )

    def outside(self, each: Sequence[Instance | None]) -> list[Node | None]:
        """Where a member leaves a range that is narrower in its own text than here: a fault as ever."""
        found: list[Node | None] = []
        for member, instance in enumerate(each):
            form = self.forms[member]
            wrong = []
            for position, node in (instance.assignments if instance else {}).items():
                own, joint = form.elements[position], self.elements[self.positions[member][position]]
                if own.low > joint.low:
                    wrong.append(form.nodes.compare("<", node, form.nodes.constant(own.low)))
                if own.high < joint.high:
                    wrong.append(form.nodes.compare(">", node, form.nodes.constant(own.high)))
            found.append(form.nodes.any_of(wrong))
        return found

    def targets(self, member: int, instance: Instance) -> list[int]:
        return [self.positions[member][position] for position in instance.assignments]

    def values_at(self, place: int, each: Sequence[Instance | None]) -> list[Node]:
        """What every member's instance assigns to an element; what does not assign leaves it."""
        values = [self.nodes.element(place)] * len(each)
        for member, instance in enumerate(each):
            for position, node in (instance.assignments if instance else {}).items():
                if self.positions[member][position] == place:
                    values[member] = self.over(member, node)
        return values

    def claims(self) -> Iterable[ScalarClaim]:
        tables = [{(c.property, c.at, c.index, c.taken): c for c in form.claims} for form in self.forms]
        for key, any_one in _merged([table.items() for table in tables]).items():
            parts = [c.holds if (c := table.get(key)) is not None else None for table in tables]
            yield replace(any_one, holds=self.truth(parts, absent=True))

    def witnesses(self) -> Iterable[Witness]:
        tables = [{(w.property, w.at): w for w in form.witnesses} for form in self.forms]
        for key, any_one in _merged([table.items() for table in tables]).items():
            yield replace(
                any_one, occurs=self.truth([w.occurs if (w := t.get(key)) is not None else None for t in tables])
            )

    # ------------------------------------------------------------------------------------------- Expressions

    def over(self, member: int, root: Node) -> Node:
        """A node of one form, over the elements of all."""
        places = self.positions[member]
        return self.nodes.over(root, lambda position: self.nodes.element(places[position]), self.known[member])

    def truth(self, parts: Sequence[Node | None], *, absent: bool = False) -> Node:
        """A truth value of every member as one; `absent` stands for members that have none."""
        default = self.nodes.constant(absent)
        return self.value([default if p is None else self.over(m, p) for m, p in enumerate(parts)])

    def value(self, values: Sequence[Node]) -> Node:
        """One value that is the member's own where the switch is at it."""
        members: dict[Node, list[int]] = {}
        for member, node in enumerate(values):
            members.setdefault(node, []).append(member)
        usual = max(members, key=lambda node: len(members[node]))
        result = usual
        for node, whose in members.items():
            if node is not usual:
                result = self.nodes.where(self.switched_to(whose), node, result)
        return result

    def switched_to(self, members: Iterable[int]) -> Node:
        return self.nodes.any_of(self.nodes.compare("==", self.switch, self.nodes.constant(m)) for m in members)
