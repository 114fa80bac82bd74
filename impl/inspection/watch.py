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
from rich.table import Table
from rich.text import Text

from cleancut_leaf.words import age_in_words, counted, size_in_words

from ..checkpoint.ownership import OWNERS
from ..errors import CleancutError, UsageError
from ..store.posix_files import PosixFiles
from .examine import Examined
from .plain_text import cell, fits, say
from .survey import Survey, survey

NEWEST_SHOWN = 12


class Watch:
    """Looks again and again, and keeps what it saw last. Pure apart from `look`; `changes` says what is new."""

    def __init__(self, directory: Path) -> None:
        self.root = os.path.abspath(directory)
        if os.path.lexists(self.root) and not os.path.isdir(self.root):
            raise UsageError(f"{directory} is not a directory; give the one in which a run keeps its checkpoints")
        if not os.path.isdir(os.path.dirname(self.root)):
            raise UsageError(f"{directory} is not a directory, nor is the one above it, so no run can make it")
        self.began = time.monotonic()
        self.seen: Survey | None = None
        self.published = 0
        self.troubled = False
        #: Why the last look saw nothing; empty if it saw something.
        self.blind = ""

    def look(self) -> list[str]:
        """Survey the directory; what has changed since the last time, in words. Raises nothing that may pass."""
        known = {each.name: each for each in self.seen.checkpoints} if self.seen else {}
        try:
            found = survey(PosixFiles(), self.root, digests=False, known=known)
        except UsageError:
            # No sign of a run yet, or no more.
            return self._saw_nothing("" if os.path.isdir(self.root) else f"{self.root} is not there yet")
        except FileNotFoundError:
            return self._saw_nothing(f"{self.root} is not there yet")
        except (CleancutError, OSError) as error:
            return [] if self.blind == str(error) else [f"not looked at: {self._blinded(str(error))}"]
        news = list(changes(self.seen, found))
        self.published += sum(bool(self.seen) and each.name not in known for each in found.checkpoints)
        self.troubled = self.troubled or bool(found.problems)
        self.seen = found
        self.blind = found.not_checked[0] if found.not_checked else ""
        return news

    def _saw_nothing(self, said: str) -> list[str]:
        """There is no run; news only if there was one a moment ago, or not even its directory is there."""
        gone, self.seen = self.seen is not None, None
        if gone:
            return [f"gone: {self.root} has no sign of a run any more"]
        return [] if self.blind == said else [self._blinded(said)] * bool(said)

    def _blinded(self, why: str) -> str:
        self.blind = why
        return why

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
    """Watch until interrupted, or for so many seconds. 0, 1 if there was trouble, or 3 if the last look saw nothing."""
    watch = Watch(directory)
    try:
        if console.is_terminal:
            with Live(console=console, auto_refresh=False, transient=True) as live:
                for _ in _looks(watch, interval, seconds, pause):
                    live.update(picture(watch, console), refresh=True)
        else:
            for news in _looks(watch, interval, seconds, pause):
                for line in news:
                    say(console, line)
    except KeyboardInterrupt:
        pass
    say(console, watch.summary())
    return 1 if watch.troubled else 3 if watch.blind else 0


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
    for label, said, news in (
        ("TROUBLE", before.problems if before else (), now.problems),
        ("not checked", before.not_checked if before else (), now.not_checked),
    ):
        for text in news:
            if text not in said:
                yield f"{label}: {text}"


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


def picture(watch: Watch, console: Console) -> Group:
    """What a terminal shows: what is wrong before what is there, of which a low window shows the beginning."""
    found = watch.seen
    if found is None:
        return Group(cell(console, watch.blind or f"{watch.root}: no sign of a run that saves yet"))
    holder = f" by {found.lock.holder}" if found.lock.state == "held" and found.lock.holder else ""
    lines = [f"{found.root}: lock {found.lock.state}{holder}, {counted(len(found.checkpoints), 'checkpoint')}"]
    lines += [
        f"{'under way' if found.lock.state == 'held' else 'left over'}: {each.name}, {size_in_words(each.bytes)}"
        for each in found.leftovers
    ]
    trouble = [f"TROUBLE: {text}" for text in found.problems] + [f"not checked: {text}" for text in found.not_checked]
    return Group(
        *(cell(console, line) for line in lines),
        *(cell(console, line, bad=True) for line in trouble),
        *_newest(found, console),
        Text("Ctrl-C ends", style="dim"),
    )


def _newest(found: Survey, console: Console) -> list[Table] | list[Text]:
    """The newest checkpoints as a table, or where that does not fit as lines."""
    shown = found.checkpoints[:NEWEST_SHOWN]
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    headings = ("checkpoint", "kind", "state", "age", "size", *OWNERS)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in headings[:3] else "right", no_wrap=True)
    for each in shown:
        owned = _owned(each)
        table.add_row(
            each.name,
            each.manifest.kind if each.manifest else "?",
            cell(console, each.state, bad=each.state != "whole"),
            age_in_words(each.written, found.at),
            "?" if each.bytes is None else size_in_words(each.bytes),
            *(str(owned.get(owner, "?")) for owner in OWNERS),
        )
    if fits(console, table):
        return [table]
    return [cell(console, in_one_line(each, found.at), bad=each.state != "whole") for each in shown]
