"""`python -m impl watch DIR`: the saves of a run as they come.

On a terminal a table that is renewed; elsewhere one line for each change, fit for a log. Looks as `inspect` does: takes
no lock, changes nothing, and does not read the payload. It may be started before the run and goes on until it is
interrupted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..errors import UsageError
from ..in_words import age_in_words, counted, size_in_words
from ..store.posix_files import PosixFiles
from .examine import Examined
from .ownership import OWNERS
from .survey import Survey, survey

NEWEST_SHOWN = 12


class Watch:
    """Looks again and again, and keeps what it saw last. Pure apart from `look`; `changes` says what is new."""

    def __init__(self, directory: Path) -> None:
        self.root = os.path.abspath(directory)
        # The run makes the directory. Where one above it is missing too, it is rather a slip of the pen.
        to_come = not os.path.lexists(self.root) and os.path.isdir(os.path.dirname(self.root))
        if not to_come and not os.path.isdir(self.root):
            raise UsageError(f"{directory} is not a directory; give the one in which a run keeps its checkpoints")
        self.began = time.monotonic()
        self.seen: Survey | None = None
        self.published = 0
        self.troubled = False

    def look(self) -> list[str]:
        """Survey the directory; what has changed since the last time, in words."""
        try:
            found = survey(PosixFiles(), self.root, digests=False)
        except UsageError:
            # No sign of a run yet, or no more.
            return []
        news = list(changes(self.seen, found))
        before = {each.name for each in self.seen.checkpoints} if self.seen else None
        self.published += sum(before is not None and each.name not in before for each in found.checkpoints)
        self.troubled = self.troubled or bool(found.problems)
        self.seen = found
        return news

    def summary(self) -> str:
        """What was watched, in one line."""
        seconds = time.monotonic() - self.began
        there = len(self.seen.checkpoints) if self.seen else 0
        trouble = "; there was trouble, see fsck" if self.troubled else ""
        return f"watched {self.root} for {seconds:.0f} s: {self.published} published, {there} there now{trouble}"


def run_watch(
    directory: Path,
    console: Console,
    interval: float,
    seconds: float | None,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Watch until interrupted, or for so many seconds. 0, or 1 if there was trouble."""
    watch = Watch(directory)
    try:
        if console.is_terminal:
            with Live(console=console, auto_refresh=False, transient=True) as live:
                for _ in _looks(watch, interval, seconds, pause):
                    live.update(picture(watch), refresh=True)
        else:
            for news in _looks(watch, interval, seconds, pause):
                for line in news:
                    _say(console, line)
    except KeyboardInterrupt:
        pass
    _say(console, watch.summary())
    return 1 if watch.troubled else 0


def _looks(watch: Watch, interval: float, seconds: float | None, pause: Callable[[float], None]) -> Iterator[list[str]]:
    while True:
        yield watch.look()
        if seconds is not None and time.monotonic() - watch.began + interval > seconds:
            return
        pause(interval)


def changes(before: Survey | None, now: Survey) -> Iterator[str]:
    """What is different, oldest first. Of the first survey: everything there is."""
    known = {each.name: each for each in before.checkpoints} if before else {}
    there = {each.name for each in now.checkpoints}
    if before is None or (before.lock.state, before.lock.holder) != (now.lock.state, now.lock.holder):
        holder = f" by {now.lock.holder}" if now.lock.state == "held" and now.lock.holder else ""
        yield f"lock {now.lock.state}{holder}"
    old = {each.name for each in before.leftovers} if before else set[str]()
    for leftover in now.leftovers:
        if leftover.name not in old:
            doing = "under way" if now.lock.state == "held" else "left over"
            yield f"{doing}: {leftover.name}, {size_in_words(leftover.bytes)}"
    for each in reversed(now.checkpoints):
        if each.name not in known:
            yield f"{'published' if before else 'there'}: {in_one_line(each, now.at)}"
        elif each.state != known[each.name].state:
            yield f"{each.name} is {each.state} now"
    for name in known:
        if name not in there:
            yield f"removed: {name}"
    problems = set(before.problems) if before else set[str]()
    for problem in now.problems:
        if problem not in problems:
            yield f"TROUBLE: {problem}"


def in_one_line(each: Examined, at: float) -> str:
    """A checkpoint in one line of a log."""
    kind = each.manifest.kind if each.manifest else "?"
    size = "?" if each.bytes is None else size_in_words(each.bytes)
    owners = ", ".join(f"{count} {owner}" for owner, count in _owned(each).items() if count)
    return ", ".join(
        filter(None, (f"{each.name} ({kind}, {each.state})", size, age_in_words(each.written, at), owners))
    )


def _owned(each: Examined) -> dict[str, int]:
    if each.ownership is None:
        return {}
    owned = {owner: each.ownership.owned[owner] for owner in OWNERS}
    lost = each.ownership.lost.count if each.ownership.handed_out is not None else 0
    return {**owned, "lost": lost, "doubled": each.ownership.doubled.count + each.ownership.ahead.count}


def picture(watch: Watch) -> Group:
    """What a terminal shows."""
    found = watch.seen
    if found is None:
        return Group(Text(f"{watch.root}: no sign of a run that saves yet"))
    table = Table(box=SIMPLE)
    headings = ("checkpoint", "kind", "state", "age", "size", *OWNERS)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in headings[:3] else "right", no_wrap=True)
    for each in found.checkpoints[:NEWEST_SHOWN]:
        owned = _owned(each)
        table.add_row(
            each.name,
            each.manifest.kind if each.manifest else "?",
            each.state if each.state == "whole" else f"[red]{each.state}[/red]",
            age_in_words(each.written, found.at),
            "?" if each.bytes is None else size_in_words(each.bytes),
            *(str(owned.get(owner, "?")) for owner in OWNERS),
        )
    holder = f" by {found.lock.holder}" if found.lock.state == "held" and found.lock.holder else ""
    lines = [f"{found.root}: lock {found.lock.state}{holder}, {counted(len(found.checkpoints), 'checkpoint')}"]
    lines += [
        f"{'under way' if found.lock.state == 'held' else 'left over'}: {each.name}, {size_in_words(each.bytes)}"
        for each in found.leftovers
    ]
    trouble = [Text.from_markup(f"[red]TROUBLE:[/red] {escape(problem)}") for problem in found.problems]
    return Group(*map(Text, lines), table, *trouble, Text("Ctrl-C ends", style="dim"))


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
