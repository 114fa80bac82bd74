"""Tasks declared identical: their labels say nothing, so states that differ only in who is who are one state.

A label belongs to a group when it is a declared one, one of a descendant (`writer-1/parse-1`), or a declared one with
the number that asyncio's second task of that name gets (`writer#2`). In a folded state it is written as the group and
a rank: the order in which the reading first meets the members.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from ..errors import ExplorerUsageError

Declared: TypeAlias = "Sequence[str] | Sequence[Sequence[str]]"
"""The labels of one group, or several groups of labels."""

_NUMBERED = re.compile(r"(.*-)(\d+)")


class Identical:
    """The declared groups, and where a label belongs."""

    __slots__ = ("_places", "groups", "seen")

    def __init__(self, groups: tuple[tuple[str, ...], ...]) -> None:
        self.groups = groups
        self.seen: set[str] = set()  # members that some run started
        self._places: dict[str, tuple[int, str, str] | None] = {
            member: (number, member, "") for number, group in enumerate(groups) for member in group
        }

    def __bool__(self) -> bool:
        return bool(self.groups)

    def place(self, label: str) -> tuple[int, str, str] | None:
        """Return the group's number, the member that stands in it, and the rest of the label; None for any other."""
        if label not in self._places:
            head, separator, rest = label.rpartition("/")
            if separator:
                above = self.place(head)
                self._places[label] = None if above is None else (above[0], above[1], f"{above[2]}/{rest}")
            else:
                base = label.rpartition("#")[0]
                known = self._places.get(base) if base else None
                # The second task of a name is another member: `writer` and `writer#2` are told apart by their ranks.
                self._places[label] = None if known is None else (known[0], label, "")
        return self._places[label]

    def hashed(self, label: str) -> str:
        """Return the text a task's hash is made of: alike in a group, or sets of tasks would tell members apart."""
        place = self.place(label)
        return label if place is None else f"{self.groups[place[0]][0]}~{place[2]}"


class Naming:
    """The names of one folded state: each member is called by its group and its rank."""

    __slots__ = ("identical", "ranks")

    def __init__(self, identical: Identical, ranks: dict[str, int] | None = None) -> None:
        self.identical = identical
        self.ranks: dict[str, int] = {} if ranks is None else ranks

    def __call__(self, label: str) -> str:
        """Return the name that stands for a label; a member that was not met before gets the next rank."""
        place = self.identical.place(label)
        if place is None:
            return label
        group, member, rest = place
        rank = self.ranks.setdefault(member, len(self.ranks))
        return f"{self.identical.groups[group][0]}~{rank}{rest}"

    def copy(self) -> Naming:
        """Return a naming that goes on from here by itself."""
        return Naming(self.identical, dict(self.ranks))


def identical_from(declared: Declared) -> Identical:
    """Read a declaration; raise `ExplorerUsageError` where it cannot be meant."""
    wrong = ExplorerUsageError(f"identical={declared!r}: it is a list of task names, or a list of such lists")
    if not isinstance(declared, (list, tuple)):
        raise wrong
    groups = [declared] if all(isinstance(part, str) for part in declared) else declared
    found: list[tuple[str, ...]] = []
    for group in groups:
        if not isinstance(group, (list, tuple)) or not all(isinstance(member, str) and member for member in group):
            raise wrong
        if len(set(group)) != len(group) or len(group) < 2:
            raise ExplorerUsageError(f"identical={group!r}: a group names two tasks or more, each of them once")
        found.append(tuple(group))
    members = [member for group in found for member in group]
    for member in members:
        if members.count(member) > 1:
            raise ExplorerUsageError(f"identical=: {member!r} stands in two groups")
        if any(member.startswith(other + "/") for other in members):
            raise ExplorerUsageError(f"identical=: {member!r} is started by another task that is declared identical")
    for group in found:
        _refuse_gaps(group)
    return Identical(tuple(found))


def _refuse_gaps(group: tuple[str, ...]) -> None:
    """`fetch-1` and `fetch-3` without `fetch-2`: the label of a new task would depend on who has ended."""
    numbers: dict[str, list[int]] = {}
    for member in group:
        numbered = _NUMBERED.fullmatch(member)
        if numbered is not None:
            numbers.setdefault(numbered[1], []).append(int(numbered[2]))
    for base, used in numbers.items():
        missing = sorted(set(range(min(used), max(used))) - set(used))
        if missing:
            raise ExplorerUsageError(
                f"identical={list(group)!r} leaves out {base}{missing[0]}: a new task takes the first free number, so "
                "its name would tell which of them has ended; name all of them"
            )
