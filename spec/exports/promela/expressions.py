"""Nodes of a machine's scalar form as Promela expressions.

Variables and values have the machine's names. A piece that occurs in several places becomes a definition, `part_3`,
written just before the first use; Promela has no other way to share inside an expression.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...language.scalar_form import ScalarModel
from ...language.scalar_nodes import Node, in_order
from .layout import WIDTH, Group, Piece, lines
from .names import ValueNames, identifier

# A piece below this many nodes is clearer where it stands than under a name.
WORTH_A_NAME = 14


class Expressions:
    """Writes nodes; remembers which pieces have a name by now."""

    def __init__(self, form: ScalarModel, names: ValueNames, roots: Iterable[Node]) -> None:
        self._elements = form.elements
        self._names = names
        self._named: dict[Node, str] = {}
        self._parts = 0
        self._shared = self._shared_by(list(roots))

    @staticmethod
    def _shared_by(roots: list[Node]) -> set[Node]:
        sizes: dict[Node, int] = {}
        uses: dict[Node, int] = dict.fromkeys(roots, 1)
        for node in in_order(roots):
            sizes[node] = 1 + sum(sizes[a] for a in node.arguments)
            for argument in node.arguments:
                uses[argument] = uses.get(argument, 0) + 1
        return {node for node, size in sizes.items() if size >= WORTH_A_NAME and uses[node] > 1}

    def target(self, position: int) -> str:
        """An element of the state where it is read or written."""
        element = self._elements[position]
        name = identifier(element.name)
        return name if element.index is None else f"{name}[{element.index}]"

    def name(self, node: Node, label: str) -> list[str]:
        """The definition of a node under this name, by which it goes from here on if it is worth one."""
        text = [*self.parts(node.arguments), *_definition(label, self._piece(node, None))]
        if node in self._shared:
            self._named[node] = label
        return text

    def parts(self, roots: Iterable[Node]) -> list[str]:
        """The definitions that writing these nodes needs and that were not written yet."""
        text: list[str] = []
        for node in in_order(roots):
            if node in self._shared and node not in self._named:
                self._parts += 1
                text += _definition(f"part_{self._parts}", self._piece(node, None))
                self._named[node] = f"part_{self._parts}"
        return text

    def piece(self, node: Node, about: str | None = None) -> Piece:
        """The text of a node; `about` is the variable whose values its constants are."""
        return self._named.get(node) or self._piece(node, about)

    def _piece(self, node: Node, about: str | None) -> Piece:
        operator, arguments = node.operator, node.arguments
        if operator == "constant":
            return ("true" if node.value else "false") if node.truth else self._names.called(about, node.value)
        if operator == "element":
            return self.target(node.value)
        if operator == "not":
            return self._negation(arguments[0])
        if operator in ("and", "or"):
            sign = "&& " if operator == "and" else "|| "
            return _joined([("" if i == 0 else sign, self.piece(a)) for i, a in enumerate(arguments)])
        if operator == "where":
            condition, then, otherwise = arguments
            return _joined(
                [("", self.piece(condition)), ("-> ", self.piece(then, about)), (": ", self.piece(otherwise, about))]
            )
        if operator in ("+", "-", "*"):
            return self._arithmetic(operator, *arguments)
        return self._comparison(operator, *arguments)

    def _negation(self, node: Node) -> Piece:
        if node.operator == "==" and node not in self._named:
            return self._comparison("!=", *node.arguments)
        if node.operator == "or" and node not in self._named:
            return _joined([("&& " if i else "", self._opposite(a)) for i, a in enumerate(node.arguments)])
        inner = self.piece(node)
        if isinstance(inner, str):
            return f"!{inner}"
        bare = inner.opening == ""
        return Group("!" + ("(" if bare else inner.opening), inner.parts, ")" if bare else inner.closing)

    def _opposite(self, node: Node) -> Piece:
        return self.piece(node.arguments[0]) if node.operator == "not" else self._negation(node)

    def _comparison(self, operator: str, left: Node, right: Node) -> Piece:
        # A constant reads better on the right, a variable on the left.
        if left.is_constant:
            left, right, operator = right, left, {"<": ">", "<=": ">="}.get(operator, operator)
        elif right.operator == "element" and left.operator != "element" and operator in ("==", "!="):
            left, right = right, left
        variables = [self._elements[n.value].name for n in (left, right) if n.operator == "element"]
        about = variables[0] if variables else None
        return Group("", [("", self.piece(left)), (f"{operator} ", self.piece(right, about))], "")

    def _arithmetic(self, operator: str, left: Node, right: Node) -> Piece:
        # A chain of sums needs one pair of parentheses: (a + b + c).
        chain: list[tuple[str, Piece]] = []
        while operator == "+" and left.operator == "+" and left not in self._named:
            chain.append(("+ ", self.piece(right)))
            left, right = left.arguments
        chain += [(f"{operator} ", self.piece(right)), ("", self.piece(left))]
        chain.reverse()
        return Group("(", [_subtracted(sign, part) for sign, part in chain], ")")


def _subtracted(sign: str, part: Piece) -> tuple[str, Piece]:
    """`+ -1` reads `- 1`."""
    if sign == "+ " and isinstance(part, str) and part.startswith("-"):
        return "- ", part[1:]
    return sign, f"({part})" if isinstance(part, str) and part.startswith("-") and sign else part


def _joined(parts: list[tuple[str, Piece]]) -> Group:
    return Group("(", parts, ")")


def _definition(label: str, piece: Piece) -> list[str]:
    # In parentheses, whatever it is: `!` before a name that stands for `!a` would be the operator `!!` of channels.
    if isinstance(piece, str) or piece.opening.startswith("!"):
        piece = Group("(", [("", piece)], ")")
    elif piece.opening == "":
        piece = Group("(", piece.parts, ")")
    short = lines(piece, WIDTH - len(f"#define {label} "))
    if len(short) == 1:
        return [f"#define {label} {short[0]}"]
    return [f"#define {label} \\", *(f"  {line} \\" for line in short[:-1]), f"  {short[-1]}"]
