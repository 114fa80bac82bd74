"""The page of figures, made from what scripts of `bench/` have written; and the command that writes it.

    python docs/site/figures.py barrier recovery     run these scripts of bench/ here, and keep what they say

A result lies in `docs/figures/NAME.json`, the table of the script just as it wrote it, and the machine beside it in
`NAME.machine.json`. A figure without a machine says nothing, so neither is shown without the other.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
BENCH, KEPT = ROOT / "bench", ROOT / "docs" / "figures"


def scripts() -> dict[str, str]:
    """Every script of `bench/` by name, with its first sentence."""
    found = {}
    for path in sorted(BENCH.glob("*.py")):
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found[path.stem] = " ".join(said.split("\n\n")[0].split())
    return found


def figures(only: str | None = None, kept: Path = KEPT) -> str:
    """All results as Markdown, or those of one script, and of each script without one how to get it."""
    parts = []
    for name, sentence in scripts().items():
        if only not in (None, name):
            continue
        parts.append(f"## `bench/{name}.py`\n\n{sentence}\n")
        table, machine = kept / f"{name}.json", kept / f"{name}.machine.json"
        if table.is_file() and machine.is_file():
            parts.append(_result(json.loads(table.read_text()), json.loads(machine.read_text())))
        else:
            how = f"`python docs/site/figures.py {name}` runs it and keeps the result"
            parts.append(f"Not recorded on any machine yet. {how}.\n")
    return "\n".join(parts)


def _result(rows: list[dict[str, Any]], machine: dict[str, Any]) -> str:
    lines = ["| figure | value | to reach | reached |", "|---|--:|---|---|"]
    for row in rows:
        reached = "" if not row["to_reach"] else "yes" if row["ok"] else "**no**"
        bound = row["to_reach"].replace(">=", "≥").replace("<=", "≤")
        lines.append(f"| {row['figure'].replace('|', '/')} | {row['value']:g} | {bound} | {reached} |")
    missed = sum(not row["ok"] for row in rows)
    said = f"{missed} of {len(rows)} figures were not reached." if missed else "All were reached."
    where = ", ".join(f"{what} {value}" for what, value in machine.items())
    return "\n".join([f"On this machine: {where}. {said}\n", *lines, ""])


def this_machine() -> dict[str, Any]:
    """What a reader needs to place a figure; the load tells whether the machine did something else besides."""
    processor = platform.processor() or platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else ():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": platform.system(),
        "Python": platform.python_version(),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def record(name: str, *options: str) -> int:
    """Run one script and keep its table and the machine; the script's exit status. 3 keeps nothing: it did not run."""
    KEPT.mkdir(exist_ok=True)
    machine = this_machine()
    target = KEPT / f"{name}.json"
    fresh = target.with_suffix(".new")
    status = subprocess.run(
        [sys.executable, str(BENCH / f"{name}.py"), "--json", str(fresh), *options], cwd=ROOT, check=False
    ).returncode
    if status in (0, 1) and fresh.is_file():
        fresh.replace(target)
        (KEPT / f"{name}.machine.json").write_text(json.dumps(machine, indent=2) + "\n", encoding="utf-8")
    fresh.unlink(missing_ok=True)
    return status


def main(names: list[str]) -> int:
    """Record the scripts named; the worst status."""
    unknown = [name for name in names if name not in scripts()]
    if unknown or not names:
        print(f"figures: name scripts of bench/: {', '.join(scripts())}", file=sys.stderr)
        return 2
    return max(record(name) for name in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
