"""`python -m cleancut check`: every check a reviewer wants, on one screen, with a report.

Spec, variants, interleavings and proofs run as the commands a user would call, each in its own process, and are read
back through their JSON. Every trace gets a page, the variants' among them, one click from the report. On a violation
the trace, its page and a pytest of it are written and their paths printed.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cleancut.report import page
from cleancut_leaf.terminal import CannotWrite, Parser, Screen, complain, how_far, plain, require_folder, write_file
from interleavings.conformance.pages import explain
from interleavings.errors import TraceUnreadable
from interleavings.runtime.trace import read_document
from spec.machines.scopes import FAMILIES

HOLDS, FAILS, WRONG_USE, NOT_COMPLETE = 0, 1, 2, 3
VERDICT_OF_STATUS = {HOLDS: "holds", FAILS: "fails", NOT_COMPLETE: "inconclusive"}
EXAMPLES = """examples:
  python -m cleancut check                  what `make check` runs: one screen, build/report/index.html
  python -m cleancut check --scope medium   a million states and more
"""
REPORT, TRACES = Path("build/report"), Path("build/counterexamples")
PAGES = "traces"


@dataclass
class Part:
    """One command of the check and what came of it."""

    name: str
    command: list[str]
    status: int = NOT_COMPLETE
    seconds: float = 0.0
    output: str = ""
    result: Any = None
    pytests: list[str] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    """The page of each trace, relative to the report."""

    @property
    def verdict(self) -> str:
        """`holds` only when the command said so and its result could be read."""
        if self.status == HOLDS and self.result is None:
            return "inconclusive"
        return VERDICT_OF_STATUS.get(self.status, "inconclusive")

    @property
    def line(self) -> str:
        """The command's own summary line."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"{self.name}: no output"


def parts_for(scope: str, directory: Path) -> list[Part]:
    """The commands of the check at one scope."""
    module = [sys.executable, "-m"]
    quick = ["--quick"] if scope == "small" else []
    schedules = [*module, "interleavings", "check", *quick, "--json", str(directory / "interleavings.json")]
    return [
        Part("spec", [*module, "spec", "check", "--scope", scope, "--json", str(directory / "spec.json")]),
        Part("variants", [*module, "spec", "variants", "--json", str(directory / "variants.json")]),
        Part("interleavings", schedules),
        Part("proofs", [*module, "proofs", "--quick", "--json", str(directory / "proofs.json")]),
    ]


def run(part: Part, directory: Path) -> Part:
    """Run one command; read what it wrote. A result left over from an earlier run is never read."""
    target = directory / f"{part.name}.json"
    target.unlink(missing_ok=True)
    started = time.perf_counter()
    ended = subprocess.run(part.command, capture_output=True, check=False, env=_plain_environment())
    part.seconds = time.perf_counter() - started
    part.status, part.output = ended.returncode, (ended.stdout + ended.stderr).decode("utf-8", "backslashreplace")
    try:
        part.result = json.loads(target.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        part.result = None
    return part


def _plain_environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "110", "NO_COLOR": "1"}


def emit_pytests(part: Part) -> None:
    """Write each counterexample of the spec as a pytest too; the explorer has written its own."""
    for trace in _counterexamples(part):
        target = TRACES / f"test_{Path(trace).stem.replace('-', '_')}.py"
        command = [sys.executable, "-m", "interleavings", "emit", trace, "-o", str(target)]
        if subprocess.run(command, capture_output=True, check=False).returncode == HOLDS:
            part.pytests.append(str(target))


def explain_traces(part: Part) -> Part:
    """Write the page of every trace that the part has; one that cannot be made is said and spoils nothing."""
    (REPORT / PAGES).mkdir(parents=True, exist_ok=True)
    for trace in _traces(part):
        page_of_trace = f"{PAGES}/{Path(trace).stem}.html"
        try:
            if part.name == "interleavings":
                # A schedule is walked again on the real library, which wants a process of its own.
                command = [sys.executable, "-m", "interleavings", "explain", trace, "-o", str(REPORT / page_of_trace)]
                subprocess.run(command, capture_output=True, text=True, check=True)
            else:
                write_file(REPORT / page_of_trace, explain(read_document(trace), trace))
        except (TraceUnreadable, CannotWrite, OSError, subprocess.CalledProcessError) as fault:
            part.output += f"\nno page of {trace}: {fault}"
        else:
            part.pages[trace] = page_of_trace
    return part


def _traces(part: Part) -> list[str]:
    if part.name == "spec":
        return _counterexamples(part)
    items = part.result if part.name in ("variants", "interleavings") and isinstance(part.result, list) else []
    return [item["counterexample"] for item in items if item.get("counterexample")]


def _counterexamples(part: Part) -> list[str]:
    if part.name != "spec" or not isinstance(part.result, dict):
        return []
    machines = part.result.get("machines", [part.result])
    return [machine["counterexample"] for machine in machines if machine.get("counterexample")]


def document(parts: Sequence[Part], scope: str, seconds: float) -> dict[str, Any]:
    """The report as the JSON object of the contract."""
    verdicts = [part.verdict for part in parts]
    verdict = "fails" if "fails" in verdicts else "holds" if set(verdicts) == {"holds"} else "inconclusive"
    return {
        "verdict": verdict,
        "scope": scope,
        "seconds": round(seconds, 3),
        "parts": {part.name: {"verdict": part.verdict, "seconds": round(part.seconds, 3)} for part in parts},
        "pages": {trace: page_of_trace for part in parts for trace, page_of_trace in part.pages.items()},
        **{part.name: part.result for part in parts},
    }


def check(scope: str) -> int:
    """Run everything, print one screen, write the report; return the exit status."""
    # Everything is asked for at once, and some parts know no scopes: whatever is wrong is said before the first runs.
    if scope not in FAMILIES:
        complain("python -m cleancut", f"no scope {scope!r}; there are: {', '.join(FAMILIES)}")
        return WRONG_USE
    for folder in (REPORT, TRACES):
        require_folder(folder)
    REPORT.mkdir(parents=True, exist_ok=True)
    raw = REPORT / "parts"
    raw.mkdir(exist_ok=True)
    for old in (REPORT / PAGES).glob("*.html"):
        old.unlink()
    started = time.perf_counter()
    parts = parts_for(scope, raw)
    processes = min(2, os.cpu_count() or 1)
    with how_far(Screen(), "checking …", "parts") as shown, ThreadPoolExecutor(max_workers=processes) as pool:
        ended = shown.one_more(len(parts))
        # The longest first, so that the others run beside it.
        order = sorted(parts, key=lambda part: part.name != "interleavings")
        tasks = [pool.submit(lambda part: explain_traces(run(part, raw)), part) for part in order]
        for task in as_completed(tasks):
            task.result()
            ended()
    for part in parts:
        if part.status == WRONG_USE:
            print(plain(part.output.strip(), kept="\n"), file=sys.stderr)
            return WRONG_USE
        emit_pytests(part)
        show(part)
    result = document(parts, scope, time.perf_counter() - started)
    write_file(REPORT / "report.json", json.dumps(result, indent=2) + "\n")
    write_file(REPORT / "index.html", page(result))
    print(f"check: {result['verdict']}, scope {scope}, {result['seconds']:.1f} s, report {REPORT / 'index.html'}")
    return {"holds": HOLDS, "fails": FAILS}.get(result["verdict"], NOT_COMPLETE)


def show(part: Part) -> None:
    """One line for a part that holds; everything it said for one that does not."""
    if part.verdict == "holds":
        print(plain(part.line))
        return
    print(plain(part.output.rstrip(), kept="\n"))
    if part.result is None:
        print(f"{part.name}: ended with status {part.status} and without a readable result")
    # A variant's trace is how it was caught, and no news.
    for written in part.pages.values() if part.name != "variants" else ():
        print(f"  page:   {REPORT / written}")
    for test in part.pytests:
        print(f"  pytest: {test}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = Parser(
        completes=True,
        prog="python -m cleancut",
        description="All of Cleancut's checks, and the report of them.",
        epilog=EXAMPLES,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = commands.add_parser("check", help="spec, variants, interleavings and proofs")
    chosen.add_argument("--scope", default="small", help="small, medium or large")
    try:
        return check(parser.parse_args(arguments).scope)
    except KeyboardInterrupt:
        complain("check", "interrupted; nothing is concluded")
        return NOT_COMPLETE
    except CannotWrite as fault:
        complain("python -m cleancut", fault)
        return WRONG_USE
