"""Groups by something that several of them share: an admission, a step."""

from __future__ import annotations

from typing import Generic, TypeVar

from .keys import GroupId

Name = TypeVar("Name")


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
