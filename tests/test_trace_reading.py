"""The reader of traces: strict about every line, easy on what a crash leaves, and of bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from impl import JsonlTracer, TraceUnreadable, read_trace
from impl.tracing import End, Event, Gap, Header, Torn

Lines = list[dict[str, Any]]


def event(number: int, action: str = "commit_group", **fields: Any) -> dict[str, Any]:
    fields = fields or {"group": number}
    return {
        "record": "event", "number": number, "monotonic": 1.0, "wall": 2.0, "action": action, "task": None,
        "fields": fields,
    }  # fmt: skip


def header(**changes: Any) -> dict[str, Any]:
    return {
        "record": "header", "schema": "cleancut.trace", "version": 1, "segment": "a", "run": None, "process": 1,
        "host": "h", "monotonic": 1.0, "wall": 2.0, **changes,
    }  # fmt: skip


def end(events: int) -> dict[str, Any]:
    return {"record": "end", "events": events}


def gap(number: int, lost: int) -> dict[str, Any]:
    return {"record": "gap", "number": number, "lost": lost}


def text(lines: Lines) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def kinds(path: Path) -> list[type]:
    return [type(line.record) for line in read_trace(path)]


def test_a_trace_of_every_record_is_read_with_the_number_of_each_line(tmp_path: Path) -> None:
    """Two segments, a gap in the first, no end in the second."""
    path = tmp_path / "trace.jsonl"
    lines = [header(), event(0), gap(1, 5), event(6), end(7), header(run={"seed": 1}), event(0, "mine", anything=[1])]
    path.write_bytes(text(lines))
    found = list(read_trace(path))
    assert [line.number for line in found] == [1, 2, 3, 4, 5, 6, 7]
    assert [type(line.record) for line in found] == [Header, Event, Gap, Event, End, Header, Event]
    assert isinstance(found[5].record, Header)
    assert found[5].record.run == {"seed": 1}


GOOD = [header(), event(0), event(1)]


@pytest.mark.parametrize(
    ("lines", "line", "says"),
    [
        ([event(0)], 1, "a header must come after the beginning of the file"),
        ([header(), end(0), event(0)], 3, "a header must come after the end of a segment"),
        ([header(), event(1)], 2, "it has the number 1 where 0 comes next"),
        ([*GOOD, event(3)], 4, "it has the number 3 where 2 comes next"),
        ([*GOOD, event(1)], 4, "it has the number 1 where 2 comes next"),
        ([*GOOD, end(3)], 4, "it has the number 3 where 2 comes next"),
        ([*GOOD, gap(3, 1)], 4, "it has the number 3 where 2 comes next"),
        ([*GOOD, gap(2, 0)], 4, "it is a gap of 0 events"),
        ([header(version=2)], 1, "version 2; this version of the library reads 'cleancut.trace', version 1"),
        ([header(schema="other")], 1, "it is of schema 'other'"),
        ([header(more=1)], 1, "unknown field `more`"),
        ([*GOOD, {**event(2), "number": "2"}], 4, r"Expected `int`, got `str` - at `\$.number`"),
        ([*GOOD, {"record": "event", "number": 2}], 4, "missing required field `monotonic`"),
        ([*GOOD, {"record": "else"}], 4, "Invalid value 'else'"),
        ([*GOOD, {"number": 2}], 4, "missing required field `record`"),
        ([*GOOD, event(2, "dispatch", group="7")], 4, r"fields of dispatch are wrong: Expected `int`, got `str`"),
        ([*GOOD, event(2, "dispatch", group=7, more=1)], 4, "unknown field `more`"),
        ([*GOOD, event(2, "claim", groups=[1])], 4, "missing required field `step`"),
        (
            [*GOOD, event(2, "reserve_batch", admission=0, groups=[1], keys=[[0]])],
            4,
            r"length 2, got 1 - at `\$.keys\[0\]`",
        ),
    ],
)
def test_a_line_that_breaks_the_schema_is_named_by_file_and_line(
    tmp_path: Path, lines: Lines, line: int, says: str
) -> None:
    """What stands before it was handed out, and is right."""
    path = tmp_path / "trace.jsonl"
    path.write_bytes(text(lines))
    found: list[Any] = []
    with pytest.raises(TraceUnreadable, match=says) as raised:
        found.extend(read_trace(path))
    assert len(found) == line - 1
    assert (raised.value.path, raised.value.line) == (str(path), line)
    assert str(raised.value).startswith(f"{path}, line {line}: ")


def test_case_C07_a_file_cut_off_in_any_byte_is_read_up_to_there(tmp_path: Path) -> None:
    """A crash may cut anywhere: whole lines are read, the rest is one torn line and no fault."""
    path = tmp_path / "trace.jsonl"
    whole = text([*GOOD, end(2)])
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        complete = whole[:length].count(b"\n")
        rest = whole[:length].rpartition(b"\n")[2]
        # A line whose line break alone is missing is whole.
        is_whole = rest.endswith(b"}") and whole[length : length + 1] == b"\n"
        expected = [Header, Event, Event, End][: complete + is_whole] + [Torn] * (bool(rest) and not is_whole)
        assert kinds(path) == expected, length


def test_a_torn_line_is_no_fault_before_a_header_and_one_anywhere_else(tmp_path: Path) -> None:
    """The next run begins a line of its own; in the middle of a segment half a line is damage."""
    path = tmp_path / "trace.jsonl"
    torn = text([event(2)])[:20] + b"\n"
    path.write_bytes(text(GOOD) + torn + text(GOOD))
    assert kinds(path) == [Header, Event, Event, Torn, Header, Event, Event]
    for after in (text([event(2)]), torn, torn + text(GOOD), b""):
        path.write_bytes(text(GOOD) + torn + after)
        with pytest.raises(TraceUnreadable) as raised:
            kinds(path)
        assert raised.value.line == 4


@pytest.mark.parametrize("change", [b"\x00", b"}", b'"', b"\xff", b"{}"])
def test_a_damaged_byte_in_the_middle_is_found(tmp_path: Path, change: bytes) -> None:
    """Whatever it is put in the place of, in the second line, the second line is named."""
    path = tmp_path / "trace.jsonl"
    begin = len(text(GOOD[:1]))
    whole = text([*GOOD, event(2)])
    path.write_bytes(whole[: begin + 5] + change + whole[begin + 6 :])
    with pytest.raises(TraceUnreadable) as raised:
        kinds(path)
    assert raised.value.line == 2


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda path: None, 0),
        (lambda path: path.write_bytes(b""), 1),
        (lambda path: path.mkdir(), 0),
        (lambda path: path.write_bytes(b"\n"), 1),
        (lambda path: path.write_bytes(b"# notes\n" + text(GOOD)[:0]), 1),
    ],
)
def test_what_is_no_trace_at_all_is_refused(tmp_path: Path, make: Callable[[Path], object], line: int) -> None:
    """Missing, empty, a directory, something else: one kind of error, with the path."""
    path = tmp_path / "trace.jsonl"
    make(path)
    with pytest.raises(TraceUnreadable, match=str(path)) as raised:
        kinds(path)
    assert raised.value.line == line


def test_an_endless_line_is_refused_without_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged file may lack its line breaks; memory is bounded by the longest line all the same."""
    monkeypatch.setattr("impl.tracing.reader.LONGEST_LINE", 1000)
    path = tmp_path / "trace.jsonl"
    path.write_bytes(text(GOOD) + b"{" * 1001)
    with pytest.raises(TraceUnreadable, match="longer than 1000 bytes") as raised:
        kinds(path)
    assert raised.value.line == 4


def test_reading_takes_the_memory_of_a_line_and_not_of_the_file(tmp_path: Path) -> None:
    """A run of days has millions of events."""
    path = tmp_path / "trace.jsonl"
    tracer = JsonlTracer(path, flush_seconds=0.0)
    for group in range(20_000):
        tracer("commit_group", group=group)
        if group % 1000 == 0:
            assert tracer.flush()
    tracer.close()
    assert path.stat().st_size > 2_000_000
    tracemalloc.start()
    try:
        assert sum(isinstance(line.record, Event) for line in read_trace(path)) == 20_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 500_000
