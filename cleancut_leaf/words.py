"""Counts, sizes and ages as a person reads them."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things: `1 step`, `2,000 steps`. Give `many` for an irregular plural or with a verb."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def none_valid(checkpoints: int) -> str:
    """That of so many checkpoints no resume can take one."""
    return "the only checkpoint is not valid" if checkpoints == 1 else f"none of the {checkpoints} checkpoints is valid"


def size_in_words(size: int) -> str:
    """Bytes as a person reads them, in powers of 1024."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def age_in_words(written: float | None, now: float) -> str:
    """How long ago, in one unit."""
    if written is None:
        return "?"
    seconds = max(0.0, now - written)
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
