"""A reader of the TLA+ that we export: its form, and what it means in a state. Small, slow, obvious, for tests.

It knows the part of the language that exports use, with the rules that a hand-made text most easily breaks: every name
is declared before it is used and once only, items of a list stand in one column and what belongs to an item stands to
the right of it, conjunctions and disjunctions are never mixed without parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

State = Mapping[str, Any]
TOKEN = re.compile(
    r"""\\\*[^\n]* | \s+ | (?P<number>\d+) | (?P<name>[A-Za-z]\w*'?) |
    (?P<sign>\]_|==|=>|=<|>=|\|->|->|<<|>>|/\\|\\/|\\in\b|\\A\b|\\E\b|\.\.|\[\]|[-+*=\#<>~(){}\[\],:!\\_])""",
    re.VERBOSE,
)
LEVELS = {"=>": 1, "/\\": 3, "\\/": 3, "=": 5, "#": 5, "<": 5, "=<": 5, ">": 5, ">=": 5, "\\in": 5, "\\": 8, "..": 9}
LEVELS |= {"+": 10, "-": 10, "*": 13}
WORDS = {"IF", "THEN", "ELSE", "CASE", "CHOOSE", "LET", "IN", "EXCEPT", "UNCHANGED", "TRUE", "FALSE"}
BUILT_IN = {"Cardinality"}


class Malformed(Exception):
    """The text is not what TLA+ allows, or not the part of it that this reads."""


@dataclass(frozen=True)
class Token:
    """A word with its place."""

    text: str
    line: int
    column: int


@dataclass(frozen=True)
class Tree:
    """An expression: what it is, its parts, its names."""

    kind: str
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Definition:
    """`name(parameters) == body`."""

    name: str
    parameters: tuple[str, ...]
    body: Tree


def tokens_of(text: str, first_line: int = 1) -> list[Token]:
    """The words of a text, without comments."""
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise Malformed(f"line {first_line + text.count(chr(10), 0, at)}: {text[at : at + 20]!r}")
        if match.lastgroup is not None:
            line_start = text.rfind("\n", 0, at) + 1
            found.append(Token(match[0], first_line + text.count("\n", 0, at), at - line_start))
        at = match.end()
    return found


class Parser:
    """Reads one expression; every name must be known."""

    def __init__(self, tokens: list[Token], known: set[str]) -> None:
        self.tokens, self.known, self.at = tokens, set(known), 0
        self.columns: list[int] = [-1]

    def peek(self, ahead: int = 0) -> str:
        """The next word, or nothing where the item of the list it would belong to has ended."""
        if self.at + ahead >= len(self.tokens):
            return ""
        token = self.tokens[self.at + ahead]
        return "" if token.column <= self.columns[-1] else token.text

    def take(self, *expected: str) -> str:
        word = self.peek()
        if not word or (expected and word not in expected):
            where = self.tokens[min(self.at, len(self.tokens) - 1)]
            raise Malformed(f"line {where.line}: {where.text!r} where one of {expected} belongs")
        self.at += 1
        return word

    def whole(self) -> Tree:
        tree = self.expression()
        if self.at < len(self.tokens):
            raise Malformed(f"line {self.tokens[self.at].line}: {self.tokens[self.at].text!r} is left over")
        return tree

    def expression(self, least: int = 0) -> Tree:
        if self.peek() in ("/\\", "\\/"):
            return self.list_of_items()
        left = self.operand()
        joined = ""
        while (sign := self.peek()) in LEVELS and LEVELS[sign] >= least:
            level = LEVELS[sign]
            if level == 3 and joined not in ("", sign):
                raise Malformed(f"line {self.tokens[self.at].line}: {joined} and {sign} mixed")
            joined = sign if level == 3 else joined
            self.take()
            left = Tree(sign, (left, self.expression(level + 1)))
            if level in (1, 5) and LEVELS.get(self.peek()) == level:
                raise Malformed(f"line {self.tokens[self.at].line}: {sign} after {sign} without parentheses")
        return left

    def list_of_items(self) -> Tree:
        first = self.tokens[self.at]
        items = []
        while self.peek() == first.text and self.tokens[self.at].column == first.column:
            self.take()
            self.columns.append(first.column)
            items.append(self.expression())
            self.columns.pop()
        return Tree("all" if first.text == "/\\" else "any", tuple(items))

    def operand(self) -> Tree:
        tree = self.simple()
        while self.peek() == "[":
            self.take()
            tree = Tree("apply", (tree, self.expression()))
            self.take("]")
        return tree

    def simple(self) -> Tree:
        word = self.take()
        if word.isdigit():
            return Tree("number", (int(word),))
        if word in ("TRUE", "FALSE"):
            return Tree("truth", (word == "TRUE",))
        if word == "(":
            tree = self.expression()
            self.take(")")
            return tree
        if word in ("~", "-"):
            return Tree(f"prefix {word}", (self.expression(4 if word == "~" else 12),))
        if word in ("\\A", "\\E", "CHOOSE"):
            return Tree(word, self.over(":"))
        if word == "IF":
            parts = [self.expression()]
            for between in ("THEN", "ELSE"):
                self.take(between)
                parts.append(self.expression())
            return Tree("if", tuple(parts))
        if word == "CASE":
            return self.cases()
        if word == "LET":
            return self.local()
        if word == "{":
            return self.a_set()
        if word == "[":
            return self.function()
        if word == "<<":
            return Tree("tuple", tuple(self.listed(">>")))
        if word == "UNCHANGED":
            return Tree("unchanged", (self.simple(),))
        if word == "[]":
            self.take("[")
            step = self.expression()
            self.take("]_")
            return Tree("always", (step, self.simple()))
        return self.named(word)

    def named(self, word: str) -> Tree:
        plain = word.rstrip("'")
        if plain in WORDS or not plain.isidentifier() or plain not in self.known | BUILT_IN:
            raise Malformed(f"line {self.tokens[self.at - 1].line}: {word!r} is not declared here")
        arguments: list[Tree] = []
        if self.peek() == "(":
            self.take()
            arguments = self.listed(")")
        return Tree("primed" if word.endswith("'") else "name", (plain, tuple(arguments)))

    def listed(self, end: str) -> list[Tree]:
        found = [self.expression()]
        while self.take(",", end) == ",":
            found.append(self.expression())
        return found

    def over(self, separator: str) -> tuple[Any, ...]:
        name = self.take()
        if name in self.known:
            raise Malformed(f"line {self.tokens[self.at - 1].line}: {name!r} is bound, and something else already")
        self.take("\\in")
        domain = self.expression(6)
        self.take(separator)
        self.known.add(name)
        body = self.expression()
        self.known.discard(name)
        return name, domain, body

    def cases(self) -> Tree:
        found = []
        while True:
            condition = self.expression()
            self.take("->")
            found.append((condition, self.expression()))
            if self.peek() != "[]":
                return Tree("case", tuple(found))
            self.take()

    def local(self) -> Tree:
        name = self.take()
        self.take("==")
        value = self.expression()
        self.take("IN")
        self.known.add(name)
        body = self.expression()
        self.known.discard(name)
        return Tree("let", (name, value, body))

    def a_set(self) -> Tree:
        if self.peek() == "}":
            self.take()
            return Tree("set", ())
        if self.peek(1) == "\\in":
            tree = Tree("those", self.over(":"))
            self.take("}")
            return tree
        return Tree("set", tuple(self.listed("}")))

    def function(self) -> Tree:
        if self.peek(1) == "\\in":
            tree = Tree("each", self.over("|->"))
        else:
            base = self.expression()
            if self.take("EXCEPT", "->") == "->":
                tree = Tree("functions", (base, self.expression()))
            else:
                self.take("!")
                self.take("[")
                place = self.expression()
                self.take("]")
                self.take("=")
                tree = Tree("except", (base, place, self.expression()))
        self.take("]")
        return tree


class Module:
    """A module: its name, its variables and its definitions."""

    def __init__(self, text: str) -> None:
        lines = text.splitlines()
        heading = re.fullmatch(r"-{4,} MODULE (\w+) -{4,}", lines[0])
        if heading is None or not re.fullmatch(r"={4,}", lines[-1]):
            raise Malformed("a module begins with its name between dashes and ends with a line of equal signs")
        self.name = heading[1]
        self.variables: list[str] = []
        self.definitions: dict[str, Definition] = {}
        for first, unit in _units(lines[1:-1]):
            self.read(unit, first + 2)

    def read(self, unit: str, line: int) -> None:
        tokens = tokens_of(unit, line)
        words = [token.text for token in tokens]
        if words[0] == "EXTENDS":
            if set(words[1:]) - {",", "Integers", "FiniteSets"}:
                raise Malformed(f"line {line}: an unknown module is extended")
        elif words[0] == "VARIABLES":
            self.variables = words[1::2]
            if words[2::2] != [","] * (len(self.variables) - 1) or len(set(self.variables)) < len(self.variables):
                raise Malformed(f"line {line}: variables")
        elif words[0] == "RECURSIVE":
            self.recursive = words[1]
        else:
            self.define(tokens, words)

    def define(self, tokens: list[Token], words: list[str]) -> None:
        at = words.index("==")
        name, parameters = words[0], tuple(words[2 : at - 1 : 2]) if at > 1 else ()
        known = {*self.variables, *self.definitions}
        if name in known or set(parameters) & known:
            raise Malformed(f"line {tokens[0].line}: {name!r} or a parameter of it is declared twice")
        if name == getattr(self, "recursive", None):
            known.add(name)
        self.definitions[name] = Definition(name, parameters, Parser(tokens[at + 1 :], known | set(parameters)).whole())

    # ------------------------------------------------------------------------------------- What it means

    def value(self, name: str, state: State, after: State | None = None, *arguments: int) -> Any:
        """The value of a definition in a state, or in a step."""
        defined = self.definitions[name]
        bound = dict(zip(defined.parameters, arguments, strict=True))
        return self.evaluated(defined.body, bound, state, after)

    def initial(self) -> dict[str, Any]:
        """The one state of `Init`."""
        return self.assigned(self.definitions["Init"].body, {}, {}, "name")

    def after(self, action: str, state: State, *arguments: int) -> dict[str, Any] | None:
        """The state an action leads to, or None where it is not enabled. Every variable must be said once."""
        defined = self.definitions[action]
        bound = dict(zip(defined.parameters, arguments, strict=True))
        enabled, *effects = defined.body.parts
        if not self.evaluated(enabled, bound, state, None):
            return None
        return self.assigned(Tree("all", tuple(effects)), bound, state, "primed")

    def assigned(self, items: Tree, bound: dict[str, Any], state: State, kind: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for item in items.parts:
            if item.kind == "unchanged":
                pairs = [(part.parts[0], state[part.parts[0]]) for part in item.parts[0].parts]
            else:
                assert item.kind == "=", item
                assert item.parts[0].kind == kind
                pairs = [(item.parts[0].parts[0], self.evaluated(item.parts[1], bound, state, None))]
            for name, value in pairs:
                if name in found:
                    raise Malformed(f"{name} is said twice")
                found[name] = value
        if set(found) != set(self.variables):
            raise Malformed(f"nothing is said of {sorted(set(self.variables) ^ set(found))}")
        return found

    def evaluated(self, tree: Tree, bound: dict[str, Any], state: State, after: State | None) -> Any:
        kind, parts = tree.kind, tree.parts

        def inside(part: Tree, **more: Any) -> Any:
            return self.evaluated(part, {**bound, **more} if more else bound, state, after)

        if kind in ("number", "truth"):
            return parts[0]
        if kind in ("name", "primed"):
            return self.looked_up(tree, bound, state, after)
        if kind in OPERATIONS:
            return OPERATIONS[kind](inside(parts[0]), inside(parts[1]))
        if kind in ("all", "/\\"):
            return all(inside(part) for part in parts)
        if kind in ("any", "\\/"):
            return any(inside(part) for part in parts)
        if kind == "=>":
            return not inside(parts[0]) or inside(parts[1])
        if kind.startswith("prefix"):
            return not inside(parts[0]) if kind.endswith("~") else -inside(parts[0])
        if kind == "if":
            return inside(parts[1] if inside(parts[0]) else parts[2])
        if kind == "case":
            return inside(next(value for condition, value in parts if inside(condition)))
        if kind == "let":
            return inside(parts[2], **{parts[0]: inside(parts[1])})
        if kind == "set":
            return frozenset(inside(part) for part in parts)
        if kind == "apply":
            return inside(parts[0])[inside(parts[1])]
        if kind == "except":
            return {**inside(parts[0]), inside(parts[1]): inside(parts[2])}
        if kind == "functions":
            return tuple(inside(part) for part in parts)
        if kind == "unchanged":
            assert after is not None
            return all(state[part.parts[0]] == after[part.parts[0]] for part in parts[0].parts)
        if kind == "always":
            return inside(parts[0])
        name, domain, body = parts
        members = sorted(inside(domain))
        if kind == "each":
            return {i: inside(body, **{name: i}) for i in members}
        those = (i for i in members if inside(body, **{name: i}))
        if kind in ("\\A", "\\E"):
            return all(inside(body, **{name: i}) for i in members) if kind == "\\A" else next(those, None) is not None
        return frozenset(those) if kind == "those" else next(those)

    def looked_up(self, tree: Tree, bound: dict[str, Any], state: State, after: State | None) -> Any:
        name, arguments = tree.parts
        values = [self.evaluated(a, bound, state, after) for a in arguments]
        if tree.kind == "primed":
            assert after is not None
            return after[name] if name in after else self.value(name, after, None, *values)
        if name in bound:
            return bound[name]
        if name in state:
            return state[name]
        return len(values[0]) if name == "Cardinality" else self.value(name, state, after, *values)


def _member(element: Any, group: Any) -> bool:
    if isinstance(group, tuple):  # all functions from one set to another
        return set(element) == set(group[0]) and all(value in group[1] for value in element.values())
    return element in group


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda a, b: type(a) is type(b) and a == b,
    "#": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "=<": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "..": lambda a, b: frozenset(range(a, b + 1)),
    "\\": lambda a, b: a - b,
    "\\in": _member,
}


def _units(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The parts of a module: each begins in the first column, comments aside."""
    unit: list[str] = []
    first = 0
    for number, line in enumerate(lines):
        if line[:1].strip() and not line.startswith("\\*"):
            if unit:
                yield first, "\n".join(unit)
            unit, first = [], number
        if unit or (line[:1].strip() and not line.startswith("\\*")):
            unit.append("" if line.startswith("\\*") else line)
    if unit:
        yield first, "\n".join(unit)
