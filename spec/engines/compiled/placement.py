"""Which shared expressions generated code works out once, and where.

The text of a function is a tree of blocks: a statement is a line or an `if` with a block of its own. A node that is
used twice gets a name, in the innermost block that encloses all its uses, right before the first of them; one that is
used once is written where it is used. So nothing is worked out in a state that does not need it, but for what several
branches share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from ...language.packing import Packing
from ...language.scalar_nodes import Node

Uses: TypeAlias = dict[Node, list[tuple["Block", int]]]
DEEPEST = 12  # nested operators on one line; beyond it a node gets a name


class Block:
    """A run of statements. Each is a function that renders its lines, given the names known where it stands."""

    def __init__(self, parent: Block | None = None, at: int = 0) -> None:
        self.parent = parent
        self.at = at
        """The statement of the parent block that this block belongs to."""
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.statements: list[Callable[[], list[str]]] = []
        self.uses: list[tuple[Node, int]] = []
        """Nodes used in a statement of this block itself, with the place of the statement."""
        self.own_uses: list[tuple[Node, int]] = []
        """The same of statements whose expressions are never worked out outside this block."""
        self.own_names: dict[Node, str] = {}
        self.placed: dict[int, list[tuple[Node, str]]] = defaultdict(list)

    def say(self, nodes: Iterable[Node], render: Callable[[], list[str]], *, own: bool = False) -> None:
        """Append a statement that uses these nodes; `own` keeps all that it needs inside this block."""
        kept = self.own_uses if own else self.uses
        kept += [(node, len(self.statements)) for node in nodes]
        self.statements.append(render)

    def encloses(self, place: int, block: Block) -> bool:
        """Whether what stands before statement `place` here has been worked out where that block begins."""
        at: int | None = None
        while block.depth > self.depth:
            assert block.parent is not None
            block, at = block.parent, block.at
        return block is self and (at is None or at >= place)


class Writer:
    """Renders one function: finds the place of every shared node and writes expressions with their names."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self.root = Block()
        self.blocks = [self.root]
        self.shared: dict[Node, tuple[Block, int]] = {}

    def when(self, block: Block, condition: Node) -> Block:
        """Append `if condition:` to a block and return the block inside."""
        inner = Block(block, len(block.statements))
        self.blocks.append(inner)

        def render() -> list[str]:
            return [f"if {self.text(condition, block)}:", *("    " + line for line in self.rendered(inner))]

        block.say([condition], render)
        return inner

    def rendered(self, block: Block) -> list[str]:
        """The lines of a block."""
        lines: list[str] = []
        for place, statement in enumerate(block.statements):
            for node, name in sorted(block.placed[place], key=lambda named: named[0].number):
                lines.append(f"{name} = {self.written(node, block)}")
            lines += statement()
        return lines

    def finish(self) -> list[str]:
        """Place the shared nodes and render the whole."""
        uses: Uses = defaultdict(list)
        for block in self.blocks:
            for node, place in block.uses:
                uses[node].append((block, place))
        for node, (block, place) in self.placements(uses, lambda node: False):
            self.shared[node] = (block, place)
            block.placed[place].append((node, f"t{node.number}"))
        for number, own in enumerate(b for b in self.blocks if b.own_uses):
            uses = defaultdict(list)
            for node, place in own.own_uses:
                uses[node].append((own, place))
            for node, (block, place) in self.placements(uses, lambda node, own=own: self.is_known(node, own)):  # type: ignore[misc]
                own.own_names[node] = f"o{number}_{node.number}"
                block.placed[place].append((node, own.own_names[node]))
        return self.rendered(self.root)

    @staticmethod
    def placements(uses: Uses, known: Callable[[Node], bool]) -> list[tuple[Node, tuple[Block, int]]]:
        """Which nodes get a name, and before which statement. Those known already are left alone."""
        found: list[tuple[Node, tuple[Block, int]]] = []
        heights = _heights(uses)
        waiting = {node.number: node for node in uses}
        while waiting:
            node = waiting.pop(max(waiting))
            if node.is_constant or known(node):
                continue
            where = uses[node]
            if len(where) > 1 or heights[node] % DEEPEST == 0:
                where = [_common(where)]
                found.append((node, where[0]))
            for argument in node.arguments:
                uses[argument].append(where[0])
                waiting[argument.number] = argument
        return found

    def is_known(self, node: Node, block: Block) -> bool:
        """Whether a shared node has been worked out where the block begins."""
        at = self.shared.get(node)
        return at is not None and at[0].encloses(at[1], block)

    def text(self, node: Node, block: Block) -> str:
        """An expression for the node in that block: its name where it has one."""
        if node in block.own_names:
            return block.own_names[node]
        return f"t{node.number}" if self.is_known(node, block) else self.written(node, block)

    def written(self, node: Node, block: Block) -> str:
        """The node written out, its named arguments by name."""
        operator = node.operator
        if operator == "constant":
            return repr(bool(node.value)) if node.truth else repr(node.value)
        if operator == "element":
            field = self.packing.fields[node.value]
            bits = f"(w{field.word} >> {field.shift})" if field.shift else f"w{field.word}"
            value = f"({bits} & {field.mask})"
            return f"({value} + {field.low})" if field.low else value
        parts = [self.text(a, block) for a in node.arguments]
        if operator == "not":
            return f"(not {parts[0]})"
        if operator == "where":
            return f"{'choose_truth' if node.truth else 'choose'}({', '.join(parts)})"
        sign = {"and": "&", "or": "|"}.get(operator, operator)
        return f"({f' {sign} '.join(parts)})"


def _heights(roots: Mapping[Node, object]) -> dict[Node, int]:
    """How many operators are nested in each node, at least 1."""
    heights: dict[Node, int] = {}
    waiting = list(roots)
    while waiting:
        node = waiting[-1]
        missing = [a for a in node.arguments if a not in heights]
        if missing:
            waiting += missing
        else:
            waiting.pop()
            heights[node] = 1 + max((heights[a] for a in node.arguments), default=0)
    return heights


def _common(uses: list[tuple[Block, int]]) -> tuple[Block, int]:
    """The innermost block that encloses all uses, and the first of its statements that holds one."""
    block, place = uses[0]
    for other, at in uses[1:]:
        while block.depth > other.depth:
            assert block.parent is not None
            block, place = block.parent, block.at
        while other.depth > block.depth:
            assert other.parent is not None
            other, at = other.parent, other.at
        while block is not other:
            assert block.parent is not None
            assert other.parent is not None
            block, place, other, at = block.parent, block.at, other.parent, other.at
        place = min(place, at)
    return block, place
