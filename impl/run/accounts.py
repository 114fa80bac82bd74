"""What became of the prompts that are nobody's any more: trained, or dropped for a reason.

Without accounts a checkpoint cannot be audited: a prompt that no owner has may be done or lost. They are part of every
cut, and shown as intervals of trained keys, which is what a finished epoch shrinks to.

Inside they are bits, 4,096 keys of one epoch to an integer. A shuffled epoch is all gaps until it ends, so a table of
intervals would grow to half the dataset, and a snapshot would copy it inside the window. Integers are immutable: a
snapshot copies one small table of references. Chunks of which every key was trained are ranges, so that accounts read
from a file take room as the file does, whatever its intervals claim. Dropped keys are only ever added, so a snapshot of
them is the table itself and how long it was.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ..errors import CheckpointCorrupt, InvariantViolated, UsageError
from ..keys import Key

CHUNK = 4096
_FULL = (1 << CHUNK) - 1

#: Chunks of one epoch, from one to another, both included, of which every key was trained.
Whole = tuple[int, int, int]


class Interval(NamedTuple):
    """Trained keys of one epoch, from `first` to `last`, both included."""

    epoch: int
    first: int
    last: int


class DropTable:
    """Dropped keys in the order in which they were dropped; grows at its end and nowhere else."""

    def __init__(self, dropped: Mapping[Key, str]) -> None:
        # Invariant only_added: the first n drops, and the places of their keys, never change, so whoever knows n has
        # a snapshot. Another thread may read them while one is added.
        self.drops: list[tuple[Key, str]] = list(dropped.items())
        self.places: dict[Key, int] = {key: place for place, key in enumerate(dropped)}

    def add(self, key: Key, reason: str) -> None:
        """Record a key that is not in the table."""
        self.places[key] = len(self.drops)
        self.drops.append((key, reason))


class DroppedKeys(Mapping[Key, str]):
    """Why each key was dropped, oldest first, as of the moment it was asked for; costs nothing to make."""

    __slots__ = ("_length", "_table")

    def __init__(self, table: DropTable) -> None:
        self._table = table
        self._length = len(table.drops)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Key]:
        # By place, since a list may grow under this where a dictionary may not.
        drops = self._table.drops
        return (drops[place][0] for place in range(self._length))

    def __getitem__(self, key: Key) -> str:
        place = self._table.places[key]
        if place >= self._length:
            raise KeyError(key)
        return self._table.drops[place][1]

    def __repr__(self) -> str:
        return f"DroppedKeys({dict(self)!r})"


@dataclass(frozen=True, slots=True)
class AccountsSnapshot:
    """The accounts at one instant. Nothing that happens later shows in it."""

    # (epoch, chunk) -> bits, and the ranges of full chunks, as in Accounts; read `trained` instead.
    bits: Mapping[tuple[int, int], int]
    dropped: Mapping[Key, str]
    whole: tuple[Whole, ...] = ()

    @classmethod
    def empty(cls) -> AccountsSnapshot:
        """The accounts of a run that has done nothing yet."""
        return cls(MappingProxyType({}), MappingProxyType({}))

    @classmethod
    def from_intervals(cls, trained: Iterable[tuple[int, int, int]], dropped: Mapping[Key, str]) -> AccountsSnapshot:
        """The accounts with these trained intervals (epoch, first, last) and dropped keys, as read from a file.

        Raises CheckpointCorrupt for intervals that are turned round or overlap, and for a key that is trained and
        dropped.
        """
        bits: dict[tuple[int, int], int] = {}
        whole: list[Whole] = []
        before = (-1, -1, -1)
        for epoch, first, last in sorted(trained):
            if epoch < 0 or not 0 <= first <= last:
                raise CheckpointCorrupt(
                    f"the accounts hold the trained interval {first} to {last} of epoch {epoch}, which is none. "
                    "The file was damaged or edited; restore an older checkpoint."
                )
            if epoch == before[0] and first <= before[2]:
                raise CheckpointCorrupt(
                    f"the accounts count keys of epoch {epoch} between {first} and {min(last, before[2])} as trained "
                    "twice. The file was damaged or edited; restore an older checkpoint."
                )
            before = (epoch, first, last)
            _add(bits, whole, epoch, first, last)
        for key, reason in dropped.items():
            if not reason:
                raise CheckpointCorrupt(f"the accounts give no reason for dropping {key}. Restore an older checkpoint.")
            if _is_set(bits, whole, key):
                raise CheckpointCorrupt(
                    f"the accounts count {key} as trained and as dropped ({reason!r}). The file was damaged or edited; "
                    "restore an older checkpoint."
                )
        return cls(MappingProxyType(bits), MappingProxyType(dict(dropped)), tuple(whole))

    def trained_since(self, earlier: AccountsSnapshot) -> Iterator[tuple[int, int]]:
        """The keys, as (epoch, row), that were trained after an earlier snapshot of the same accounts."""
        chunks = [*self.bits.items()]
        chunks += [((epoch, chunk), _FULL) for epoch, first, last in self.whole for chunk in range(first, last + 1)]
        whole = {(epoch, chunk) for epoch, first, last in earlier.whole for chunk in range(first, last + 1)}
        for (epoch, chunk), bits in chunks:
            new = 0 if (epoch, chunk) in whole else bits & ~earlier.bits.get((epoch, chunk), 0)
            while new:
                yield epoch, chunk * CHUNK + (new & -new).bit_length() - 1
                new &= new - 1

    @property
    def trained(self) -> tuple[Interval, ...]:
        """The trained keys as the fewest intervals, in order."""
        return tuple(_intervals(self.bits, self.whole))

    @property
    def trained_count(self) -> int:
        """How many keys were trained."""
        full = sum(last - first + 1 for _, first, last in self.whole)
        return full * CHUNK + sum(bits.bit_count() for bits in self.bits.values())

    def is_trained(self, key: Key) -> bool:
        """Whether this prompt of this epoch was trained."""
        return _is_set(self.bits, self.whole, key)


class Accounts:
    """The accounts of a run. They change inside a mutation slot only; its owner is the one who calls.

    A key is settled once: trained twice, dropped twice, or both, is InvariantViolated and changes nothing.
    """

    def __init__(self) -> None:
        # Invariant trained_once: a key is in `_bits`, in `_whole` or in `_dropped`, or in none of them.
        self._bits: dict[tuple[int, int], int] = {}
        # Invariant full_chunks_are_ranges: no full chunk is in `_bits`; ranges are sorted, apart and never adjacent.
        self._whole: list[Whole] = []
        self._dropped = DropTable({})
        # Invariant counts_agree: the number of bits, and of dropped keys by reason. Kept, for a million keys are many.
        self._trained_count = 0
        self._dropped_counts: dict[str, int] = {}

    @property
    def dropped(self) -> Mapping[Key, str]:
        """Dropped keys and why, oldest first, as of now."""
        return DroppedKeys(self._dropped)

    @property
    def trained(self) -> tuple[Interval, ...]:
        """The trained keys as the fewest intervals, in order. Costs a pass over the chunks."""
        return tuple(_intervals(self._bits, self._whole))

    @property
    def trained_count(self) -> int:
        """How many keys were trained."""
        return self._trained_count

    @property
    def dropped_counts(self) -> Mapping[str, int]:
        """How many keys were dropped, by reason; costs nothing, however many there are."""
        return MappingProxyType(self._dropped_counts)

    def is_trained(self, key: Key) -> bool:
        """Whether this prompt of this epoch was trained."""
        return _is_set(self._bits, self._whole, key)

    def settled(self, key: Key) -> str | None:
        """What became of a key, as a clause for a message; None while it is somebody's, or unread."""
        if _is_set(self._bits, self._whole, key):
            return "was trained"
        place = self._dropped.places.get(key)
        return None if place is None else f"was dropped ({self._dropped.drops[place][1]!r})"

    def train(self, key: Key) -> None:
        """Record that the trainer has finished a step with this key."""
        self._require_unsettled(key, "trained")
        _add(self._bits, self._whole, key.epoch, key.index, key.index)
        self._trained_count += 1

    def drop(self, key: Key, reason: str) -> None:
        """Record that this key ends untrained, on purpose."""
        if not isinstance(reason, str) or not reason:
            raise UsageError(f"the reason for dropping {key} is {reason!r}, but must be a short text, like 'failed'.")
        self._require_unsettled(key, f"dropped ({reason!r})")
        self._dropped.add(key, reason)
        self._dropped_counts[reason] = self._dropped_counts.get(reason, 0) + 1

    def snapshot(self) -> AccountsSnapshot:
        """The accounts as they are now, immutable. Copies small tables of references, no keys."""
        return AccountsSnapshot(MappingProxyType(self._bits.copy()), self.dropped, tuple(self._whole))

    def load(self, snapshot: AccountsSnapshot) -> None:
        """Replace everything by a snapshot."""
        self._bits = dict(snapshot.bits)
        self._whole = list(snapshot.whole)
        # A table of its own: snapshots of the one before go on reading that.
        self._dropped = DropTable(snapshot.dropped)
        self._trained_count = snapshot.trained_count
        self._dropped_counts = dict(Counter(snapshot.dropped.values()))

    def _require_unsettled(self, key: Key, event: str) -> None:
        before = self.settled(key)
        if before is not None:
            raise InvariantViolated(
                f"prompt {key.index} of epoch {key.epoch} was to be {event}, but it already {before}. Two groups were "
                "made of one prompt, or one group was finished twice; the likely cause is a restore from parts of "
                "different checkpoints. Check them with `python -m impl fsck DIR` and restore a whole one."
            )


def _add(bits: dict[tuple[int, int], int], whole: list[Whole], epoch: int, first: int, last: int) -> None:
    """Add keys that are not there yet. Costs the two chunks at the edges, however many lie between."""
    low, high = first // CHUNK, last // CHUNK
    edges = {low, high}
    if high - low > 1:
        _join(whole, epoch, low + 1, high - 1)
    for chunk in edges:
        begin, end = max(first - chunk * CHUNK, 0), min(last - chunk * CHUNK, CHUNK - 1)
        filled = bits.get((epoch, chunk), 0) | (1 << (end + 1)) - (1 << begin)
        if filled != _FULL:
            bits[epoch, chunk] = filled
            continue
        bits.pop((epoch, chunk), None)
        _join(whole, epoch, chunk, chunk)


def _join(whole: list[Whole], epoch: int, first: int, last: int) -> None:
    """Add a range of full chunks, and make one of those that it touches."""
    at = bisect_left(whole, (epoch, first, last))
    if at < len(whole) and whole[at][:2] == (epoch, last + 1):
        last = whole.pop(at)[2]
    if at and whole[at - 1][0] == epoch and whole[at - 1][2] == first - 1:
        at -= 1
        first = whole.pop(at)[1]
    whole.insert(at, (epoch, first, last))


def _is_set(bits: Mapping[tuple[int, int], int], whole: Sequence[Whole], key: Key) -> bool:
    chunk = key.index // CHUNK
    found = bits.get((key.epoch, chunk))
    if found is not None:
        return bool(found >> key.index % CHUNK & 1)
    at = bisect_left(whole, (key.epoch, chunk + 1, 0)) - 1
    return at >= 0 and whole[at][0] == key.epoch and chunk <= whole[at][2]


def _intervals(bits: Mapping[tuple[int, int], int], whole: Iterable[Whole]) -> Iterator[Interval]:
    """Runs of trained keys, joined across chunks."""
    full = (Interval(epoch, first * CHUNK, last * CHUNK + CHUNK - 1) for epoch, first, last in whole)
    pending: Interval | None = None
    for run in heapq.merge(_runs_of(bits), full):
        if pending is None:
            pending = run
        elif pending.epoch == run.epoch and pending.last + 1 == run.first:
            pending = pending._replace(last=run.last)
        else:
            yield pending
            pending = run
    if pending is not None:
        yield pending


def _runs_of(bits: Mapping[tuple[int, int], int]) -> Iterator[Interval]:
    for epoch, chunk in sorted(bits):
        for low, high in _runs(bits[epoch, chunk]):
            yield Interval(epoch, chunk * CHUNK + low, chunk * CHUNK + high)


def _runs(bits: int) -> Iterator[tuple[int, int]]:
    """The runs of ones in an integer, as (lowest, highest) bit, upwards."""
    offset = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        yield offset + zeros, offset + zeros + ones - 1
        bits >>= ones
        offset += zeros + ones
