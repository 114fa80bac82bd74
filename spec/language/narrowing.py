"""The values each element of a state can really take, found before any state is enumerated.

Ranges start at the initial state and grow by what the assignments can give, until nothing changes. What a scope leaves
off thus stays at its one value and disappears from guards, claims and the packed state. The ranges are too large rather
than too small; a value outside the *declared* range is never admitted here, it is a fault that the search reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .scalar_form import Instance, ScalarModel
from .scalar_nodes import Node, Nodes

Range = tuple[int, int]
PATIENCE = 24  # rounds after which a range that still grows is taken to its declared bound


def narrowed(form: ScalarModel) -> ScalarModel:
    """The same model with the ranges of its elements narrowed, instances that are never enabled left out."""
    ranges: list[Range] = [
        (e.low, e.high) if position == form.switch else (e.initial, e.initial)
        for position, e in enumerate(form.elements)
    ]
    rounds = 0
    while True:
        rounds += 1
        rewritten = _Rewriter(ranges)
        following = list(ranges)
        for instance in form.instances:
            guard = rewritten.one(instance.guard)
            if guard.is_constant and not guard.value:
                continue
            for position, node in instance.assignments.items():
                given, element = rewritten.one(node), form.elements[position]
                low, high = following[position]
                following[position] = min(low, max(given.low, element.low)), max(high, min(given.high, element.high))
        if following == ranges:
            break
        if rounds > PATIENCE:
            following = [
                (old[0] if new[0] == old[0] else e.low, old[1] if new[1] == old[1] else e.high)
                for old, new, e in zip(ranges, following, form.elements, strict=True)
            ]
        ranges = following
    return _rewritten(form, ranges)


class _Rewriter:
    """Makes expressions anew over other ranges."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.nodes = Nodes(ranges)
        self.known: dict[Node, Node] = {}

    def one(self, root: Node) -> Node:
        known = self.known.get(root)
        return self.nodes.over(root, self.nodes.element, self.known) if known is None else known


def _rewritten(form: ScalarModel, ranges: Sequence[Range]) -> ScalarModel:
    """The model over narrower ranges. Elements keep their places and their declared bounds."""
    rewriter = _Rewriter(ranges)

    def instances() -> Iterable[Instance]:
        for instance in form.instances:
            guard = rewriter.one(instance.guard)
            if guard.is_constant and not guard.value:
                continue
            assignments = {
                position: rewriter.one(node)
                for position, node in instance.assignments.items()
                if rewriter.one(node) is not rewriter.nodes.element(position)
            }
            yield replace(instance, guard=guard, assignments=assignments, misread=rewriter.one(instance.misread))

    return replace(
        form,
        instances=tuple(instances()),
        claims=tuple(replace(c, holds=rewriter.one(c.holds)) for c in form.claims),
        witnesses=tuple(replace(w, occurs=rewriter.one(w.occurs)) for w in form.witnesses),
        misread=rewriter.one(form.misread),
        finished=None if form.finished is None else rewriter.one(form.finished),
        rank=None if form.rank is None else rewriter.nodes.number(rewriter.one(form.rank)),
        nodes=rewriter.nodes,
    )
