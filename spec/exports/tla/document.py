"""The TLA+ module of a machine within one scope, and the configuration with which TLC checks it.

Actions, variables and properties have the machine's names. A property that is looked at where an action is to be taken
is a claim about the states that enable it; that a run can always go on is a claim about states, and that each action of
progress raises the rank one about steps.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, Final

from ...language.expression import Domain, Symbol, SymbolicVector
from ...language.machine import Action, Bound, Claim, Machine, ModelFault, Property
from ..promela.names import ValueNames
from .expressions import Expressions
from .names import Names

WIDTH: Final = 118
ABOUT: Final = """\
A step of Next is one action for one index. The bounds are those of one scope; for another one export again.

    java -cp tla2tools.jar tlc2.TLC -deadlock -workers 2 {name}      with {name}.cfg beside it

-deadlock: that a run may come to its end is no deadlock; that it never stands still before is no_stall's to say."""
TOTAL: Final = """\
RECURSIVE Total(_, _)
Total(f, over) ==
  IF over = {} THEN 0 ELSE LET one == CHOOSE any \\in over : TRUE IN f[one] + Total(f, over \\ {one})"""


@dataclass(frozen=True)
class Export:
    """The module, and the configuration that belongs beside it."""

    module: str
    configuration: str


def export_tla(
    machine: Machine,
    scope: Any,
    variants: Sequence[str] = (),
    *,
    properties: Iterable[str] | None = None,
    scope_name: str = "",
    name: str | None = None,
) -> Export:
    """The TLA+ text of a machine within a scope, with the named variants applied.

    `properties` restricts what the configuration checks; `name` is that of the module, which must be that of its file.
    """
    return _Document(machine.varied(variants), scope, tuple(variants), scope_name, name or machine.name).export(
        properties
    )


class _Document:
    """Writes one module, part by part."""

    def __init__(self, machine: Machine, scope: Any, variants: Sequence[str], scope_name: str, name: str) -> None:
        if not name.isidentifier() or not name.isascii():
            raise ModelFault(f"{name!r} is no name of a TLA+ module: letters, digits and underscores")
        self.machine, self.scope, self.variants = machine, scope, variants
        self.scope_name, self.name = scope_name, name
        self.names = Names()
        self.values = ValueNames(machine.variables.values())
        self.expressions = Expressions(self.names, self.values)
        self.sizes = {domain: size(scope) for domain, size in machine.domains.items()}
        # What a reader looks for first gets its own name.
        for variable in machine.variables:
            self.names.of("variable", variable)
        for definition in self.values.definitions():
            self.names.of("value", definition.split()[1])
        for action in machine.actions:
            self.names.of("action", action)
        self.state = self.symbols()

    def actions(self) -> list[Action]:
        return [a for a in self.machine.actions.values() if a.when is None or a.when(self.scope)]

    def symbols(self) -> SimpleNamespace:
        """The state as the text sees it; bounds of the scope keep their names too."""
        names: dict[str, Any] = {f.name: Symbol("bound_of_scope", f.name) for f in fields(self.scope)}
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

    def export(self, properties: Iterable[str] | None) -> Export:
        progress = self.machine.progress
        known = [*self.machine.properties, *([progress.name] if progress else [])]
        wanted = known if properties is None else list(properties)
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise ModelFault(f"machine {self.machine.name!r} has no property {unknown[0]!r}; it has {', '.join(known)}")
        parts = [
            self.heading(),
            ["EXTENDS Integers, FiniteSets"],
            self.bounds(),
            self.variables(),
            [f"{symbol} == {value}" for _, symbol, value in (d.split() for d in self.values.definitions())],
            TOTAL.splitlines(),
            self.ranges(),
            self.initial(),
            *(self.action(action) for action in self.actions()),
            self.following(),
        ]
        invariants, steps = ["TypeOK"], []
        for name in [n for n in self.machine.properties if n in wanted]:
            lines, of_states, of_steps = self.property(name)
            parts.append(lines)
            invariants += of_states
            steps += of_steps
        if progress is not None and progress.name in wanted:
            lines, state, step = self.progress()
            parts.append(lines)
            invariants.append(state)
            steps.append(step)
        body = "\n\n".join("\n".join(lines) for lines in parts if lines)
        configuration = ["SPECIFICATION Spec", *(f"INVARIANT {name}" for name in invariants)]
        configuration += [f"PROPERTY {name}" for name in steps]
        return Export(f"{body}\n\n{'=' * 60}\n", "\n".join(configuration) + "\n")

    # --------------------------------------------------------------------------------------------- Parts

    def heading(self) -> list[str]:
        varied = f" with {' + '.join(self.variants)}" if self.variants else ""
        named = f", scope {self.scope_name}" if self.scope_name else ""
        title = f"The machine {self.machine.name}{varied}{named}."
        lines = [*textwrap.wrap(one_line(title), WIDTH - 3), *ABOUT.format(name=self.name).splitlines()]
        dashes = "-" * 20
        return [f"{dashes} MODULE {self.name} {dashes}", *(f"\\* {line}".rstrip() for line in lines)]

    def bounds(self) -> list[str]:
        lines = ["\\* The scope."]
        for f in fields(self.scope):
            lines.append(f"{self.names.of('bound_of_scope', f.name)} == {_plain(int(getattr(self.scope, f.name)))}")
        for domain, size in self.sizes.items():
            lines.append(f"{self.names.of('domain', domain)} == 0 .. {_plain(size - 1)}")
        for name, (over, value) in self.machine.constants.items():
            index = self.names.bound(over, 0)
            cases = " [] ".join(f"{index} = {i} -> {_plain(value(self.scope, i))}" for i in range(self.sizes[over]))
            text = f"[{index} \\in {self.names.of('domain', over)} |-> CASE {cases}]"
            lines += _broken_up(f"{self.names.of('constant', name)} == {text}", "  ")
        return lines

    def variables(self) -> list[str]:
        lines = ["VARIABLES"]
        every = [self.names.of("variable", v) for v in self.machine.variables]
        for name, variable in zip(every, self.machine.variables.values(), strict=True):
            over = f", for each of {variable.over}" if variable.over else ""
            comma = "" if name == every[-1] else ","
            lines.append(f"  {name}{comma}  \\* {one_line(variable.meaning + over)}")
        return [*lines, "", *_broken_up(f"vars == <<{', '.join(every)}>>", "  ")]

    def ranges(self) -> list[str]:
        lines = ["\\* Every variable stays in its range.", "TypeOK =="]
        for variable in self.machine.variables.values():
            low, high = (_plain(self.resolved(b)) for b in (variable.low, variable.high))
            values = f"({low} .. {high})"
            if variable.over is not None:
                values = f"[{self.names.of('domain', variable.over)} -> {values}]"
            lines.append(f"  /\\ {self.names.of('variable', variable.name)} \\in {values}")
        return lines

    def initial(self) -> list[str]:
        lines = ["Init =="]
        for variable in self.machine.variables.values():
            first = self.resolved(variable.initial)
            value = self.values.called(variable.name, first) if first >= 0 else _plain(first)
            if variable.over is not None:
                index = self.names.bound(variable.over, 0)
                value = f"[{index} \\in {self.names.of('domain', variable.over)} |-> {value}]"
            lines.append(f"  /\\ {self.names.of('variable', variable.name)} = {value}")
        return lines

    def resolved(self, bound: Bound) -> int:
        return int(bound if isinstance(bound, int) else bound(self.scope))

    def action(self, action: Action) -> list[str]:
        """Two definitions: when it is enabled, and the step.

        The step says `enabled = TRUE`. Of a bare condition with alternatives TLC would go each way by itself and come
        to the same next state as often as alternatives hold, many thousand times with a sampler that compares weights.
        """
        bound: dict[int, str] = {}
        parameter, index = "", None
        if action.each is not None:
            index = Symbol("index", Domain(action.each, None))
            bound[id(index)] = self.names.bound(action.each, 0)
            parameter = f"({bound[id(index)]})"
        guard, effects = self.machine.evaluate(action, self.state, index)
        name = self.names.of("action", action.name)
        lines = [*_comment(f"{action.who}: {' '.join(action.meaning.split(chr(10) * 2)[0].split())}")]
        lines.append(f"{self.enabled(action)}{parameter} ==")
        for part in self.expressions.conjuncts(guard):
            lines += _item(self.expressions.truth(part, bound))
        lines += ["", f"{name}{parameter} ==", f"  /\\ {self.enabled(action)}{parameter} = TRUE"]
        for variable, value in effects.items():
            if variable not in self.machine.variables:
                raise ModelFault(
                    f"{action.name} changes a variable that {self.machine.name!r} does not have: {variable}"
                )
            over = self.machine.variables[variable].over
            write = self.expressions.number if over is None else self.expressions.vector
            lines += _item(f"{self.names.of('variable', variable)}' = {write(value, bound, variable)}")
        kept = [self.names.of("variable", v) for v in self.machine.variables if v not in effects]
        return [*lines, *(_item(f"UNCHANGED <<{', '.join(kept)}>>") if kept else [])]

    def enabled(self, action: Action) -> str:
        return self.names.of("enabled", f"{action.name}_enabled")

    def somewhere(self, action: Action, definition: str) -> str:
        """A definition of an action, at some index."""
        if action.each is None:
            return definition
        index = self.names.bound(action.each, 0)
        return f"(\\E {index} \\in {self.names.of('domain', action.each)} : {definition}({index}))"

    def following(self) -> list[str]:
        steps = [f"  \\/ {self.somewhere(a, self.names.of('action', a.name))}" for a in self.actions()]
        return ["Next ==", *steps, "", "Spec == Init /\\ [][Next]_vars"]

    def property(self, name: str) -> tuple[list[str], list[str], list[str]]:
        """The claims of a property, each a definition, and their names: of those about states, and about steps."""
        known = self.machine.properties[name]
        lines = _comment(known.sentence)
        defined: list[str] = []
        of_steps: list[str] = []
        present = {a.name: a for a in self.actions()}
        for claim in known.claims:
            if claim.at is not None and claim.at not in present:
                continue
            named = self.names.of("property", name if not defined + of_steps else f"{name}_at_{claim.at}")
            if claim.of_step:
                lines += _broken_up(f"{named} == [][{self.stepped(known, claim)}]_vars", "    ")
                of_steps.append(named)
                continue
            bound: dict[int, str] = {}
            if known.each is None:
                text = self.expressions.truth(claim.function(self.state), bound)
            else:
                index = Symbol("index", Domain(known.each, None))
                bound[id(index)] = self.names.bound(known.each, 0)
                inner = self.expressions.truth(claim.function(self.state, index), bound)
                text = f"(\\A {bound[id(index)]} \\in {self.names.of('domain', known.each)} : {inner})"
            if claim.at is not None:
                action = present[claim.at]
                text = f"({self.somewhere(action, self.enabled(action))} => {text})"
            lines += _broken_up(f"{named} == {text}", "    ")
            defined.append(named)
        return lines, defined, of_steps

    def stepped(self, known: Property, claim: Claim) -> str:
        """What a claim says of a step: of any, or of one by its action, at the index that this is taken for."""
        bound: dict[int, str] = {}
        index: tuple[Symbol, ...] = ()
        if known.each is not None:
            index = (Symbol("index", Domain(known.each, None)),)
            bound[id(index[0])] = self.names.bound(known.each, 0)
        text = self.expressions.truth(claim.function(self.state, self.state_after(), *index), bound)
        if claim.at is None:
            return text
        action = self.machine.actions[claim.at]
        if not index:
            return f"({self.somewhere(action, self.names.of('action', claim.at))} => {text})"
        name = bound[id(index[0])]
        taken = f"{self.names.of('action', claim.at)}({name})"
        return f"(\\A {name} \\in {self.names.of('domain', str(known.each))} : ({taken} => {text}))"

    def state_after(self) -> SimpleNamespace:
        """The state after a step: every variable primed."""
        primed: dict[str, Any] = {}
        for variable in self.machine.variables.values():
            before = getattr(self.state, variable.name)
            if isinstance(before, SymbolicVector):
                primed[variable.name] = SymbolicVector("primed", before.domain, variable.name)
            else:
                primed[variable.name] = Symbol("primed", variable.name)
        return SimpleNamespace(**{**vars(self.state), **primed})

    def progress(self) -> tuple[list[str], str, str]:
        """That a run can go on, and that each action of progress raises the rank."""
        progress = self.machine.progress
        assert progress is not None
        finished, rank = self.names.of("progress", "finished"), self.names.of("progress", "rank")
        name = self.names.of("property", progress.name)
        rises = self.names.of("property", f"{progress.name}_by_rank")
        onward = [a for a in self.actions() if a.progress]
        lines = _broken_up(f"{finished} == {self.expressions.truth(progress.finished(self.state), {})}", "    ")
        lines += _broken_up(f"{rank} == {self.expressions.number(progress.rank(self.state), {})}", "    ")
        lines += ["", *_comment(progress.sentence), f"{name} ==", f"  \\/ {finished}"]
        lines += [f"  \\/ {self.somewhere(a, self.enabled(a))}" for a in onward]
        lines += ["", f"{rises} ==", "  [][("]
        steps = [self.somewhere(a, self.names.of("action", a.name)) for a in onward]
        lines += [f"       {'' if i == 0 else chr(92) + '/ '}{step}" for i, step in enumerate(steps)]
        return [*lines, f"     ) => ({rank}' > {rank})]_vars"], name, rises


def _plain(number: int) -> str:
    return f"({number})" if number < 0 else str(number)


def one_line(text: str) -> str:
    """A text as one line: the one way of anybody's words into a comment, which ends with its line."""
    return " ".join(text.split())


def _comment(text: str) -> list[str]:
    return textwrap.wrap(one_line(text), WIDTH, initial_indent="\\* ", subsequent_indent="\\* ")


def _broken_up(text: str, indent: str) -> list[str]:
    """A definition in lines; what goes on stands further to the right than where it began."""
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> list[str]:
    """One item of a list of conjuncts; its further lines stand to the right of the sign."""
    return textwrap.wrap(
        text, WIDTH, initial_indent="  /\\ ", subsequent_indent=" " * 9, break_long_words=False, break_on_hyphens=False
    )
