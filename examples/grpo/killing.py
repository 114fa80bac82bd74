"""The whole run: one life after the other, killed at seeded moments, and everything that is shown at the end."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from impl.demo import Death, Event, LifeFailed, account, live, plan_kills

from .checks import Check, all_checks, ends, mean
from .figures import draw_figures
from .outcome import Outcome, read_outcome
from .setting import Setting

HOLDS, FAILS, NOT_COMPLETE = 0, 1, 3
REPORT = "report.json"
_PARTS = {
    "window": "window: everybody stands still",
    "drain": "drain: open sections end",
    "persist": "persist: written behind",
}
_COLORS = {"holds": "green", "fails": "red", "not run": "yellow"}


def run_example(
    setting: Setting, directory: Path, kills: int, least_gain: float | None, console: Console, *, figures: bool = True
) -> int:
    """Run to the end of the data through all kills, and check. The exit status: 0, 1, or 3 if a check was not made."""
    directory.mkdir(parents=True, exist_ok=True)
    setting.write(directory)
    try:
        deaths = live_through(setting, directory, kills, console)
    except LifeFailed as failure:
        print(failure, file=sys.stderr)
        return FAILS
    outcome = read_outcome(directory)
    checks = all_checks(setting, directory, outcome, deaths, kills, least_gain)
    drawn = draw_figures(outcome, directory, _title(setting, kills)) if figures else []
    write_report(directory, setting, outcome, deaths, checks)
    show(outcome, deaths, checks, drawn, console)
    return status_of(checks)


def status_of(checks: Sequence[Check]) -> int:
    """The exit status: what was not run is no pass, and does not hide a failure."""
    verdicts = {check.verdict for check in checks}
    return FAILS if "fails" in verdicts else NOT_COMPLETE if "not run" in verdicts else HOLDS


def live_through(setting: Setting, directory: Path, kills: int, console: Console) -> list[Death]:
    """Every life, from the first to the one that comes to the end of the data."""
    deaths: list[Death] = []
    command = ["-m", f"{__package__}.life", str(directory)]
    with _progress(setting, kills, console) as follow:
        for number, kill in enumerate([*plan_kills(kills, setting.seed, setting.steps), None], 1):
            follow.begin(number)
            deaths.append(live(command, kill, follow))
            if deaths[-1].kill is None:
                break
    return deaths


class _Follower:
    """Knows how far the run has come, from the events that its lives tell; moves the bar of a terminal."""

    def __init__(self, progress: Progress | None, setting: Setting, kills: int) -> None:
        self._progress = progress
        self._lives, self._steps = kills + 1, setting.steps
        self._life = 1
        self._version = 0
        self._reward = 0.0
        self._task = None if progress is None else progress.add_task("", total=setting.steps, reward="", life="starts")

    def begin(self, life: int) -> None:
        """The process of a life is started; it says nothing for some seconds."""
        self._life = life
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, life=f"life {life} of {self._lives} starts")

    def __str__(self) -> str:
        return f"life {self._life} of {self._lives}, at step {self._version} of {self._steps}"

    def __call__(self, event: Event) -> None:
        self._version = event["version"] or 0
        if event["event"] == "reward":
            self._reward = event["reward"]
        if self._progress is not None and self._task is not None and event["event"] in ("reward", "restore", "claim"):
            said = f"life {self._life} of {self._lives}"
            # A life that resumes goes back to the step of its checkpoint, and so does the bar.
            self._progress.update(self._task, completed=self._version, life=said, reward=f"reward {self._reward:.2f}")


class _Rate(ProgressColumn):
    """Steps a second, lately."""

    def render(self, task: Task) -> Text:
        """Nothing is known before the second step."""
        return Text(f"{task.speed:.1f}/s," if task.speed else "–/s,")


@contextmanager
def _progress(setting: Setting, kills: int, console: Console) -> Iterator[_Follower]:
    if not console.is_terminal:
        with _said_if_interrupted(follower := _Follower(None, setting, kills)):
            yield follower
        return
    columns = (
        TextColumn("{task.fields[life]}"), BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("steps,"),
        _Rate(), TimeElapsedColumn(), TextColumn("gone,"), TimeRemainingColumn(), TextColumn("left"),
        TextColumn("{task.fields[reward]}"),
    )  # fmt: skip
    with (
        Progress(*columns, console=console, transient=True, expand=True) as progress,
        _said_if_interrupted(follower := _Follower(progress, setting, kills)),
    ):
        yield follower


@contextmanager
def _said_if_interrupted(follower: _Follower) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as interruption:
        raise KeyboardInterrupt(f"interrupted in {follower}; nothing was checked") from interruption


def _title(setting: Setting, kills: int) -> str:
    bound = "lookahead" if setting.sampler == "in_order" else "staleness"
    return f"sampler {setting.sampler}, {bound} {setting.staleness}; seed {setting.seed}; {kills} times SIGKILL"


def figures_of(outcome: Outcome) -> dict[str, Any]:
    """The figures of a run in plain values; durations in milliseconds."""
    durations = {
        part: {"median": median(values), "longest": max(values)}
        for part in ("window", "drain", "persist")
        if (values := [1000 * getattr(save, part) for save in outcome.saves])
    }
    first, last = ends(outcome.steps)
    return {
        "steps": len(outcome.steps),
        "done_again": sum(len(life.steps) for life in outcome.lives) - len(outcome.steps),
        "reward": {"first": mean(first), "first_steps": len(first), "last": mean(last), "last_steps": len(last)},
        "saves": dict(Counter(save.kind for save in outcome.saves)),
        "milliseconds": durations,
    }


def write_report(
    directory: Path, setting: Setting, outcome: Outcome, deaths: Sequence[Death], checks: Sequence[Check]
) -> None:
    """Everything that is shown, for programs."""
    found = outcome.account
    document = {
        "setting": asdict(setting),
        "lives": [str(death) for death in deaths],
        "account": {
            "handed_out": len(found.handed_out),
            "trained": len(found.trained),
            "dropped": dict(Counter(found.dropped.values())),
            "pending": len(found.pending),
            "lost": len(found.lost),
            "doubled": len(found.doubled),
        },
        "figures": figures_of(outcome),
        "checks": [asdict(check) for check in checks],
    }
    (directory / REPORT).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def show(
    outcome: Outcome, deaths: Sequence[Death], checks: Sequence[Check], drawn: Sequence[Path], console: Console
) -> None:
    """The lives, the account, the figures and the checks, for people."""
    for number, death in enumerate(deaths, 1):
        life = outcome.lives[number - 1] if number <= len(outcome.lives) else None
        began = f"resumed {life.checkpoint}" if life and life.checkpoint else "began anew"
        console.print(f"life {number}: {began}, {death}", highlight=False)
    console.print(account(outcome.account))
    figures = figures_of(outcome)
    saves = figures["saves"]
    console.print(f"{figures['steps']} train steps, {figures['done_again']} more done again", highlight=False)
    durations = Table(f"saves: {saves.get('full', 0)} full, {saves.get('rollout', 0)} rollout snapshots", box=SIMPLE)
    for heading in ("median", "longest"):
        durations.add_column(heading, justify="right")
    for part, values in figures["milliseconds"].items():
        durations.add_row(_PARTS[part], f"{values['median']:.2f} ms", f"{values['longest']:.2f} ms")
    console.print(durations)
    table = Table("check", "", "found", box=SIMPLE)
    for check in checks:
        color = _COLORS[check.verdict]
        table.add_row(escape(check.claim), f"[{color}]{check.verdict}[/{color}]", escape(check.found))
    console.print(table)
    if drawn:
        console.print("figures: " + ", ".join(str(path) for path in drawn), highlight=False, soft_wrap=True)
    verdicts = Counter(check.verdict for check in checks)
    console.print(
        f"example: {verdicts['holds']} checks hold, {verdicts['fails']} fail, {verdicts['not run']} not run",
        highlight=False,
    )
