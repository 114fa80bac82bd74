"""Reads a trace strictly and in bounded memory: one line at a time, however long the run was.

Every fault names the file and the line. What is no fault: a last line that a crash has cut short, also when a later
segment follows it; a gap that the tracer has declared; a segment without an end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any, BinaryIO, NamedTuple

import msgspec

from ..errors import TraceUnreadable
from .schema import FIELDS, SCHEMA, VERSION, End, Event, Gap, Header, Record, Torn

#: Bytes of the longest line that is read; a restore of a very large buffer is the longest that is written.
LONGEST_LINE = 64 << 20

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
    name = os.fspath(path)
    try:
        file = open(name, "rb")  # noqa: SIM115
    except OSError as error:
        raise TraceUnreadable(f"the trace {name} cannot be opened: {error.strerror}.", name, 0) from error
    with file:
        yield from _checked(name, file)


def _checked(name: str, file: BinaryIO) -> Iterator[TraceLine]:
    order = _Order(name)
    # An undecodable line, which is none of our business if a segment begins after it, or nothing at all.
    torn: tuple[int, int, TraceUnreadable] | None = None
    for number, line in enumerate(_lines(name, file), 1):
        try:
            record = _decode(line)
        except msgspec.MsgspecError as error:
            if torn is not None:
                raise torn[2] from None
            fault = _fault(name, number, f"{error}")
            if isinstance(error, msgspec.ValidationError):
                raise fault from error
            torn = (number, len(line), fault)
            continue
        if torn is not None:
            if not isinstance(record, Header):
                raise torn[2]
            yield order.torn(*torn[:2])
            torn = None
        yield order.next(number, record)
    if torn is not None:
        if not _cut_short(file):
            raise torn[2]
        yield order.torn(*torn[:2])
    if order.empty:
        raise _fault(name, 1, "the file is empty")


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
    """What may follow what: a header first, events in their numbers, nothing after an end but a header."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.empty = True
        # The number of the next event; None where only a header may come.
        self._expected: int | None = None

    def next(self, number: int, record: Record) -> TraceLine:
        """Check one record against those before; events against the fields of their action."""
        if isinstance(record, Header):
            if (record.schema, record.version) != (SCHEMA, VERSION):
                raise _fault(
                    self._name,
                    number,
                    f"it is of schema {record.schema!r}, version {record.version}; this version of the library reads "
                    f"{SCHEMA!r}, version {VERSION}",
                )
            self.empty = False
            self._expected = 0
            return TraceLine(number, record)
        if self._expected is None:
            where = "the beginning of the file" if self.empty else "the end of a segment"
            raise _fault(self._name, number, f"a header must come after {where}, but this is another record")
        found = record.events if isinstance(record, End) else record.number
        if found != self._expected:
            raise _fault(self._name, number, f"it has the number {found} where {self._expected} comes next")
        if isinstance(record, End):
            self._expected = None
        elif isinstance(record, Gap):
            if record.lost < 1:
                raise _fault(self._name, number, f"it is a gap of {record.lost} events")
            self._expected += record.lost
        else:
            self._check_fields(number, record)
            self._expected += 1
        return TraceLine(number, record)

    def torn(self, number: int, length: int) -> TraceLine:
        """A line that a crash has cut short: nothing but a header may follow."""
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
    return msgspec.defstruct(action, list(FIELDS[action].items()), forbid_unknown_fields=True)


def _fault(name: str, number: int, what: str) -> TraceUnreadable:
    return TraceUnreadable(
        f"{name}, line {number}: this is no line of a trace: {what}. The file was damaged, edited, or written by "
        "another version of the library; what stands before this line is right.",
        name,
        number,
    )
