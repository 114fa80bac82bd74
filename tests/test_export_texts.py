"""Words of a machine are comments in an export and nothing else, whatever they hold."""

from __future__ import annotations

import dataclasses
import re

import pytest

from spec.exports.promela import export_promela, layout
from spec.exports.tla import export_tla
from spec.language import Machine
from spec.machines import MACHINES, SMALL

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


def test_case_G30_no_words_of_a_machine_are_tla_outside_a_comment() -> None:
    """A second line of a meaning would be part of the module."""
    text = export_tla(hostile(), SMALL["barrier"]["one_round"][0], scope_name=HOSTILE).module
    assert "HIT" in text
    assert "HIT" not in re.sub(r"\\\*[^\n]*", "", text)
