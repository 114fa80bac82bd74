"""Every part that needs an extra says so where it is imported, and every command that needs one, without it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cleancut_leaf.extras import EXTRAS, EXTRAS_OF_THE_LIBRARY

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "format-1" / "in_order"
#: What no minimal install has.
HEAVY = sorted({*EXTRAS, "hypothesis", "pytest"})
BLOCKER = """
import os, sys
for name in os.environ["BLOCKED"].split(","):
    sys.modules[name] = None
"""


@pytest.fixture
def minimal(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that has msgspec and rich alone, and so has every process that it starts."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    return {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "BLOCKED": ",".join(HEAVY)}


def ran(minimal: dict[str, str], *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=minimal, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("import impl; impl.TensorPlane", "torch"),
        ("import impl; impl.TorchTrainerState", "torch"),
        ("import impl; impl.TorchdataPromptLoader", "torch"),
        ("import impl.prometheus", "prometheus"),
        ("import impl.ray", "ray"),
        ("import impl.transfer_queue", "torch"),
        ("import impl.trio", "trio"),
        ("from proofs import discharge", "proofs"),
    ],
)
def test_case_G33_a_part_whose_extra_is_missing_names_it_where_it_is_imported(
    program: str, extra: str, minimal: dict[str, str], tmp_path: Path
) -> None:
    """`No module named torch` sends a reader to the wrong build of torch, and to the wrong version."""
    ended = ran(minimal, "-c", program, folder=tmp_path)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    assert f"pip install 'cleancut[{extra}]'" in last


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["impl", "demo"], "torch"),
        (["interleavings", "check", "commit"], "torch"),
        (["interleavings", "check", "barrier", "--ray", "local"], "ray"),
        (["proofs"], "proofs"),
        (["proofs", "--quick"], "proofs"),
        (["spec", "check", "--machine", "store", "--engine", "compiled"], "compiled"),
        (["spec", "check", "--machine", "store", "--workers", "2"], "compiled"),
        (["spec", "check", "--machine", "store", "--device", "cuda"], "torch"),
        (["spec", "variants", "--engine", "torch"], "torch"),
        (["interleavings", "--print-completion", "bash"], "completion"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_case_G33_a_command_without_its_extra_is_no_violation(
    command: list[str], extra: str, minimal: dict[str, str], tmp_path: Path
) -> None:
    """Status 1 is a violation, and `cleancut check` believed it; the demo died in a process of its own."""
    ended = ran(minimal, "-m", *command, folder=tmp_path)
    assert ended.returncode in (2, 3), ended.stderr
    assert f"pip install 'cleancut[{extra}]'" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.glob("build/**/*.json")) == []


@pytest.mark.parametrize(
    "command",
    [
        ["impl", "fsck", str(GOLDEN / "checkpoints")],
        ["impl", "inspect", str(GOLDEN / "checkpoints")],
        ["interleavings", "check", "barrier"],
        ["interleavings", "list"],
        ["interleavings", "validate", str(GOLDEN / "trace.jsonl")],
        ["spec", "check", "--machine", "store"],
    ],
    ids=" ".join,
)
def test_what_needs_no_extra_runs_without_any(command: list[str], minimal: dict[str, str], tmp_path: Path) -> None:
    """The control: the blocker blocks nothing that a minimal install has."""
    ended = ran(minimal, "-m", *command, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr


def test_every_extra_named_is_one_of_the_project() -> None:
    """A line that names an extra which is not there installs nothing, with a warning that nobody reads."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*EXTRAS.values(), *EXTRAS_OF_THE_LIBRARY.values()} <= declared.keys()
