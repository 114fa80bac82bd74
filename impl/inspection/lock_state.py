"""Who holds the lock of a checkpoint directory, found out without touching it.

Trying the lock, even for a moment, could refuse a run that starts in that moment. Linux lists all locks in /proc/locks;
where that cannot be read, the answer is "unknown".
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import CheckpointCorrupt, StoreFailed
from ..store import names, strict_json
from ..store.files import Files, read_front
from ..store.lock import WriterRecord

State = Literal["held", "free", "unknown"]

_RECORD_LIMIT = 64 << 10


@dataclass(frozen=True, slots=True)
class LockState:
    """`holder` and `fence` are those of the last writer, alive or not; None if WRITER is missing or damaged."""

    state: State
    holder: str | None
    fence: int | None


def lock_state(files: Files, root: str, table: Path = Path("/proc/locks")) -> LockState:
    """Whether some process holds the lock now, and who last said that it does."""
    record = _last_writer(files, f"{root}/{names.WRITER}")
    holder, fence = (record.holder, record.fence) if record else (None, None)
    return LockState(_state(f"{root}/{names.LOCK}", table), holder, fence)


def _state(path: str, table: Path) -> State:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return "free"
    except OSError:
        return "unknown"
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    try:
        lines = table.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return "unknown"
    # "7: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF"; a waiter's line has an arrow after the number.
    fields = [words for line in lines if "FLOCK" in (words := line.split()) and "->" not in words]
    places = {tuple(word.rsplit(":", 1)) for words in fields for word in words if word.count(":") == 2}
    if (device, str(found.st_ino)) in places:
        return "held"
    # Some file systems (overlay, btrfs) list a lock under another device than stat names.
    return "unknown" if any(inode == str(found.st_ino) for _, inode in places) else "free"


def _last_writer(files: Files, path: str) -> WriterRecord | None:
    try:
        handle = files.open_read(path)
    except OSError:
        return None
    try:
        return strict_json.decode(read_front(files, handle, _RECORD_LIMIT), WriterRecord, path)
    except (OSError, CheckpointCorrupt, StoreFailed):
        return None
    finally:
        files.close(handle)
