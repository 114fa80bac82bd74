"""Expression graphs as z3 terms.

A vector is never a z3 array: reading one at an index is worked out on the graph. `each(f)[i]` is f(i),
`put(v, j, x)[i]` is x where i = j and v[i] elsewhere, and a vector variable is an uninterpreted function of its index.
So a claim at one index becomes a term without quantifiers, but for those that a guard itself says.

A domain is the integers from 0 up to its size. Without given sizes the size is a constant that nothing is known of, so
what is proved holds for every one. There a count or a total is an unknown integer, the same one wherever the same thing
is counted; that claims less than is true, so a proof stays a proof (`counting` adds laws where a proof needs them).
With given sizes everything is written out, counts included, and nothing is lost: that is what counterexamples to
induction and bounded model checking use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import z3

from spec.language.expression import Domain, Symbol, SymbolicVector

UNKNOWN = "some"
"""How the name of an integer begins that stands for a count or a total."""


NUMBERS = "numbers"
"""A domain for claims about every integer, such as every place in a queue."""

BINDERS = -1
"""Where the bound indexes keep the solver's variables for those of quantifiers and counts; no address is negative."""


class Untranslatable(Exception):
    """The graph holds something that has no z3 term here."""


@dataclass(frozen=True)
class Tally:
    """A count or total that stands as an unknown integer: what is counted, over which variable of which domain."""

    operator: str
    domain: str
    variable: Any
    counted: Any
    """The condition of a count, the number summed by a total; it mentions `variable`."""
    outer: tuple[Any, ...]
    """The variables of quantifiers and counts around it that `counted` mentions: the unknown is a function of them."""
    unknown: Any
    """The integer, or the function's value at `outer`."""


class Terms:
    """Translates graphs; one node is one term, so an unknown count is the same one wherever its node occurs."""

    def __init__(self, sizes: Mapping[str, int] | None = None) -> None:
        self.sizes = sizes
        self._known: dict[int, Any] = {}
        # The graph is kept alive with its term: a node is known by its address.
        self._kept: list[Symbol] = []
        self.tallies: dict[tuple[str, str, int], Tally] = {}

    def size(self, domain: str) -> Any:
        """How many members the domain has: a number where it is given, else a constant."""
        return z3.Int(f"size of {domain}") if self.sizes is None else z3.IntVal(self.sizes[domain])

    def indexes(self, domain: str) -> range:
        """The members of a domain whose size is given; of the numbers, those that can count members of another."""
        assert self.sizes is not None
        return range(max(self.sizes.values()) + 2 if domain == NUMBERS else self.sizes[domain])

    def member(self, domain: str, index: Any) -> Any:
        """Whether an index belongs to the domain; to the numbers every integer does."""
        if domain == NUMBERS:
            return z3.BoolVal(True)
        return z3.And(index >= 0, index < self.size(domain))

    def term(self, value: object, bound: dict[int, Any] | None = None) -> Any:
        """The z3 term of a symbol, an integer or a truth value; `bound` gives the indexes bound around it."""
        if isinstance(value, bool):
            return z3.BoolVal(value)
        if isinstance(value, int):
            return z3.IntVal(value)
        if not isinstance(value, Symbol):
            raise Untranslatable(f"{value!r} is neither a number nor a symbol")
        if bound:
            return self._translate(value, bound)
        if id(value) not in self._known:
            self._known[id(value)] = self._translate(value, {})
            self._kept.append(value)
        return self._known[id(value)]

    def element(self, vector: object, index: Any) -> Any:
        """The z3 term of the element of a vector at an index, itself a z3 term."""
        if not isinstance(vector, SymbolicVector):
            raise Untranslatable(f"{vector!r} is no vector of symbols")
        return self._element(vector, index, {})

    def _translate(self, value: Symbol, bound: dict[int, Any]) -> Any:
        name = value.operator
        if name in ("variable", "constant"):
            return z3.Int(str(value.arguments[0]))
        if name == "index":
            if id(value) not in bound:
                raise Untranslatable(f"the index {value!r} is used outside the function it belongs to")
            return bound[id(value)]
        if name == "element":
            vector, index = value.arguments
            assert isinstance(vector, SymbolicVector)
            return self._element(vector, self.term(index, bound), bound)
        if name in ("all_of", "any_of", "count", "total"):
            domain, index, body = value.arguments
            assert isinstance(domain, Domain)
            if self.sizes is not None:
                inner = [self.term(body, {**bound, id(index): z3.IntVal(k)}) for k in range(self.sizes[domain.name])]
                return _WRITTEN_OUT[name](inner)
            variable, within = self._inside(domain, index, bound)
            inner = self.term(body, within)
            if name == "all_of":
                return z3.ForAll([variable], z3.Implies(self.member(domain.name, variable), inner))
            if name == "any_of":
                return z3.Exists([variable], z3.And(self.member(domain.name, variable), inner))
            return self._unknown(name, domain.name, variable, inner, bound)
        return _OPERATIONS[name](*(self.term(argument, bound) for argument in value.arguments))

    def _inside(self, domain: Domain, index: object, bound: dict[int, Any]) -> tuple[Any, dict[int, Any]]:
        """A variable for a bound index, named by its depth: equal graphs become equal terms, and none is captured."""
        around = bound.get(BINDERS, ())
        variable = z3.Int(f"{domain.name} at depth {len(around)}")
        return variable, {**bound, BINDERS: (*around, variable), id(index): variable}

    def _unknown(self, operator: str, domain: str, variable: Any, counted: Any, bound: dict[int, Any]) -> Any:
        """An integer nobody knows, the same one wherever the same thing is counted.

        Below a quantifier, or within what another count counts, it may differ with the index: then it is an unknown
        function of it.
        """
        key = (operator, domain, counted.get_id())
        if key not in self.tallies:
            outer = tuple(v for v in bound.get(BINDERS, ()) if mentions(counted, v))
            name = f"{UNKNOWN} {operator} {len(self.tallies) + 1}"
            sorts = [z3.IntSort()] * (len(outer) + 1)
            unknown = z3.Function(name, *sorts)(*outer) if outer else z3.Int(name)
            # The counted term is kept alive with its unknown: z3 shares equal terms and names them by a live number.
            self.tallies[key] = Tally(operator, domain, variable, counted, outer, unknown)
        return self.tallies[key].unknown

    def _element(self, vector: SymbolicVector, index: Any, bound: dict[int, Any]) -> Any:
        if vector.operator in ("variable", "constant"):
            values = z3.Function(str(vector.arguments[0]), z3.IntSort(), z3.IntSort())
            if self.sizes is None or z3.is_int_value(index):
                return values(index)
            read = values(index)
            for k in range(self.sizes[vector.domain.name]):
                read = z3.If(index == k, values(k), read)
            return read
        if vector.operator == "each":
            own_index, body = vector.arguments
            return self.term(body, {**bound, id(own_index): index})
        if vector.operator == "put":
            base, place, value = vector.arguments
            assert isinstance(base, SymbolicVector)
            return z3.If(index == self.term(place, bound), self.term(value, bound), self._element(base, index, bound))
        condition, then, otherwise = vector.arguments
        assert isinstance(then, SymbolicVector)
        assert isinstance(otherwise, SymbolicVector)
        return z3.If(
            self.term(condition, bound), self._element(then, index, bound), self._element(otherwise, index, bound)
        )


def mentions(term: Any, variable: Any) -> bool:
    """Whether a variable occurs in a term."""
    if z3.is_quantifier(term):
        return mentions(term.body(), variable)
    return bool(term.eq(variable)) or any(mentions(child, variable) for child in term.children())


def _sum(terms: list[Any]) -> Any:
    return z3.Sum(terms) if terms else z3.IntVal(0)


_WRITTEN_OUT: dict[str, Any] = {
    "all_of": lambda inner: z3.And(inner),
    "any_of": lambda inner: z3.Or(inner),
    "count": lambda inner: _sum([z3.If(condition, 1, 0) for condition in inner]),
    "total": _sum,
}

_OPERATIONS: dict[str, Any] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: z3.And(a, b),
    "|": lambda a, b: z3.Or(a, b),
    "not": lambda a: z3.Not(a),
    "implies": lambda a, b: z3.Implies(a, b),
    "where": lambda c, a, b: z3.If(c, a, b),
}
