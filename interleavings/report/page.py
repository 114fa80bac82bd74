"""A trace as one self-contained page: a lane for each actor, time downwards, and what every step changed.

Data in, text out: the records of a page here, its markup in `templates/trace.html.jinja`. The page needs no network and
no other file, works without its script, and escapes whatever it is given: names of tasks, messages and source lines are
the user's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from .markup import rendered

Band = Literal["", "asked", "open"]
#: How a thing stands, for its colour; the words say the same.
Kind = Literal[
    "unread", "waiting", "working", "ready", "claimed", "done", "dropped", "spare", "none", "several", "idle"
]


@dataclass(frozen=True)
class Standing:
    """How one thing stands at one moment: a prompt and its owners, a writer and where it is."""

    name: str
    words: str
    kind: Kind
    concerned: bool = False
    """The property that is violated fails at this one."""


@dataclass(frozen=True)
class PageStep:
    """One step: who took it, what it is, and how everything stands after it."""

    lane: str
    title: str
    where: str = ""
    source: str = ""
    meaning: str = ""
    changed: tuple[str, ...] = ()
    standing: tuple[Standing, ...] = ()
    image: tuple[Standing, ...] = ()
    """The same in the checkpoint that is being read, as far as it is."""
    band: Band = ""
    """Whether the cut is asked for or open after this step."""
    actions: tuple[str, ...] = ()
    """What the step was for the machine that follows it, where that is not its title."""
    holds_cut: bool = False
    """The cut was opened and closed within this step."""


@dataclass(frozen=True)
class Page:
    """A whole page. `broken` is the property, `sentence` what it says or what happened, `concerned` one line each."""

    title: str
    subtitle: str
    broken: str
    sentence: str
    concerned: Sequence[str]
    facts: Sequence[tuple[str, str]]
    steps: Sequence[PageStep]
    start: tuple[Standing, ...] = ()
    start_band: Band = ""
    notes: Sequence[str] = ()
    details: Sequence[tuple[str, Sequence[str]]] = ()
    verb: str = "is violated"
    """What `broken` does, where it is no property: an exception is raised."""

    def lane_names(self) -> list[str]:
        """The lanes in the order in which they first act; what the environment does comes last."""
        named = list(dict.fromkeys(step.lane for step in self.steps))
        return sorted(named, key=lambda name: name.startswith("environment"))


#: From so many lanes on their names do not fit side by side.
MANY_LANES = 7


@dataclass(frozen=True)
class Lane:
    """One actor, with the letter that stands for it."""

    name: str
    letter: str


@dataclass(frozen=True)
class Row:
    """A step beside the one before it: where the cut is, and what that changed."""

    step: PageStep
    band: Band
    mark: str
    ends: bool


def html_of(page: Page) -> str:
    """The page as text."""
    lanes = [Lane(name, _letter(number)) for number, name in enumerate(page.lane_names())]
    many = len(lanes) > MANY_LANES
    return rendered("trace.html.jinja", page=page, lanes=lanes, many=many, rows=list(_rows(page)))


def _rows(page: Page) -> Iterator[Row]:
    before = page.start_band
    for step in page.steps:
        band: Band = "open" if step.holds_cut else _around(before, step.band)
        mark = {"open": "cut open", "asked": "cut asked for, slots drain", "": ""}[band] if band != before else ""
        if step.holds_cut and mark:
            mark = "cut opened and closed in this step"
        yield Row(step, band, mark, ends=before == "open" and step.band != "open")
        before = step.band


def _around(before: Band, after: Band) -> Band:
    if "open" in (before, after):
        return "open"
    return "asked" if "asked" in (before, after) else ""


def _letter(number: int) -> str:
    """A, B, …, Z, A1, B1, …: short enough for a lane on a phone."""
    letter = chr(ord("A") + number % 26)
    return letter if number < 26 else f"{letter}{number // 26}"
