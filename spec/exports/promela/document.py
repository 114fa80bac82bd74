"""The whole Promela text of a machine within one scope.

One process runs one loop, and every option of the loop is one `d_step`, so there is a single control location: a state
of Spin is a state of the machine, a step an action. What stands beside the machine's variables (`violated`, and what
an action keeps while it is taken) has one value in every state of a machine that holds, and so adds none. Spin refuses
variables it need not store, `hidden` ones, when it searches breadth first.

A fault of the machine's own text, a value outside its range or an index outside its vector, is for our engines to
report: the export takes it that there is none.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from ...language.machine import Machine, ModelFault
from ...language.narrowing import narrowed
from ...language.scalar_form import ScalarModel, scalar_form
from .actions import Actions
from .checks import Checks
from .expressions import Expressions
from .layout import WIDTH, comment
from .names import ValueNames, identifier

ABOUT = """\
One option of the loop is one action for one index, taken in one d_step: a state of Spin is a state of the machine.
A property that breaks is named in `violated`, and the step after the one that broke it asserts that it is not. With
-DBFS the depth of a failed assertion is the number of steps of a shortest counterexample.

    spin -o2 -a FILE && gcc -O2 -DBFS -DSAFETY -DNOREDUCE -o pan pan.c && ./pan
    spin -t -p FILE      the steps of a counterexample, and in the failed assertion the property that broke

Without -o2 Spin forgets the value of a variable that nothing reads, and counts too few states."""


def export_promela(
    machine: Machine,
    scope: Any,
    variants: Sequence[str] = (),
    *,
    properties: Iterable[str] | None = None,
    scope_name: str = "",
) -> str:
    """The Promela text of a machine within a scope, with the named variants applied.

    `properties` restricts what is checked to those names; None checks all, an empty one only enumerates the states.
    """
    form = narrowed(scalar_form(machine, scope, variants))
    progress = form.machine.progress
    known = [*form.machine.properties, *([progress.name] if progress else [])]
    wanted = known if properties is None else list(properties)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ModelFault(f"machine {machine.name!r} has no property {unknown[0]!r}; it has {', '.join(known)}")
    return "\n".join(_document(form, [name for name in known if name in wanted], scope_name)) + "\n"


def _document(form: ScalarModel, properties: list[str], scope_name: str) -> list[str]:
    machine = form.machine
    progress = machine.progress if machine.progress and machine.progress.name in properties else None
    roots = [node for i in form.instances for node in (i.guard, *i.assignments.values())]
    roots += [claim.holds for claim in form.claims if claim.property in properties]
    names = ValueNames(machine.variables.values())
    expressions = Expressions(form, names, roots)
    actions = Actions(form, expressions, progress)
    rank: list[str] = []
    if progress is not None:
        assert form.rank is not None
        rank = ["/* Rises with every action of progress. */", *expressions.name(form.rank, "rank"), ""]
    options = [*actions.lines(), *Checks(form, expressions, actions, properties).lines()]
    return [
        *_heading(form, scope_name),
        "",
        *names.definitions(),
        "",
        *_variables(form, names),
        "",
        *_beside_the_machine(form, actions, properties),
        "",
        *rank,
        f"active proctype {machine.name}_machine() {{",
        "end:",
        "  do",
        *options,
        "  od",
        "}",
    ]


def _heading(form: ScalarModel, scope_name: str) -> list[str]:
    varied = f" with {' + '.join(form.variants)}" if form.variants else ""
    named = f", scope {scope_name}" if scope_name else ""
    title = f"The machine {form.machine.name}{varied}{named}: {form.scope!r}"
    text = [*textwrap.wrap(title, WIDTH - 3), "", *ABOUT.splitlines()]
    return ["/*", *(f" * {line}".rstrip() for line in text), " */"]


def _variables(form: ScalarModel, names: ValueNames) -> list[str]:
    """The state. What keeps one value in this scope is left out, and its value stands wherever it is read."""
    text = []
    for variable in form.machine.variables.values():
        places = [(p, e) for p, e in enumerate(form.elements) if e.name == variable.name]
        if any(not form.nodes.element(position).is_constant for position, _ in places):
            first = places[0][1]
            size = "" if first.index is None else f"[{len(places)}]"
            kind = _type(first.low, first.high)
            initial = names.called(variable.name, first.initial)
            meaning = " ".join(comment(variable.meaning))
            text.append(f"{kind} {identifier(variable.name)}{size} = {initial};  {meaning}")
    return text


def _beside_the_machine(form: ScalarModel, actions: Actions, properties: list[str]) -> list[str]:
    """What is no part of the state: it has one value wherever Spin looks, as long as all properties hold."""
    text = []
    if properties:
        broken = [identifier(name) for name in properties]
        text += textwrap.wrap(f"mtype = {{ nothing, {', '.join(broken)} }};", WIDTH, subsequent_indent="  ")
        text.append("mtype violated = nothing;  /* the property that broke */")
    if actions.progress is not None:
        assert form.rank is not None
        kind = _type(min(form.rank.low, 0), max(form.rank.high, 0))
        text.append(f"{kind} rank_before;  /* while an action is taken; else 0 */")
    if actions.aside:
        kind = _type(*actions.aside_range)
        text.append(f"{kind} aside[{actions.aside}];  /* new values, while an action is taken; else 0 */")
    return text


def _type(low: int, high: int) -> str:
    """The smallest type of Promela for numbers from `low` to `high`."""
    if low >= 0 and high <= 255:
        return "bit" if high <= 1 else "byte"
    return "short" if low >= -(2**15) and high < 2**15 else "int"
