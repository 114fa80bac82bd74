"""The table that every script of this folder prints: its rows, its options, and where it is written."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One line of the table; without `to_reach` it is there to compare with."""

    figure: str
    value: float
    to_reach: str
    ok: bool


def at_least(figure: str, value: float, bound: float) -> Row:
    """A figure that must be large."""
    return Row(figure, round(value, 4), f">= {bound:g}", value >= bound)


def at_most(figure: str, value: float, bound: float) -> Row:
    """A figure that must be small."""
    return Row(figure, round(value, 4), f"<= {bound:g}", value <= bound)


def only_shown(figure: str, value: float) -> Row:
    """A figure without a bound."""
    return Row(figure, round(value, 4), "", True)


def truth(figure: str, value: bool) -> Row:
    """Something that has to be so."""
    return at_least(figure, float(value), 1.0)


def missed(figure: str, why: str) -> Row:
    """Something that has to be so, and of which nothing was found out: never ok."""
    return Row(f"{figure}: {why}", 0.0, ">= 1", False)


def options_of(
    description: str, quick: str = "a few seconds; the values are not for quoting"
) -> argparse.ArgumentParser:
    """The options that every script has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", metavar="FILE", help="also write the table as a JSON list")
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def table(rows: Sequence[Row]) -> str:
    """The rows as text."""
    lines = [("figure", "value", "to reach", "ok")]
    lines += [(row.figure, f"{row.value:g}", row.to_reach, "yes" if row.ok else "NO") for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def reported(heading: str, rows: Sequence[Row], json_to: str | None) -> int:
    """Print the table, write it where that was asked for; the exit status."""
    print(heading)
    print(table(rows))
    if json_to is not None:
        try:
            Path(json_to).write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            print(
                f"{json_to} cannot be written: {error.strerror}. Name a file in a directory that exists.",
                file=sys.stderr,
            )
            return 2
    return 0 if all(row.ok for row in rows) else 1
