"""A disk in memory under the real store: every call of its `Files` protocol, no operating system.

It is for schedules, where each explored state replays the run from its start and a real fsync would take most of the
time. It knows what was synced, and so what a crash may leave (`crash_images.py`).
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from itertools import count
from typing import Any

from impl.store.files import FileStat, Handle

from .crash_images import Directory, File, Tree, planted

Call = tuple[str, tuple[Any, ...]]
"""One call that changes something: the name of the method, and its arguments, a handle by its path."""


class FakeDisk:
    """Directories and files by absolute path; locks that end with the object. Directories given are there, durable.

    `after_call` is called after every call that has changed something, with that call.
    """

    def __init__(self, *directories: str) -> None:
        self.root = Directory()
        self.after_call: Callable[[Call], None] | None = None
        self._handles: dict[Handle, tuple[File, str, int]] = {}
        self._locked: dict[str, Handle] = {}
        self._numbers = count(1)
        for path in directories:
            parent, name = self._place(path)
            parent.entries[name] = parent.durable[name] = Directory()

    @classmethod
    def found(cls, tree: Tree) -> FakeDisk:
        """The disk that the next process finds after a crash."""
        disk = cls()
        root = planted(tree)
        assert isinstance(root, Directory)
        disk.root = root
        return disk

    # -- the calls of a store

    def open_new(self, path: str) -> Handle:
        """Create an empty file."""
        file = File()
        self._make(path, file)
        handle = self._open(file, path)
        self._called("open_new", path)
        return handle

    def open_read(self, path: str) -> Handle:
        """Open a file to read from its start."""
        found = self._find(path)
        if isinstance(found, Directory):
            raise _error(errno.EINVAL, path)
        return self._open(found, path)

    def write(self, handle: Handle, data: bytes | bytearray | memoryview) -> None:
        """Append."""
        file, path, _ = self._handles[handle]
        written = bytes(data)
        file.content += written
        self._called("write", path, written)

    def read_into(self, handle: Handle, room: memoryview) -> int:
        """Read on."""
        file, path, place = self._handles[handle]
        piece = file.content[place : place + len(room)]
        room[: len(piece)] = piece
        self._handles[handle] = (file, path, place + len(piece))
        return len(piece)

    def fsync(self, handle: Handle) -> None:
        """The bytes of a file are durable."""
        file, path, _ = self._handles[handle]
        file.durable = file.content
        self._called("fsync", path)

    def close(self, handle: Handle) -> None:
        """Close."""
        del self._handles[handle]

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        self._make(path, Directory())
        self._called("mkdir", path)

    def fsync_dir(self, path: str) -> None:
        """The names of a directory are durable."""
        self._directory(path).sync()
        self._called("fsync_dir", path)

    def rename(self, source: str, target: str) -> None:
        """Move a file or a whole directory to a free name."""
        parent, name = self._place(target)
        if name in parent.entries:
            raise _error(errno.EEXIST, target)
        self._move(source, target)
        self._called("rename", source, target)

    def replace(self, source: str, target: str) -> None:
        """Move a file over another."""
        self._move(source, target)
        self._called("replace", source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        if isinstance(self._find(path), Directory):
            raise _error(errno.EISDIR, path)
        self._forget(path)
        self._called("unlink", path)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        if self._directory(path).entries:
            raise _error(errno.ENOTEMPTY, path)
        self._forget(path)
        self._called("rmdir", path)

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(self._directory(path).entries)

    def stat(self, path: str) -> FileStat:
        """What a name is."""
        found = self._find(path)
        return FileStat("directory", 0) if isinstance(found, Directory) else FileStat("file", len(found.content))

    def lock(self, path: str) -> Handle:
        """Lock a file, which is made when it is missing."""
        if path in self._locked:
            raise _error(errno.EWOULDBLOCK, path)
        try:
            handle = self.open_read(path)
        except FileNotFoundError:
            handle = self.open_new(path)
        self._locked[path] = handle
        return handle

    def unlock(self, handle: Handle) -> None:
        """Give the lock back."""
        self._locked.pop(self._handles[handle][1], None)
        self.close(handle)

    # -- for whoever looks on

    def documents(self, directory: str) -> dict[str, Any]:
        """The JSON files of a published checkpoint, by name."""
        entries = self._directory(directory).entries
        return {
            name: json.loads(file.content)
            for name, file in sorted(entries.items(), key=lambda entry: entry[0])
            if name.endswith(".json") and isinstance(file, File)
        }

    # -- inside

    def _called(self, name: str, *arguments: Any) -> None:
        if self.after_call is not None:
            self.after_call((name, arguments))

    def _find(self, path: str) -> File | Directory:
        node: File | Directory = self.root
        for part in filter(None, path.split("/")):
            if not isinstance(node, Directory):
                raise _error(errno.ENOTDIR, path)
            if part not in node.entries:
                raise _error(errno.ENOENT, path)
            node = node.entries[part]
        return node

    def _directory(self, path: str) -> Directory:
        found = self._find(path)
        if not isinstance(found, Directory):
            raise _error(errno.ENOTDIR, path)
        return found

    def _place(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rpartition("/")
        return self._directory(above), name

    def _make(self, path: str, node: File | Directory) -> None:
        parent, name = self._place(path)
        if name in parent.entries:
            raise _error(errno.EEXIST, path)
        parent.change({name: node})

    def _move(self, source: str, target: str) -> None:
        parent, name = self._place(source)
        other, new = self._place(target)
        assert parent is other, "the store renames within one directory only"
        if name not in parent.entries:
            raise _error(errno.ENOENT, source)
        parent.change({name: None, new: parent.entries[name]})

    def _forget(self, path: str) -> None:
        parent, name = self._place(path)
        parent.change({name: None})

    def _open(self, file: File, path: str) -> Handle:
        handle = Handle(next(self._numbers))
        self._handles[handle] = (file, path, 0)
        return handle


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
