"""Saves a run into a directory and brings it back; the parts are in the package `checkpointing`."""

from __future__ import annotations

from .checkpointing.checkpointer import Checkpointer
from .checkpointing.participants import Counters, HeldCounters
from .checkpointing.pending import CheckpointInfo, PendingSave, SaveStatistics, SnapshotSkipped
from .checkpointing.restoring import Restored
from .checkpointing.save_log import CheckpointerStatistics
from .store.catalogue import Skipped
from .store.files import Files, FileStat, Handle
from .store.lock import WriterIdentity
from .store.posix_files import PosixFiles

__all__ = [
    "CheckpointInfo",
    "Checkpointer",
    "CheckpointerStatistics",
    "Counters",
    "FileStat",
    "Files",
    "Handle",
    "HeldCounters",
    "PendingSave",
    "PosixFiles",
    "Restored",
    "SaveStatistics",
    "Skipped",
    "SnapshotSkipped",
    "WriterIdentity",
]
