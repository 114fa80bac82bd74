"""Expressions over the scalar elements of a state: small immutable nodes, equal ones shared, constants worked out.

Every node knows whether it is a truth value and between which two numbers it lies. With that a comparison that can only
come out one way is a constant, and so is everything built from it; and an assignment whose value cannot leave the range
of its element needs no check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from .machine import ModelFault

COMPARISONS: Final[dict[str, Callable[[int, int], bool]]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}
ARITHMETIC: Final[dict[str, Callable[[int, int], int]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


class Node:
    """One node. Made by `Nodes` only, so two equal expressions are the same object.

    operator      arguments                 value
    constant      none                      the number, 0 or 1 for a truth value
    element       none                      the position of the element in the state
    == != < <=    two numbers
    + - *         two numbers
    and or        two truth values or more
    not           one truth value
    where         a truth value and the two alternatives, both numbers or both truth values
    """

    __slots__ = ("arguments", "high", "low", "number", "operator", "truth", "value")

    def __init__(
        self, operator: str, arguments: tuple[Node, ...], value: int, truth: bool, low: int, high: int, number: int
    ) -> None:
        self.operator = operator
        self.arguments = arguments
        self.value = value
        self.truth = truth
        self.low = low
        self.high = high
        self.number = number
        """Its place in the order of making: arguments come before the nodes they are in."""

    @property
    def is_constant(self) -> bool:
        """Whether it has one value in every state."""
        return self.operator == "constant"

    def __repr__(self) -> str:
        if self.operator == "constant":
            return str(bool(self.value) if self.truth else self.value)
        if self.operator == "element":
            return f"element {self.value}"
        return f"{self.operator}({', '.join(map(repr, self.arguments))})"


class Nodes:
    """Makes nodes, each once. `ranges` are the smallest and greatest value of each element of the state."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._ranges = ranges
        self._known: dict[tuple[object, ...], Node] = {}
        self.true = self._make("constant", (), 1, True, 1, 1)
        self.false = self._make("constant", (), 0, True, 0, 0)

    def _make(self, operator: str, arguments: tuple[Node, ...], value: int, truth: bool, low: int, high: int) -> Node:
        key = (operator, truth, value, *(a.number for a in arguments))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Node(operator, arguments, value, truth, low, high, len(self._known))
        return known

    def constant(self, value: int | bool) -> Node:
        """A number, or a truth value when it is a bool."""
        if isinstance(value, bool):
            return self.true if value else self.false
        return self._make("constant", (), int(value), False, int(value), int(value))

    def element(self, position: int) -> Node:
        """An element of the state; a constant when its range has one value only."""
        low, high = self._ranges[position]
        return self.constant(low) if low == high else self._make("element", (), position, False, low, high)

    def number(self, node: Node) -> Node:
        """The node as a number: 1 for true and 0 for false."""
        return self.where(node, self.constant(1), self.constant(0)) if node.truth else node

    def arithmetic(self, operator: str, a: Node, b: Node) -> Node:
        """`a + b`, `a - b` or `a * b`."""
        a, b = self.number(a), self.number(b)
        operation = ARITHMETIC[operator]
        if a.is_constant and b.is_constant:
            return self.constant(operation(a.value, b.value))
        if operator == "+" and a.is_constant and a.value == 0:
            return b
        if operator in "+-" and b.is_constant and b.value == 0:
            return a
        if operator == "-" and a is b:
            return self.constant(0)
        if operator == "*":
            for one, other in ((a, b), (b, a)):
                if one.is_constant and one.value in (0, 1):
                    return other if one.value else one
        corners = [operation(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        return self._make(operator, (a, b), 0, False, min(corners), max(corners))

    def compare(self, operator: str, a: Node, b: Node) -> Node:
        """`a == b`, `a != b`, `a < b`, `a <= b`, `a > b` or `a >= b`; `>` and `>=` are turned round."""
        if operator in (">", ">="):
            return self.compare("<" if operator == ">" else "<=", b, a)
        a, b = self.number(a), self.number(b)
        if operator == "!=":
            return self.not_(self.compare("==", a, b))
        decided = self._decided(operator, a, b)
        if decided is not None:
            return self.constant(decided)
        # A choice between two constants, compared with a constant, is its condition or the opposite.
        for choice, other, turned in ((a, b, False), (b, a, True)):
            if choice.operator == "where" and other.is_constant and all(x.is_constant for x in choice.arguments[1:]):
                condition, then, otherwise = choice.arguments
                sides = [COMPARISONS[operator](*((other.value, x.value) if turned else (x.value, other.value)))
                         for x in (then, otherwise)]  # fmt: skip
                return self.where(condition, self.constant(sides[0]), self.constant(sides[1]))
        if operator == "==" and a.number > b.number:
            a, b = b, a
        return self._make(operator, (a, b), 0, True, 0, 1)

    @staticmethod
    def _decided(operator: str, a: Node, b: Node) -> bool | None:
        """What a comparison always gives, or None."""
        if a is b:
            return operator != "<"
        if operator == "==":
            if a.high < b.low or b.high < a.low:
                return False
            return True if a.low == a.high == b.low == b.high else None
        strictly = operator == "<"
        if a.high < b.low or (not strictly and a.high == b.low):
            return True
        if a.low > b.high or (strictly and a.low == b.high):
            return False
        return None

    def not_(self, node: Node) -> Node:
        """The negation of a truth value."""
        self._expect_truth("not_", node)
        if node.is_constant:
            return self.constant(not node.value)
        if node.operator == "not":
            return node.arguments[0]
        if node.operator in ("<", "<="):
            a, b = node.arguments
            return self._make("<=" if node.operator == "<" else "<", (b, a), 0, True, 0, 1)
        return self._make("not", (node,), 0, True, 0, 1)

    def all_of(self, parts: Iterable[Node]) -> Node:
        """The conjunction, flat, each part once."""
        return self._join("and", parts, self.true, self.false)

    def any_of(self, parts: Iterable[Node]) -> Node:
        """The disjunction, flat, each part once."""
        return self._join("or", parts, self.false, self.true)

    def _join(self, operator: str, parts: Iterable[Node], neutral: Node, absorbing: Node) -> Node:
        flat: dict[Node, None] = {}
        for part in parts:
            self._expect_truth("& and |", part)
            for piece in part.arguments if part.operator == operator else (part,):
                if piece is absorbing or self.not_(piece) in flat:
                    return absorbing
                if piece is not neutral:
                    flat[piece] = None
        if not flat:
            return neutral
        if len(flat) == 1:
            return next(iter(flat))
        return self._make(operator, tuple(flat), 0, True, 0, 1)

    def where(self, condition: Node, then: Node, otherwise: Node) -> Node:
        """`then` where the condition holds, else `otherwise`."""
        self._expect_truth("where", condition)
        if then.truth != otherwise.truth:
            then, otherwise = self.number(then), self.number(otherwise)
        if condition.is_constant or then is otherwise:
            return then if condition.value or then is otherwise else otherwise
        if condition.operator == "not":
            return self.where(condition.arguments[0], otherwise, then)
        if then.truth:
            # Written with and, or, not, so that equal truth values are equal nodes.
            if then.is_constant:
                return self.any_of([condition, otherwise]) if then.value else self.all_of(
                    [self.not_(condition), otherwise]
                )  # fmt: skip
            if otherwise.is_constant:
                return self.any_of([self.not_(condition), then]) if otherwise.value else self.all_of([condition, then])
        low, high = min(then.low, otherwise.low), max(then.high, otherwise.high)
        return self._make("where", (condition, then, otherwise), 0, then.truth, low, high)

    def rebuilt(self, operator: str, arguments: Sequence[Node]) -> Node:
        """The node of that operator over these arguments, whichever it is. Not for leaves."""
        if operator in ARITHMETIC:
            return self.arithmetic(operator, *arguments)
        if operator in COMPARISONS:
            return self.compare(operator, *arguments)
        if operator == "not":
            return self.not_(*arguments)
        if operator == "where":
            return self.where(*arguments)
        return self.all_of(arguments) if operator == "and" else self.any_of(arguments)

    def over(self, root: Node, element: Callable[[int], Node], known: dict[Node, Node]) -> Node:
        """The same expression made here, with `element(position)` for each element; `known` remembers what was made."""
        for node in in_order([root]):
            if node in known:
                continue
            if node.operator == "constant":
                known[node] = self.constant(bool(node.value) if node.truth else node.value)
            elif node.operator == "element":
                known[node] = element(node.value)
            else:
                known[node] = self.rebuilt(node.operator, [known[a] for a in node.arguments])
        return known[root]

    @staticmethod
    def _expect_truth(word: str, node: Node) -> None:
        if not node.truth:
            raise ModelFault(f"{word} was given the number {node!r}; it takes truth values: write {node!r} == 1")


def in_order(roots: Iterable[Node]) -> list[Node]:
    """All nodes under the roots, arguments before the nodes they are in."""
    seen: dict[int, Node] = {}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node.number not in seen:
            seen[node.number] = node
            waiting.extend(node.arguments)
    return [seen[number] for number in sorted(seen)]


def evaluate(roots: Sequence[Node], state: Sequence[int]) -> list[int]:
    """The values of expressions in one state, truth values as 0 and 1. Slow, obvious, for tests."""
    values: dict[Node, int] = {}
    for node in in_order(roots):
        arguments = [values[a] for a in node.arguments]
        if node.operator == "constant":
            values[node] = node.value
        elif node.operator == "element":
            values[node] = state[node.value]
        elif node.operator == "where":
            values[node] = arguments[1] if arguments[0] else arguments[2]
        elif node.operator == "not":
            values[node] = 1 - arguments[0]
        elif node.operator in ("and", "or"):
            values[node] = int(all(arguments) if node.operator == "and" else any(arguments))
        else:
            operation = ARITHMETIC.get(node.operator) or COMPARISONS[node.operator]
            values[node] = int(operation(*arguments))
    return [values[root] for root in roots]
