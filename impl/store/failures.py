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
_AWAY = frozenset({
    errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH,
    errno.ENOTCONN, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENODEV, errno.ENOLINK,
    errno.ENOMEDIUM, errno.ESHUTDOWN,
})  # fmt: skip
_TOO_LARGE = frozenset({errno.EFBIG, errno.EOVERFLOW})
#: What the medium says of itself, or the file system of what it keeps there.
_MEDIUM = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.EILSEQ, errno.ENODATA, errno.EREMOTEIO})
#: Errors of a read that say something about the file: the medium has lost it, or something else stands in its place.
#: All others say something about the process, the machine or the way to the file, and it may be whole.
DAMAGE = _MEDIUM | {
    errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.ENXIO,
}  # fmt: skip
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
    if doing.startswith(READING):
        return StoreFailed(f"{said}. {_of_reading(error.errno)}")
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


def _of_reading(number: int | None) -> str:
    """What a failed read means, and what to do. Nothing was to be written, so nothing is said of a save."""
    if number in _FORBIDDEN:
        return (
            "The process may not read it, which says nothing about the checkpoint. Give the process the right to, or "
            "run as the user that wrote it; nothing was changed."
        )
    if number in _NO_HANDLES:
        return (
            "The process or the machine has too many files open, which says nothing about the checkpoint. Raise the "
            "limit (`ulimit -n`) or close files, and try again; nothing was changed."
        )
    if number == errno.ENOMEM:
        return (
            "The machine has no memory left for it, which says nothing about the checkpoint. Free some, or read it "
            "where there is more, and try again; nothing was changed."
        )
    if number in _AWAY:
        return (
            "The file system is away, or has been mounted anew: a file server that does not answer, or a device that "
            "was taken out. That says nothing about the checkpoint. Look at the mount, and try again; nothing was "
            "changed."
        )
    if number in _TOO_LARGE:
        return (
            "It is larger than this process can read, which says nothing about the checkpoint. Read it with a 64-bit "
            "system, and look at its size: nothing of ours is as large. Nothing was changed."
        )
    if number in _MEDIUM:
        return (
            "The medium or the file system reports that it cannot give back what it holds. Nothing was changed. Look "
            "at the disk (kernel log, SMART, `fsck` of the file system) and copy away what can still be read."
        )
    return (
        "It could not be read, which does not say what is in it. Nothing was changed. Try again; if it stays, look at "
        "the disk, the mount and the kernel log."
    )
