"""Words of a machine are comments in an export and nothing else, whatever they hold."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from spec.exports.promela import export_promela, layout
from spec.exports.tla import export_tla
from spec.language import Machine
from spec.machines import MACHINES, SMALL

ROOT = Path(__file__).resolve().parent.parent
HOSTILE = "a */ HIT /* b\nHIT \u2028HIT *)"


def hostile() -> Machine:
    """The barrier with hostile words for what its variables mean."""
    machine = MACHINES["barrier"]
    return dataclasses.replace(
        machine,
        variables={n: dataclasses.replace(v, meaning=HOSTILE) for n, v in machine.variables.items()},
    )


def promela() -> str:
    """The export without its comments."""
    text = export_promela(hostile(), SMALL["barrier"]["one_round"][0], scope_name=HOSTILE)
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def test_case_G30_no_words_of_a_machine_are_promela_outside_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence with the end of a comment in it would be code of the model; the mutant lets it through."""
    assert "HIT" not in promela()
    monkeypatch.setattr(layout, "unclosed", lambda text: text)
    assert "HIT" in promela()


def tla() -> str:
    """The export without its comments."""
    text = export_tla(hostile(), SMALL["barrier"]["one_round"][0], scope_name=HOSTILE).module
    assert "HIT" in text
    return re.sub(r"\\\*[^\n]*", "", text)


def test_case_G30_no_words_of_a_machine_are_tla_outside_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second line of a meaning would be part of the module; the mutant lets it through."""
    assert "HIT" not in tla()
    monkeypatch.setattr("spec.exports.tla.document.one_line", lambda text: text)
    assert "HIT" in tla()


KNOWN = {"line"}  # lines of a text that went through the function as a whole


def words_in_comments(source: str, opening: str, closing: str) -> list[str]:
    """What an f-string puts behind the beginning of a comment, and before its end."""
    found = []
    for node in ast.walk(ast.parse(source)):
        before = ""
        for part in node.values if isinstance(node, ast.JoinedStr) else ():
            if isinstance(part, ast.Constant):
                before += str(part.value)
            elif isinstance(part, ast.FormattedValue) and before.rfind(opening) > before.rfind(closing):
                found.append(ast.unparse(part.value))
    return found


@pytest.mark.parametrize(
    ("folder", "opening", "closing", "function"),
    [("promela", "/*", "*/", "unclosed"), ("tla", "\\*", "\n", "one_line")],
)
def test_case_G30_every_comment_of_an_export_goes_through_its_function(
    folder: str, opening: str, closing: str, function: str
) -> None:
    """Read off the sources: another function, or none, is seen."""
    files = sorted((ROOT / "spec" / "exports" / folder).glob("*.py"))
    words = [word for path in files for word in words_in_comments(path.read_text("utf-8"), opening, closing)]
    assert any(word.startswith(f"{function}(") for word in words)
    assert [word for word in words if not word.startswith(f"{function}(") and word not in KNOWN] == []
    assert words_in_comments(f"f'{{code}} {opening.replace(chr(92), chr(92) * 2)} {{text}}'", opening, closing) == [
        "text"
    ]
