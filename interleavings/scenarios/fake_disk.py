"""A disk in memory under the real store: every call of its `Files` protocol, no operating system.

It keeps what was written and nothing more: it is for schedules, where each explored state replays the run from its
start and a real fsync would take most of the time. What a crash may leave behind is the store's own tests' matter.
"""

from __future__ import annotations

import errno
import json
from typing import Any

from impl.store.files import FileStat, Handle


class FakeDisk:
    """Directories and files by absolute path; locks that end with the object."""

    def __init__(self, *directories: str) -> None:
        self._directories: set[str] = {"/", *directories}
        self._files: dict[str, bytes] = {}
        self._open: dict[int, tuple[str, int]] = {}
        self._locked: dict[int, str] = {}
        self._handles = 0

    def open_new(self, path: str) -> Handle:
        """Create an empty file."""
        self._require_parent(path)
        self._require_free(path)
        self._files[path] = b""
        return self._opened(path)

    def open_read(self, path: str) -> Handle:
        """Open a file to read from its start."""
        if path not in self._files:
            raise _error(errno.ENOENT, path)
        return self._opened(path)

    def write(self, handle: Handle, data: bytes | bytearray | memoryview) -> None:
        """Append."""
        path, _ = self._open[handle]
        self._files[path] += bytes(data)

    def read_into(self, handle: Handle, room: memoryview) -> int:
        """Read on."""
        path, place = self._open[handle]
        piece = self._files[path][place : place + len(room)]
        room[: len(piece)] = piece
        self._open[handle] = (path, place + len(piece))
        return len(piece)

    def fsync(self, handle: Handle) -> None:
        """All is durable at once."""

    def close(self, handle: Handle) -> None:
        """Close."""
        del self._open[handle]

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        self._require_parent(path)
        self._require_free(path)
        self._directories.add(path)

    def fsync_dir(self, path: str) -> None:
        """All names are durable at once."""

    def rename(self, source: str, target: str) -> None:
        """Move a file or a whole directory to a free name."""
        self._require_free(target)
        self._move(source, target)

    def replace(self, source: str, target: str) -> None:
        """Move a file over another."""
        self._files.pop(target, None)
        self._move(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        if path not in self._files:
            raise _error(errno.ENOENT, path)
        del self._files[path]

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        if self.listdir(path):
            raise _error(errno.ENOTEMPTY, path)
        self._directories.discard(path)

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        if path not in self._directories:
            raise _error(errno.ENOENT, path)
        inside = [p for p in (*self._files, *self._directories) if p != "/" and _parent(p) == path]
        return sorted(p.rpartition("/")[2] for p in inside)

    def stat(self, path: str) -> FileStat:
        """What a name is."""
        if path in self._directories:
            return FileStat("directory", 0)
        if path in self._files:
            return FileStat("file", len(self._files[path]))
        raise _error(errno.ENOENT, path)

    def lock(self, path: str) -> Handle:
        """Take a lock; the file appears."""
        self._require_parent(path)
        if path in self._locked.values():
            raise _error(errno.EWOULDBLOCK, path)
        self._files.setdefault(path, b"")
        handle = self._opened(path)
        self._locked[handle] = path
        return handle

    def unlock(self, handle: Handle) -> None:
        """Give a lock back."""
        del self._locked[handle]
        del self._open[handle]

    # -- for a scenario

    def documents(self, directory: str) -> dict[str, Any]:
        """The JSON files of a published checkpoint, by name."""
        return {
            name: json.loads(self._files[f"{directory}/{name}"])
            for name in self.listdir(directory)
            if name.endswith(".json")
        }

    def _opened(self, path: str) -> Handle:
        self._handles += 1
        self._open[self._handles] = (path, 0)
        return Handle(self._handles)

    def _move(self, source: str, target: str) -> None:
        if source in self._files:
            self._files[target] = self._files.pop(source)
            return
        if source not in self._directories:
            raise _error(errno.ENOENT, source)
        inside = f"{source}/"
        self._directories = {
            target + d[len(source) :] if d == source or d.startswith(inside) else d for d in self._directories
        }
        self._files = {
            target + p[len(source) :] if p.startswith(inside) else p: content for p, content in self._files.items()
        }

    def _require_parent(self, path: str) -> None:
        if _parent(path) not in self._directories:
            raise _error(errno.ENOENT, path)

    def _require_free(self, path: str) -> None:
        if path in self._files or path in self._directories:
            raise _error(errno.EEXIST, path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _error(number: int, path: str) -> OSError:
    return OSError(number, errno.errorcode[number], path)
