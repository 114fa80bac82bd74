"""Who owns each prompt that a checkpoint has handed out: exactly one owner, or it is lost or doubled.

Pure: spans of rows in, a balance out. It works on spans and not on single keys, since the accounts of a long run are a
few intervals that stand for millions of prompts; only the epoch under way needs one byte a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..keys import Key
from ..permutation import EpochOrder

#: Who may own a prompt on disk, in the order in which they are shown.
OWNERS = ("trained", "dropped", "buffered", "pending", "spare")
#: So many keys are named in full; the count is always of all.
EXAMPLES = 20


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

    def rows_of_epoch(self) -> bytearray:
        """One byte for each row of the epoch under way: 1 if it was handed out."""
        rows = bytearray(self.dataset_length)
        order = EpochOrder(self.dataset_length, self.seed, self.epoch)
        for place in range(self.position):
            rows[order[place]] = 1
        return rows


@dataclass(slots=True)
class Keys:
    """A number of keys, the first of them by name, each with a word about it."""

    count: int = 0
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

    def __str__(self) -> str:
        named = ", ".join(f"{tuple(key)}{f' ({about})' if about else ''}" for key, about in self.examples[:5])
        return f"{named}{f' and {self.count - 5} more' if self.count > 5 else ''}"


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
    if epoch < handed_out.epoch:
        for first, last in _gaps(owners, length):
            found.lost.add(epoch, first, last, "")
        for span in owners:
            found.ahead.add(epoch, max(span.first, length), span.last, span.owner)
        return
    rows = handed_out.rows_of_epoch() if epoch == handed_out.epoch else bytearray(length)
    for first, last in _gaps(owners, length):
        for row in range(first, last + 1):
            if rows[row]:
                found.lost.add(epoch, row, row, "")
    for span in owners:
        for row in range(span.first, min(span.last + 1, length)):
            if not rows[row]:
                found.ahead.add(epoch, row, row, span.owner)
        found.ahead.add(epoch, max(span.first, length), span.last, span.owner)
