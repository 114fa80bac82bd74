"""Writing past the page cache: the disk takes the bytes from our memory, and no core spends its time copying them.

A copy into the page cache costs about as much as a digest, on the cores that compute the digests. Nothing else changes:
the bytes are durable after the same fsync, and what cannot go this way (a short piece, the end of a file, a file system
without it) goes through the cache.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os

#: What memory, length and place in the file must be a multiple of; no disk in use wants more.
ALIGNMENT = 4096
#: From this size on the way past the cache is the quicker one.
LEAST_BYTES = 256 << 10
#: 0 where the system does not know it.
_O_DIRECT: int = getattr(os, "O_DIRECT", 0)
#: What a file system says that cannot do it, or wants another alignment.
_REFUSALS = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


def aligned_room(size: int) -> memoryview:
    """Fresh memory that begins at a page."""
    return memoryview(mmap.mmap(-1, size))


def address_of(memory: memoryview) -> int:
    """Where it begins; only of memory that may be written and is not empty."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def write_past_the_cache(descriptor: int, data: memoryview) -> int:
    """Append what can be written directly of the front of `data`, bytes; how many these were, 0 where it cannot be.

    OSError as `os.write` raises it; a file system that refuses this way is no error.
    """
    whole = len(data) - len(data) % ALIGNMENT
    if not _O_DIRECT or whole < LEAST_BYTES or not _is_aligned(data):
        return 0
    if os.lseek(descriptor, 0, os.SEEK_CUR) % ALIGNMENT:
        return 0
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    done = 0
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _O_DIRECT)
        # A short write may leave a place in the file that is none for the next: the rest goes through the cache.
        while done < whole and done % ALIGNMENT == 0:
            done += os.write(descriptor, data[done:whole])
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return done


def _is_aligned(data: memoryview) -> bool:
    """Whether the memory begins at a multiple of the alignment; of memory that only can be read nobody can tell."""
    return not data.readonly and address_of(data) % ALIGNMENT == 0
