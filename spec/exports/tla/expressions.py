"""What an action or a claim says, as a TLA+ expression: quantifiers stay quantifiers, vectors are functions.

TLA+ keeps numbers and truth values apart, the text of a machine does not everywhere: where it counts a truth value, the
expression says IF it THEN 1 ELSE 0. Every operator inside another stands in parentheses, so that a line may be broken
anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ...language.expression import Symbol, SymbolicVector
from ...language.machine import ModelFault
from ..promela.names import ValueNames
from .names import Names

NUMBERS: Final = {"+": "+", "-": "-", "*": "*"}
RELATIONS: Final = {"==": "=", "!=": "#", "<": "<", "<=": "=<", ">": ">", ">=": ">="}
JOINS: Final = {"&": "/\\", "|": "\\/", "implies": "=>"}
TRUTHS: Final = {*RELATIONS, *JOINS, "not", "all_of", "any_of"}


@dataclass(frozen=True)
class Text:
    """An expression, and whether it is a truth value."""

    words: str
    truth: bool


class Expressions:
    """Writes symbols out. `bound` gives every index symbol (by id) its name."""

    def __init__(self, names: Names, values: ValueNames) -> None:
        self.names, self.values = names, values

    def truth(self, value: Any, bound: dict[int, str]) -> str:
        """A truth value."""
        text = self.text(value, bound)
        if not text.truth:
            raise ModelFault(f"{text.words} is no truth value")
        return text.words

    def number(self, value: Any, bound: dict[int, str], variable: str | None = None) -> str:
        """A number, as a value of that variable; 1 for true and 0 for false."""
        text = self.text(value, bound, variable)
        return f"(IF {text.words} THEN 1 ELSE 0)" if text.truth else text.words

    def conjuncts(self, value: Any) -> list[Any]:
        """The parts of a conjunction, in order."""
        if isinstance(value, Symbol) and value.operator == "&":
            return [part for argument in value.arguments for part in self.conjuncts(argument)]
        return [value]

    def text(self, value: Any, bound: dict[int, str], variable: str | None = None) -> Text:
        """An expression; plain numbers go by their names as values of that variable."""
        if isinstance(value, bool):
            return Text("TRUE" if value else "FALSE", True)
        if isinstance(value, int):
            name = self.values.called(variable, value)
            return Text(f"({name})" if value < 0 else name, False)
        operator, arguments = value.operator, value.arguments
        if operator == "index":
            return Text(bound[id(value)], False)
        if operator in ("variable", "bound_of_scope"):
            return Text(self.names.of(operator, str(arguments[0])), False)
        if operator == "primed":
            return Text(f"{self.names.of('variable', str(arguments[0]))}'", False)
        if operator == "element":
            return Text(f"{self.vector(arguments[0], bound)}[{self.number(arguments[1], bound)}]", False)
        if operator in NUMBERS:
            left, right = (self.number(a, bound) for a in arguments)
            return Text(f"({left} {NUMBERS[operator]} {right})", False)
        if operator in RELATIONS:
            return Text(f"({self.related(operator, arguments, bound)})", True)
        if operator in JOINS:
            left, right = (self.truth(a, bound) for a in arguments)
            return Text(f"({left} {JOINS[operator]} {right})", True)
        if operator == "not":
            return Text(f"(~ {self.truth(arguments[0], bound)})", True)
        if operator == "where":
            return self.chosen(arguments, bound, variable)
        return self.over(operator, arguments, bound)

    def related(self, operator: str, arguments: Any, bound: dict[int, str]) -> str:
        """Two numbers compared; of two that one is a variable's the other goes by the name it has there."""
        left, right = arguments
        sides = self.number(left, bound, _variable_of(right)), self.number(right, bound, _variable_of(left))
        return f"{sides[0]} {RELATIONS[operator]} {sides[1]}"

    def chosen(self, arguments: Any, bound: dict[int, str], variable: str | None) -> Text:
        condition, then, otherwise = arguments
        sides = [self.text(a, bound, variable) for a in (then, otherwise)]
        truth = all(side.truth for side in sides)
        if not truth:
            sides = [Text(self.number(a, bound, variable), False) for a in (then, otherwise)]
        return Text(f"(IF {self.truth(condition, bound)} THEN {sides[0].words} ELSE {sides[1].words})", truth)

    def over(self, operator: str, arguments: Any, bound: dict[int, str]) -> Text:
        """What is said of all indexes of a domain."""
        domain, index, body = arguments
        name = self.names.bound(domain.name, len(bound))
        inside = {**bound, id(index): name}
        members = f"{name} \\in {self.names.of('domain', domain.name)}"
        if operator in ("all_of", "any_of"):
            sign = "\\A" if operator == "all_of" else "\\E"
            return Text(f"({sign} {members} : {self.truth(body, inside)})", True)
        if operator == "count":
            return Text(f"Cardinality({{{members} : {self.truth(body, inside)}}})", False)
        whole = self.names.of("domain", domain.name)
        return Text(f"Total([{members} |-> {self.number(body, inside)}], {whole})", False)

    def vector(self, value: Any, bound: dict[int, str], variable: str | None = None) -> str:
        """A vector as a function of its domain; plain numbers in it are values of that variable."""
        if not isinstance(value, SymbolicVector):
            raise ModelFault(f"{value!r} is no vector of symbols")
        arguments: Any = value.arguments
        if value.operator in ("variable", "constant"):
            return self.names.of(value.operator, str(arguments[0]))
        if value.operator == "primed":
            return f"{self.names.of('variable', str(arguments[0]))}'"
        if value.operator == "each":
            index, body = arguments
            name = self.names.bound(value.domain.name, len(bound))
            text = self.number(body, {**bound, id(index): name}, variable)
            return f"[{name} \\in {self.names.of('domain', value.domain.name)} |-> {text}]"
        if value.operator == "put":
            base, at, element = arguments
            place, text = self.number(at, bound), self.number(element, bound, variable)
            return f"[{self.vector(base, bound, variable)} EXCEPT ![{place}] = {text}]"
        condition, then, otherwise = arguments
        sides = [self.vector(a, bound, variable) for a in (then, otherwise)]
        return f"(IF {self.truth(condition, bound)} THEN {sides[0]} ELSE {sides[1]})"


def _variable_of(value: Any) -> str | None:
    """The variable whose value this is, if it is plainly one's."""
    if isinstance(value, Symbol) and value.operator in ("variable", "primed"):
        return str(value.arguments[0])
    if isinstance(value, Symbol) and value.operator == "element":
        vector: Any = value.arguments[0]
        return str(vector.arguments[0]) if vector.operator in ("variable", "primed") else None
    return None
