"""Reads a trace strictly and in bounded memory: one line at a time, however long the run was.

Every fault names the file and the line. What is no fault: a last line that a crash has cut short, also when a later
segment follows it; a gap that the tracer has declared; a segment without an end; and, where several files are read, one
that goes on within the segment in which the file before it ended, as after a rotation by size.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, BinaryIO, NamedTuple

import msgspec

from ..errors import TraceUnreadable
from .no_trace import what_it_is_instead
from .schema import FIELDS, LATER, SCHEMA, VERSION, End, Event, Gap, Header, Record, Torn

#: Bytes of the longest line that is read; a restore of a very large buffer is the longest that is written.
LONGEST_LINE = 64 << 20

#: How every line begins, with or without a space behind it.
_BEGINNING = b'{"record":'

_decode = msgspec.json.Decoder(Record).decode


class TraceLine(NamedTuple):
    """One line of a trace: its number, from 1, and what it is."""

    number: int
    record: Record | Torn


def read_trace(path: str | os.PathLike[str]) -> Iterator[TraceLine]:
    """The lines of a trace in order. Raises TraceUnreadable at the first fault; what came before it was right.

    Events of the library's own actions have exactly the fields of the schema, with their types; keys and other tuples
    come back as lists. Close the iterator, or exhaust it, to close the file.
    """
    return (line for _, line in read_traces([path]))


def read_traces(paths: Iterable[str | os.PathLike[str]]) -> Iterator[tuple[str, TraceLine]]:
    """The lines of several files in their order, each with the name of its file; otherwise as `read_trace`.

    A file may begin within the segment in which the one before it ended. Events that are missing between the two, as
    after `copytruncate`, come as a gap, with the number of the line that it stands before.
    """
    order: _Order | None = None
    for path in paths:
        name = os.fspath(path)
        try:
            file = open(name, "rb")  # noqa: SIM115
        except OSError as error:
            raise TraceUnreadable(f"the trace {name} cannot be opened: {error.strerror}.", name, 0) from error
        order = _Order(name, order)
        with file:
            for line in _checked(name, file, order):
                yield name, line


def _checked(name: str, file: BinaryIO, order: _Order | None = None) -> Iterator[TraceLine]:
    order = _Order(name) if order is None else order
    # An undecodable line, which is none of our business if a segment begins after it, or nothing at all.
    torn: tuple[int, int, TraceUnreadable] | None = None
    for number, line in enumerate(_lines(name, file), 1):
        try:
            record = _decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            if torn is not None:
                raise torn[2] from None
            fault = _undecodable(name, number, line, error, order.continues)
            if not isinstance(error, msgspec.DecodeError) or isinstance(error, msgspec.ValidationError):
                raise fault from error
            if not _begins_a_line(line, number):
                raise fault from error
            torn = (number, len(line), fault)
            continue
        if torn is not None:
            if not isinstance(record, Header):
                raise torn[2]
            yield order.torn(*torn[:2])
            torn = None
        yield from order.missing_between_files(number, record)
        yield order.next(number, record)
    if torn is not None:
        if not _cut_short(file):
            raise torn[2]
        yield order.torn(*torn[:2])
    if order.empty:
        raise _fault(name, 1, "the file is empty")


def _begins_a_line(line: bytes, number: int) -> bool:
    """Whether a crash can have left this of a line: its beginning, or room for it that was never written."""
    written = line.rstrip(b"\r\n").rstrip(b"\0")
    if not written:
        return number > 1 and line.startswith(b"\0")
    return written.startswith(_BEGINNING) or _BEGINNING.startswith(written)


def _undecodable(name: str, number: int, line: bytes, error: Exception, continues: bool) -> TraceUnreadable:
    if isinstance(error, RecursionError):
        return _fault(name, number, "its values are nested too deeply")
    if not line.strip():
        return _fault(name, number, "it is blank")
    if number == 1 and (instead := what_it_is_instead(line)) is not None:
        what, advice = instead
        return TraceUnreadable(f"{name} is no trace: {what}. {advice}", name, number)
    if number == 1 and continues and not line.startswith(_BEGINNING):
        what = "the file before it ended within a segment, and this one does not go on with a whole line of it"
        return TraceUnreadable(f"{name}, line 1: {what}. Join parts of one file first: cat A B > TRACE.jsonl.", name, 1)
    return _fault(name, number, f"{error}")


def _lines(name: str, file: BinaryIO) -> Iterator[bytes]:
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise _fault(name, number, f"it is longer than {LONGEST_LINE} bytes")
        yield line


def _cut_short(file: BinaryIO) -> bool:
    """Whether the file ends without a line break."""
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


class _Order:
    """What may follow what: a header first, events in their numbers, nothing after an end but a header.

    `before` is that of the file before this one.
    """

    def __init__(self, name: str, before: _Order | None = None) -> None:
        self._name = name
        self.empty = True
        # The number of the next event; None where only a header may come.
        self._expected: int | None = None
        # What the segment would go on with that the file before ended in.
        self._left = None if before is None else before.left
        # The line of the newest header, and those of segments without an end by the number they would go on with.
        self._header = 0
        self._others: dict[int, int] = {}
        self.left: int | None = None

    @property
    def continues(self) -> bool:
        """Whether the file before this one ended within a segment."""
        return self._left is not None

    def missing_between_files(self, number: int, record: Record) -> Iterator[TraceLine]:
        """Go on in the segment of the file before; the gap if there is one."""
        if isinstance(record, Header) or not self.empty or self._left is None:
            return
        found = _number_of(record)
        if found < self._left:
            raise TraceUnreadable(
                f"{self._name}, line {number}: it has the number {found}, and the file before it ended where "
                f"{self._left} comes next. The files are not in their order, or one is here twice; name each once, the "
                "oldest first.",
                self._name,
                number,
            )
        self.empty = False
        self._expected = self.left = found
        if found > self._left:
            yield TraceLine(number, Gap(self._left, found - self._left))

    def next(self, number: int, record: Record) -> TraceLine:
        """Check one record against those before; events against the fields of their action."""
        if isinstance(record, Header):
            if (record.schema, record.version) != (SCHEMA, VERSION):
                raise _fault(self._name, number, _of_version(record.schema, record.version))
            if self._expected is not None:
                self._others[self._expected] = self._header
            self.empty = False
            self._expected = self.left = 0
            self._header = number
            return TraceLine(number, record)
        if self._expected is None:
            if self.empty:
                raise _within(self._name, number)
            raise _fault(self._name, number, self._after_the_end(record))
        found = _number_of(record)
        if found != self._expected:
            raise _fault(self._name, number, f"it has the number {found} where {self._expected} comes next"
                                             f"{self._of_another(found)}")  # fmt: skip
        if isinstance(record, End):
            self._expected = self.left = None
            return TraceLine(number, record)
        if isinstance(record, Gap):
            if record.lost < 1:
                raise _fault(self._name, number, f"it is a gap of {record.lost} events")
            self._expected += record.lost
        else:
            self._check_fields(number, record)
            self._expected += 1
        self.left = self._expected
        return TraceLine(number, record)

    def _after_the_end(self, record: Event | Gap | End) -> str:
        said = "a header must come after the end of a segment, but this is another record"
        return said + self._of_another(_number_of(record))

    def _of_another(self, found: int) -> str:
        """What a number means that another segment of this file would go on with."""
        if found not in self._others:
            return ""
        return (
            f"; the segment that begins in line {self._others[found]} goes on here: two processes wrote into this file "
            "at once, and each needs a file of its own"
        )

    def torn(self, number: int, length: int) -> TraceLine:
        """A line that a crash has cut short: nothing but a header may follow."""
        if self._expected is not None:
            self._others[self._expected] = self._header
        self.empty = False
        self._expected = None
        return TraceLine(number, Torn(length))

    def _check_fields(self, number: int, event: Event) -> None:
        if event.action in FIELDS:
            try:
                msgspec.convert(event.fields, _fields_of(event.action), strict=True)
            except msgspec.ValidationError as error:
                raise _fault(self._name, number, f"the fields of {event.action} are wrong: {error}") from error


@cache
def _fields_of(action: str) -> Any:
    later = LATER.get(action, frozenset())
    fields: list[Any] = [
        (name, kind | None, None) if name in later else (name, kind) for name, kind in FIELDS[action].items()
    ]
    return msgspec.defstruct(action, fields, forbid_unknown_fields=True, kw_only=True)


def _number_of(record: Event | Gap | End) -> int:
    return record.events if isinstance(record, End) else record.number


def _of_version(schema: object, version: object) -> str:
    ours = f"{SCHEMA!r}, version {VERSION}"
    return f"it is of schema {schema!r}, version {version}; this version of the library reads {ours}"


def _within(name: str, number: int) -> TraceUnreadable:
    return TraceUnreadable(
        f"{name}, line {number}: a header must come after the beginning of the file, but this is another record. The "
        "file begins within a segment, as one does that was cut by its size or copied and truncated. Name the file "
        "with what came before first, to the same command.",
        name,
        number,
    )


def _fault(name: str, number: int, what: str) -> TraceUnreadable:
    return TraceUnreadable(
        f"{name}, line {number}: this is no line of a trace: {what}. The file was damaged, edited, or written by "
        "another version of the library; what stands before this line is right.",
        name,
        number,
    )
