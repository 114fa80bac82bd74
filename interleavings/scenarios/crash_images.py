"""What a power cut may leave of a disk: files and directories that know which of their changes are durable.

What POSIX promises is taken by the letter. Bytes of a file survive once the file was fsynced; before that all of them,
none, a part, or zeros in their place may be found. A change of a directory (a name made, removed, renamed, replaced)
survives once that directory was fsynced; before that any subset of its changes may be found, whatever their order was.
One rename is one change: both names or neither. Syncing a file says nothing about its name, syncing a directory nothing
about what is in the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import TypeAlias

from impl.store.names import is_leftover

#: A file is its bytes; a directory is its names, in order, each with what it stands for.
Tree: TypeAlias = "bytes | tuple[tuple[str, Tree], ...]"


@dataclass(eq=False)
class File:
    """`durable` is what the last fsync has saved."""

    content: bytes = b""
    durable: bytes = b""

    def after_crash(self, coarse: bool) -> list[bytes]:
        """What may be found: all, nothing new, half of the new bytes, or zeros of the full length."""
        full, kept = self.content, self.durable
        half = full[: len(kept) + (len(full) - len(kept)) // 2]
        found = [kept, full] if coarse else [kept, full, half, kept + bytes(len(full) - len(kept))]
        return list(dict.fromkeys(found))


@dataclass(eq=False)
class Directory:
    """`pending` are the changes since the last fsync: each maps names to what they stand for, None if it is gone."""

    entries: dict[str, File | Directory] = field(default_factory=dict)
    durable: dict[str, File | Directory] = field(default_factory=dict)
    pending: list[dict[str, File | Directory | None]] = field(default_factory=list)

    def change(self, change: dict[str, File | Directory | None]) -> None:
        """Do it now, and let its fate at a crash be open."""
        self.pending.append(change)
        _apply(self.entries, change)

    def sync(self) -> None:
        """All changes so far survive."""
        self.durable, self.pending = dict(self.entries), []

    def possible_entries(self, coarse: bool) -> Iterator[dict[str, File | Directory]]:
        """The names after each subset of the pending changes; with `coarse` after none and after all."""
        if coarse:
            choices: Iterator[tuple[bool, ...]] = iter([(False,) * len(self.pending), (True,) * len(self.pending)])
        else:
            choices = product((False, True), repeat=len(self.pending))
        for chosen in choices:
            found = dict(self.durable)
            for taken, change in zip(chosen, self.pending, strict=True):
                if taken:
                    _apply(found, change)
            yield found


def _apply(entries: dict[str, File | Directory], change: dict[str, File | Directory | None]) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def crash_trees(node: File | Directory, *, every: bool = False, coarse: bool = False) -> Iterator[Tree]:
    """Every tree that a crash now may leave, each once.

    Without `every`, what is inside a leftover is there in two extremes only, none of its changes and all of them:
    nothing is ever read from it, it is only removed.
    """
    if isinstance(node, File):
        yield from node.after_crash(coarse)
        return
    for entries in {tuple(sorted(found.items(), key=_by_name)): None for found in node.possible_entries(coarse)}:
        below = [
            list(crash_trees(child, every=every, coarse=coarse or (is_leftover(name) and not every)))
            for name, child in entries
        ]
        for chosen in product(*below):
            yield tuple((name, tree) for (name, _), tree in zip(entries, chosen, strict=True))


def planted(tree: Tree) -> File | Directory:
    """What is found after a crash: all of it is durable."""
    if isinstance(tree, bytes):
        return File(tree, tree)
    entries = {name: planted(below) for name, below in tree}
    return Directory(entries, dict(entries))


def _by_name(entry: tuple[str, File | Directory]) -> str:
    return entry[0]
