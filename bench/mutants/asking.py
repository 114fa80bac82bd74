"""What a child does: search scenarios or run tests of the copy that it lives in, and tell what came of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from .children import Tell

NOT_ASKED = "slow or ray or spin or tlc or chromium or zsh or other_python or pyright or mounts or cuda"
"""Tests of long runs and of foreign tools: as `make test` orders them, by marker."""


def scenario_names() -> list[dict[str, Any]]:
    """Every scenario of the copy: its name, its size, and whether `make check` searches it."""
    from interleavings.scenarios import SCENARIOS

    return [
        {"name": name, "states": scenario.pinned.states if scenario.pinned else 0, "quick": scenario.quick}
        for name, scenario in SCENARIOS.items()
    ]


def search(names: Sequence[str], tell: Tell, until_noticed: bool, ran: Callable[[], Any] | None = None) -> None:
    """Search scenarios one after the other; with `until_noticed` up to the first whose verdict is no pass.

    `fails` is a schedule that breaks a property, and `error` a program that does not even start. `counts` is a pass but
    for its numbers of states and schedules, which says no more than that something moved, and `inconclusive` that the
    program does not repeat itself.
    """
    tell({"kind": "begin", "what": "import"})
    from interleavings import explore
    from interleavings.correspondence.follower import Coverage
    from interleavings.scenarios import scenario_named

    for name in names:
        tell({"kind": "begin", "what": name})
        scenario = scenario_named(name)
        pinned = scenario.pinned
        started = time.perf_counter()
        why = ""
        try:
            result = explore(
                scenario.program(Coverage()),
                cancels=scenario.cancels,
                crashes=scenario.crashes,
                timers=scenario.timers,
                # Twice what it has: what grows beyond that differs, and the rest would take long.
                max_states=2 * pinned.states + 1000 if pinned else None,
            )
        except Exception as error:
            verdict, why = "error", repr(error)
        else:
            verdict, why = result.verdict, str(result.failure or result.why or "")
            if verdict == "bounded":
                verdict = "counts"
            elif (
                verdict == "holds" and pinned and (result.states, result.schedules) != (pinned.states, pinned.schedules)
            ):
                verdict, why = "counts", f"{result.states} states, {result.schedules} schedules"
        message: dict[str, Any] = {"kind": "scenario", "what": name, "verdict": verdict, "why": why[:300]}
        message["seconds"] = round(time.perf_counter() - started, 2)
        if ran is not None:
            message["ran"] = ran()
        tell(message)
        if until_noticed and verdict in ("fails", "error"):
            return


def run_tests(chosen: Sequence[str], tell: Tell, until_noticed: bool, ran: Callable[[], Any] | None = None) -> None:
    """Run tests, by file or by name; with `until_noticed` up to the first that fails."""
    import pytest

    class Told:
        """Tells each test as it begins and as it ends."""

        def __init__(self) -> None:
            self.outcome = "passed"
            self.why = ""

        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Any:
            tell({"kind": "begin", "what": item.nodeid})
            self.outcome, self.why = "passed", ""
            started = time.perf_counter()
            yield
            message = {"kind": "test", "what": item.nodeid, "verdict": self.outcome, "why": self.why[:300]}
            message["seconds"] = round(time.perf_counter() - started, 3)
            if ran is not None:
                message["ran"] = ran()
            tell(message)

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                self.outcome, self.why = "failed", str(getattr(report.longrepr, "reprcrash", report.longrepr))
            elif report.skipped and self.outcome == "passed":
                self.outcome = "skipped"

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                tell(
                    {
                        "kind": "test",
                        "what": report.nodeid,
                        "verdict": "failed",
                        "why": "cannot be collected",
                        "seconds": 0,
                    }
                )

    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *(["-x"] if until_noticed else [])]
    tell({"kind": "begin", "what": "collection"})
    status = pytest.main([*options, *chosen, "-m", f"not ({NOT_ASKED})"], plugins=[Told()])
    if status == pytest.ExitCode.USAGE_ERROR:
        # A name that holds, say, the path of this copy: nothing ran, which is nobody's notice.
        tell({"kind": "not found", "what": "collection"})
