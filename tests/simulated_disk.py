"""A disk in memory that knows what a power cut may leave of it: the file layer under a writer, and every crash state.

What POSIX promises is taken by the letter. Bytes of a file survive once the file was fsynced; before that all of them,
none, a part, or zeros in their place may be found. A change of a directory (a name made, removed, renamed, replaced)
survives once that directory was fsynced; before that any subset of its changes may be found, whatever their order was.
One rename is one change: both names or neither. Syncing a file says nothing about its name, syncing a directory nothing
about what is in the files.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, product
from typing import TypeAlias

from impl.store.files import Buffer, FileStat, Handle
from impl.store.names import is_leftover

#: A file is its bytes; a directory is its names, in order, each with what it stands for.
Tree: TypeAlias = "bytes | tuple[tuple[str, Tree], ...]"


@dataclass(eq=False)
class File:
    """`durable` is what the last fsync has saved."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""

    def after_crash(self, coarse: bool) -> list[bytes]:
        """What may be found: all, nothing new, half of the new bytes, or zeros of the full length."""
        full, kept = bytes(self.content), self.durable
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


def _by_name(entry: tuple[str, File | Directory]) -> str:
    return entry[0]


class SimulatedDisk:
    """`Files` over such a disk. `skip` is the number of one fsync, from 0, that reports success and does nothing.

    `after_change` is called after every call that changed something, on the thread of the caller.
    """

    def __init__(self, tree: Tree = (), skip: int | None = None) -> None:
        self.root = _planted(tree)
        assert isinstance(self.root, Directory)
        self.after_change: Callable[[], None] = lambda: None
        #: What each fsync was of, in order: the path of a file or directory.
        self.synced: list[str] = []
        self._skip = skip
        self._handles: dict[Handle, tuple[File, str, int]] = {}
        self._locked: dict[str, Handle] = {}
        self._numbers = count(3)

    def _directory(self, path: str) -> Directory:
        found = self._find(path)
        if not isinstance(found, Directory):
            raise _error(errno.ENOTDIR, path)
        return found

    def _find(self, path: str) -> File | Directory:
        node: File | Directory = self.root
        for part in filter(None, path.split("/")):
            if not isinstance(node, Directory):
                raise _error(errno.ENOTDIR, path)
            if part not in node.entries:
                raise _error(errno.ENOENT, path)
            node = node.entries[part]
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rpartition("/")
        return self._directory(above), name

    def _make(self, path: str, node: File | Directory) -> None:
        parent, name = self._parent(path)
        if name in parent.entries:
            raise _error(errno.EEXIST, path)
        parent.change({name: node})

    def _open(self, file: File, path: str) -> Handle:
        handle = Handle(next(self._numbers))
        self._handles[handle] = (file, path, 0)
        return handle

    def _skipped(self, path: str) -> bool:
        self.synced.append(path)
        return len(self.synced) - 1 == self._skip

    def open_new(self, path: str) -> Handle:
        file = File()
        self._make(path, file)
        self.after_change()
        return self._open(file, path)

    def open_read(self, path: str) -> Handle:
        found = self._find(path)
        if isinstance(found, Directory):
            raise _error(errno.EINVAL, path)
        return self._open(found, path)

    def write(self, handle: Handle, data: Buffer) -> None:
        self._handles[handle][0].content.extend(data)
        self.after_change()

    def read_into(self, handle: Handle, room: memoryview) -> int:
        file, path, place = self._handles[handle]
        data = bytes(file.content[place : place + len(room)])
        room[: len(data)] = data
        self._handles[handle] = (file, path, place + len(data))
        return len(data)

    def fsync(self, handle: Handle) -> None:
        file, path, _ = self._handles[handle]
        if not self._skipped(path):
            file.durable = bytes(file.content)
        self.after_change()

    def close(self, handle: Handle) -> None:
        del self._handles[handle]

    def mkdir(self, path: str) -> None:
        self._make(path, Directory())
        self.after_change()

    def fsync_dir(self, path: str) -> None:
        directory = self._directory(path)
        if not self._skipped(path):
            directory.sync()
        self.after_change()

    def rename(self, source: str, target: str) -> None:
        parent, name = self._parent(source)
        other, new = self._parent(target)
        assert parent is other, "the store renames within one directory only"
        if name not in parent.entries:
            raise _error(errno.ENOENT, source)
        parent.change({name: None, new: parent.entries[name]})
        self.after_change()

    replace = rename

    def unlink(self, path: str) -> None:
        parent, name = self._parent(path)
        assert isinstance(self._find(path), File)
        parent.change({name: None})
        self.after_change()

    def rmdir(self, path: str) -> None:
        if self._directory(path).entries:
            raise _error(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        parent.change({name: None})
        self.after_change()

    def listdir(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def stat(self, path: str) -> FileStat:
        found = self._find(path)
        return FileStat("directory", 0) if isinstance(found, Directory) else FileStat("file", len(found.content))

    def lock(self, path: str) -> Handle:
        if path in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        try:
            file = self._find(path)
            assert isinstance(file, File)
            handle = self._open(file, path)
        except FileNotFoundError:
            handle = self.open_new(path)
        self._locked[path] = handle
        return handle

    def unlock(self, handle: Handle) -> None:
        del self._locked[self._handles[handle][1]]
        self.close(handle)


def _planted(tree: Tree) -> File | Directory:
    """A disk as it is found after a crash: all of it is durable."""
    if isinstance(tree, bytes):
        return File(bytearray(tree), tree)
    entries = {name: _planted(below) for name, below in tree}
    return Directory(entries, dict(entries))


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
