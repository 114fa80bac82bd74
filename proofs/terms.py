"""Expression graphs as z3 terms.

A vector is never a z3 array: reading one at an index is worked out on the graph. `each(f)[i]` is f(i),
`put(v, j, x)[i]` is x where i = j and v[i] elsewhere, and a vector variable is an uninterpreted function of its index.
So a claim at one index becomes a term without quantifiers, but for those that a guard itself says.

A count or a total over a set of any size is an unknown integer (a count is not negative). That claims less than is
true, so a proof stays a proof; a refutation that rests on one need not be real.
"""

from __future__ import annotations

from typing import Any

import z3

from spec.expression import Domain, Symbol, SymbolicVector

UNKNOWN = "some"
"""How the name of an integer begins that stands for a count or a total."""


DEPTH = -1
"""Where the bound indexes keep how many of them there are; an address is never negative."""


QUANTIFIED = -2
"""Set below a quantifier, beside the bound indexes."""


class Untranslatable(Exception):
    """The graph holds something that has no z3 term here."""


class Terms:
    """Translates graphs; one node is one term, so an unknown count is the same one wherever its node occurs."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        # The graph is kept alive with its term: a node is known by its address.
        self._kept: list[Symbol] = []
        self._unknowns: dict[tuple[str, str, int], tuple[Any, Any]] = {}
        self.side_conditions: list[Any] = []

    def term(self, value: object, bound: dict[int, Any] | None = None) -> Any:
        """The z3 term of a symbol, an integer or a truth value; `bound` gives the indexes bound around it."""
        if isinstance(value, bool):
            return z3.BoolVal(value)
        if isinstance(value, int):
            return z3.IntVal(value)
        if not isinstance(value, Symbol):
            raise Untranslatable(f"{value!r} is neither a number nor a symbol")
        bound = bound or {}
        if bound:
            return self._translate(value, bound)
        if id(value) not in self._known:
            self._known[id(value)] = self._translate(value, bound)
            self._kept.append(value)
        return self._known[id(value)]

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
        if name in ("all_of", "any_of"):
            return self._quantified(value, bound)
        if name in ("count", "total"):
            return self._unknown(value, bound)
        return _OPERATIONS[name](*(self.term(argument, bound) for argument in value.arguments))

    def _quantified(self, value: Symbol, bound: dict[int, Any]) -> Any:
        domain, index, body = value.arguments
        assert isinstance(domain, Domain)
        variable, within = self._inside(domain, index, bound)
        inner = self.term(body, {**within, QUANTIFIED: True})
        quantifier = z3.ForAll if value.operator == "all_of" else z3.Exists
        return quantifier([variable], inner)

    def _inside(self, domain: Domain, index: object, bound: dict[int, Any]) -> tuple[Any, dict[int, Any]]:
        """A variable for a bound index, named by its depth: equal graphs become equal terms, and none is captured."""
        depth = bound.get(DEPTH, 0)
        variable = z3.Int(f"{domain.name} at depth {depth}")
        return variable, {**bound, DEPTH: depth + 1, id(index): variable}

    def _unknown(self, value: Symbol, bound: dict[int, Any]) -> Any:
        """An integer nobody knows, the same one wherever the same thing is counted.

        Below a quantifier it would be another one for every index, which one constant cannot say: refused.
        """
        if bound.get(QUANTIFIED):
            raise Untranslatable(f"a {value.operator} below all_of or any_of has no term here: {value!r}")
        domain, index, body = value.arguments
        assert isinstance(domain, Domain)
        _, within = self._inside(domain, index, bound)
        counted = self.term(body, within)
        key = (value.operator, domain.name, counted.get_id())
        if key not in self._unknowns:
            unknown = z3.Int(f"{UNKNOWN} {value.operator} {len(self._unknowns) + 1}")
            # The counted term is kept alive with its unknown: z3 shares equal terms and names them by a live number.
            self._unknowns[key] = (counted, unknown)
            if value.operator == "count":
                self.side_conditions.append(unknown >= 0)
        return self._unknowns[key][1]

    def _element(self, vector: SymbolicVector, index: Any, bound: dict[int, Any]) -> Any:
        if vector.operator in ("variable", "constant"):
            return z3.Function(str(vector.arguments[0]), z3.IntSort(), z3.IntSort())(index)
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
