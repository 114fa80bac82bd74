"""The explorer's page: its example runs and prints what the page says."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

_PAGE = Path(__file__).resolve().parent.parent / "interleavings" / "README.md"


def test_example_of_the_page_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example that no longer runs is worse than none."""
    example = _PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    promised = next(line for line in example.splitlines() if "result.summary()" in line).partition("# ")[2]
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "example.py", "exec"), {"__name__": "example"})
    lines = printed.getvalue().splitlines()
    assert lines[0] == promised
    assert lines[-1].strip() == "stock asyncio can do this: yes"
    assert (tmp_path / "trace.json").exists()


def test_example_of_a_crash_prints_what_the_page_says() -> None:
    """The verdict as far as the page gives it, and the crash with the name of what it left."""
    example = _PAGE.read_text(encoding="utf-8").split("```python\n")[2].partition("```")[0]
    promised = next(line for line in example.splitlines() if "result.summary()" in line).partition("# ")[2]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "example.py", "exec"), {"__name__": "example"})
    lines = printed.getvalue().splitlines()
    assert lines[0].startswith(promised.removesuffix("..."))
    assert any(line.endswith("crash: synced") for line in lines)


def test_page_names_every_file_of_the_core() -> None:
    """A reader finds each file in the table."""
    page = _PAGE.read_text(encoding="utf-8")
    core = {path.name for path in _PAGE.parent.glob("*.py")} - {"__init__.py", "__main__.py"}
    others = {"refinement.py", "conformance.py", "follower.py"}  # the bridge
    others |= {"command_line.py"}
    assert [name for name in sorted(core - others) if f"`{name}`" not in page] == []
