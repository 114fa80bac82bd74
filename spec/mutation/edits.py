"""The single edits of a function of a machine, as syntax trees: a conjunct left out, a comparison moved by one, …

Only what is said of a state is edited: functions whose first parameter is a `Value`, and what stands inside them. Each
edit is a whole function again, so that it can be compiled in the place of the right one.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LEFT_OUT = "left out"
MOVED = "moved by one"
EXCHANGED = "< and <= exchanged"
EFFECT = "effect left out"
BRANCH = "one branch for both"
OFF_BY_ONE = "off by one"
RESET = "other value"
PREMISE = "premise left out"

_LOOSER: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
# What is added to the right side for the move that is not the exchange.
_OTHER_WAY: dict[type[ast.cmpop], int] = {ast.Lt: -1, ast.LtE: 1, ast.Gt: 1, ast.GtE: -1}
_TRUTHS = ("not_", "all_of", "any_of", "implies")


@dataclass(frozen=True)
class Edit:
    """One edit: what it does, the text before and after, its line, and the whole function with it."""

    what: str
    before: str
    after: str
    line: int
    function: ast.FunctionDef


def edits_of(function: ast.FunctionDef, values: Mapping[str, object]) -> list[Edit]:
    """Every single edit of a function; `values` says which number a name stands for."""
    found: list[Edit] = []
    seen = {ast.unparse(function)}
    order = {id(node): place for place, node in enumerate(ast.walk(function))}
    for node, new, what in _replacements(function, values):
        changed = _with(function, order[id(node)], new)
        text = ast.unparse(changed)
        if text not in seen:
            seen.add(text)
            line = getattr(node, "lineno", function.lineno)
            found.append(Edit(what, ast.unparse(node), ast.unparse(new), line, changed))
    return found


def _with(function: ast.FunctionDef, place: int, new: ast.expr) -> ast.FunctionDef:
    """The function with the node at that place of the walk replaced."""
    changed = copy.deepcopy(function)
    target = next(node for i, node in enumerate(ast.walk(changed)) if i == place)

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return copy.deepcopy(new) if node is target else super().visit(node)

    result = Replace().visit(changed)
    assert isinstance(result, ast.FunctionDef)
    return ast.fix_missing_locations(result)


def _about_a_state(function: ast.FunctionDef) -> list[ast.FunctionDef]:
    """The function itself, if it is about a state, else those inside it that are."""

    def takes_a_state(node: ast.FunctionDef) -> bool:
        first = node.args.args[0].annotation if node.args.args else None
        return isinstance(first, ast.Name) and first.id == "Value"

    if takes_a_state(function):
        return [function]
    return [node for node in ast.walk(function) if isinstance(node, ast.FunctionDef) and takes_a_state(node)]


def _replacements(function: ast.FunctionDef, values: Mapping[str, object]) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    for part in _about_a_state(function):
        parents = {id(child): parent for parent in ast.walk(part) for child in ast.iter_child_nodes(parent)}
        for statement in part.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield from _returned(node.value)
                elif isinstance(node, ast.BinOp):
                    yield from _joined(node, parents.get(id(node)))
                elif isinstance(node, ast.Compare):
                    yield from _compared(node)
                elif isinstance(node, ast.Dict):
                    yield from _effects(node, values)
                elif isinstance(node, ast.Call):
                    yield from _called(node, values)


def _returned(value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    """A guard or a claim of one conjunct alone: without it nothing is asked."""
    guard = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else None
    alone = guard if guard is not None else value
    truth = guard is not None or isinstance(value, ast.Compare) or _word(value) in _TRUTHS
    truth = truth or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr))
    if truth and not (isinstance(alone, ast.BinOp) and isinstance(alone.op, ast.BitAnd)):
        yield alone, ast.Constant(True), LEFT_OUT


def _joined(node: ast.BinOp, parent: ast.AST | None) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    if isinstance(node.op, ast.BitAnd | ast.BitOr):
        if isinstance(parent, ast.BinOp) and type(parent.op) is type(node.op):
            return
        parts = _operands(node, type(node.op))
        for left_out in range(len(parts)):
            rest = [part for i, part in enumerate(parts) if i != left_out]
            joined = rest[0]
            for part in rest[1:]:
                joined = ast.BinOp(joined, node.op, part)
            # The text before is what is left out, so that the mutant keeps its name when a neighbour changes.
            yield node, joined, f"{LEFT_OUT}: {ast.unparse(parts[left_out])}"
    if isinstance(node.op, ast.Add | ast.Sub):
        if _is_one(node.right):
            yield node, node.left, OFF_BY_ONE
        elif _is_one(node.left) and isinstance(node.op, ast.Add):
            yield node, node.right, OFF_BY_ONE


def _operands(node: ast.expr, kind: type[ast.operator]) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, kind):
        return [*_operands(node.left, kind), *_operands(node.right, kind)]
    return [node]


def _compared(node: ast.Compare) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    if len(node.ops) != 1:
        return
    sign, right = node.ops[0], node.comparators[0]
    if type(sign) in _LOOSER:
        yield node, ast.Compare(node.left, [_LOOSER[type(sign)]()], [right]), EXCHANGED
        yield node, ast.Compare(node.left, [sign], [_plus(right, _OTHER_WAY[type(sign)])]), MOVED
    elif isinstance(sign, ast.Eq | ast.NotEq):
        for by in (1, -1):
            yield node, ast.Compare(node.left, [sign], [_plus(right, by)]), MOVED


def _effects(node: ast.Dict, values: Mapping[str, object]) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    for left_out in range(len(node.keys)):
        kept = [(k, v) for i, (k, v) in enumerate(zip(node.keys, node.values, strict=True)) if i != left_out]
        key = node.keys[left_out]
        named = ast.unparse(key if key is not None else node.values[left_out])
        yield node, ast.Dict([k for k, _ in kept], [v for _, v in kept]), f"{EFFECT}: {named}"
    for key, value in zip(node.keys, node.values, strict=True):
        if key is not None:
            yield from _other_value(value, values)


def _called(node: ast.Call, values: Mapping[str, object]) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    word = _word(node)
    if word == "where":
        _, then, otherwise = node.args
        yield node, then, BRANCH
        yield node, otherwise, BRANCH
    elif word == "put":
        yield from _other_value(node.args[2], values)
    elif word == "implies":
        yield node, node.args[1], PREMISE
    elif isinstance(node.func, ast.Attribute) and node.func.attr == "at":
        yield node, ast.Call(node.func, [_plus(node.args[0], 1)], []), OFF_BY_ONE


def _other_value(node: ast.expr, values: Mapping[str, object]) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    """A value that an effect gives: the one beside it."""
    number = _number(node, values)
    if number is not None:
        yield node, ast.Constant(number - 1 if number > 0 else number + 1), RESET


def _number(node: ast.expr, values: Mapping[str, object]) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -int(node.operand.value) if type(node.operand.value) is int else None
    if isinstance(node, ast.Name) and type(known := values.get(node.id)) is int:
        return known
    return None


def _plus(node: ast.expr, by: int) -> ast.expr:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return ast.Constant(node.value + by)
    return ast.BinOp(node, ast.Add() if by > 0 else ast.Sub(), ast.Constant(abs(by)))


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 1


def _word(node: ast.expr) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
