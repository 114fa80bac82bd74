"""Expanding states: what they lead to, what is new among that, and what breaks. Here by one thread, block by block.

`team` does the same with several threads and must come to the same: `Expansion` is all that the search gets to see.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .kernels import INSTANCE, insert, tally
from .retrace import Finding
from .storage import Storage

BLOCK: Final = 1024


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

    def most_transitions(self, states: int) -> int:
        """The most that so many states can lead to, and one."""
        return states * len(self.raises) + 1

    def forbidden(self, states: Any, origin: Any, instance: Any, count: int) -> int:
        """The first of these transitions that a property wanted forbids, or -1."""
        if not self.looks_before:
            return -1
        if self.missing.any():
            self.functions.witness_at(states, origin, instance, count, self.missing)
        return int(self.functions.broken_at(states, origin, instance, count, self.bits))

    def broken(self, states: Any, first: int, last: int) -> int:
        """The first of these states that a property wanted forbids, or -1."""
        if self.missing.any():
            self.functions.witness(states, first, last, self.missing)
        return int(self.functions.broken(states, first, last, self.bits))

    def stalled(self, states: Any, first: int, last: int, lively: Any) -> int:
        """The first of these states that cannot go on and has not ended, or -1."""
        return int(self.functions.unfinished(states, first, last, lively)) if self.progress else -1


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


Met = tuple[int, int, Finding]
"""Which transition, what is looked at first there, and what was found."""


def first_of(met: Iterable[Met]) -> Finding | None:
    """What the reference engine meets first: it looks at each transition before the next."""
    return min(met, key=lambda item: item[:2], default=(0, 0, None))[2]


def at_transition(at: int, length: int, origin: int, instance: int, *, falls: bool) -> Met:
    """A transition that is forbidden, or that lowers the rank."""
    return at, 1 if falls else 0, Finding(length, origin, instance & INSTANCE, falls)


def at_state(at: int, length: int, row: int) -> Met:
    """A state that is broken; `at` is the transition which led to it first."""
    return at, 2, Finding(length, row, None, False)


class Alone:
    """Expands block by block."""

    def __init__(self, watch: Watch, storage: Storage) -> None:
        self.watch, self.storage = watch, storage
        most = watch.most_transitions(BLOCK)
        self.out = np.zeros((most, storage.states.shape[1]), np.int64)
        self.origin, self.instance, self.places, self.tags, self.born = np.zeros((5, most), np.int64)
        self.lively = np.zeros(BLOCK, np.int64)

    def begin(self, words: list[int]) -> None:
        """Put the initial state in."""
        self.storage.make_room(1)
        self.out[0] = words
        self.insert(1)
        self.storage.parents[0] = -1

    def expand(self, first: int, last: int, depth: int) -> Expansion:
        """Expand the states from `first` up to `last`, at most a block of them."""
        watch, storage = self.watch, self.storage
        count = int(watch.functions.expand(storage.states, first, last, self.out, self.origin, self.instance))
        if count < 0:
            return Expansion(first, 0, fault=(int(self.origin[-1 - count]), int(self.instance[-1 - count])))
        storage.make_room(count)
        falls = int(
            tally(self.origin, self.instance, count, first, watch.raises, watch.taken, self.lively, last - first)
        )
        forbidden = watch.forbidden(storage.states, self.origin, self.instance, count)
        before = storage.count
        self.insert(count)
        broken = watch.broken(storage.states, before, storage.count)
        stalled = watch.stalled(storage.states, first, last, self.lively)
        met: list[Met] = []
        for at, lowers in ((forbidden, False), (falls if watch.progress else -1, True)):
            if at >= 0:
                origin, instance = int(self.origin[at]), int(self.instance[at])
                met.append(at_transition(at, depth + 1, origin, instance, falls=lowers))
        if broken >= 0:
            met.append(at_state(int(self.born[broken - before]), depth + 1, broken))
        return Expansion(last, count, stalled, first_of(met))

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
