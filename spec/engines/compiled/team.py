"""Several threads on one search, with the result of one: the same states under the same numbers, the same finding.

A round takes consecutive blocks of a level. Expanding them and looking at what breaks needs no order; which state is
new is decided by the owner of its part of the table, who meets the rows in the order of the search; numbers are given
in that order in the end. The compiled code runs without Python's lock.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..retrace import Finding
from .expansion import BLOCK, Expansion, Followed, Watch
from .storage import Storage
from .team_kernels import claim, settle, sort_by_owner

ROWS_A_ROUND: Final = 1 << 16
"""Transitions that a thread collects in a round, so that most of its arrays stay in the cache."""
MOST_BLOCKS: Final = 64
"""Blocks a thread can take in a round, whatever they lead to."""
FEWEST_BLOCKS: Final = 8
"""Blocks a thread must have to do in a level; below it one thread alone is as fast."""


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class _Block:
    """One block of a round: its transitions are a run of rows; in the end it is known what is new and broken."""

    number: int
    last: int
    start: int
    found: Followed
    before: int = 0
    broken: int = -1


class Team:
    """The threads and their arrays. Use as a context manager, so that no thread outlives the search."""

    def __init__(self, watch: Watch, storage: Storage, workers: int) -> None:
        self.watch, self.storage, self.workers = watch, storage, workers
        self.most = watch.most_transitions(BLOCK)
        self.rows = self.most + ROWS_A_ROUND
        whole = self.rows * workers
        self.out = np.zeros((whole, storage.states.shape[1]), np.int64)
        self.origin, self.instance = np.zeros((2, whole), np.int64)
        self.order = np.zeros(whole, np.int32)
        self.places, self.tags, self.slot, self.tag = np.zeros((4, whole), np.uint32)
        self.fresh = np.zeros(whole, np.uint8)
        self.ends = np.zeros((MOST_BLOCKS * workers, workers + 1), np.int64)
        self.found = np.zeros((workers, MOST_BLOCKS * workers), np.int64)
        self.taken = np.zeros((workers, watch.taken.shape[0]), np.int64)
        self.blocks: dict[int, _Block] = {}
        self.faults: dict[int, tuple[int, int]] = {}
        self.hashes = np.zeros((workers, self.most), np.int64)
        self.pool = ThreadPoolExecutor(workers, "cleancut-search")
        storage.threads, storage.together = workers, self.together

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    def is_worth_it(self, first: int, end: int) -> bool:
        """Whether what is left of a level is enough for all, and the table large enough to be shared."""
        storage = self.storage
        slots = int(storage.table.shape[0])
        shared = storage.reach < slots - 1 and storage.count + self.rows * self.workers < slots
        return shared and end - first >= FEWEST_BLOCKS * self.workers * BLOCK

    def expand(self, first: int, end: int, depth: int) -> Expansion | None:
        """Expand blocks from state `first` on; None, with nothing changed, where memory might not be enough."""
        storage, watch = self.storage, self.watch
        self.blocks.clear()
        self.faults.clear()
        self.taken[:] = 0
        shift, numbers = storage.shift, itertools.count()
        self.together(lambda worker: self.follow(worker, numbers, first, end))
        if self.faults:
            return Expansion(first, 0, fault=self.faults[min(self.faults)])
        blocks = [self.blocks[number] for number in sorted(self.blocks)]
        transitions = sum(block.found.count for block in blocks)
        if not storage.has_room(transitions):
            return None
        storage.make_room(transitions)
        if storage.shift != shift:
            # In a larger table every state has another place.
            for block in blocks:
                self.sort(block, 0)
        before = storage.count
        self.together(lambda worker: self.claim(worker, len(blocks), before))
        for block, new in zip(blocks, self.found[:, : len(blocks)].sum(axis=0).tolist(), strict=True):
            block.before = before
            before += new
        remaining = iter(blocks)
        self.together(lambda _: self.settle(remaining))
        storage.count = before
        watch.taken += self.taken.sum(axis=0)
        stalled = next((block.found.stalled for block in blocks if block.found.stalled >= 0), -1)
        finding = next(filter(None, (self.first_finding(block, depth + 1) for block in blocks)), None)
        return Expansion(blocks[-1].last, transitions, stalled, finding)

    def together(self, step: Callable[[int], None]) -> None:
        """Do a step with all threads; an interruption waits for them, since they write to what is kept."""
        futures = [self.pool.submit(step, worker) for worker in range(self.workers)]
        try:
            wait(futures)
        finally:
            wait(futures)
        for future in futures:
            future.result()

    # ---------------------------------------------------------------------------------- The steps of a round

    def follow(self, worker: int, numbers: Iterator[int], first: int, end: int) -> None:
        """Take blocks, each the next one, and see what they lead to, until the rows of this thread are full."""
        watch, states = self.watch, self.storage.states
        start, limit = worker * self.rows, (worker + 1) * self.rows
        while limit - start >= self.most:
            number = next(numbers)
            begin = first + number * BLOCK
            if begin >= end or number >= len(self.ends):
                return
            last = min(begin + BLOCK, end)
            rows = self.out[start:limit], self.origin[start:limit], self.instance[start:limit]
            found = watch.follow(states, begin, last, *rows, self.taken[worker])
            if found.fault is not None:
                self.faults[number] = found.fault
                return
            block = _Block(number, last, start, found)
            self.sort(block, worker)
            self.blocks[number] = block
            start += found.count

    def sort(self, block: _Block, worker: int) -> None:
        """Give the rows of a block to the owners of their parts of the table."""
        sort_by_owner(
            self.out,
            block.start,
            block.found.count,
            self.storage.shift,
            self.workers,
            self.ends[block.number],
            self.order,
            self.places,
            self.tags,
            self.hashes[worker],
        )

    def claim(self, worker: int, blocks: int, stored: int) -> None:
        """Find what is new in the parts of the table that this thread owns."""
        claim(
            self.storage.table,
            self.storage.reach,
            self.storage.states,
            stored,
            self.out,
            blocks,
            self.ends,
            worker,
            self.order,
            self.places,
            self.tags,
            self.fresh,
            self.found[worker],
        )

    def settle(self, remaining: Iterator[_Block]) -> None:
        """Store what is new of one block after another, and look at it."""
        storage = self.storage
        for block in remaining:
            after = settle(
                storage.table,
                storage.states,
                storage.parents,
                block.before,
                self.out,
                self.origin,
                block.start,
                block.found.count,
                self.order,
                self.places,
                self.tags,
                self.fresh,
                self.slot,
                self.tag,
            )
            block.broken = self.watch.broken(storage.states, block.before, int(after))

    def first_finding(self, block: _Block, length: int) -> Finding | None:
        """What breaks first in a block, if anything does."""
        rows = slice(block.start, block.start + block.found.count)

        def born(row: int) -> int:
            return int(np.flatnonzero(self.slot[rows])[row - block.before])

        return block.found.first_finding(length, self.origin[rows], self.instance[rows], block.broken, born)
