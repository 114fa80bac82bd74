"""What is read from a disk, as a terminal may be told it: in one line, with nothing in it that a terminal obeys."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cleancut_leaf.terminal import plain


def say(console: Console, text: str) -> None:
    """One line, as long as it is."""
    console.print(plain(text, console.encoding), markup=False, highlight=False, soft_wrap=True)


def cell(console: Console, text: str, *, bad: bool = False) -> Text:
    """A text for a table."""
    return Text(plain(text, console.encoding), style="red" if bad else "")


def fits(console: Console, table: Table) -> bool:
    """Whether a table has room for all its words; one that is cut loses digits and headings."""
    return console.measure(table, options=console.options.update(width=1 << 20)).maximum <= console.width


def without_halves(value: Any) -> Any:
    """A document with proper text alone: a name that is no UTF-8 stands in it with its bytes spelled out."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [without_halves(each) for each in value]
    if isinstance(value, dict):
        return {without_halves(name): without_halves(each) for name, each in value.items()}
    return value
