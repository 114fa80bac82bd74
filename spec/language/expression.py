"""The words an action is written with: they mean the same on plain integers and on symbols.

An action of a machine is an ordinary Python function. The reference engine calls it on plain integers; called once on
symbols it yields an expression graph, from which every other engine and the proofs are made. For both to read the one
text, an action never uses `if`, `and`, `or`, `not` or a chained comparison on a state variable: symbols refuse `bool()`
and say what to write instead.

    where(condition, a, b)        a where the condition holds, else b
    not_(a)   implies(a, b)       negation and implication (`~` on a Python bool is a trap: ~True == -2)
    each(domain, f)               a vector with f(i) at every index i
    put(vector, i, value)         the vector with one element replaced
    all_of / any_of               over the indexes of a domain
    count / total                 at how many indexes a condition holds; the sum of a number over the indexes
    vector[i]   vector.at(i)      i from a domain; i computed from the state
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeAlias

# An integer, a truth value, or a symbol for one. Actions are generic over the two readings, which a type checker
# cannot follow through operators, so the vocabulary is typed loosely here and the engines check what comes out.
Value: TypeAlias = Any


class SymbolRefused(TypeError):
    """An action used a symbol where only a plain value may stand."""


class Domain:
    """The index set of a vector: `size` members when bounded, any number of them when `size` is None."""

    __slots__ = ("name", "size")

    def __init__(self, name: str, size: int | None) -> None:
        self.name = name
        self.size = size

    def __iter__(self) -> Iterator[int]:
        if self.size is None:
            raise SymbolRefused(
                f"the domain {self.name!r} has no bound here and cannot be iterated; use each, all_of, any_of or count"
            )
        return iter(range(self.size))

    def __repr__(self) -> str:
        return f"Domain({self.name!r}, {self.size})"


class Vector(tuple[int, ...]):
    """A vector of plain integers, immutable, indexed by the members of a domain."""

    __slots__ = ()

    def at(self, index: int) -> int:
        """The element at an index that was computed from the state. Out of range is a fault of the action."""
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} outside a vector of {len(self)}: guard the access with where()")
        return self[index]


class Symbol:
    """A node of the expression graph. Operators build larger nodes; nothing is computed.

    `operator` is the sign or the word it is written with; `variable`, `index` and `element` are the leaves. `arguments`
    are symbols, plain integers and truth values; a binding operator has its `Domain`, the bound index and the body.
    """

    __slots__ = ("arguments", "operator")

    def __init__(self, operator: str, *arguments: object) -> None:
        self.operator = operator
        self.arguments = arguments

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> NoReturn:
        raise SymbolRefused(
            "a symbol has no truth value. Likely cause: `if`, `and`, `or`, `not`, `in` or a chained comparison such as "
            "a < b < c on a state variable. Write where(), &, |, not_() and (a < b) & (b < c)"
        )

    def __invert__(self) -> NoReturn:
        raise SymbolRefused("`~` means something else on plain truth values (~True == -2); write not_(...)")

    def __index__(self) -> NoReturn:
        raise SymbolRefused("a symbol is no plain index; write vector.at(i)")

    def __iter__(self) -> NoReturn:
        raise SymbolRefused("a symbol cannot be iterated; use each, all_of, any_of or count over its domain")

    # Comparison with `==` builds a node too, which is the point of the class and why the override is marked.
    def __eq__(self, other: object) -> Symbol:  # type: ignore[override]
        return Symbol("==", self, other)

    def __ne__(self, other: object) -> Symbol:  # type: ignore[override]
        return Symbol("!=", self, other)

    def __lt__(self, other: object) -> Symbol:
        return Symbol("<", self, other)

    def __le__(self, other: object) -> Symbol:
        return Symbol("<=", self, other)

    def __gt__(self, other: object) -> Symbol:
        return Symbol(">", self, other)

    def __ge__(self, other: object) -> Symbol:
        return Symbol(">=", self, other)

    def __add__(self, other: object) -> Symbol:
        return Symbol("+", self, other)

    def __radd__(self, other: object) -> Symbol:
        return Symbol("+", other, self)

    def __sub__(self, other: object) -> Symbol:
        return Symbol("-", self, other)

    def __rsub__(self, other: object) -> Symbol:
        return Symbol("-", other, self)

    def __mul__(self, other: object) -> Symbol:
        return Symbol("*", self, other)

    __rmul__ = __mul__

    def __and__(self, other: object) -> Symbol:
        return Symbol("&", self, other)

    __rand__ = __and__

    def __or__(self, other: object) -> Symbol:
        return Symbol("|", self, other)

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"{self.operator}({', '.join(map(repr, self.arguments))})"


class SymbolicVector:
    """A vector of symbols: a variable, or what `each`, `put` or `where` makes of one."""

    __slots__ = ("arguments", "domain", "operator")

    def __init__(self, operator: str, domain: Domain, *arguments: object) -> None:
        self.operator = operator
        self.domain = domain
        self.arguments = arguments

    def __getitem__(self, index: object) -> Symbol:
        return Symbol("element", self, index)

    at = __getitem__

    def __bool__(self) -> NoReturn:
        raise SymbolRefused("a vector of symbols has no truth value")

    def __iter__(self) -> NoReturn:
        raise SymbolRefused("a vector of symbols cannot be iterated; use each, all_of, any_of or count over its domain")

    def __repr__(self) -> str:
        return f"{self.operator}<{self.domain.name}>({', '.join(map(repr, self.arguments))})"


class Each:
    """A plain vector that is worked out only when its action is taken: most actions are disabled in most states."""

    __slots__ = ("_domain", "_function")

    def __init__(self, domain: Domain, function: Callable[[Value], Value]) -> None:
        self._domain = domain
        self._function = function

    def __getitem__(self, index: int) -> Value:
        return self._function(index)

    def vector(self) -> Vector:
        """The elements, worked out."""
        return Vector(int(self._function(i)) for i in self._domain)


def where(condition: Value, then: Value, otherwise: Value) -> Value:
    """`then` where the condition holds, else `otherwise`; both are numbers, truth values, or vectors of one domain."""
    if condition is True:
        return then
    if condition is False:
        return otherwise
    if isinstance(condition, Symbol):
        if isinstance(then, SymbolicVector) or isinstance(otherwise, SymbolicVector):
            return SymbolicVector("where", then.domain, condition, then, otherwise)
        return Symbol("where", condition, then, otherwise)
    return then if condition else otherwise


def not_(condition: Value) -> Value:
    """The negation of a truth value."""
    if condition is True:
        return False
    return Symbol("not", condition) if isinstance(condition, Symbol) else not condition


def implies(premise: Value, conclusion: Value) -> Value:
    """The conclusion holds wherever the premise does. Both sides are evaluated: guard an index in the conclusion."""
    if premise is False:
        return True
    if isinstance(premise, Symbol) or isinstance(conclusion, Symbol):
        return Symbol("implies", premise, conclusion)
    return (not premise) or conclusion


def each(domain: Domain, function: Callable[[Value], Value]) -> Value:
    """The vector with `function(i)` at every index `i` of the domain."""
    if domain.size is None:
        index = Symbol("index", domain)
        return SymbolicVector("each", domain, index, function(index))
    return Each(domain, function)


def put(vector: Value, index: Value, value: Value) -> Value:
    """The vector with the element at `index` replaced."""
    if isinstance(vector, SymbolicVector):
        return SymbolicVector("put", vector.domain, vector, index, value)
    return Vector((*vector[:index], int(value), *vector[index + 1 :]))


def all_of(domain: Domain, function: Callable[[Value], Value]) -> Value:
    """Whether the function holds at every index of the domain (of an empty one it does)."""
    if domain.size is None:
        index = Symbol("index", domain)
        return Symbol("all_of", domain, index, function(index))
    # Loops and not all() and any(): these are most of the time of a search.
    for i in range(domain.size):  # noqa: SIM110
        if not function(i):
            return False
    return True


def any_of(domain: Domain, function: Callable[[Value], Value]) -> Value:
    """Whether the function holds at one index of the domain at least."""
    if domain.size is None:
        index = Symbol("index", domain)
        return Symbol("any_of", domain, index, function(index))
    for i in range(domain.size):  # noqa: SIM110
        if function(i):
            return True
    return False


def count(domain: Domain, function: Callable[[Value], Value]) -> Value:
    """At how many indexes of the domain the function holds.

    Kept out of the ownership core: a proof for any number of prompts knows nothing of a count but that it is not
    negative.
    """
    if domain.size is None:
        index = Symbol("index", domain)
        return Symbol("count", domain, index, function(index))
    return sum(1 for i in range(domain.size) if function(i))


def total(domain: Domain, function: Callable[[Value], Value]) -> Value:
    """The sum of the function over the indexes of the domain. As `count`, kept out of the ownership core."""
    if domain.size is None:
        index = Symbol("index", domain)
        return Symbol("total", domain, index, function(index))
    return sum(function(i) for i in range(domain.size))
