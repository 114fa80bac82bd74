"""The file system as the store sees it: sixteen synchronous calls, and nothing else touches a disk.

Every durable effect of a checkpoint goes through one `Files` object, one method call per system call, so that another
layer can be put underneath: a recorder, a layer that fails or dies at the n-th call, a simulated disk. Paths are
absolute texts with "/" between the parts. Errors are `OSError` with the errno of the system call; the store translates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NewType, Protocol

Handle = NewType("Handle", int)
Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class FileStat:
    """What a name is, not following links: `other` is a link, a fifo, a socket or a device."""

    kind: Literal["file", "directory", "other"]
    size: int


class Files(Protocol):
    """The calls a store needs. Each is one effect, blocks until it is done, and is never retried by its caller."""

    def open_new(self, path: str) -> Handle:
        """Create a file for writing; `FileExistsError` if the name is taken. Never follows a link."""
        ...

    def open_read(self, path: str) -> Handle:
        """Open a regular file for reading; anything else is an `OSError`, and a fifo never blocks the call."""
        ...

    def write(self, handle: Handle, data: Buffer) -> None:
        """Append all of `data`; a short write is continued inside, so the caller sees all or an error."""
        ...

    def read_into(self, handle: Handle, room: memoryview) -> int:
        """Fill the front of `room` from where the last read ended; how many bytes, 0 at the end of the file."""
        ...

    def fsync(self, handle: Handle) -> None:
        """Make the bytes written so far durable. After an error here their fate is unknown: give the file up."""
        ...

    def close(self, handle: Handle) -> None:
        """Close a handle of `open_new` or `open_read`."""
        ...

    def mkdir(self, path: str) -> None:
        """Make one directory; `FileExistsError` if the name is taken, `FileNotFoundError` without the parent."""
        ...

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable: creations, renames and removals up to now."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give `source` the fresh name `target`; the caller holds the lock and knows that the name is free."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Rename a file over another one, atomically."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a name that is not a directory."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted, so that a run is repeatable."""
        ...

    def stat(self, path: str) -> FileStat:
        """What the name is, not following a link; `FileNotFoundError` if it is not there."""
        ...

    def lock(self, path: str) -> Handle:
        """Take the exclusive lock on a file, creating it; `BlockingIOError` at once if somebody holds it.

        The lock ends with `unlock` or with the process, however that ends, so a dead holder blocks nobody.
        """
        ...

    def unlock(self, handle: Handle) -> None:
        """Give a lock back; the file stays."""
        ...


def read_front(files: Files, handle: Handle, size: int) -> bytes:
    """Up to `size` bytes from where the last read ended, in one call."""
    room = memoryview(bytearray(size))
    return bytes(room[: files.read_into(handle, room)])
