"""A tracer that writes each event as one line of JSON, without making the run wait for the disk.

    barrier = CheckpointBarrier(trace=JsonlTracer("run/trace.jsonl"))

An event is encoded where it happens, since its fields are true only then, and put into a queue; a thread of its own
writes what has gathered, some times a second. So a kill loses the last `flush_seconds`, a slow disk costs memory, and
only so much of that: past `most_waiting` lines events are counted instead of kept, and the file says so with a gap.
A disk that refuses a write is a slow one: the run goes on, what was not written waits, and is tried again each second,
going on in the middle of a line where it must. The log says when it stands still, when it goes on, and what is missing.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import socket
from asyncio.events import _get_running_loop
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from threading import Event as Signal
from threading import Thread
from time import monotonic, time
from typing import Any

import msgspec

from ..arguments import require_count
from ..barrier.arguments import seconds
from ..errors import UsageError
from ..store.process_lock import lock_exclusively, unlock_and_close
from .schema import FIRST_BYTES, SCHEMA, VERSION, End, Event, Gap, Header

logger = logging.getLogger("cleancut.trace")

#: Seconds that `close` and `flush` wait for the disk.
_PATIENCE = 10.0
#: Seconds after which a disk that has refused a write is asked again.
_RETRY = 1.0
#: No header is as long.
_HEAD_BYTES = 64 << 10


class _Flushed(Signal):
    """Set when everything traced before was written, or could not be."""

    written = False


class JsonlTracer:
    """Appends a segment to the trace at `path`; satisfies `Tracer`.

    A file that is there already must be a trace of the same schema version: a run that resumes goes on in it. One in
    which a crash left no whole line, but zeros or the beginning of the first one, is begun anew, which the log says.
    One writer at a time. Wrong arguments, a file that cannot be opened, another file or another writer raise
    UsageError, now; nothing is raised later. A Controller closes the tracer of its barrier when the run is over.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, flush_seconds: float = 0.1, most_waiting: int = 200_000
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise UsageError(f"path is {path!r}, but must name the file of the trace.")
        self.path = os.path.abspath(os.fspath(path))
        limit = seconds("flush_seconds", flush_seconds)
        if limit is None:
            raise UsageError(
                "flush_seconds is None, but must be a number of seconds: the queue is never kept for ever."
            )
        self._most_waiting = require_count("most_waiting", most_waiting, least=1)
        self._flush_seconds = limit
        # So many lines are written before their time.
        self._hurry_at = most_waiting // 16 + 1
        self._encode = msgspec.json.Encoder(enc_hook=repr).encode
        # What the thread writes next, and those who wait until everything before was written.
        self._waiting: deque[bytes] = deque()
        self._flushed: deque[_Flushed] = deque()
        # What the thread has taken and the disk has refused; it comes first. Since when, by the monotonic clock.
        self._refused: memoryview = memoryview(b"")
        self._refused_at: float | None = None
        self._deletion_told = False
        self._something = Signal()
        self._hurry = Signal()
        self._number = 0
        self._lost = 0
        self._in_segment = False
        self._named: Mapping[str, Any] | None = None
        self._closed = False
        self._thread: Thread | None = None
        self._descriptor, self._torn = _opened(self.path)

    # -- what happens in the run

    def name_run(self, identity: Mapping[str, Any]) -> None:
        """Say which run a segment is of that the first event begins. `Checkpointer.attach` does."""
        self._named = identity

    def begin_run(self, identity: Mapping[str, Any] | None) -> None:
        """Begin a segment under this identity. A Controller does; else the first event begins one."""
        if self._closed:
            return
        if self._in_segment:
            self._end_segment()
        self._in_segment = True
        self._number = 0
        header = Header(
            schema=SCHEMA,
            version=VERSION,
            segment=os.urandom(16).hex(),
            run=None if identity is None else dict(identity),
            process=os.getpid(),
            host=socket.gethostname(),
            monotonic=monotonic(),
            wall=time(),
        )
        self._put(self._encode(header) + b"\n")

    def __call__(self, action: str, /, **fields: object) -> None:
        """Take one event down. Never waits and never raises."""
        if self._closed:
            return
        if not self._in_segment:
            self.begin_run(self._named)
        if len(self._waiting) >= self._most_waiting:
            self._lose("the disk does not keep up")
            return
        try:
            event = Event(self._number + self._lost, monotonic(), time(), action, _task_name(), fields)
            line = self._encode(event) + b"\n"
        except Exception as error:
            self._lose(f"{action} has a field that cannot be written: {error!r}")
            return
        self._say_what_was_lost()
        self._number += 1
        self._put(line)

    def _put(self, line: bytes) -> None:
        self._waiting.append(line)
        if self._thread is None:
            self._thread = Thread(target=self._write_for_ever, name="cleancut-trace", daemon=True)
            self._thread.start()
            # A program that forgets `close` keeps what was traced until its end.
            atexit.register(self.close)
        if not self._something.is_set():
            self._something.set()
        if len(self._waiting) == self._hurry_at:
            self._hurry.set()

    def _lose(self, reason: str) -> None:
        if self._lost == 0:
            logger.warning("The trace %s has a gap from event %d on: %s.", self.path, self._number, reason)
        self._lost += 1

    def _say_what_was_lost(self) -> None:
        if self._lost:
            self._put(self._encode(Gap(self._number, self._lost)) + b"\n")
            self._number += self._lost
            self._lost = 0

    def _end_segment(self) -> None:
        self._say_what_was_lost()
        self._put(self._encode(End(self._number)) + b"\n")
        self._in_segment = False

    # -- the end, and those who want to read

    def flush(self) -> bool:
        """Wait until what was traced so far is with the operating system.

        False if the disk refuses it, or that takes over ten seconds.
        """
        if self._thread is None or self._closed:
            return not self._refused
        flushed = _Flushed()
        self._flushed.append(flushed)
        self._hurry.set()
        self._something.set()
        return flushed.wait(_PATIENCE) and flushed.written

    def close(self) -> None:
        """End the segment, write everything, and give the file back. Blocks; later events are not kept.

        Fine to call twice, and from any thread. A disk that does not answer is left alone after ten seconds.
        """
        if self._closed:
            return
        if not self._in_segment:
            self.begin_run(self._named)
        self._end_segment()
        self._closed = True
        self._hurry.set()
        self._something.set()
        if self._thread is not None:
            atexit.unregister(self.close)
            self._thread.join(_PATIENCE)
            if self._thread.is_alive():
                logger.error("The trace %s may lack its end: the disk has not answered for %s s.", self.path, _PATIENCE)

    # -- the thread

    def _write_for_ever(self) -> None:
        try:
            while not self._closed:
                self._something.wait(None if self._refused_at is None else _RETRY)
                # Let some lines gather, unless somebody waits for them.
                self._hurry.wait(self._flush_seconds)
                self._hurry.clear()
                self._something.clear()
                self._write_waiting()
            self._write_waiting()
            if self._refused:
                logger.error("The trace %s ends here: the disk refuses what was traced from here on.", self.path)
        finally:
            with suppress(OSError):
                unlock_and_close(self._descriptor)

    def _write_waiting(self) -> None:
        # Taken first: whatever was traced before one of them is among the lines by now.
        flushed = [self._flushed.popleft() for _ in range(len(self._flushed))]
        due = self._refused_at is None or monotonic() >= self._refused_at + _RETRY
        written = self._write_all() if due or flushed or self._closed else False
        for signal in flushed:
            signal.written = written
            signal.set()

    def _write_all(self) -> bool:
        """Write what was refused, and then what waits: a disk that refuses gets no more to hold than it has."""
        if self._refused and not self._write(self._refused):
            return False
        return self._write(b"".join([self._waiting.popleft() for _ in range(len(self._waiting))]))

    def _write(self, data: bytes | memoryview) -> bool:
        """Write after what is there; False, and the rest kept, if the disk refuses."""
        if data and self._torn:
            # What a crash cut short gets a line of its own.
            data = b"\n" + data
            self._torn = False
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
            self._tell_of_deletion()
        except OSError as error:
            self._refused = left
            if self._refused_at is None:
                logger.error(
                    "The trace %s stands still, and the run goes on: %s. It is tried again each second; past %d "
                    "waiting lines events are counted and not kept.",
                    self.path, error, self._most_waiting,
                )  # fmt: skip
            self._refused_at = monotonic()
            return False
        if self._refused_at is not None:
            logger.warning("The trace %s is written again.", self.path)
        self._refused, self._refused_at = memoryview(b""), None
        return True

    def _tell_of_deletion(self) -> None:
        """Say once that nobody will read this. A file that was only renamed, as by a rotation, goes on."""
        if not self._deletion_told and os.fstat(self._descriptor).st_nlink == 0:
            self._deletion_told = True
            logger.error(
                "The trace %s was deleted while it was written, and all of it is lost with this process. Move a trace "
                "away instead: the run goes on in the file that it has open.",
                self.path,
            )


def _task_name() -> str | None:
    loop = _get_running_loop()
    task = None if loop is None else asyncio.current_task(loop)
    return None if task is None else task.get_name()


def _opened(path: str) -> tuple[int, bool]:
    """A descriptor that appends, and whether the file ends inside a line; UsageError if it is not ours to append to."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"path: {path} cannot be opened for a trace: {error.strerror}. Name another file.") from error
    try:
        _lock(descriptor, path)
        size = os.fstat(descriptor).st_size
        # A power cut may have left the very first line short, or room for it, and for all behind it, unwritten.
        begin = os.pread(descriptor, _HEAD_BYTES, 0).split(b"\n")[0].split(b"\0")[0]
        after = _behind_the_nuls(descriptor, len(begin), size)
        if size and _begins_a_header(begin) and after is None:
            logger.warning(
                "The trace %s held %d bytes and no whole line: what a crash or a power cut left of its first one. It "
                "is begun anew.",
                path, size,
            )  # fmt: skip
            os.ftruncate(descriptor, 0)
            return descriptor, False
        if after is not None and after > len(begin) and _is_a_trace_further_on(descriptor, after):
            logger.warning(
                "The trace %s has lost its beginning, as after a power cut: zeros stand there, up to byte %d. It goes "
                "on behind what is left; a reader wants a copy that begins with a header.",
                path, after,
            )  # fmt: skip
            return descriptor, os.pread(descriptor, 1, size - 1) != b"\n"
        cut_short = after == len(begin) and FIRST_BYTES.startswith(begin) and _is_a_trace_further_on(descriptor, after)
        if size and not (begin.startswith(FIRST_BYTES) or cut_short):
            raise UsageError(
                f"path: {path} is not empty, and no trace of schema version {VERSION}. Appending would spoil it; name "
                "another file, or move this one away."
            )
        return descriptor, size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    except BaseException as error:
        with suppress(OSError):
            unlock_and_close(descriptor)
        if isinstance(error, OSError):
            raise UsageError(f"path: {path} cannot be used for a trace: {error}. Name another file.") from error
        raise


def _begins_a_header(begin: bytes) -> bool:
    """Whether these are the first bytes of a header, however few; or all of the fixed ones and more."""
    return begin.startswith(FIRST_BYTES) or FIRST_BYTES.startswith(begin)


def _behind_the_nuls(descriptor: int, begin: int, size: int) -> int | None:
    """Where something other than zeros comes after `begin`; None if there is nothing more."""
    while begin < size:
        room = os.pread(descriptor, 1 << 20, begin)
        if rest := room.lstrip(b"\0"):
            return begin + len(room) - len(rest)
        if not room:
            return None
        begin += len(room)
    return None


def _is_a_trace_further_on(descriptor: int, begin: int) -> bool:
    """Whether the first whole line from here on is one of a trace."""
    rest = os.pread(descriptor, 1 << 20, begin)
    return rest.partition(b"\n")[2].startswith(b'{"record":"')


def _lock(descriptor: int, path: str) -> None:
    try:
        lock_exclusively(descriptor)
    except BlockingIOError as error:
        raise UsageError(
            f"path: another tracer writes {path}. Its segments would be mixed with these; give each run a file."
        ) from error
    except OSError:
        # A file system without locks; appending still keeps whole lines apart.
        logger.debug("no lock on %s", path)
