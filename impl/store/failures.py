"""Errors of the file system in the words of the store: which checkpoint, which file, what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import CleancutError, StoreFailed, StoreFull

#: How `doing` begins where nothing was to be written.
READING = "reading "

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_HANDLES = frozenset({errno.EMFILE, errno.ENFILE})
_NOT_SUPPORTED = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn an OSError of the block into StoreFull or StoreFailed; the OSError, with its errno, stays as `__cause__`."""
    try:
        yield
    except OSError as error:
        raise store_error(error, doing) from error


def store_error(error: OSError, doing: str) -> CleancutError:
    """The error to raise for `error`, which stopped the store while it was `doing` something."""
    said = f"{doing} failed: {error.strerror or error} (errno {error.errno})"
    if error.errno in _FULL:
        return StoreFull(
            f"{said}. There is no room, or no free inode, left for the checkpoint. The previous checkpoints are "
            "untouched and the run can go on; free space and save again."
        )
    if error.errno == errno.EXDEV:
        return StoreFailed(
            f"{said}. A part of the checkpoint directory is a mount of its own, so a checkpoint cannot be published "
            "by one rename, and copying would not be atomic. Use a directory that lies whole on one file system."
        )
    if error.errno in _FORBIDDEN:
        if doing.startswith(READING):
            return StoreFailed(
                f"{said}. The process may not read it, which says nothing about the checkpoint. Give the process the "
                "right to, or run as the user that wrote it; nothing was changed."
            )
        return StoreFailed(
            f"{said}. The process may not write there. Give it the right to, or choose another directory; nothing was "
            "published."
        )
    if error.errno in _NO_HANDLES:
        return StoreFailed(
            f"{said}. The process or the machine has too many files open, which says nothing about the checkpoint. "
            "Raise the limit (`ulimit -n`) or close files, and try again; nothing was changed."
        )
    if error.errno in _NOT_SUPPORTED:
        return StoreFailed(
            f"{said}. The file system does not do what the store needs. `python -m impl fsck --probe DIR` tries it "
            "out; use a local file system, or one that passes. Nothing was published."
        )
    return StoreFailed(
        f"{said}. The disk or the file system reports a fault. The attempt was abandoned and the previous checkpoints "
        "are untouched; look at the disk before the next save."
    )
