"""Spin on an exported text: generate, compile, run, and read what it counted or which property it saw broken."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# -DSAFETY: assertions and end states only. -DNOREDUCE: every state, none left out by partial order reduction.
# -O0, since for a small scope the compiler takes longer than the search.
EXACT = ("-O0", "-w", "-DSAFETY", "-DNOREDUCE")
BREADTH_FIRST = ("-DBFS",)
OPTIMIZED = ("-O1",)
MEMORY_LIMIT = ("-DMEMLIM=4096",)
DEPTH_FIRST_STACK = "-m1000000"


@dataclass(frozen=True)
class SpinRun:
    """What Spin reported. `depth` is, breadth first, the greatest distance from the start, or that of the violation."""

    states: int
    transitions: int
    depth: int
    violated: str | None


def run_spin(text: str, directory: Path, *flags: str, table_bits: int = 18) -> SpinRun:
    """Let Spin enumerate a text in an empty directory. It stops at the first violation.

    `flags` go to the compiler. The hash table has 2 ** `table_bits` slots: Spin's own choice of 128 MiB takes longer to
    clear than a small scope to search.
    """
    (directory / "model.pml").write_text(text, encoding="utf-8")
    # -o2: otherwise Spin forgets the value of a variable that nothing reads, and counts two states as one.
    _run(directory, "spin", "-o2", "-a", "model.pml")
    _run(directory, "gcc", *EXACT, *MEMORY_LIMIT, *flags, "-o", "pan", "pan.c")
    stack = () if "-DBFS" in flags else (DEPTH_FIRST_STACK,)
    report = _run(directory, "./pan", f"-w{table_bits}", *stack)
    counted = re.search(r"depth reached (\d+), errors: (\d+)\s+(\d+) states, stored", report)
    moved = re.search(r"(\d+) transitions", report)
    assert counted is not None, report
    assert moved is not None, report
    depth, errors, states = map(int, counted.groups())
    assert "Search not completed" not in report or errors, report
    # Spin counts the initial state as a transition.
    return SpinRun(states, int(moved[1]) - 1, depth, _violated(directory) if errors else None)


def _violated(directory: Path) -> str:
    """The property in the assertion that failed, from the trail as Spin replays it on the text."""
    trail = _run(directory, "spin", "-t", "model.pml")
    failed = re.search(r"text of failed assertion: assert\(\(violated!=(\w+)\)\)", trail)
    assert failed is not None, trail
    return failed[1]


def _run(directory: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{' '.join(command)} exited {done.returncode}:\n{output}"
    return output
