"""The properties of a machine as options of the loop, which nothing takes while they hold.

The option of a broken property names it in `violated` and asserts that it does not. A property that breaks by taking an
action (`at` an action, or a rank that does not rise) is named in `violated` by that step and reported by the next one.
So the report is always the step after the last one of the counterexample, whatever kind of property it is about.
"""

from __future__ import annotations

from ...language.machine import Progress
from ...language.scalar_form import Instance, ScalarClaim, ScalarModel
from ...language.scalar_nodes import Node
from .actions import Actions, option
from .expressions import Expressions
from .layout import Group, Piece, comment, indented
from .names import identifier


class Checks:
    """The options of all properties that are to be looked at."""

    def __init__(self, form: ScalarModel, expressions: Expressions, actions: Actions, properties: list[str]) -> None:
        self.form, self.expressions, self.actions, self.properties = form, expressions, actions, properties

    def lines(self) -> list[str]:
        """All of them, above each its name and its sentence."""
        text: list[str] = []
        for name in self.properties:
            known = self.form.machine.properties.get(name)
            if known is None:
                assert self.form.machine.progress is not None
                text += self.progress(self.form.machine.progress)
                continue
            text += ["", *indented(comment(f"{name}: {known.sentence}"), 2)]
            claims = [claim for claim in self.form.claims if claim.property == name]
            for at in dict.fromkeys(claim.at for claim in claims if claim.at is not None and claim.taken is None):
                own = [claim for claim in claims if claim.at == at]
                text += self.claimed_at(name, [i for i in self.actions.possible if i.action == at], own)
            for instance in self.actions.possible:
                own = [claim for claim in claims if claim.taken == (instance.action, instance.index)]
                text += self.claimed_at(name, [instance], own) if own else []
            text += self.claimed_always(name, [claim for claim in claims if claim.in_states])
        return text

    def claimed_at(self, name: str, instances: list[Instance], claims: list[ScalarClaim]) -> list[str]:
        """Where one of the instances is to be taken: this step stands for it, which the property forbids."""
        nodes = self.form.nodes
        broken = self.broken(claims)
        if not instances or broken is nodes.false:
            return []
        text = self.expressions.parts([broken])
        taken: Piece = Group("(", [("|| " if n else "", self.actions.enabled(i)) for n, i in enumerate(instances)], ")")
        condition = Group("(", [("", taken), ("&& ", self.expressions.piece(broken))], ")")
        return text + option(condition, [f"violated = {identifier(name)}"])

    def claimed_always(self, name: str, claims: list[ScalarClaim]) -> list[str]:
        """In every state."""
        broken = self.broken(claims)
        text = self.expressions.parts([broken])
        return text + self.report(name, [] if broken is self.form.nodes.false else [self.expressions.piece(broken)])

    def progress(self, progress: Progress) -> list[str]:
        """An unfinished state that enables no action of progress. That the rank rises is looked at in the actions."""
        assert self.form.finished is not None
        text = ["", *indented(comment(f"{progress.name}: {progress.sentence}"), 2)]
        text += self.expressions.name(self.form.finished, "finished")
        able = [self.actions.enabled(i) for i in self.actions.possible if i.progress]
        stalled = Group("(", [("", "!finished"), *(("&& ", f"!{guard}") for guard in able)], ")")
        return text + self.report(progress.name, [stalled])

    def broken(self, claims: list[ScalarClaim]) -> Node:
        return self.form.nodes.not_(self.form.nodes.all_of(claim.holds for claim in claims))

    def report(self, name: str, broken: list[Piece]) -> list[str]:
        named = identifier(name)
        condition = Group("(", [("", f"violated == {named}"), *(("|| ", piece) for piece in broken)], ")")
        return option(condition, [f"violated = {named}", f"assert(violated != {named})"])
