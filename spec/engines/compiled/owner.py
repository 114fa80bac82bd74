"""One owner of states: those whose hash is his. He keeps them, expands them, and hands on what is others'.

A level is expanded in rounds, each of two steps that every owner takes: `expand` some states and sort what they lead to
by owner, then `insert` what came from everybody, in the order of the owners, so that every repetition gives the same
states the same numbers. Keys are exact: a hash decides only whose a state is. When a level ends, a copy of its states
goes out, so that a new owner can take the place of one who died, and the others can `roll_back` to there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from . import library
from .expansion import BLOCK, Watch
from .kernels import hashed, insert
from .storage import OutOfMemory, Storage, default_limit
from .words import kernel

STATES_A_ROUND: Final = 1 << 15
OWNER_BITS: Final = 20

Batch: TypeAlias = "tuple[Any, Any]"
"""Packed states, and for each the number that its parent has with the sender."""
Kept: TypeAlias = "tuple[Any, Any, Any]"
"""The states of a level; for each the number of its parent, and whose that is."""


@kernel
def owners_of(rows: Any, count: int, owners: int, whose: Any) -> None:
    """Say whose each of the first rows is, by bits of its hash that have no part in its place in a small table."""
    for row in range(count):
        h = hashed(rows, row) >> (64 - OWNER_BITS) & ((1 << OWNER_BITS) - 1)
        whose[row] = (h * owners) >> OWNER_BITS


@dataclass(frozen=True)
class Plan:
    """All that an owner must know; it can be sent anywhere."""

    text: str
    cache: str
    """Where compiled text is kept, on every machine."""
    initial: list[int]
    words: int
    owners: int
    limit: int | None
    """Bytes for each owner; None for a share of the machine."""
    watch: Watch
    """Without functions: they are compiled, or loaded, where it is used."""
    a_round: int = STATES_A_ROUND
    """The most states that an owner expands in a round."""

    @property
    def before_anything(self) -> Settled:
        """An owner who has not begun."""
        return Settled(0, 0, self.watch.taken.tolist(), self.watch.missing.tolist())


@dataclass(frozen=True)
class Expanded:
    """What came of expanding some states of a level."""

    transitions: int
    left: int
    """States of the level that are still to be expanded."""
    stalled: int = -1
    """The first that cannot go on and has not ended, or -1."""
    forbidden: tuple[int, int, bool] | None = None
    """The first transition that breaks a property: origin, instance, whether it is the one of progress."""
    fault: tuple[int, int] | None = None
    """A state and an instance where the text itself is wrong."""


@dataclass(frozen=True)
class Inserted:
    """How many states an owner has now, the first new one that breaks a property, and why not all went in."""

    count: int
    used: int
    broken: int = -1
    full: str = ""


@dataclass(frozen=True)
class Settled:
    """An owner between two levels."""

    count: int
    frontier: int
    taken: list[int]
    missing: list[int]


class Owner:
    """Owner `number` of those of a plan."""

    def __init__(self, plan: Plan, number: int) -> None:
        os.environ[library.CACHE_VARIABLE] = plan.cache
        self.number, self.owners = number, plan.owners
        mine = plan.watch
        self.watch = replace(
            mine, functions=library.compiled(plan.text), taken=mine.taken.copy(), missing=mine.missing.copy()
        )
        limit = plan.limit or default_limit() // plan.owners
        row = 8 * plan.words + 4
        # The copy that goes out at the end of each level counts, too.
        self.limit = limit
        self.storage = Storage(plan.words, limit * row // (2 * row + 2))
        self.whose = np.zeros(self.storage.states.shape[0], np.uint16)
        most = self.watch.most_transitions(BLOCK)
        self.out = np.zeros((most, plan.words), np.int64)
        self.origin, self.instance, self.places, self.tags, self.born, self.to = np.zeros((6, most), np.int64)
        self.own: Batch = (self.out[:0], self.origin[:0])
        # The states from `first` up to `end` are the level that is expanded, those before `next` have been.
        self.first = self.next = self.end = 0
        self.a_round = plan.a_round
        self.warm_up(plan.initial)

    def warm_up(self, initial: list[int]) -> None:
        """Compile everything on one state, before anybody waits for it."""
        one = np.zeros((1, len(initial)), np.int64)
        one[0] = initial
        trial = replace(self.watch, taken=self.watch.taken.copy(), missing=self.watch.missing.copy())
        trial.follow(one, 0, 1, self.out, self.origin, self.instance, trial.taken)
        trial.broken(one, 0, 1)
        owners_of(one, 1, self.owners, self.to)

    def begin(self, initial: list[int]) -> tuple[bool, Inserted]:
        """Put the initial state in, if it is his; whether it is."""
        self.out[0] = initial
        if self.watch.orbits is not None:
            self.watch.orbits.arrange(self.out, 1)
        owners_of(self.out, 1, self.owners, self.to)
        mine = bool(self.to[0] == self.number)
        batch = (self.out[: int(mine)].copy(), self.origin[: int(mine)].copy() * 0)
        return mine, self.insert([batch if k == self.number else self.nothing() for k in range(self.owners)])

    def nothing(self) -> Batch:
        """A batch of no states."""
        return self.out[:0], self.origin[:0]

    # --------------------------------------------------------------------------------------- The steps of a round

    def expand(self) -> tuple[Expanded, list[Batch]]:
        """Expand some states of the level; what they lead to, for each owner. His own stays here until `insert`."""
        batches: list[list[Batch]] = [[] for _ in range(self.owners)]
        transitions, stalled, forbidden = 0, -1, None
        limit = min(self.end, self.next + self.a_round)
        while self.next < limit:
            last = min(self.next + BLOCK, limit)
            found = self.watch.follow(
                self.storage.states, self.next, last, self.out, self.origin, self.instance, self.watch.taken
            )
            if found.fault is not None:
                return Expanded(transitions, 0, fault=found.fault), [self.nothing()] * self.owners
            finding = found.first_finding(0, self.origin, self.instance, -1, lambda row: 0)
            if finding is not None and forbidden is None and finding.instance is not None:
                forbidden = (finding.row, finding.instance, finding.of_progress)
            stalled = found.stalled if stalled < 0 else stalled
            self.share_out(found.count, batches)
            transitions += found.count
            self.next = last
        whole = [joined(parts) if parts else self.nothing() for parts in batches]
        self.own = whole[self.number]
        whole[self.number] = self.nothing()
        return Expanded(transitions, self.end - self.next, stalled, forbidden), whole

    def share_out(self, count: int, batches: list[list[Batch]]) -> None:
        """Add the first rows to what is sent to their owners."""
        owners_of(self.out, count, self.owners, self.to)
        order = np.argsort(self.to[:count], kind="stable")
        ends = np.searchsorted(self.to[:count][order], np.arange(self.owners + 1))
        for owner, batch in enumerate(batches):
            chosen = order[ends[owner] : ends[owner + 1]]
            if len(chosen):
                batch.append((self.out[chosen], self.origin[chosen].astype(np.int32)))

    def insert(self, batches: Sequence[Batch]) -> Inserted:
        """Add what is new of what everybody sent to the states, and look at it."""
        storage, broken = self.storage, -1
        try:
            for sender, sent in enumerate(batches):
                rows, origin = self.own if sender == self.number and len(self.own[0]) else sent
                for start in range(0, len(rows), len(self.out)):
                    before = storage.count
                    self.insert_some(rows[start : start + len(self.out)], origin[start : start + len(self.out)], sender)
                    worse = self.watch.broken(storage.states, before, storage.count)
                    broken = worse if broken < 0 else broken
        except OutOfMemory:
            full = f"stopped at the memory limit of {self.limit * self.owners / 2**20:,.0f} MiB (more with --memory)"
            return Inserted(storage.count, self.used, broken, full)
        finally:
            self.own = self.nothing()
        return Inserted(storage.count, self.used, broken)

    def insert_some(self, rows: Any, origin: Any, sender: int) -> None:
        count, storage = len(rows), self.storage
        storage.make_room(count)
        # What came over the network cannot be written to, and would have compiled code of its own.
        self.out[:count] = rows
        self.origin[:count] = origin
        before = storage.count
        storage.count = int(
            insert(
                storage.table,
                storage.shift,
                storage.reach,
                storage.states,
                storage.parents,
                storage.count,
                self.out,
                self.origin,
                count,
                self.places,
                self.tags,
                self.born,
            )
        )
        self.whose[before : storage.count] = sender

    # ------------------------------------------------------------------------------------------- Between levels

    def settle(self) -> tuple[Settled, Kept]:
        """End a level: what is new is the next one, and a copy of it goes out."""
        storage = self.storage
        first, last = self.end, storage.count
        self.first, self.next, self.end = first, first, last
        kept = storage.states[first:last].copy(), storage.parents[first:last].copy(), self.whose[first:last].copy()
        return Settled(last, last - first, self.watch.taken.tolist(), self.watch.missing.tolist()), kept

    def roll_back(self, settled: Settled) -> None:
        """Be as at the end of that level."""
        self.storage.count = self.end = settled.count
        self.first = self.next = settled.count - settled.frontier
        self.storage.refill()
        self.own = self.nothing()
        self.watch.taken[:], self.watch.missing[:] = settled.taken, settled.missing

    def take_over(self, levels: Sequence[Kept], settled: Settled) -> None:
        """Be as the owner was who sent these levels out, the last of them when he reported `settled`."""
        storage, at = self.storage, 0
        for states, parents, whose in levels:
            end = at + len(states)
            storage.states[at:end], storage.parents[at:end], self.whose[at:end] = states, parents, whose
            at = end
        self.roll_back(settled)

    @property
    def used(self) -> int:
        """Bytes of all that is kept, the copies included."""
        return self.storage.used + self.storage.count * (self.storage.row_bytes + 2)

    def look(self, row: int) -> tuple[list[int], int, int]:
        """A state, whose its parent is, and the number it has there."""
        return self.storage.states[row].tolist(), int(self.whose[row]), int(self.storage.parents[row])


def joined(parts: Sequence[Batch]) -> Batch:
    """Batches as one."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([rows for rows, _ in parts]), np.concatenate([origin for _, origin in parts])
