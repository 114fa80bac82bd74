"""The arrays of a search: states, parents and the table, and the limit they keep to.

States and parents are reserved once for all that the limit allows; the system gives memory only to the pages that are
written, so nothing is ever copied to grow. The table doubles: it is thrown away and filled again from the states, so
old and new never exist together.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .kernels import PARTS, refill

FIRST_SLOTS: Final = 1 << 12
FULLEST: Final = 0.6
CHUNK: Final = 2048
FEWEST_IN_PARTS: Final = 1 << 20
"""Slots from which on the table has parts: they must be large, for each alone must never be full."""
MOST_STATES: Final = (1 << 31) - 2  # a slot is 32 bits
SHARE_OF_MACHINE: Final = 0.6


class OutOfMemory(Exception):
    """The search has reached its memory limit."""


def default_limit() -> int:
    """A share of the machine's memory, in bytes."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * SHARE_OF_MACHINE)


def _reserved(length: int) -> mmap.mmap:
    """An area that costs memory only where it is written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if sys.platform == "linux":
        flags |= getattr(mmap, "MAP_NORESERVE", 0x4000)
    area = mmap.mmap(-1, max(length, mmap.PAGESIZE), flags=flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # All of it is read in no order; with large pages far fewer addresses have to be looked up.
        area.madvise(mmap.MADV_HUGEPAGE)
    return area


def _empty_table(slots: int) -> Any:
    return np.frombuffer(_reserved(slots * 4), np.uint32, slots)


class Storage:
    """The states met so far, in the order they were met, each with the number of its parent."""

    def __init__(self, words: int, limit: int) -> None:
        self.limit = limit
        self.row_bytes = 8 * words + 4
        capacity = min(MOST_STATES, max(1, limit // self.row_bytes))
        self.states: Any = np.frombuffer(_reserved(capacity * words * 8), np.int64, capacity * words)
        self.states = self.states.reshape(capacity, words)
        self.parents: Any = np.frombuffer(_reserved(capacity * 4), np.int32, capacity)
        self.table: Any = _empty_table(FIRST_SLOTS)
        self.count = 0
        self.threads = 1
        self.together: Callable[[Callable[[int], None]], None] = lambda step: step(0)
        """Does a step with every thread; whoever has several replaces it."""

    @property
    def shift(self) -> int:
        """How many bits of a slot are for the number of a state; the rest are its tag."""
        return int(self.table.shape[0]).bit_length() - 1

    @property
    def reach(self) -> int:
        """The slots of one part of the table, less one: a mask. A small table is one part."""
        slots = int(self.table.shape[0])
        return slots // PARTS - 1 if slots >= FEWEST_IN_PARTS else slots - 1

    @property
    def used(self) -> int:
        """Bytes of states, parents and table."""
        return self.count * self.row_bytes + int(self.table.nbytes)

    def slots_for(self, states: int) -> int:
        """The slots of a table for so many states."""
        slots = int(self.table.shape[0])
        while states > FULLEST * slots:
            slots *= 2
        return slots

    def has_room(self, more: int) -> bool:
        """Whether so many more states fit within the limit."""
        needed = self.count + more
        return needed <= self.states.shape[0] and needed * self.row_bytes + self.slots_for(needed) * 4 <= self.limit

    def make_room(self, more: int) -> None:
        """See that so many more states fit, or raise OutOfMemory with all arrays as they are."""
        if not self.has_room(more):
            raise OutOfMemory(
                f"stopped at the memory limit of {self.limit / 2**20:,.0f} MiB (more with --memory, then --resume)"
            )
        slots = self.slots_for(self.count + more)
        if slots != self.table.shape[0]:
            self.refill(slots)

    def refill(self, slots: int = 0) -> None:
        """Make the table anew from the states, of so many slots or as many as they need."""
        slots = slots or self.slots_for(self.count)
        del self.table
        self.table = _empty_table(slots)
        threads = self.threads if self.reach < slots - 1 else 1
        bounds = [slots // PARTS * (PARTS * k // threads) for k in range(threads)] + [slots]

        def fill(thread: int) -> None:
            room = np.zeros((3, CHUNK), np.int64)
            low, high = bounds[thread], bounds[thread + 1]
            refill(self.table, self.shift, self.reach, self.states, self.count, low, high, *room)

        if threads == 1:
            fill(0)
        else:
            self.together(fill)
