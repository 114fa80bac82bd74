"""Which prompts are alive in a run, each at the place that the machine's vectors have for it.

Places are in the order in which the loader handed the prompts out. A prompt that is trained or dropped keeps its place
until enough have gone; then those that live move up, which no rule can see: a prompt without an owner is neither first
nor last nor counted anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spec.language.expression import Vector

from .open_state import OpenState

Key = tuple[int, int]

#: Prompts that have ended and still have a place, before the others move up.
MOST_ENDED = 16


#: Rows of the largest dataset of which it is kept what was handed out: at most 36 MB, in an epoch that is all seen.
MOST_ROWS = 1 << 28
_ROWS_TOGETHER = 4096


class HandedOut:
    """The rows of the loader's epoch that were handed out, a bit each; of an earlier epoch nothing is kept.

    It takes room for the rows that it is told of, not for those that a header says there are.
    """

    def __init__(self, rows: int) -> None:
        self._kept = rows <= MOST_ROWS
        self._epoch = -1
        self._bits: dict[int, int] = {}

    def again(self, key: Sequence[int]) -> bool:
        """Note a key of the newest epoch; whether it was noted before."""
        epoch, row = key
        if not self._kept or epoch < self._epoch:
            return False
        if epoch > self._epoch:
            self._epoch, self._bits = epoch, {}
        place, bit = row // _ROWS_TOGETHER, 1 << row % _ROWS_TOGETHER
        before = self._bits.get(place, 0)
        self._bits[place] = before | bit
        return before & bit != 0


class LivePrompts:
    """Places by group and by key. `batch_of` is the machine's constant: the batch of each place."""

    def __init__(self, state: OpenState) -> None:
        self._state = state
        self.keys: list[Key] = []
        self.groups: list[int | None] = []
        self._place_of_key: dict[Key, int] = {}
        self._place_of_group: dict[int, int] = {}
        # The number of the next attempt that fails, of groups that began in this process or failed in it.
        self.attempts: dict[int, int] = {}
        self._ended = 0
        state.__dict__["batch_of"] = Vector()

    def add(self, keys: Iterable[Sequence[int]], groups: Iterable[int | None], batch: int) -> range:
        """Give new prompts the next places; the caller has seen that none of the keys is alive."""
        plain = [(key[0], key[1]) for key in keys]
        places = self._state.grow("prompts", len(plain))
        for place, key, group in zip(places, plain, groups, strict=True):
            self.keys.append(key)
            self.groups.append(None)
            self._place_of_key[key] = place
            self.name(place, group)
        self._state.__dict__["batch_of"] = Vector((*self._state.batch_of, *[batch] * len(plain)))
        return places

    def begin(self, groups: Iterable[int | None]) -> None:
        """These groups are new: nobody has tried to generate them."""
        self.attempts.update((group, 0) for group in groups if group is not None)

    def name(self, place: int, group: int | None) -> None:
        """Give a prompt its group; a spare has none until it takes a place."""
        self.groups[place] = group
        if group is not None:
            self._place_of_group[group] = place

    def of_group(self, group: int) -> int | None:
        """The place of a group, None if it is not alive."""
        return self._place_of_group.get(group)

    def of_key(self, key: Sequence[int]) -> int | None:
        """The place of a key, None if it is not alive."""
        return self._place_of_key.get((key[0], key[1]))

    def said(self, place: int) -> str:
        """A prompt for people: its group, or its key while it has none."""
        group = self.groups[place]
        return f"the prompt {list(self.keys[place])}" if group is None else f"group {group}"

    def end(self, places: Iterable[int]) -> None:
        """Forget prompts that are nobody's any more; now and then the others move up."""
        for place in places:
            group = self.groups[place]
            del self._place_of_key[self.keys[place]]
            if group is not None:
                del self._place_of_group[group]
                self.attempts.pop(group, None)
                self.groups[place] = None
            self._ended += 1
        if self._ended >= MOST_ENDED and 3 * self._ended >= len(self.keys):
            self._move_up()

    def _move_up(self) -> None:
        self._arrange([p for p, key in enumerate(self.keys) if self._place_of_key.get(key) == p])
        self._ended = 0

    def swap(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Let prompts change places which the machine tells apart by these alone."""
        order = list(range(len(self.keys)))
        for one, other in pairs:
            order[one], order[other] = order[other], order[one]
        # An ended prompt has a place and no name; it must keep it.
        ended = self._ended
        self._arrange(order)
        self._ended = ended

    def _arrange(self, order: list[int]) -> None:
        alive = {self._place_of_key[key] for key in self._place_of_key}
        self._state.keep("prompts", order)
        self._state.__dict__["batch_of"] = Vector([self._state.batch_of[p] for p in order])
        self.keys = [self.keys[p] for p in order]
        self.groups = [self.groups[p] for p in order]
        self._place_of_key = {self.keys[new]: new for new, old in enumerate(order) if old in alive}
        self._place_of_group = {group: place for place, group in enumerate(self.groups) if group is not None}

    @property
    def alive(self) -> int:
        """How many there are."""
        return len(self._place_of_key)
