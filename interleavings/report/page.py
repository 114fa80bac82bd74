"""A trace as one self-contained page: a lane for each actor, time downwards, and what every step changed.

Data in, text out. The page needs no network and no other file, works without its script, and escapes whatever it is
given: names of tasks, messages and source lines are the user's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from .page_style import SCRIPT, STYLE
from .source_text import visible

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


def escaped(text: object) -> str:
    """A text as HTML shows it, in an element and in an attribute: the one way into a page.

    What nobody would see is spelled out: a text that turns its direction would forge what stands beside it, and half a
    character could not be written.
    """
    return escape(visible(str(text), kept="\n"))


def breakable(name: object) -> str:
    """A name that may be broken after an underscore and a slash, so that a narrow page need not scroll."""
    return escaped(name).replace("_", "_<wbr>").replace("/", "/<wbr>")


def html_of(page: Page) -> str:
    """The page as text."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaped(page.title)}</title><style>{STYLE}</style></head>\n<body>"
        '<a class="skip" href="#broken">To the step that breaks it</a>\n'
        f"{''.join(_header(page))}"
        f"<main>{''.join(_timeline(page))}</main>\n"
        f"{''.join(_footer(page))}<script>{SCRIPT}</script></body></html>\n"
    )


def _header(page: Page) -> Iterator[str]:
    yield f'<header><p class="sub">{escaped(page.subtitle)}</p><h1>{escaped(page.title)}</h1>\n'
    yield '<section class="verdict" aria-label="What fails">'
    yield f"<h2><code>{breakable(page.broken)}</code> {escaped(page.verb)}</h2>"
    yield f'<p class="sentence">{escaped(page.sentence)}</p>'
    if page.concerned:
        yield f"<ul>{''.join(f'<li>{escaped(line)}</li>' for line in page.concerned)}</ul>"
    yield "</section>\n"
    for note in page.notes:
        yield f'<p class="note">{escaped(note)}</p>\n'
    if page.facts:
        facts = "".join(f"<div><dt>{escaped(k)}</dt><dd>{escaped(v)}</dd></div>" for k, v in page.facts)
        yield f'<dl class="facts">{facts}</dl>\n'
    yield "</header>\n"


def _timeline(page: Page) -> Iterator[str]:
    lanes = page.lane_names()
    letters = {name: _letter(number) for number, name in enumerate(lanes)}
    many = " many" if len(lanes) > MANY_LANES else ""
    legend = "".join(f"<li><b>{letters[name]}</b> {escaped(name)}</li>" for name in lanes)
    yield f'<ul class="legend" aria-label="Lanes">{legend}</ul>'
    yield f'<div class="run{many}" style="--lanes:{len(lanes)}">'
    yield '<div class="heads" aria-hidden="true"><span class="number"></span><span class="rails">'
    for name in lanes:
        yield f'<span class="head" title="{escaped(name)}"><b>{letters[name]}</b><i>{escaped(name)}</i></span>'
    yield '</span><span class="keys"><kbd>j</kbd> <kbd>k</kbd> next, previous step · <kbd>e</kbd> end</span></div>'
    yield "\n<ol>"
    if page.start:
        rails = _rails(lanes, None, page.start_band, letters)
        yield (
            f'<li class="step start" tabindex="0"><span class="number">0</span>{rails}'
            f'<div class="what"><h3>At the beginning</h3>{_standing(page.start, "")}</div></li>\n'
        )
    before = page.start_band
    for number, step in enumerate(page.steps, 1):
        yield _step(page, number, step, before, lanes, letters)
        before = step.band
    yield "</ol></div>"


def _step(page: Page, number: int, step: PageStep, before: Band, lanes: Sequence[str], letters: dict[str, str]) -> str:
    last = number == len(page.steps)
    band: Band = "open" if step.holds_cut else _around(before, step.band)
    classes = " ".join(["step", *([f"band-{band}"] if band else []), *(["broken"] if last else [])])
    anchor = "broken" if last else f"step-{number}"
    said = {"open": "cut open", "asked": "cut asked for, slots drain", "": ""}[band]
    if step.holds_cut:
        said = "cut opened and closed in this step"
    mark = f'<span class="mark">{said}</span>' if band and band != before else ""
    taken = " → ".join(f"<code>{breakable(name)}</code>" for name in step.actions)
    actions = f'<p class="actions">{taken}</p>' if taken else ""
    ends = '<span class="mark end">cut closed</span>' if before == "open" and step.band != "open" else ""
    where = f'<span class="where">{escaped(step.where)}</span>' if step.where else ""
    source = f"<pre>{escaped(step.source)}</pre>" if step.source else ""
    changed = "".join(f"<li>{_arrowed(phrase)}</li>" for phrase in step.changed)
    meaning = f"<details><summary>meaning</summary><p>{escaped(step.meaning)}</p></details>" if step.meaning else ""
    flag = f'<p class="flag"><code>{breakable(page.broken)}</code> {escaped(page.sentence)}</p>' if last else ""
    return (
        f'<li class="{classes}" id="{anchor}" tabindex="0"><span class="number">{number}</span>'
        f"{_rails(lanes, step.lane, band, letters)}"
        f'<div class="what">{mark}<div class="line"><h3>{breakable(step.title)} '
        f'<span class="who">{escaped(step.lane)}</span></h3>{meaning}</div>{where}'
        f"{source}{actions}{f'<ul class=changed>{changed}</ul>' if changed else ''}"
        f"{_standing(step.standing, '')}{_standing(step.image, 'in the image')}{ends}{flag}</div></li>\n"
    )


def _around(before: Band, after: Band) -> Band:
    if "open" in (before, after):
        return "open"
    return "asked" if "asked" in (before, after) else ""


def _rails(lanes: Sequence[str], acting: str | None, band: Band, letters: dict[str, str]) -> str:
    cells = "".join(
        f'<span class="rail on" title="{escaped(name)}"><b>{letters[name]}</b></span>'
        if name == acting
        else '<span class="rail"></span>'
        for name in lanes
    )
    return f'<span class="rails{f" band {band}" if band else ""}" aria-hidden="true">{cells}</span>'


def _standing(things: Sequence[Standing], caption: str) -> str:
    if not things:
        return ""
    chips = "".join(
        f'<li class="{thing.kind}{" concerned" if thing.concerned else ""}"><b>{escaped(thing.name)}</b> '
        f"{escaped(thing.words)}</li>"
        for thing in things
    )
    said = f'<span class="caption">{escaped(caption)}</span>' if caption else ""
    return f'<div class="standing{" image" if caption else ""}">{said}<ul>{chips}</ul></div>'


def _footer(page: Page) -> Iterator[str]:
    yield "<footer>"
    for name, lines in page.details:
        items = "".join(f"<li>{escaped(line)}</li>" for line in lines)
        yield f"<section><h2>{escaped(name)}</h2><ul>{items}</ul></section>"
    yield "</footer>\n"


def _letter(number: int) -> str:
    """A, B, …, Z, A1, B1, …: short enough for a lane on a phone."""
    letter = chr(ord("A") + number % 26)
    return letter if number < 26 else f"{letter}{number // 26}"


def _arrowed(phrase: str) -> str:
    """`ledger[0] RESERVED → ADMITTED`, its variable apart from its values."""
    name, _, values = phrase.partition(" ")
    return f"<code>{breakable(name)}</code> {escaped(values)}"
