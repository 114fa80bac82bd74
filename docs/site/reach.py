"""How far enumeration reaches: from the slopes of `bench/scale.py` and the size of a state in `bench/engines.py`.

Nothing is typed in by hand but the memories. Where a script was not recorded, the table says how to record it.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from figures import KEPT

GIB = 1 << 30
#: Memories to fill, in bytes, by what has them.
MEMORIES = {
    "a laptop, 16 GiB": 16 * GIB,
    "one large GPU, 140 GiB": 140 * GIB,
    "one server, 1 TiB": 1024 * GIB,
    "a cluster, 64 TiB": 64 * 1024 * GIB,
}
#: Of the memory, what the table of states may take; the rest is buffers and the system.
SHARE = 0.7
_STATE_SIZE = re.compile(r"memory above idle, \S+ \(bytes a state\)$")  # of the compiled engine, one thread
_COUNTED = re.compile(r"states, (\w+): (.+) = (\d+)$")


def reach(kept: Path = KEPT) -> str:
    """A table: for each family of scopes, its largest member that fits each memory."""
    missing = [name for name in ("scale", "engines") if not (kept / f"{name}.json").is_file()]
    if missing:
        return f"Not recorded on any machine yet: `python docs/site/figures.py {' '.join(missing)}` does it.\n"
    counted = families(json.loads((kept / "scale.json").read_text()))
    engines = json.loads((kept / "engines.json").read_text())
    size = next(row["value"] for row in engines if _STATE_SIZE.match(row["figure"]))
    lines = [
        f"A state takes {size:g} bytes. What was seen to multiply is taken to go on by the last factor, what grows by "
        "differences with the last two of them.\n",
        "| one size grows | counted up to | growth | " + " | ".join(MEMORIES) + " |",
        "|---|--:|--:|" + "--:|" * len(MEMORIES),
    ]
    for (machine, name), members in counted.items():
        last = max(members)
        counts = members[last - 2], members[last - 1], members[last]
        cells = [largest(last, counts, SHARE * memory / size) for memory in MEMORIES.values()]
        lines.append(f"| {machine}: {name} | {last} ({counts[2]:,} states) | {growth(counts)} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def families(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[int, int]]:
    """The states of each family by its size."""
    found: dict[tuple[str, str], dict[int, int]] = {}
    for row in rows:
        if (named := _COUNTED.match(row["figure"])) is not None:
            found.setdefault((named[1], named[2]), {})[int(named[3])] = int(row["value"])
    return found


def multiplies(counts: tuple[int, int, int]) -> bool:
    """Whether the last step multiplied the states by no less than the one before it: a factor, not a difference."""
    first, second, third = counts
    return third / second >= 0.99 * second / first > 1


def growth(counts: tuple[int, int, int]) -> str:
    """How a family grows, in words."""
    first, second, third = counts
    if multiplies(counts):
        return f"× {third / second:.2f} each"
    return f"+ {third - second:,}, and {third - 2 * second + first:,} more each time"


def largest(last: int, counts: tuple[int, int, int], room: float) -> str:
    """The largest member of a family whose states have room; `counts` are those of the last three."""
    first, second, third = counts
    if multiplies(counts):
        return f"{last + math.floor(math.log(room / third) / math.log(third / second)):,}"
    step, more = third - second, max(0, third - 2 * second + first)
    if step == 0:
        return "any"
    # third + k * step + k * (k + 1) / 2 * more <= room
    if more == 0:
        return f"{last + math.floor((room - third) / step):,}"
    linear = step + more / 2
    return f"{last + math.floor((math.sqrt(linear**2 + 2 * more * (room - third)) - linear) / more):,}"
