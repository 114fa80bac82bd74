"""Messages that count: one thing is not told as if it were many."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from cleancut_leaf.words import counted, none_valid

ROOT = Path(__file__).resolve().parents[1]
SPOKEN = [path for package in ("impl", "interleavings") for path in sorted((ROOT / package).rglob("*.py"))]
PLURAL = re.compile(r" (?:[a-z-]+ ){0,2}?[a-z]+(?<!s)s\b")


def bare_plurals(source: str) -> Iterator[str]:
    """Yield each place where a text says how long something is and goes on with a plural, whatever the number."""
    for text in ast.walk(ast.parse(source)):
        parts = text.values if isinstance(text, ast.JoinedStr) else []
        for part, after in pairwise(parts):
            match part, after:
                case (
                    ast.FormattedValue(value=ast.Call(func=ast.Name(id="len"))),
                    ast.Constant(value=str(words)),
                ) if PLURAL.match(words):
                    yield ast.unparse(part.value) + words


def test_one_is_told_as_one() -> None:
    """And none as many, as English has it; verbs and irregular nouns are given with the word."""
    assert [counted(number, "group") for number in (0, 1, 2)] == ["0 groups", "1 group", "2 groups"]
    assert [counted(number, "entry is", "entries are") for number in (1, 3)] == ["1 entry is", "3 entries are"]
    assert counted(2_000, "state") == "2,000 states"
    assert none_valid(1) == "the only checkpoint is not valid"
    assert none_valid(2) == "none of the 2 checkpoints is valid"


@pytest.mark.parametrize("path", SPOKEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_message_counts_without_a_singular(path: Path) -> None:
    """`counted` says it well for one and for many; a bare `len` before a plural does not."""
    assert list(bare_plurals(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("wrong", ['f"{len(groups)} groups are gone"', 'f"none of the {len(all)} damaged files"'])
def test_a_bare_plural_is_found(wrong: str) -> None:
    """The control of the test above: what it looks for is seen where it stands."""
    assert list(bare_plurals(wrong))
    assert not list(bare_plurals(wrong.replace("len(", "counted(")))
