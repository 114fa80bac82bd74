"""The table of states: exact keys, open addressing. Compiled once and the same for every machine.

A slot of the table holds the number of a state plus one, 0 when it is free, and in the bits that the number leaves a
tag of the state's hash. The state itself lies in `states` and is compared word by word, so two different states are
never taken for one. A search for a free slot goes round within one part of the table, `reach + 1` slots long, so that
several threads can fill different parts. Every array access is checked.
"""

from __future__ import annotations

from typing import Any, Final

from numba import int64

from .source import FALLS
from .words import kernel

INSTANCE: Final = FALLS - 1
PARTS: Final = 64
"""Parts of a large table: a power of two, and the most threads that can share it."""
HALF: Final = (1 << 32) - 1
FACTOR: Final = -2960836687055665447  # odd, of no pattern
SECOND: Final = -7046029254386353131


@kernel
def hashed(rows: Any, row: int) -> Any:
    """A number from all words of a row, well mixed in its low bits."""
    h = 0
    for word in range(rows.shape[1]):
        h = (h ^ rows[row, word]) * FACTOR
        h ^= (h >> 32) & HALF
    h *= SECOND
    return h ^ ((h >> 29) & HALF)


@kernel
def marked(h: int, shift: int) -> Any:
    """The tag of a hash: as many of its bits as a slot has above the `shift` bits of a number."""
    return ((h >> 32) << shift) & HALF


@kernel
def refill(
    table: Any, shift: int, reach: int, states: Any, count: int, low: int, high: int, places: Any, tags: Any, rows: Any
) -> None:
    """Fill an empty table of `1 << shift` slots with those of the first `count` states that belong at `low` to `high`.

    The states are all different, and `low` and `high` are bounds of parts.
    """
    mask = table.shape[0] - 1
    touched = 0
    row = 0
    while row < count:
        length = 0
        while row < count and length < places.shape[0]:
            h = hashed(states, row)
            place = h & mask
            if low <= place and place < high:
                places[length] = place
                tags[length] = marked(h, shift)
                rows[length] = row
                length += 1
            row += 1
        for i in range(length):
            touched ^= int64(table[places[i]])
        for i in range(length):
            place = places[i]
            while table[place] != 0:
                place = (place & ~reach) | ((place + 1) & reach)
            table[place] = tags[i] | (rows[i] + 1)
    places[0] = touched


@kernel
def insert(
    table: Any,
    shift: int,
    reach: int,
    states: Any,
    parents: Any,
    count: int,
    out: Any,
    origin: Any,
    transitions: int,
    places: Any,
    tags: Any,
    born: Any,
) -> Any:
    """Add what is new among the states in `out`, in order; return how many states there are then.

    `born` names the transition of each new state. All slots, and the states they name, are touched before the first is
    compared, so that the processor waits for many of them at once.
    """
    mask = table.shape[0] - 1
    words = states.shape[1]
    for i in range(transitions):
        h = hashed(out, i)
        places[i] = h & mask
        tags[i] = marked(h, shift)
    touched = 0
    for i in range(transitions):
        held = int64(table[places[i]]) ^ tags[i]
        # Without a branch, which would stop the processor until the slot has come: the first state where none is named.
        touched ^= states[(held - 1) * int64(held > 0) * int64(held <= mask), 0]
    first = count
    for i in range(transitions):
        place = places[i]
        tag = tags[i]
        while True:
            held = int64(table[place])
            if held == 0:
                for word in range(words):
                    states[count, word] = out[i, word]
                parents[count] = origin[i]
                born[count - first] = i
                count += 1
                table[place] = tag | count
                break
            # With another tag it is another state, which need not be fetched to see that.
            held ^= tag
            if 0 < held <= mask:
                same = True
                for word in range(words):
                    if states[held - 1, word] != out[i, word]:
                        same = False
                        break
                if same:
                    break
            place = (place & ~reach) | ((place + 1) & reach)
    # The touched words take part in the result, so that no compiler leaves the touching out.
    places[0] = touched
    return count


@kernel
def tally(
    origin: Any, instance: Any, transitions: int, first: int, progress: Any, taken: Any, lively: Any, rows: int
) -> Any:
    """Count the instances taken, mark the states that can go on; the first transition that lowers the rank, or -1."""
    falls = -1
    for row in range(rows):
        lively[row] = 0
    for i in range(transitions):
        number = instance[i] & INSTANCE
        taken[number] += 1
        if progress[number] != 0:
            lively[origin[i] - first] = 1
        if instance[i] >= FALLS and falls < 0:
            falls = i
    return falls
