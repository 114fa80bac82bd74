"""Rows on a real GPU: the one script that shows it there, and what can be known of the script without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run_script(
    *arguments: str, output: Path, seconds: float, hidden: bool = False
) -> tuple[int, str, list[dict[str, Any]]]:
    """Status, text and table of `bench/cuda.py`; `hidden` lets it see no device."""
    command = [sys.executable, str(ROOT / "bench" / "cuda.py"), "--json", str(output), *arguments]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""} if hidden else None
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False, env=environment
    )
    rows = json.loads(output.read_text()) if output.exists() else []
    return ended.returncode, ended.stdout + ended.stderr, rows


@pytest.mark.cuda
def test_on_a_gpu_every_program_is_right_and_every_control_is_wrong(tmp_path: Path) -> None:
    """Slow kernels, cut, clear, new tensors in the memory, two streams; the window and the copy rate; four minutes."""
    status, text, rows = run_script(output=tmp_path / "table.json", seconds=240)
    assert status == 0, text
    assert [row["figure"] for row in rows if not row["ok"]] == []


def test_the_script_of_the_gpu_is_right_on_the_simulated_device(tmp_path: Path) -> None:
    """The same programs and controls, so that the script is right before a GPU can be had."""
    status, text, rows = run_script("--device", "simulated", output=tmp_path / "table.json", seconds=120)
    assert status == 0, text
    assert [row["figure"].partition(":")[0] for row in rows] == ["program"] * 7 + ["control"] * 6
    assert all(row["ok"] and set(row) == {"figure", "value", "to_reach", "ok"} for row in rows)


def test_without_a_gpu_the_script_did_not_run_and_says_so(tmp_path: Path) -> None:
    """Status 3, no table: nothing that could be read as a pass."""
    status, text, rows = run_script(output=tmp_path / "table.json", seconds=120, hidden=True)
    assert (status, rows) == (3, [])
    assert text.startswith("cuda: not run: torch finds no CUDA device")
