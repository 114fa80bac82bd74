"""The actions of a machine as options of the loop, one an index: guard, then effects, in one step."""

from __future__ import annotations

import inspect

from ...language.machine import Progress
from ...language.scalar_form import Instance, ScalarModel
from ...language.scalar_nodes import Node, in_order
from .expressions import Expressions
from .layout import WIDTH, Group, Piece, comment, indented, lines
from .names import identifier
from .simultaneous import one_by_one

# What the margin of an effect leaves of a line.
ROOM = WIDTH - 8


def option(condition: Piece, statements: list[str]) -> list[str]:
    """One option: where the condition holds all statements happen in one step."""
    opening = lines(Group(":: d_step { ", [("", condition)], " ->"), WIDTH - 2)
    body = indented(";\n".join(statements).split("\n"), 5)
    return indented([*opening, *body, "   }"], 2)


class Actions:
    """The options of all actions, and what an action needs beside the variables of the machine."""

    def __init__(self, form: ScalarModel, expressions: Expressions, progress: Progress | None) -> None:
        self.form, self.expressions, self.progress = form, expressions, progress
        self.possible = [i for i in form.instances if i.guard is not form.nodes.false]
        # How many new values one action keeps aside at most, and between which numbers they lie.
        self.aside = 0
        self.aside_range = (0, 0)

    @staticmethod
    def enabled(instance: Instance) -> str:
        """The name of the guard of an action at an index."""
        return f"can_{instance.label}"

    def lines(self) -> list[str]:
        """All options, above those of each action its name and the first sentence of its text."""
        text: list[str] = []
        described = ""
        for instance in self.possible:
            if instance.action != described:
                described = instance.action
                action = self.form.machine.actions[described]
                sentence = (inspect.getdoc(action.function) or "").split("\n\n")[0]
                text += ["", *indented(comment(f"{described} ({action.who}): {sentence}"), 2)]
            text += self.expressions.name(instance.guard, self.enabled(instance))
            text += self.expressions.parts(instance.assignments.values())
            text += option(self.enabled(instance), self.statements(instance))
        return text

    def statements(self, instance: Instance) -> list[str]:
        """The effects; for an action of progress with a look at the rank before and after them."""
        effects = self.effects(instance)
        if self.progress and instance.progress:
            broken = f"violated = (rank > rank_before -> violated : {identifier(self.progress.name)})"
            return ["rank_before = rank", *effects, broken, "rank_before = 0"]
        return effects or ["skip"]

    def effects(self, instance: Instance) -> list[str]:
        """The assignments one after the other, none reading what another has written."""
        new = instance.assignments
        reads = {p: frozenset(n.value for n in in_order([node]) if n.operator == "element") for p, node in new.items()}
        aside, in_place = one_by_one(reads)
        self.aside = max(self.aside, len(aside))
        for position in aside:
            low, high = self.aside_range
            self.aside_range = min(low, new[position].low), max(high, new[position].high)
        target = self.expressions.target
        return [
            *(self.assignment(f"aside[{i}]", p, new[p]) for i, p in enumerate(aside)),
            *(self.assignment(target(p), p, new[p]) for p in in_place),
            *(f"{target(p)} = aside[{i}]" for i, p in enumerate(aside)),
            *(f"aside[{i}] = 0" for i in range(len(aside))),
        ]

    def assignment(self, target: str, position: int, node: Node) -> str:
        """One assignment; `position` says after which variable its values are called."""
        value = self.expressions.piece(node, self.form.elements[position].name)
        if isinstance(value, Group) and node.operator in ("+", "-", "*"):
            bare = Group(f"{target} = ", value.parts, "")
            # Over several lines the parentheses stay: Spin ends a statement at the end of a line if it can.
            if len(bare.flat) <= ROOM:
                return bare.flat
        return "\n".join(lines(Group(f"{target} = ", [("", value)], ""), ROOM))
