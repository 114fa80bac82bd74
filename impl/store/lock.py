"""One writer per directory: a lock that ends with the process, and a fencing number for file systems that lose locks.

Whoever takes the lock writes WRITER with a number one higher than any before. Just before a checkpoint is published
the number is read again: if somebody else has taken over meanwhile, this writer stops.

Where the lock excludes nobody, two may take one number at a time. The token tells them apart: WRITER holds one record,
the last that was put there, and no record is ever put there twice. So whoever still finds his own has been overtaken by
nobody since his claim, and whoever has not never will again.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ..errors import CheckpointCorrupt, StoreBusy
from . import names, strict_json
from .durable_file import replace_durably
from .failures import READING, translated
from .files import Files, Handle, read_front

_LIMIT = 64 << 10
#: Each time it took somebody who came before us and was still clearing away; nobody does that twice in one life.
_CLAIMS = 16


@dataclass(frozen=True, slots=True)
class WriterIdentity:
    """Who writes: a text for people, and a source of names no other attempt uses. Injected where runs must repeat."""

    holder: str
    token: Callable[[], str]

    @classmethod
    def of_this_process(cls) -> WriterIdentity:
        """The process id and the host; random tokens."""
        process = os.getpid()
        return cls(f"process {process} on {socket.gethostname()}", lambda: f"{process}-{secrets.token_hex(6)}")


class WriterRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of WRITER. An older version wrote no token."""

    fence: int
    holder: str
    token: str = ""


class WriterLock:
    """The right to write into one directory, held from `acquire` until `release`."""

    def __init__(self, files: Files, root: str, identity: WriterIdentity) -> None:
        self.fence = 0
        self._files = files
        self._root = root
        self._identity = identity
        self._handle: Handle | None = None
        self._record: WriterRecord | None = None

    def __del__(self) -> None:
        """A store that was dropped without `close` must not block the next one in this process."""
        if getattr(self, "_handle", None) is not None:
            self.release()

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._handle is not None

    def acquire(self) -> None:
        """Take the lock, or raise StoreBusy naming the holder. `claim` must follow before anything is written."""
        with translated(f"locking {self._root}"):
            try:
                self._handle = self._files.lock(f"{self._root}/{names.LOCK}")
            except BlockingIOError:
                raise self._busy() from None

    def claim(self, highest_known_fence: int) -> None:
        """Take a new fencing number and say so in WRITER. This is also the first proof that writing works here.

        `highest_known_fence` is the highest one in any manifest: the number must rise even if WRITER was lost.
        """
        for attempt in range(_CLAIMS):
            known = self._read()
            self.fence = max(known.fence if known else 0, highest_known_fence) + 1
            self._record = WriterRecord(self.fence, self._identity.holder, self._identity.token())
            data = strict_json.encode(self._record, names.WRITER)
            with translated(f"writing {self._root}/{names.WRITER}"):
                try:
                    replace_durably(self._files, self._root, names.WRITER, data, self._record.token)
                except (FileNotFoundError, FileExistsError):
                    # A writer that claimed before us has taken our temporary file for a leftover, or it is one indeed.
                    if attempt == _CLAIMS - 1:
                        raise
                else:
                    return

    @property
    def token(self) -> str:
        """The token of the last claim; no other claim has it."""
        assert self._record is not None, "claim() comes first"
        return self._record.token

    def check_fence(self) -> None:
        """Raise StoreBusy unless this object still is the last one that took the lock."""
        if self._handle is None or self._record is None:
            raise self._busy()
        found = self._read()
        if found is None:
            raise StoreBusy(
                f"{self._root}/{names.WRITER} is missing or cannot be read: something removed or changed it under this "
                "run, and whether another writer has taken the directory over meanwhile cannot be told. Start the run "
                "again, and keep clean-up jobs away from the directory. Nothing was published."
            )
        if found != self._record:
            raise self._busy()

    def release(self) -> None:
        """Give the lock back; harmless if it is not held."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._files.unlock(handle)

    def _read(self) -> WriterRecord | None:
        """The last writer, or None when the file is missing or damaged."""
        where = f"{self._root}/{names.WRITER}"
        try:
            with translated(f"{READING}{where}"):
                try:
                    handle = self._files.open_read(where)
                except FileNotFoundError:
                    return None
                try:
                    data = read_front(self._files, handle, _LIMIT)
                finally:
                    self._files.close(handle)
            return strict_json.decode(data, WriterRecord, where)
        except CheckpointCorrupt:
            return None

    def _busy(self) -> StoreBusy:
        record = self._read()
        if record is None:
            holder = "a writer that has not said who it is"
        elif record.holder == self._identity.holder:
            holder = f"another checkpointer of this process ({record.holder})"
        else:
            holder = record.holder
        return StoreBusy(
            f"{self._root} is being written by {holder}. Two runs that save into one directory would remove each "
            "other's checkpoints. Stop the other one (its lock ends with it), or use another directory. Nothing was "
            "published."
        )
