"""The pending groups of a ledger: their records, found by id, by key, by admission and by step.

The four indexes change together, in `put` and `remove` and nowhere else, so that no question about a prompt costs a
pass over all of them: a run may have more pending than it trains in an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

from ..keys import GroupId, Key

Name = TypeVar("Name")


class Phase(StrEnum):
    """Whether a pending group has passed the sampler's gate."""

    RESERVED = "reserved"
    ADMITTED = "admitted"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A pending group. Replaced, never changed, so that a snapshot is a table of references.

    `step` is the stamp of its admission: None before it, and with a sampler that does not stamp. `attempt` counts the
    generations that failed.
    """

    group: GroupId
    key: Key
    phase: Phase
    admission: int
    step: int | None = None
    payload: object = None
    attempt: int = 0


class GroupIndex(Generic[Name]):
    """The groups of each name. Whoever owns the records keeps it: no call here costs a pass over all groups."""

    def __init__(self) -> None:
        # Invariant none_empty: a name without groups has no entry, or the names of a long run would pile up.
        self._groups: dict[Name, set[GroupId]] = {}

    def add(self, name: Name, group: GroupId) -> None:
        """Put a group under a name."""
        self._groups.setdefault(name, set()).add(group)

    def discard(self, name: Name, group: GroupId) -> None:
        """Take a group from under a name, where it must be."""
        groups = self._groups[name]
        groups.remove(group)
        if not groups:
            del self._groups[name]

    def of(self, name: Name) -> tuple[GroupId, ...]:
        """The groups under a name, oldest first; none for a name that nothing has."""
        return tuple(sorted(self._groups.get(name, ())))

    def names(self) -> tuple[Name, ...]:
        """The names that have groups. Costs a pass over them."""
        return tuple(self._groups)


class PendingGroups:
    """Entries by id, oldest first, with the indexes that follow them."""

    def __init__(self, entries: Iterable[LedgerEntry] = ()) -> None:
        # Invariant indexes_agree: each index holds what a pass over `by_id` would find.
        self.by_id: dict[GroupId, LedgerEntry] = {}
        self._of_key: dict[Key, GroupId] = {}
        self._of_admission: GroupIndex[int] = GroupIndex()
        self._of_step: GroupIndex[int | None] = GroupIndex()
        self._counts: dict[Phase, int] = {}
        for entry in entries:
            self.put(entry)

    def put(self, entry: LedgerEntry) -> None:
        """Add a group, or put another entry in the place of the one that has its id."""
        before = self.by_id.get(entry.group)
        if before is not None:
            self._forget(before)
        self.by_id[entry.group] = entry
        self._of_key[entry.key] = entry.group
        self._of_admission.add(entry.admission, entry.group)
        self._of_step.add(entry.step, entry.group)
        self._counts[entry.phase] = self._counts.get(entry.phase, 0) + 1

    def remove(self, group: GroupId) -> bool:
        """Forget a group; False when there is none of that id."""
        entry = self.by_id.pop(group, None)
        if entry is None:
            return False
        self._forget(entry)
        return True

    def with_key(self, key: Key) -> GroupId | None:
        """The group that is made of this prompt."""
        return self._of_key.get(key)

    def of_step(self, step: int | None) -> tuple[GroupId, ...]:
        """The groups stamped with `step`, oldest first; for None those without a stamp."""
        return self._of_step.of(step)

    def of_admission(self, number: int) -> tuple[LedgerEntry, ...]:
        """The groups of one admission, oldest first."""
        return tuple(self.by_id[group] for group in self._of_admission.of(number))

    def admissions(self) -> list[int]:
        """The numbers of the admissions that have groups, lowest first. Costs a pass over them."""
        return sorted(self._of_admission.names())

    @property
    def counts(self) -> Mapping[Phase, int]:
        """How many groups are in each phase; a phase without any may be missing."""
        return MappingProxyType(self._counts)

    def _forget(self, entry: LedgerEntry) -> None:
        """Take an entry out of every index but `by_id`, where its place is kept for the one that comes instead."""
        del self._of_key[entry.key]
        self._of_admission.discard(entry.admission, entry.group)
        self._of_step.discard(entry.step, entry.group)
        self._counts[entry.phase] -= 1
