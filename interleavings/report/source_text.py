"""Python source made of texts that anybody may have written: nothing of them is ever code.

    literals   a text, a number, a list … written as Python, in ASCII alone
    words      what stands in a docstring or behind a `#`: one line without quotes, backslashes or what is not visible
    checked    the result is parsed, and has the statements and names of its template and nothing else

Every generator of Python goes through `python_source`, so a text that slipped through would be refused before anything
is written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST_WORDS = 100
LONGEST_NAME = 120
#: What a template may call with values alone and still hold nothing but values.
_RECORDS = ("Step",)


def literal(value: Any) -> str:
    """Write a JSON value as Python, with double quotes for texts."""
    if isinstance(value, str):
        escaped = value.encode("unicode_escape").decode("ascii").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(str(key))}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    raise TypeError(f"{value!r} cannot be written as Python")


def visible(text: str, kept: str = "") -> str:
    """The text with every character spelled out that is not a visible one or a blank; `kept` stays as it is.

    As `terminal.plain` has it, which wants rich.
    """
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode("ascii") for each in text
    )


def words(text: str, longest: int | None = LONGEST_WORDS) -> str:
    """Make a text fit for a docstring or a comment."""
    flat = visible(" ".join(text.split())).replace("\\", "/").replace('"', "'")
    return flat if longest is None or len(flat) <= longest else flat[: longest - 3] + "..."


def identifier(text: str) -> str:
    """Make a text the end of a name."""
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")[:LONGEST_NAME]


def python_source(
    template: str, *, name: str, literals: Mapping[str, Any], texts: Mapping[str, str], lines: Mapping[str, str]
) -> str:
    """Fill a template. `lines` are made of `literal` and `words` already, and hold values and comments alone."""
    made = template.format(
        name=identifier(name),
        **{key: literal(value) for key, value in literals.items()},
        **{key: words(text, None) for key, text in texts.items()},
        **lines,
    )
    harmless = template.format(
        name="x", **dict.fromkeys(literals, "0"), **dict.fromkeys(texts, "x"), **dict.fromkeys(lines, "")
    )
    return checked(made, harmless)


def checked(made: str, harmless: str) -> str:
    """The text, if it parses to what the harmless one is, but for its values and the name of its test."""
    try:
        same = _shape(made) == _shape(harmless)
    except (SyntaxError, ValueError, RecursionError) as fault:
        raise SourceRefused(
            f"the generated test does not parse ({fault}); it was not written. Please report it"
        ) from None
    if not same:
        raise SourceRefused(
            "the generated test holds more than values and comments; it was not written. Please report it"
        )
    return made


class SourceRefused(RuntimeError):
    """Generated source is not what its template says: a fault of the generator, found before anything is written."""


class _WithoutValues(ast.NodeTransformer):
    def visit(self, node: ast.AST) -> Any:
        if _is_value(node):
            return ast.Constant(0)
        if isinstance(node, ast.FunctionDef) and re.fullmatch(r"test_\w*", node.name, re.ASCII):
            node.name = "test_"
        return self.generic_visit(node)


def _shape(text: str) -> str:
    return ast.dump(_WithoutValues().visit(ast.parse(text)))


def _is_value(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
    parts: Sequence[ast.AST | None]
    if isinstance(node, (ast.Tuple, ast.List)):
        parts = node.elts
    elif isinstance(node, ast.Dict):
        parts = [*node.keys, *node.values]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _RECORDS:
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
    else:
        return False
    return all(part is not None and _is_value(part) for part in parts)
