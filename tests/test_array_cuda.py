"""The script of the array engine on a GPU: what it says of a search that is cut short, fails or is not begun."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from spec.engines.arrays import engine
from spec.machines import MACHINES, SMALL

ROOT = Path(__file__).resolve().parent.parent
SCOPE, PINNED = SMALL["store"]["two_writers"]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("array_cuda")


def searched(script: Any, *, seconds: float, must: bool) -> list[tuple[str, bool]]:
    """What is said of one search."""
    rows = script.searched("scope", "store", SCOPE, PINNED, "cpu", lambda: seconds, must=must)
    return [(row.figure.partition(":")[2].strip(), row.ok) for row in rows]


def test_counts_that_have_to_be_known_and_are_not_reached_are_not_ok(script: Any) -> None:
    """On a device that has too little memory or time nothing would be compared, and all would read as fine."""
    assert searched(script, seconds=60, must=True)[-1] == ("the known counts", True)
    short = "the known counts: not reached, stopped after 1e-09 seconds, all of depth 0 seen"
    assert searched(script, seconds=1e-9, must=True)[-1] == (short, False)
    assert searched(script, seconds=0, must=True) == [("not run, no time left", False)]


def test_a_scope_that_is_only_to_show_how_far_the_memory_goes_may_end_early(script: Any) -> None:
    """It says so, and promises nothing."""
    short = "stopped after 1e-09 seconds, all of depth 0 seen (depth)"
    assert searched(script, seconds=1e-9, must=False)[-1] == (short, True)
    assert searched(script, seconds=0, must=False) == [("not run, no time left", True)]


def test_a_search_that_fails_is_a_row_that_is_not_ok_and_the_others_run(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operation that a device does not have would take all other figures with it."""
    real = engine.search

    def search(machine: Any, scope: Any, *arguments: Any, **named: Any) -> Any:
        if machine is MACHINES["cut"]:
            raise NotImplementedError("no such kernel")
        return real(machine, scope, *arguments, **named)

    monkeypatch.setattr(engine, "search", search)
    monkeypatch.setattr(script, "AGREEMENT", (("cut", "one_batch"), ("store", "two_writers")))
    monkeypatch.setattr(script, "VARIANTS", ())
    rows = {row.figure: row.ok for row in script.measure("cpu", quick=True)}
    wrong = [figure for figure, ok in rows.items() if not ok]
    assert [figure.partition(": NotImplementedError: no such kernel")[1:] for figure in wrong] == [
        (": NotImplementedError: no such kernel", "")
    ] * 2
    assert rows["as the reference engine: store two_writers"]
    assert f"NO  {wrong[0]}" in capsys.readouterr().err
