"""Who owns each prompt that a checkpoint has handed out: exactly one owner, or it is lost or doubled.

Pure: spans of rows in, a balance out. It works on spans and not on single keys, since the accounts of a long run are a
few intervals that stand for millions of prompts. In the epoch under way rows are looked at one by one, and only as many
as the spans can answer for: the rows handed out are a shuffled part of the epoch, so whoever owns just these has about
as many spans as the smaller of the two, the rows handed out or the others, has rows. Owners in fewer spans own other
rows than were handed out, however long the dataset is that a file claims; some of them are then named and counted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from cleancut_leaf.words import counted

from ..keys import Key
from ..loaders.permutation import EpochOrder

#: Who may own a prompt on disk, in the order in which they are shown.
OWNERS = ("trained", "dropped", "buffered", "pending", "spare")
#: So many keys are named in full; the count is always of all.
EXAMPLES = 20
#: Rows of the epoch under way that are looked at in any case, and for each span.
_LOOKS = 1 << 16
_LOOKS_A_SPAN = 4


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Rows `first` to `last` of an epoch, both included, and whose they are."""

    epoch: int
    first: int
    last: int
    owner: str


@dataclass(frozen=True, slots=True)
class HandedOut:
    """Which keys a `PromptLoader` has handed out: all of the epochs before `epoch`, and `position` places of that."""

    dataset_length: int
    seed: int
    epoch: int
    position: int

    @property
    def count(self) -> int:
        """How many prompts that are."""
        return self.epoch * self.dataset_length + self.position

    def includes(self, epoch: int, row: int) -> bool:
        """Whether a prompt is among them."""
        if epoch != self.epoch or self.position == self.dataset_length:
            return epoch <= self.epoch
        return EpochOrder(self.dataset_length, self.seed, epoch).place_of(row) < self.position


@dataclass(slots=True)
class Keys:
    """A number of keys, the first of them by name, each with a word about it. `at_least`: there may be more."""

    count: int = 0
    at_least: bool = False
    examples: list[tuple[Key, str]] = field(default_factory=list)

    def add(self, epoch: int, first: int, last: int, about: str) -> None:
        """Count the rows `first` to `last`; nothing if there are none."""
        for row in range(first, min(last + 1, first + EXAMPLES - len(self.examples))):
            self.examples.append((Key(epoch, row), about))
        self.count += max(0, last - first + 1)

    def add_epochs(self, first: int, end: int, length: int) -> None:
        """Count all rows of the epochs from `first` to before `end`; nothing if there are none."""
        for epoch in range(first, min(end, first + EXAMPLES)):
            self.add(epoch, 0, length - 1, "")
        self.count += max(0, end - first - EXAMPLES) * length

    @property
    def number(self) -> str:
        """The count in words."""
        return f"{'at least ' if self.at_least else ''}{counted(self.count, 'prompt')}"

    def __str__(self) -> str:
        named = ", ".join(f"{tuple(key)}{f' ({about})' if about else ''}" for key, about in self.examples[:5])
        more = f" and {self.count - 5} more" if self.count > 5 else ""
        return f"{named}{more}"


@dataclass(slots=True)
class Ownership:
    """The balance of one checkpoint, in prompts.

    `handed_out` is None where the loader's state does not say which prompts it gave out; `lost` and `ahead` mean
    nothing then. `ahead`: somebody owns it, and the loader will hand it out once more.
    """

    handed_out: int | None
    owned: Counter[str]
    lost: Keys
    doubled: Keys
    ahead: Keys

    @property
    def balanced(self) -> bool:
        """Whether every prompt handed out has exactly one owner, as far as that could be told."""
        return not (self.lost.count or self.doubled.count or self.ahead.count)


def balance(spans: Iterable[Span], handed_out: HandedOut | None) -> Ownership:
    """Compare the owners with what was handed out."""
    found = Ownership(handed_out.count if handed_out else None, Counter(), Keys(), Keys(), Keys())
    by_epoch: dict[int, list[Span]] = {}
    for span in spans:
        found.owned[span.owner] += span.last - span.first + 1
        by_epoch.setdefault(span.epoch, []).append(span)
    if handed_out is not None:
        by_epoch.setdefault(handed_out.epoch, [])
    reached = 0
    for epoch, owners in sorted(by_epoch.items()):
        if handed_out is not None:
            # Epochs of which nobody owns anything, however many: an edited number must not take for ever to count.
            found.lost.add_epochs(reached, min(epoch, handed_out.epoch), handed_out.dataset_length)
            reached = epoch + 1
        owners.sort()
        for first, last, about in _overlaps(owners):
            found.doubled.add(epoch, first, last, about)
        if handed_out is not None:
            _compare(found, epoch, owners, handed_out)
    return found


def _overlaps(owners: list[Span]) -> Iterator[tuple[int, int, str]]:
    """Rows with more than one owner, each once. `owners` are sorted."""
    widest: Span | None = None
    reported = -1
    for span in owners:
        if widest is not None and span.first <= widest.last:
            first, last = max(span.first, reported + 1), min(span.last, widest.last)
            if first <= last:
                yield first, last, f"{widest.owner} and {span.owner}"
                reported = last
        if widest is None or span.last > widest.last:
            widest = span


def _gaps(owners: list[Span], length: int) -> Iterator[tuple[int, int]]:
    """Rows below `length` that nobody owns."""
    reached = -1
    for span in owners:
        if span.first > reached + 1:
            yield reached + 1, min(span.first, length) - 1
        reached = max(reached, span.last)
    if reached + 1 < length:
        yield reached + 1, length - 1


def _compare(found: Ownership, epoch: int, owners: list[Span], handed_out: HandedOut) -> None:
    """Count what nobody owns of the rows handed out, and what somebody owns of the others."""
    length = handed_out.dataset_length
    for span in owners:
        found.ahead.add(epoch, max(span.first, length), span.last, span.owner)
    given = handed_out.position if epoch == handed_out.epoch else length if epoch < handed_out.epoch else 0
    if given == length:
        for first, last in _gaps(owners, length):
            found.lost.add(epoch, first, last, "")
    elif given == 0:
        for span in owners:
            found.ahead.add(epoch, span.first, min(span.last, length - 1), span.owner)
    else:
        _compare_under_way(found, owners, handed_out)


def _compare_under_way(found: Ownership, owners: list[Span], handed_out: HandedOut) -> None:
    """As `_compare`, of the epoch of which the first places of a shuffled order were handed out."""
    length, position, epoch = handed_out.dataset_length, handed_out.position, handed_out.epoch
    order = EpochOrder(length, handed_out.seed, epoch)
    pieces = list(_pieces(owners, length))
    owned = sum(last - first + 1 for first, last, _ in pieces)
    starts = [first for first, _, _ in pieces]
    limit = _LOOKS + _LOOKS_A_SPAN * len(owners)

    def owner_of(row: int) -> str | None:
        at = bisect_right(starts, row) - 1
        return pieces[at][2] if at >= 0 and row <= pieces[at][1] else None

    free = length - owned
    by_row = free <= max(limit, position)
    if by_row:
        lost = (row for row in islice(_rows(_gaps(owners, length)), limit) if order.place_of(row) < position)
    else:
        lost = (row for row in map(order.__getitem__, range(min(position, limit))) if owner_of(row) is None)
    known = 0
    for row in lost:
        found.lost.add(epoch, row, row, "")
        known += 1
    if (free if by_row else position) > limit:
        # As many as are missing in all, if that is more than were found.
        found.lost.at_least = found.ahead.at_least = owned > 0
        found.lost.count += max(0, position - owned - known)
        known = max(known, position - owned)
    # Of the rows owned, those that were handed out are all but the lost ones.
    strangers = owned - (position - known)
    if not strangers:
        return
    firsts, lasts = sorted(span.first for span in owners), sorted(span.last for span in owners)
    by_row = owned <= max(limit, length - position)
    rows: Iterator[int]
    if by_row:
        rows = (row for row in islice(_rows(pieces), limit) if order.place_of(row) >= position)
    else:
        rows = map(order.__getitem__, range(position, min(length, position + limit)))
    for row in rows:
        if (owner := owner_of(row)) is not None:
            found.ahead.add(epoch, row, row, owner)
            # Each owner counts.
            found.ahead.count += bisect_right(firsts, row) - bisect_left(lasts, row) - 1
            strangers -= 1
    if (owned if by_row else length - position) > limit:
        found.ahead.at_least = True
        found.ahead.count += max(0, strangers)


def _pieces(owners: list[Span], length: int) -> Iterator[tuple[int, int, str]]:
    """The rows below `length` that somebody owns, each once, with one of its owners. `owners` are sorted."""
    reached = -1
    for span in owners:
        first, last = max(span.first, reached + 1), min(span.last, length - 1)
        if first <= last:
            yield first, last, span.owner
            reached = last


def _rows(ranges: Iterable[tuple[int, int] | tuple[int, int, str]]) -> Iterator[int]:
    for each in ranges:
        yield from range(each[0], each[1] + 1)
