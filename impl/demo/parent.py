"""Runs the demo: lives that end with SIGKILL, one that ends by itself, and the table of what became of every prompt."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ..terminal import how_far
from .audit import Audit, audit
from .setting import CHECKPOINTS, STEPS, TRAINED_LOG

#: Moments of the protocol at which a life is killed: in every phase of a save, and between any two owners.
MOMENTS = (
    "commit_admission", "dispatch", "commit_group", "claim", "finish_step", "fail_attempt", "request_cut", "open_cut",
    "read_ledger", "close_cut", "close_cut", "publish",
)  # fmt: skip
#: The kill comes up to this long after its moment, so that it also falls between events: into a write, for one.
LONGEST_DELAY = 0.03


class LifeFailed(Exception):
    """A life ended by itself, and not well; the message is what it said."""


@dataclass(frozen=True)
class Kill:
    """Kill a life at the first `moment` once its version is at least `version`, after `delay` seconds."""

    version: int
    moment: str
    delay: float


@dataclass(frozen=True)
class Death:
    """How a life ended: by a kill, or (None) by itself; and where it had got."""

    kill: Kill | None
    version: int


def plan_kills(kills: int, seed: int) -> list[Kill]:
    """Spread the kills over the run, each at a moment and delay of its own. Same seed, same plan."""
    chance = random.Random(seed)
    moments = [MOMENTS[place % len(MOMENTS)] for place in range(kills)] if kills > len(MOMENTS) else list(MOMENTS)
    chance.shuffle(moments)
    # The last quarter is left alone, so that a kill does not come too late to meet a living process.
    last = STEPS * 3 // 4
    return [
        Kill(1 + number * last // max(kills, 1), moments[number], chance.uniform(0, LONGEST_DELAY))
        for number in range(kills)
    ]


def live(directory: Path, seed: int, kill: Kill | None, at_step: Callable[[int], None] = lambda step: None) -> Death:
    """Start one life and see it end. Raises LifeFailed if it ends by itself with an error."""
    package = __name__.rpartition(".")[0]
    root = Path(__file__).resolve().parents[2]
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(root), environment.get("PYTHONPATH"))))
    command = [sys.executable, "-m", f"{package}.child", str(directory), str(seed)]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as complaints,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=complaints, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            version, killed = _follow(process, process.stdout, kill, at_step)
        finally:
            process.kill()
        if not killed and process.wait() != 0:
            complaints.seek(0)
            raise LifeFailed(f"a life of the run failed by itself:\n{complaints.read().strip()}")
    return Death(kill if killed else None, version)


def _follow(
    process: subprocess.Popen[str], events: IO[str], kill: Kill | None, at_step: Callable[[int], None]
) -> tuple[int, bool]:
    """Read a life's events until it ends, and kill it when its moment has come."""
    version = 0
    for line in events:
        if not line.endswith("\n"):
            break
        event = json.loads(line)
        version = event.get("version", version)
        at_step(version)
        if kill is not None and version >= kill.version and event["event"] == kill.moment:
            time.sleep(kill.delay)
            process.send_signal(signal.SIGKILL)
            return version, process.wait() == -signal.SIGKILL
    return version, False


@contextmanager
def working_directory(wanted: Path | None) -> Iterator[Path]:
    """The given directory, or one that is gone afterwards."""
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted
    else:
        with tempfile.TemporaryDirectory(prefix="cleancut-demo-") as name:
            yield Path(name)


def run_demo(kills: int, seed: int, wanted: Path | None, console: Console) -> int:
    """The whole demonstration; 0 if no prompt is lost or doubled, else 1."""
    with working_directory(wanted) as directory:
        deaths = []
        try:
            with how_far(console, "starting …", "steps") as shown:
                for number, kill in enumerate([*plan_kills(kills, seed), None]):
                    life = f"life {number + 1} of {kills + 1} …"
                    death = live(directory, seed, kill, lambda step, life=life: shown.at(step, STEPS, life))  # type: ignore[misc]
                    deaths.append(death)
                    if death.kill is None:
                        break
        except LifeFailed as failure:
            print(failure, file=sys.stderr)
            return 1
        result = audit(directory / CHECKPOINTS, directory / TRAINED_LOG)
    show(result, deaths, console)
    return 0 if result.balanced and not result.pending else 1


def show(result: Audit, deaths: list[Death], console: Console) -> None:
    """The lives, the table and one line of summary."""
    for number, death in enumerate(deaths, 1):
        if death.kill is not None:
            how = f"killed {death.kill.delay * 1000:.0f} ms after {death.kill.moment}"
        else:
            how = "ran to the end of the data"
        console.print(f"life {number}: {how}, at step {death.version}", highlight=False)
    table = Table(box=SIMPLE, show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    rows: list[tuple[str, int]] = [
        ("prompts handed out", len(result.handed_out)),
        ("trained", len(result.trained)),
        *((f"dropped: {reason}", count) for reason, count in sorted(Counter(result.dropped.values()).items())),
        ("pending", len(result.pending)),
        ("lost", len(result.lost)),
        ("duplicated", len(result.doubled)),
    ]
    for name, count in rows:
        wrong = count and name in ("lost", "duplicated", "pending")
        table.add_row(name, str(count), style="red" if wrong else None)
    console.print(table)
    first, last = (_mean(part) for part in (result.rewards[:4], result.rewards[-4:]))
    killed = sum(death.kill is not None for death in deaths)
    console.print(
        f"{result.steps} train steps, {result.superseded_steps} more done again after {killed} kills; mean reward "
        f"{first:.2f} in the first steps, {last:.2f} in the last",
        highlight=False,
    )


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values) if values else 0.0
