"""Tells that nothing below a directory has changed since the last look, from times, sizes and numbers of inodes.

`watch` looks every second. To count every owner of a long run's checkpoints takes longer than that, and they do not
change once they are published.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import TypeAlias

Fingerprint: TypeAlias = tuple[tuple[str, int, int, int, int, int], ...]


def fingerprint(root: str, *names: str) -> Fingerprint | None:
    """Of everything below these directories of `root`; None if some of it cannot be looked at."""
    try:
        return tuple(sorted(each for name in names for each in _below(f"{root}/{name}")))
    except OSError:
        return None


def _below(path: str) -> Iterator[tuple[str, int, int, int, int, int]]:
    waiting = [path]
    while waiting:
        path = waiting.pop()
        found = os.lstat(path)
        yield path, found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        if stat.S_ISDIR(found.st_mode):
            waiting += (f"{path}/{name}" for name in os.listdir(path))
