"""Runs CrossHair on the contracts, and on the wrong versions that it must refute.

What CrossHair does not refute it has not proved: it ran out of time, or followed all paths of inputs that the contract
itself keeps small. So a contract is at best `bounded`, listed apart from the proofs. Its exit status says nothing: it
is 0 as well where nothing was checked. Only the line that it prints about the contract counts.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .functions import CONTRACTS
from .wrong_versions import WRONG_VERSIONS

SECONDS = 6
"""How long CrossHair may look at one contract, in seconds of processor time."""
ROOT = Path(__file__).resolve().parent.parent
WORKERS = 2

ALL_PATHS, NOTHING_FOUND = "no counterexample on any path", "no counterexample in {} s"


@dataclass(frozen=True)
class ContractOutcome:
    """What CrossHair said of one contract, or of one wrong version."""

    name: str
    verdict: str
    """bounded (not refuted), fails (a counterexample), or inconclusive (nothing was checked)."""
    said: str
    seconds: float


def outcome_of(name: str, module: str, seconds: int = SECONDS) -> ContractOutcome:
    """Run CrossHair on one contract in a process of its own."""
    started = time.perf_counter()
    options = ["--analysis_kind", "asserts", "--report_all", "--per_condition_timeout", str(seconds)]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, "-m", "crosshair", "check", *options, f"{module}.{name}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    verdict, said = understood(ended.stdout + ended.stderr, seconds)
    return ContractOutcome(name, verdict, said, time.perf_counter() - started)


def understood(output: str, seconds: int) -> tuple[str, str]:
    """The verdict in what CrossHair printed, and its words."""
    lines = output.splitlines()
    for line in lines:
        if (error := re.match(r".*:\d+: error: (.*)", line)) is not None:
            return "fails", error[1]
    informed = [found[1] for line in lines if (found := re.match(r".*:\d+: info: (.*)", line)) is not None]
    if informed == ["Confirmed over all paths."]:
        return "bounded", ALL_PATHS
    if informed == ["Not confirmed."]:
        return "bounded", NOTHING_FOUND.format(seconds)
    said = lines[-1].strip() if lines else "nothing"
    return "inconclusive", f"CrossHair checked nothing; it said: {said}"


def contracts_held(seconds: int = SECONDS, ended: Callable[[], None] = lambda: None) -> list[ContractOutcome]:
    """The outcome of every contract; `ended` is called as each has one."""
    return _all([(contract.__name__, contract.__module__) for contract in CONTRACTS], seconds, ended)


def wrong_versions_refuted(seconds: int = SECONDS, ended: Callable[[], None] = lambda: None) -> list[ContractOutcome]:
    """The outcome of every wrong version; each must fail, by an assertion of the contract."""
    return _all([(wrong.called, type(wrong).__module__) for wrong in WRONG_VERSIONS], seconds, ended)


def is_refuted(outcome: ContractOutcome) -> bool:
    """Whether an assertion of the contract was broken, and not something else in the wrong version."""
    return outcome.verdict == "fails" and outcome.said.startswith("AssertionError")


def _all(names: Sequence[tuple[str, str]], seconds: int, ended: Callable[[], None]) -> list[ContractOutcome]:
    found = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for outcome in pool.map(lambda named: outcome_of(named[0], named[1], seconds), names):
            found.append(outcome)
            ended()
    return found
