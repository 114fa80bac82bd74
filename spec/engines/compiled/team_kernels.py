"""Adding to the table of states with several threads, with the numbers that one thread would give.

A round has three steps, each done by all threads before the next begins:

    sort_by_owner   the states a block leads to, by the thread that owns their part of the table
    claim           each thread, in the order of the search: which of its states are new, and their slots
    settle          each block: the new states get their numbers, in the order of the search, and are stored

Between `claim` and `settle` a slot names a new state by where it lies in `out`, counted on from the states stored.
Threads write to different slots and to different runs of every array, so none waits for another.
"""

from __future__ import annotations

from typing import Any, Final

from numba import int64

from .kernels import PARTS, hashed, marked
from .words import kernel

PART_BITS: Final = PARTS.bit_length() - 1


@kernel
def sort_by_owner(
    out: Any,
    start: int,
    count: int,
    shift: int,
    owners: int,
    ends: Any,
    order: Any,
    places: Any,
    tags: Any,
    hashes: Any,
) -> None:
    """Sort the rows `start` up to `start + count` of `out` by owner, each owner's in their order.

    An owner has whole parts of the table. Owner `k` has the rows `order[ends[k]:ends[k + 1]]`; `places` and `tags` are
    of the same rows.
    """
    mask = (1 << shift) - 1
    for k in range(owners + 1):
        ends[k] = 0
    for i in range(count):
        h = hashed(out, start + i)
        hashes[i] = h
        ends[(((h & mask) >> (shift - PART_BITS)) * owners >> PART_BITS) + 1] += 1
    ends[0] = start
    for k in range(owners):
        ends[k + 1] += ends[k]
    for i in range(count):
        h = hashes[i]
        place = h & mask
        owner = (place >> (shift - PART_BITS)) * owners >> PART_BITS
        at = ends[owner]
        ends[owner] += 1
        order[at] = start + i
        places[at] = place
        tags[at] = marked(h, shift)
    # Each end has moved up to the next.
    for k in range(owners, 0, -1):
        ends[k] = ends[k - 1]
    ends[0] = start


@kernel
def claim(
    table: Any,
    reach: int,
    states: Any,
    count: int,
    out: Any,
    blocks: int,
    ends: Any,
    owner: int,
    order: Any,
    places: Any,
    tags: Any,
    fresh: Any,
    found: Any,
) -> Any:
    """Mark which of the owner's rows are new, and take their slots; `found[b]` is how many of block `b` are.

    `fresh` is 1 where a row is new, and `places` is then its slot.
    """
    mask = table.shape[0] - 1
    words = states.shape[1]
    touched = 0
    for b in range(blocks):
        first, last = ends[b, owner], ends[b, owner + 1]
        for i in range(first, last):
            held = int64(table[places[i]]) ^ int64(tags[i])
            # As in `insert`: without a branch, the first state where none is named. What lies in `out` is near.
            touched ^= states[(held - 1) * int64(held > 0) * int64(held <= count), 0]
        new = 0
        for i in range(first, last):
            place, tag, row = int64(places[i]), int64(tags[i]), int64(order[i])
            fresh[i] = 0
            while True:
                held = int64(table[place])
                if held == 0:
                    table[place] = tag | (count + row + 1)
                    places[i] = place
                    fresh[i] = 1
                    new += 1
                    break
                held ^= tag
                if 0 < held <= mask:
                    same = True
                    if held <= count:
                        for word in range(words):
                            if states[held - 1, word] != out[row, word]:
                                same = False
                                break
                    else:
                        for word in range(words):
                            if out[held - 1 - count, word] != out[row, word]:
                                same = False
                                break
                    if same:
                        break
                place = (place & ~reach) | ((place + 1) & reach)
        found[b] = new
    return touched


@kernel
def settle(
    table: Any,
    states: Any,
    parents: Any,
    number: int,
    out: Any,
    origin: Any,
    start: int,
    count: int,
    order: Any,
    places: Any,
    tags: Any,
    fresh: Any,
    slot: Any,
    tag: Any,
) -> Any:
    """Store the new states of one block from `number` on, in the order of its rows; return the number after them.

    `slot[row]` is one more than the place of a new state in the table, and 0 for a row that is not new.
    """
    words = states.shape[1]
    for row in range(start, start + count):
        slot[row] = 0
    for i in range(start, start + count):
        if fresh[i] != 0:
            slot[order[i]] = places[i] + 1
            tag[order[i]] = tags[i]
    for row in range(start, start + count):
        if slot[row] != 0:
            for word in range(words):
                states[number, word] = out[row, word]
            parents[number] = origin[row]
            number += 1
            table[int64(slot[row]) - 1] = int64(tag[row]) | number
    return number
