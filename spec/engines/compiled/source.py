"""The text generated from a model: six functions over arrays of packed states.

    expand        every enabled instance of a run of states, in order: the states they lead to
    broken        the first state that breaks a property wanted
    broken_at     the first transition that a property wanted forbids
    unfinished    the first state that can take no action of progress and has not ended
    witness       cross off the premises that occur in a run of states
    witness_at    the same of premises looked at before an action

The text is plain Python on 64-bit numbers. Compiled or interpreted it means the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ...language.packing import Packing, signed
from ...language.scalar_checks import claims_by_property, faults, rises
from ...language.scalar_form import ScalarModel
from ...language.scalar_nodes import Node, Nodes, in_order
from .placement import Block, Writer

FALLS: Final = 1 << 20
"""Added to the number of an instance of progress that does not raise the rank."""
CHEAP: Final = 24
"""A condition of more nodes is looked at only when the cheap ones hold."""
HEADER = '''"""Generated from the machine {machine!r}, scope {scope}, variants {variants}. Do not edit."""

from spec.engines.compiled.words import choose, choose_truth, generated

'''
ALL_ROWS = ("for row in range(first, last):",)


@dataclass(frozen=True)
class Generated:
    """The generated text, and what is needed to read its results."""

    form: ScalarModel
    packing: Packing
    properties: tuple[str, ...]
    """In order; bit `i` of `wanted` is for the i-th."""
    text: str


def generate(form: ScalarModel) -> Generated:
    """The text for a model, whose ranges should be narrowed before."""
    return _Generator(form).generated()


class _Generator:
    def __init__(self, form: ScalarModel) -> None:
        self.form = form
        self.packing = Packing([_range(form.nodes, i) for i in range(len(form.elements))])
        self.properties = tuple(dict.fromkeys(c.property for c in form.claims))
        self.bits = {name: 1 << i for i, name in enumerate(self.properties)}

    def generated(self) -> Generated:
        form = self.form
        # The text of several variants is one file, whichever of them is asked for.
        names = "several" if form.switch is not None else "+".join(form.variants) or "none"
        header = HEADER.format(machine=form.machine.name, scope=form.scope, variants=names)
        functions = [
            self.expand(),
            self.broken(),
            self.broken_at(),
            self.unfinished(),
            self.witness(),
            self.witness_at(),
        ]
        return Generated(form, self.packing, self.properties, header + "\n\n".join(functions))

    # -------------------------------------------------------------------------------------------- Frames

    def function(self, head: str, lines: Iterable[str]) -> str:
        return "\n".join(["@generated", f"def {head}:", *("    " + line for line in lines), ""])

    def over_rows(self, body: list[str], before: Sequence[str] = ALL_ROWS, deeper: int = 1) -> list[str]:
        """A loop over states, whose words are read once for each."""
        used = [w for w in range(self.packing.words) if any(f"w{w} " in line or f"w{w})" in line for line in body)]
        words = [f"w{w} = states[row, {w}]" for w in used]
        return [*before, *("    " * deeper + line for line in [*words, *body])]

    # ------------------------------------------------------------------------------------------- Actions

    def expand(self) -> str:
        writer = Writer(self.packing)
        if not _is(self.form.misread, False):
            wrong = writer.when(writer.root, self.form.misread)
            wrong.say([], lambda: ["origin[n] = row", "instance[n] = -1", "return -1 - n"])
        conditions = [(k, _conjuncts(instance.guard)) for k, instance in enumerate(self.form.instances)]
        self.group(writer, writer.root, conditions)
        body = writer.finish()
        loop = self.over_rows(body) if body else []
        return self.function("expand(states, first, last, out, origin, instance)", ["n = 0", *loop, "return n"])

    def group(self, writer: Writer, block: Block, items: Sequence[tuple[int, list[Node]]]) -> None:
        """Write instances in their order; neighbours that share a condition look at it together."""
        i = 0
        while i < len(items):
            number, conditions = items[i]
            runs = {c: _run(items, i, c) for c in conditions}
            shared = max(conditions, key=lambda c: runs[c], default=None)
            if shared is not None and runs[shared] > 1:
                together = [c for c in conditions if runs[c] == runs[shared]]
                rest = [(k, [c for c in cs if c not in together]) for k, cs in items[i : i + runs[shared]]]
                self.group(writer, self.nested(writer, block, together), rest)
                i += runs[shared]
                continue
            self.take(writer, self.nested(writer, block, conditions or [self.form.nodes.true]), number)
            i += 1

    def nested(self, writer: Writer, block: Block, conditions: list[Node]) -> Block:
        """The block in which all the conditions hold."""
        for condition in self.by_cost(conditions):
            block = writer.when(block, condition)
        return block

    def by_cost(self, conditions: list[Node]) -> list[Node]:
        """The cheap conditions as one, then each of the others."""
        cheap = [c for c in conditions if len(in_order([c])) <= CHEAP]
        dear = [c for c in conditions if len(in_order([c])) > CHEAP]
        return [*([self.form.nodes.all_of(cheap)] if cheap else []), *dear]

    def take(self, writer: Writer, block: Block, number: int) -> None:
        """The state that an instance leads to, as its words; and whether the text went wrong."""
        instance = self.form.instances[number]
        wrong = faults(self.form, instance)
        onward = rises(self.form, instance)
        by_word: dict[int, dict[int, Node]] = defaultdict(dict)
        for position, node in instance.assignments.items():
            by_word[self.packing.fields[position].word][position] = node

        def render() -> list[str]:
            lines = [f"# {instance.label}", "origin[n] = row"]
            code = f"choose({writer.text(onward, block)}, {number}, {number + FALLS})"
            lines.append(f"instance[n] = {number if _is(onward, True) else code}")
            if not _is(wrong, False):
                lines += [f"if {writer.text(wrong, block)}:", "    return -1 - n"]
            for word in range(self.packing.words):
                lines.append(f"out[n, {word}] = {self.word_after(word, by_word[word], writer, block)}")
            return [*lines, "n += 1"]

        block.say([*instance.assignments.values(), wrong, onward], render, own=True)

    def word_after(self, word: int, assigned: dict[int, Node], writer: Writer, block: Block) -> str:
        """One word of the state after: what is kept, the constants, and what is worked out."""
        cleared = constant = 0
        parts: list[str] = []
        for position, node in assigned.items():
            field = self.packing.fields[position]
            cleared |= field.mask << field.shift
            if node.is_constant:
                constant |= (node.value - field.low) << field.shift
            elif field.bits:
                value = writer.text(node, block)
                value = f"({value} - {field.low})" if field.low > 0 else value
                value = f"({value} + {-field.low})" if field.low < 0 else value
                parts.append(f"({value} << {field.shift})" if field.shift else value)
        if cleared:
            kept = signed(~cleared)
            parts.insert(0, f"(w{word} & {kept})" if kept else "0")
        else:
            parts.insert(0, f"(w{word} | 0)")
        if constant:
            parts.append(str(signed(constant)))
        return " | ".join(parts)

    # -------------------------------------------------------------------------------------------- Claims

    def look(self, writer: Writer, block: Block, claims: dict[str, Node], verdict: str) -> None:
        """Return the verdict where a property wanted is broken: first all at once, then which."""
        if not claims:
            return
        somewhere = writer.when(block, self.form.nodes.not_(self.form.nodes.all_of(claims.values())))
        for name, holds in claims.items():
            this = writer.when(somewhere, self.form.nodes.not_(holds))
            bit = self.bits[name]
            this.say([], _constant_lines(f"if (wanted & {bit}) != 0:", f"    return {verdict}"))

    def broken(self) -> str:
        writer = Writer(self.packing)
        self.look(writer, writer.root, claims_by_property(self.form, None), "row")
        body = writer.finish()
        loop = self.over_rows(body) if body else []
        return self.function("broken(states, first, last, wanted)", [*loop, "return -1"])

    def by_action(self, render: Callable[[Writer, str], None]) -> list[str]:
        """For each action that claims look at: its instances' numbers, and what is to be done there."""
        lines: list[str] = []
        for action in dict.fromkeys(c.at for c in self.form.claims if c.at is not None):
            numbers = [k for k, instance in enumerate(self.form.instances) if instance.action == action]
            if not numbers:
                continue
            writer = Writer(self.packing)
            render(writer, action)
            body = writer.finish()
            if body:
                test = f"if ({numbers[0]} <= k) & (k <= {numbers[-1]}):"
                lines += self.over_rows(body, [test, "    row = origin[i]"])
        return lines

    def by_instance(self) -> list[str]:
        """For each instance that claims about steps look at: its number, and where one of them is broken."""
        lines: list[str] = []
        of_steps = {c.taken for c in self.form.claims} - {None}
        for number, instance in enumerate(self.form.instances):
            taken = (instance.action, instance.index)
            if taken in of_steps:
                writer = Writer(self.packing)
                self.look(writer, writer.root, claims_by_property(self.form, None, taken), "i")
                body = writer.finish()
                if body:
                    lines += self.over_rows(body, [f"if k == {number}:", "    row = origin[i]"])
        return lines

    def over_steps(self, lines: list[str]) -> list[str]:
        """A loop over the steps of a run of states."""
        if not lines:
            return []
        return ["for i in range(count):", f"    k = instance[i] & {FALLS - 1}", *("    " + line for line in lines)]

    def broken_at(self) -> str:
        def render(writer: Writer, action: str) -> None:
            self.look(writer, writer.root, claims_by_property(self.form, action), "i")

        # Of two claims that one step breaks it does not matter which is met first: the first step is what is asked for.
        body = self.over_steps([*self.by_action(render), *self.by_instance()])
        return self.function("broken_at(states, origin, instance, count, wanted)", [*body, "return -1"])

    def unfinished(self) -> str:
        finished = self.form.finished
        loop: list[str] = []
        if finished is not None:
            writer = Writer(self.packing)
            block = writer.when(writer.root, self.form.nodes.not_(finished))
            block.say([], lambda: ["return row"])
            loop = self.over_rows(
                writer.finish(), ["for row in range(first, last):", "    if lively[row - first] == 0:"], 2
            )
        return self.function("unfinished(states, first, last, lively)", [*loop, "return -1"])

    def cross_off(self, writer: Writer, at: str | None) -> None:
        for i, witness in enumerate(self.form.witnesses):
            if witness.at == at and not _is(witness.occurs, False):
                # The number of the witness is its place in `missing`.
                pending = Block(writer.root, len(writer.root.statements))
                writer.blocks.append(pending)
                found = writer.when(pending, witness.occurs)
                found.say([], _constant_lines(f"missing[{i}] = 0"))
                writer.root.say([], _pending(writer, pending, i))

    def witness(self) -> str:
        writer = Writer(self.packing)
        self.cross_off(writer, None)
        body = writer.finish()
        return self.function(
            "witness(states, first, last, missing)", [*(self.over_rows(body) if body else []), "return 0"]
        )

    def witness_at(self) -> str:
        lines = self.over_steps(self.by_action(self.cross_off))
        return self.function("witness_at(states, origin, instance, count, missing)", [*lines, "return 0"])


def _range(nodes: Nodes, position: int) -> tuple[int, int]:
    node = nodes.element(position)
    return node.low, node.high


def _is(node: Node, value: bool) -> bool:
    return node.is_constant and node.truth and bool(node.value) is value


def _constant_lines(*lines: str) -> Callable[[], list[str]]:
    return lambda: list(lines)


def _pending(writer: Writer, block: Block, number: int) -> Callable[[], list[str]]:
    return lambda: [f"if missing[{number}] != 0:", *("    " + line for line in writer.rendered(block))]


def _conjuncts(guard: Node) -> list[Node]:
    if _is(guard, True):
        return []
    return list(guard.arguments) if guard.operator == "and" else [guard]


def _run(items: Sequence[tuple[int, list[Node]]], first: int, condition: Node) -> int:
    """How many items from the first on share the condition."""
    length = 0
    while first + length < len(items) and any(c is condition for c in items[first + length][1]):
        length += 1
    return length
