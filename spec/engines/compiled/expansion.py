"""Expanding states: what they lead to, what is new among that, and what breaks. Here by one thread, block by block.

`team` does the same with several threads and must come to the same: `Expansion` is all that the search gets to see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..retrace import Finding
from .kernels import INSTANCE, insert, tally
from .orbits import Orbits
from .storage import Storage

BLOCK: Final = 1024


@dataclass(frozen=True)
class Followed:
    """What a block of states leads to, before it is known what of that is new."""

    count: int
    """How many transitions."""
    forbidden: int = -1
    """The first of them that a property wanted forbids, or -1."""
    falls: int = -1
    """The first of them that does not raise the rank as it should, or -1."""
    stalled: int = -1
    """The first of the states that cannot go on and has not ended, or -1."""
    fault: tuple[int, int] | None = None
    """A state and an instance where the text itself is wrong; then nothing else is said."""

    def first_finding(
        self, length: int, origin: Any, instance: Any, broken: int, born: Callable[[int], int]
    ) -> Finding | None:
        """What the reference engine meets first, which looks at each transition before the next: of those forbidden,
        those that lower the rank, and the state `broken` (or -1), which the transition `born(broken)` led to first.
        """
        met: list[tuple[int, int, Finding]] = []
        for at, of_progress in ((self.forbidden, False), (self.falls, True)):
            if at >= 0:
                number = int(instance[at]) & INSTANCE
                met.append((at, int(of_progress), Finding(length, int(origin[at]), number, of_progress)))
        if broken >= 0:
            met.append((born(broken), 2, Finding(length, broken, None, False)))
        return min(met, key=lambda item: item[:2])[2] if met else None


@dataclass
class Watch:
    """The compiled text, what is looked at with it, and what was met so far."""

    functions: Any
    bits: int
    """A bit for each property wanted."""
    progress: bool
    """Whether the claim about progress is wanted."""
    looks_before: bool
    """Whether any claim is looked at where an action is to be taken."""
    raises: Any
    """For each instance, whether it is one of progress."""
    taken: Any
    """How often each instance was taken."""
    missing: Any
    """For each premise, whether it has not occurred yet."""
    orbits: Orbits | None = None
    """Where one state of each orbit is kept: which."""

    def most_transitions(self, states: int) -> int:
        """The most that so many states can lead to, and one."""
        return states * len(self.raises) + 1

    def follow(self, states: Any, first: int, last: int, out: Any, origin: Any, instance: Any, taken: Any) -> Followed:
        """Expand the states from `first` up to `last`, and look at what they lead to before any of it is stored.

        The transitions go into `out`, `origin` and `instance`, how often each instance was taken is added to `taken`.
        Any thread, with arrays of its own.
        """
        functions = self.functions
        count = int(functions.expand(states, first, last, out, origin, instance))
        if count < 0:
            return Followed(0, fault=(int(origin[-1 - count]), int(instance[-1 - count])))
        if self.orbits is not None:
            self.orbits.arrange(out, count)
        lively = np.empty(last - first, np.int64)
        falls = int(tally(origin, instance, count, first, self.raises, taken, lively, last - first))
        forbidden = -1
        if self.looks_before:
            if self.missing.any():
                functions.witness_at(states, origin, instance, count, self.missing)
            forbidden = int(functions.broken_at(states, origin, instance, count, self.bits))
        if not self.progress:
            return Followed(count, forbidden)
        return Followed(count, forbidden, falls, int(functions.unfinished(states, first, last, lively)))

    def broken(self, states: Any, first: int, last: int) -> int:
        """The first of these states that a property wanted forbids, or -1."""
        if self.missing.any():
            self.functions.witness(states, first, last, self.missing)
        return int(self.functions.broken(states, first, last, self.bits))


@dataclass(frozen=True)
class Expansion:
    """What came of expanding some states of a level."""

    last: int
    """The first state that was not expanded."""
    transitions: int
    stalled: int = -1
    """The first of them that cannot go on and has not ended, or -1."""
    finding: Finding | None = None
    """Of what breaks one step on, what comes first in the order of the search."""
    fault: tuple[int, int] | None = None
    """A state and an instance where the text itself is wrong; then nothing else is said."""


class Alone:
    """Expands block by block."""

    def __init__(self, watch: Watch, storage: Storage) -> None:
        self.watch, self.storage = watch, storage
        most = watch.most_transitions(BLOCK)
        self.out = np.zeros((most, storage.states.shape[1]), np.int64)
        self.origin, self.instance, self.places, self.tags, self.born = np.zeros((5, most), np.int64)

    def begin(self, words: list[int]) -> None:
        """Put the initial state in."""
        self.storage.make_room(1)
        self.out[0] = words
        if self.watch.orbits is not None:
            self.watch.orbits.arrange(self.out, 1)
        self.insert(1)
        self.storage.parents[0] = -1

    def expand(self, first: int, last: int, depth: int) -> Expansion:
        """Expand the states from `first` up to `last`, at most a block of them."""
        watch, storage = self.watch, self.storage
        taken = np.zeros_like(watch.taken)
        found = watch.follow(storage.states, first, last, self.out, self.origin, self.instance, taken)
        if found.fault is not None:
            return Expansion(first, 0, fault=found.fault)
        storage.make_room(found.count)
        watch.taken += taken
        before = storage.count
        self.insert(found.count)
        broken = watch.broken(storage.states, before, storage.count)
        finding = found.first_finding(
            depth + 1, self.origin, self.instance, broken, lambda row: int(self.born[row - before])
        )
        return Expansion(last, found.count, found.stalled, finding)

    def insert(self, count: int) -> None:
        """Add what is new among the first `count` rows to the states."""
        storage = self.storage
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
