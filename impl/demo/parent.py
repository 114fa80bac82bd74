"""Runs the demo: lives that end with SIGKILL, one that ends by itself, and the table of what became of every prompt."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from cleancut_leaf.terminal import how_far
from cleancut_leaf.words import counted

from .audit import Audit, audit
from .lives import Death, Event, Kill, LifeFailed, live, plan_kills
from .setting import CHECKPOINTS, STEPS, TRAINED_LOG


def life(directory: Path, seed: int, kill: Kill | None, at_step: Callable[[int], None] = lambda step: None) -> Death:
    """One life of the demo's run; `at_step` is told how far it is."""

    def watch(event: Event) -> None:
        if "version" in event:
            at_step(event["version"])

    return live(["-m", f"{__package__}.child", str(directory), str(seed)], kill, watch)


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
                for number, kill in enumerate([*plan_kills(kills, seed, STEPS), None]):
                    words = f"life {number + 1} of {kills + 1} …"
                    death = life(directory, seed, kill, lambda step, words=words: shown.at(step, STEPS, words))  # type: ignore[misc]
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
        console.print(f"life {number}: {death}", highlight=False)
    console.print(account(result))
    first, last = (_mean(part) for part in (result.rewards[:4], result.rewards[-4:]))
    killed = sum(death.kill is not None for death in deaths)
    console.print(
        f"{counted(result.steps, 'train step')}, {result.superseded_steps} more done again after "
        f"{counted(killed, 'kill')}; mean reward {first:.2f} in the first steps, {last:.2f} in the last",
        highlight=False,
    )


def account(result: Audit) -> Table:
    """What became of the prompts, as a table; also that of `examples/grpo`."""
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
    return table


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values) if values else 0.0
