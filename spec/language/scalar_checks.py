"""What is looked at in a machine written out: faults of its text, ranks that do not rise, claims, by place."""

from __future__ import annotations

from collections import defaultdict

from .scalar_form import Instance, ScalarModel
from .scalar_nodes import Node


def faults(form: ScalarModel, instance: Instance) -> Node:
    """Where an assignment leaves the declared range of its element, or its text reads outside a vector."""
    nodes = form.nodes
    wrong = [instance.misread]
    for position, node in instance.assignments.items():
        element = form.elements[position]
        wrong.append(nodes.compare("<", node, nodes.constant(element.low)))
        wrong.append(nodes.compare(">", node, nodes.constant(element.high)))
    return nodes.any_of(wrong)


def rises(form: ScalarModel, instance: Instance) -> Node:
    """Whether the rank after an instance of progress is greater than before. What stays the same cancels out."""
    nodes, rank = form.nodes, form.rank
    if rank is None or not instance.progress:
        return nodes.true
    after = nodes.over(rank, lambda place: instance.assignments.get(place, nodes.element(place)), {})
    terms: dict[Node, int] = defaultdict(int)
    base = add_terms(after, 1, terms) + add_terms(rank, -1, terms)
    difference = nodes.constant(base)
    for node, times in terms.items():
        if times:
            term = nodes.arithmetic("*", node, nodes.constant(times))
            difference = nodes.arithmetic("+", difference, term)
    return nodes.compare(">", difference, nodes.constant(0))


def claims_by_property(
    form: ScalarModel, at: str | None, taken: tuple[str, int | None] | None = None
) -> dict[str, Node]:
    """Each property's claims of all indexes at one place; those that always hold are left out.

    A place is every state, all instances of an action, or, for claims about steps, the one instance that is taken.
    """
    parts: dict[str, list[Node]] = defaultdict(list)
    for claim in form.claims:
        if claim.taken == taken and (taken is not None or claim.at == at):
            parts[claim.property].append(claim.holds)
    whole = {name: form.nodes.all_of(holds) for name, holds in parts.items()}
    return {name: holds for name, holds in whole.items() if holds is not form.nodes.true}


def add_terms(node: Node, times: int, terms: dict[Node, int]) -> int:
    """Add a node to a sum of terms, each with its factor; the constant part is returned."""
    if node.is_constant:
        return node.value * times
    if node.operator in ("+", "-"):
        a, b = node.arguments
        return add_terms(a, times, terms) + add_terms(b, times if node.operator == "+" else -times, terms)
    if node.operator == "*":
        for factor, other in (node.arguments, node.arguments[::-1]):
            if factor.is_constant:
                return add_terms(other, times * factor.value, terms)
    terms[node] += times
    return 0
