"""All states met so far: rows of words, and a table of open addressing, in tensors of one device.

A slot of the table holds the number of a state, or FREE. Keys are exact: a state is the same as another when all its
words are. Of equal states among the candidates the first is kept, whatever the device does in which order, for the
least number wins a slot; so states get the numbers that one thread would give them.

Everything is reserved at the start, for all that the limit of memory allows: nothing is copied to grow but the table,
which doubles and is filled again from the states.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

import torch
from torch import Tensor

FREE: Final = (1 << 31) - 1
FIRST_SLOTS: Final = 1 << 16
FULLEST: Final = 0.5
AT_ONCE: Final = 1 << 20
"""States that are put back into a new table at once."""
SHARE_OF_MEMORY: Final = 0.6
FACTORS: Final = (-7046029254386353131, -2960836687055665447, 6364136223846793005, -4265267296055464877)
"""Odd numbers of no pattern, one a word in turn."""
ALL_EQUAL: Final = {
    1: (torch.uint8, 0x01),
    2: (torch.int16, 0x0101),
    4: (torch.int32, 0x01010101),
    8: (torch.int64, 0x0101010101010101),
}


class OutOfMemory(Exception):
    """The search has reached its memory limit."""


class NoDevice(Exception):
    """The device asked for is not there."""


def device_named(name: str) -> torch.device:
    """The device that a user's word names, if it is there and a search can run on it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise NoDevice(f"no device {name!r} for the torch engine; there are: cpu, cuda, cuda:0 and so on")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise NoDevice(f"torch finds no device {name!r} here; --device cpu runs the same search on the processor")
    return device


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device, with what torch keeps of tensors that are gone: it hands that out again."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))


def default_limit(device: torch.device) -> int:
    """A share of the memory that is free, in bytes; the rest is for the work on a run of states."""
    return int(free_memory(device) * SHARE_OF_MEMORY)


def reserved(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of any content; on the processor it costs memory only where it is written."""
    if device.type != "cpu":
        return torch.empty(length, dtype=dtype, device=device)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    area = mmap.mmap(-1, max(length * dtype.itemsize, mmap.PAGESIZE), flags=flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # All of it is read in no order; with large pages far fewer addresses have to be looked up.
        area.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(area, dtype=dtype, count=length)


def most_states(limit: int, row_bytes: int) -> int:
    """The states that fit within the limit together with their table: a device really gives what is reserved."""
    most, slots = 1, FIRST_SLOTS
    while 4 * slots < limit:
        most = max(most, min(int(FULLEST * slots), (limit - 4 * slots) // row_bytes))
        slots *= 2
    return min(FREE - 1, most)


class Known:
    """The states met so far, in the order they were met, each with the number of its parent."""

    def __init__(self, words: int, limit: int, device: torch.device) -> None:
        self.limit, self.device, self.words = limit, device, words
        self.row_bytes = 8 * words + 4
        self.capacity = most_states(limit, self.row_bytes)
        self.states = reserved(self.capacity * words, torch.int64, device).view(self.capacity, words)
        self.parents = reserved(self.capacity, torch.int32, device)
        self.count = 0
        self.table = torch.full((FIRST_SLOTS,), FREE, dtype=torch.int32, device=device)

    @property
    def used(self) -> int:
        """Bytes of states, parents and table."""
        return self.count * self.row_bytes + self.table.numel() * 4

    def slots_for(self, states: int) -> int:
        """The slots of a table for so many states."""
        slots = self.table.numel()
        while states > FULLEST * slots:
            slots *= 2
        return slots

    def has_room(self, more: int) -> bool:
        """Whether so many more states fit within the limit."""
        needed = self.count + more
        return needed <= self.capacity and needed * self.row_bytes + self.slots_for(needed) * 4 <= self.limit

    def make_room(self, more: int) -> None:
        """See that so many more states fit, or raise OutOfMemory with all tensors as they are."""
        if not self.has_room(more):
            raise OutOfMemory(f"stopped at the memory limit of {self.limit / 2**20:,.0f} MiB (more with --memory)")
        slots = self.slots_for(self.count + more)
        if slots != self.table.numel():
            self.refill(slots)

    def refill(self, slots: int) -> None:
        """Make the table anew from the states, with so many slots."""
        del self.table
        self.table = reserved(slots, torch.int32, self.device)
        self.table.fill_(FREE)
        for first in range(0, self.count, AT_ONCE):
            last = min(first + AT_ONCE, self.count)
            slot, step = self.places(self.states[first:last])
            ids = torch.arange(first, last, dtype=torch.int32, device=self.device)
            while ids.numel():
                self.claim(slot, ids)
                # They are all different, so whoever does not hold its slot goes on.
                rest = torch.nonzero(self.table.index_select(0, slot) != ids).squeeze(1)
                ids, step = ids[rest], step[rest]
                slot = (slot[rest] + step) & (slots - 1)

    def places(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Of each state its first slot and, odd, how far it is from one slot to the next it tries."""
        mixed = rows[:, 0] * FACTORS[0]
        for word in range(1, self.words):
            mixed += rows[:, word] * FACTORS[word % len(FACTORS)]
        mixed ^= mixed >> 32
        mixed *= FACTORS[1]
        mixed ^= mixed >> 29
        mask = self.table.numel() - 1
        return mixed & mask, ((mixed >> 32) & mask) | 1

    def claim(self, slot: Tensor, ids: Tensor) -> None:
        """Write each number into its slot where that is free; of several the least."""
        free = torch.nonzero(self.table.index_select(0, slot) == FREE).squeeze(1)
        self.table.scatter_reduce_(0, slot[free], ids[free], "amin")

    def equal(self, left: Tensor, right: Tensor) -> Tensor:
        """Which rows are the same."""
        same = left == right
        if self.words not in ALL_EQUAL:
            return same.all(1)
        dtype, ones = ALL_EQUAL[self.words]
        return same.view(dtype).squeeze(1) == ones

    def add(self, candidates: Tensor, origins: Tensor) -> Tensor:
        """Add what is new among the candidates, in their order; return which of them that is.

        `origins` are the numbers of their parents. There must be room for all of them.
        """
        first, length = self.count, int(candidates.shape[0])
        if not length:
            return torch.empty(0, dtype=torch.int64, device=self.device)
        # Until it is known which are new they all count as states, with the numbers after the last.
        self.states[first : first + length] = candidates
        rows = candidates
        ids = torch.arange(first, first + length, dtype=torch.int32, device=self.device)
        slot, step = self.places(candidates)
        won: list[Tensor] = []
        won_slots: list[Tensor] = []
        mask = self.table.numel() - 1
        while ids.numel():
            self.claim(slot, ids)
            held = self.table.index_select(0, slot)
            own = torch.nonzero(held == ids).squeeze(1)
            won.append(ids[own])
            won_slots.append(slot[own])
            rest = torch.nonzero(~self.equal(self.states.index_select(0, held), rows)).squeeze(1)
            ids, step, rows = ids[rest], step[rest], rows.index_select(0, rest)
            slot = (slot[rest] + step) & mask
        new, order = torch.sort(torch.cat(won))
        self.count = first + new.numel()
        chosen = new.long() - first
        numbers = torch.arange(first, self.count, dtype=torch.int32, device=self.device)
        self.table.scatter_(0, torch.cat(won_slots)[order], numbers)
        self.states[first : self.count] = candidates.index_select(0, chosen)
        self.parents[first : self.count] = origins.index_select(0, chosen)
        return chosen
