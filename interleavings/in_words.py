"""Counts as a person reads them."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things: `1 step`, `2,000 steps`. Give `many` where a verb comes with the noun."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
