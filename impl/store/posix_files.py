"""`Files` on a POSIX file system."""

from __future__ import annotations

import errno
import os
import stat as stat_modes

from .direct_io import write_past_the_cache
from .files import Buffer, FileStat, Handle
from .process_lock import lock_exclusively, unlock_and_close

_MODE_FILE = 0o666
_MODE_DIRECTORY = 0o777


class PosixFiles:
    """Calls the operating system and keeps no state, so any number of objects and threads may share one.

    Links are never followed for the last part of a path: a link where a file is expected is an error (`ELOOP`).
    """

    def open_new(self, path: str) -> Handle:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return Handle(os.open(path, flags, _MODE_FILE))

    def open_read(self, path: str) -> Handle:
        # O_NONBLOCK: opening a fifo that nobody writes to must fail the check below, not hang here.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat_modes.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
        except BaseException:
            os.close(descriptor)
            raise
        return Handle(descriptor)

    def write(self, handle: Handle, data: Buffer) -> None:
        rest = memoryview(data).cast("B")
        rest = rest[write_past_the_cache(handle, rest) :]
        while rest:
            rest = rest[os.write(handle, rest) :]

    def read_into(self, handle: Handle, room: memoryview) -> int:
        return os.readv(handle, [room])

    def fsync(self, handle: Handle) -> None:
        os.fsync(handle)

    def close(self, handle: Handle) -> None:
        os.close(handle)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, _MODE_DIRECTORY)

    def fsync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def stat(self, path: str) -> FileStat:
        found = os.lstat(path)
        if stat_modes.S_ISREG(found.st_mode):
            return FileStat("file", found.st_size)
        if stat_modes.S_ISDIR(found.st_mode):
            return FileStat("directory", 0)
        return FileStat("other", 0)

    def lock(self, path: str) -> Handle:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE_FILE)
        try:
            lock_exclusively(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return Handle(descriptor)

    def unlock(self, handle: Handle) -> None:
        unlock_and_close(handle)
