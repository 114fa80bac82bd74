"""What became of the prompts that are nobody's any more: trained, or dropped for a reason.

Without accounts a checkpoint cannot be audited: a prompt that no owner has may be done or lost. They are part of every
cut, and shown as intervals of trained keys, which is what a finished epoch shrinks to.

Inside they are bits, 4,096 keys of one epoch to an integer. A shuffled epoch is all gaps until it ends, so a table of
intervals would grow to half the dataset, and a snapshot would copy it inside the window. Integers are immutable: a
snapshot copies one small table of references. Dropped keys are only ever added, so a snapshot of them is the table
itself and how long it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from .errors import CheckpointCorrupt, InvariantViolated, UsageError
from .keys import Key

CHUNK = 4096


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

    # (epoch, chunk) -> bits, as in Accounts; read `trained` instead.
    bits: Mapping[tuple[int, int], int]
    dropped: Mapping[Key, str]

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
        for epoch, first, last in trained:
            if epoch < 0 or not 0 <= first <= last:
                raise CheckpointCorrupt(
                    f"the accounts hold the trained interval {first} to {last} of epoch {epoch}, which is none. "
                    "The file was damaged or edited; restore an older checkpoint."
                )
            for chunk in range(first // CHUNK, last // CHUNK + 1):
                low = max(first - chunk * CHUNK, 0)
                high = min(last - chunk * CHUNK, CHUNK - 1)
                mask = (1 << (high + 1)) - (1 << low)
                before = bits.get((epoch, chunk), 0)
                if before & mask:
                    raise CheckpointCorrupt(
                        f"the accounts count keys of epoch {epoch} between {first} and {last} as trained twice. "
                        "The file was damaged or edited; restore an older checkpoint."
                    )
                bits[epoch, chunk] = before | mask
        for key, reason in dropped.items():
            if not reason:
                raise CheckpointCorrupt(f"the accounts give no reason for dropping {key}. Restore an older checkpoint.")
            if _is_set(bits, key):
                raise CheckpointCorrupt(
                    f"the accounts count {key} as trained and as dropped ({reason!r}). The file was damaged or edited; "
                    "restore an older checkpoint."
                )
        return cls(MappingProxyType(bits), MappingProxyType(dict(dropped)))

    @property
    def trained(self) -> tuple[Interval, ...]:
        """The trained keys as the fewest intervals, in order."""
        return tuple(_intervals(self.bits))

    @property
    def trained_count(self) -> int:
        """How many keys were trained."""
        return sum(bits.bit_count() for bits in self.bits.values())

    def is_trained(self, key: Key) -> bool:
        """Whether this prompt of this epoch was trained."""
        return _is_set(self.bits, key)


class Accounts:
    """The accounts of a run. They change inside a mutation slot only; its owner is the one who calls.

    A key is settled once: trained twice, dropped twice, or both, is InvariantViolated and changes nothing.
    """

    def __init__(self) -> None:
        # Invariant trained_once: a key is in `_bits` or in `_dropped` or in neither.
        self._bits: dict[tuple[int, int], int] = {}
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
        return tuple(_intervals(self._bits))

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
        return _is_set(self._bits, key)

    def settled(self, key: Key) -> str | None:
        """What became of a key, as a clause for a message; None while it is somebody's, or unread."""
        if _is_set(self._bits, key):
            return "was trained"
        place = self._dropped.places.get(key)
        return None if place is None else f"was dropped ({self._dropped.drops[place][1]!r})"

    def train(self, key: Key) -> None:
        """Record that the trainer has finished a step with this key."""
        self._require_unsettled(key, "trained")
        place = (key.epoch, key.index // CHUNK)
        self._bits[place] = self._bits.get(place, 0) | 1 << key.index % CHUNK
        self._trained_count += 1

    def drop(self, key: Key, reason: str) -> None:
        """Record that this key ends untrained, on purpose."""
        if not isinstance(reason, str) or not reason:
            raise UsageError(f"the reason for dropping {key} is {reason!r}, but must be a short text, like 'failed'.")
        self._require_unsettled(key, f"dropped ({reason!r})")
        self._dropped.add(key, reason)
        self._dropped_counts[reason] = self._dropped_counts.get(reason, 0) + 1

    def snapshot(self) -> AccountsSnapshot:
        """The accounts as they are now, immutable. Copies one small table of references, no keys."""
        return AccountsSnapshot(MappingProxyType(self._bits.copy()), self.dropped)

    def load(self, snapshot: AccountsSnapshot) -> None:
        """Replace everything by a snapshot."""
        self._bits = dict(snapshot.bits)
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


def _is_set(bits: Mapping[tuple[int, int], int], key: Key) -> bool:
    return bool(bits.get((key.epoch, key.index // CHUNK), 0) >> key.index % CHUNK & 1)


def _intervals(bits: Mapping[tuple[int, int], int]) -> Iterator[Interval]:
    """Runs of set bits, joined across chunks."""
    pending: Interval | None = None
    for epoch, chunk in sorted(bits):
        for low, high in _runs(bits[epoch, chunk]):
            run = Interval(epoch, chunk * CHUNK + low, chunk * CHUNK + high)
            if pending is None:
                pending = run
            elif pending.epoch == epoch and pending.last + 1 == run.first:
                pending = pending._replace(last=run.last)
            else:
                yield pending
                pending = run
    if pending is not None:
        yield pending


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
