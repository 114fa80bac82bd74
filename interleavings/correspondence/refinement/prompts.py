"""The machine's number of each prompt: the place in which the loader handed it out, until two like ones are swapped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy

Key = tuple[int, int]


class Prompts:
    """The machine numbers prompts in the order in which the loader hands them out; the implementation has groups."""

    def __init__(self) -> None:
        self._key_of_group: dict[int, Key] = {}
        self._number: dict[Key, int] = {}
        self._order: list[Key] = []

    def learn(self, groups: Iterable[int], keys: Iterable[tuple[int, int]]) -> None:
        """Number the prompts of a batch that was just handed out; without groups, of one that has none."""
        plain = [(key[0], key[1]) for key in keys]
        for key in plain:
            if key not in self._number:
                self._number[key] = len(self._order)
                self._order.append(key)
        for group, key in zip(groups, plain, strict=False):
            self._key_of_group[group] = key

    def of_group(self, group: int) -> int:
        """The machine's number of a group's prompt."""
        return self._number[self._key_of_group[group]]

    def of_key(self, key: Sequence[int]) -> int:
        """The machine's number of a key."""
        return self._number[key[0], key[1]]

    def of_owner(self, owner: int | Key) -> int:
        """The machine's number of a group's prompt, or of a key."""
        return self.of_key(owner) if isinstance(owner, tuple) else self.of_group(owner)

    def groups_named(self) -> int:
        """How many groups were named so far; their numbers begin at 0 and none is given twice."""
        return len(self._key_of_group)

    def groups_of(self, key: Key) -> set[int]:
        """The groups that a key has had."""
        return {group for group, known in self._key_of_group.items() if known == key}

    def known(self) -> Mapping[Key, int]:
        """Every key handed out so far with its number."""
        return self._number

    def handed_out(self, count: int) -> Sequence[Key]:
        """The first `count` keys in the loader's order, whoever has their numbers."""
        return self._order[:count]

    def swap(self, one: int, other: int) -> None:
        """Let two prompts change numbers; the caller has seen that the machine tells them apart by these alone."""
        keys = {number: key for key, number in self._number.items() if number in (one, other)}
        self._number[keys[one]], self._number[keys[other]] = other, one

    def copy(self) -> Prompts:
        """The numbers as they are now: an image that was read now is written later."""
        twin = copy(self)
        twin._key_of_group, twin._number, twin._order = dict(self._key_of_group), dict(self._number), list(self._order)
        return twin
