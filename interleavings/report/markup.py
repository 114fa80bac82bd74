"""Everything that is written as HTML or SVG: templates in files, filled in by jinja2, which escapes every value.

A value is a text and never markup, wherever it comes from: autoescape is on for every template, whatever its name, and
no template says `safe`. What nobody would see is spelled out first: a text that turns its direction would forge what
stands beside it, and half a character could not be written. What a template lacks is an error and no blank.

jinja2 is an extra, `cleancut[pages]`, and only what writes a page imports this file.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .source_text import visible

TEMPLATES = Path(__file__).parent / "templates"
#: A name may be broken behind these, so that a narrow page need not scroll.
_PIECE = re.compile(r"[^_/]*[_/]|[^_/]+")
#: Elements that have no end.
_ALONE = frozenset({"meta", "wbr", "br", "hr", "img", "input", "link"})


class PageRefused(RuntimeError):
    """A page is not what its template says: a fault of the generator, found before anything is written."""


def rendered(template: str, folder: Path = TEMPLATES, **values: Any) -> str:
    """A template of that folder with its values, which are texts. Templates may take in those of this package too."""
    return checked(_environment(folder).get_template(template).render(**values))


@functools.cache
def _environment(folder: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"pieces": _PIECE.findall, "number": _number}
    return environment


def _shown(value: Any) -> Any:
    """What a template puts out: what one of its own macros made, or a text of which every character is seen."""
    return value if type(value) is Markup or isinstance(value, StrictUndefined) else visible(str(value), kept="\n")


def _number(value: object) -> str:
    return "not counted" if value is None else f"{value:,}"


def checked(text: str) -> str:
    """The page, if all its elements are closed as they were opened and none holds an event handler or leads outside."""
    reader = _Elements()
    reader.feed(text)
    reader.close()
    wrong = reader.wrong or "".join(f"leaves {tag!r} open" for tag in reader.open[-1:])
    if wrong:
        raise PageRefused(f"the generated page {wrong}; it was not written. Please report it")
    return text


class _Elements(HTMLParser):
    """What is wrong with the elements of a page, in a word."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _ALONE:
            self.open.append(tag)
        self._look_at(tag, dict(attrs))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look_at(tag, dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong = self.wrong or f"closes {tag!r} where it is not open"

    def _look_at(self, tag: str, attributes: Mapping[str, str | None]) -> None:
        for name, value in attributes.items():
            address = name in ("href", "src", "xlink:href") and re.match(r"\s*(\w[\w+.-]*:|//)", value or "")
            if name.startswith("on") or address:
                self.wrong = self.wrong or f"holds {name}={value!r} in {tag!r}"
