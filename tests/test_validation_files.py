"""`validate` on the files that operators leave: rotated, in parts, in a wrong order, twice, compressed, damaged.

Right runs only: none may be refused for how its files lie, and none called right where a part was not seen.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from memory_runs import SAMPLERS
from traced_runs import Lines, TracedRun, lines_of, two_lives, write

from impl import TraceUnreadable
from interleavings.command_line import main
from interleavings.correspondence.validation import Validation, validate

pytestmark = pytest.mark.usefixtures("quiet_library")

SETTINGS: dict[str, Any] = {"prompts": 8, "batch_size": 2, "save_period": 1}


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Three processes of one run, each but the last killed after a publication, the next going on from that."""
    directory = tmp_path_factory.mktemp("lives")
    disk, found = None, []
    for life in range(3):
        path = directory / f"{life}.jsonl"
        run = TracedRun(path, disk, sampler=SAMPLERS["in_order"](1), **SETTINGS)
        run.run_to_the_end()
        lines = path.read_bytes().splitlines(keepends=True)
        if life < 2:
            lines = lines[: next(i for i, line in enumerate(lines) if b'"action":"publish"' in line) + 1]
            disk = run.images[0].disk
        found.append(b"".join(lines))
    return found


def files(directory: Path, *contents: bytes) -> list[Path]:
    """One file for each."""
    paths = [directory / f"trace.jsonl.{number}" for number, _ in enumerate(contents)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def said(result: Validation) -> str:
    return json.dumps(result.document(), indent=1)


def test_a_segment_that_goes_on_in_the_next_file_is_followed_as_one(tmp_path: Path, lives: list[bytes]) -> None:
    """Cut by size at any line, with kills in between: the same verdict and the same counts as in one file."""
    whole = b"".join(lives)
    lines = whole.splitlines(keepends=True)
    together = validate(files(tmp_path, whole))
    assert (together.verdict, together.restores_compared) == ("holds", 2), said(together)
    for at in range(1, len(lines), 5):
        parts = validate(files(tmp_path, b"".join(lines[:at]), b"".join(lines[at:])))
        assert {**parts.document(), "files": 0} == {**together.document(), "files": 0}, at
    thirds = [b"".join(lines[at : at + 40]) for at in range(0, len(lines), 40)]
    assert validate(files(tmp_path, *thirds)).verdict == "holds"


def test_what_is_missing_between_two_files_is_said_and_nothing_is_concluded_of_it(
    tmp_path: Path, lives: list[bytes]
) -> None:
    """`copytruncate` loses what is written between the copy and the cut; also in the middle of a line."""
    lines = b"".join(lives).splitlines(keepends=True)
    for at in range(2, len(lines) - 4, 11):
        lost = lines[at : at + 3]
        if any(b'"header"' in line for line in (*lost, lines[at + 3])):
            continue
        for torn in (b"", lost[0][:20]):
            first, second = files(tmp_path, b"".join(lines[:at]) + torn, b"".join(lines[at + 3 :]))
            result = validate([first, second])
            assert result.verdict == "inconclusive", (at, said(result))
            assert f"{second}, line 1: 3 events are missing" in result.open_because[0]


def test_parts_in_a_wrong_order_are_never_called_right(tmp_path: Path, lives: list[bytes]) -> None:
    """Whole processes by their clocks, parts of one by their numbers; which files are meant is in the message."""
    first, second, third = files(tmp_path, *lives)
    assert validate([first, second, third]).verdict == "holds"
    for order in ([second, first, third], [third, first, second], [first, third, second], [third, second, first]):
        result = validate(order)
        assert result.verdict == "inconclusive", said(result)
        assert "the files are not in the order" in result.open_because[0]
    lines = lives[0].splitlines(keepends=True)
    begin, middle, end = files(tmp_path, *(b"".join(lines[a:b]) for a, b in ((0, 30), (30, 50), (50, 60))))
    with pytest.raises(TraceUnreadable, match="The files are not in their order, or one is here twice"):
        validate([begin, end, middle])
    with pytest.raises(TraceUnreadable, match="The files are not in their order, or one is here twice"):
        validate([begin, middle, middle])
    with pytest.raises(TraceUnreadable, match="begins within a segment"):
        validate([middle, begin])
    assert "20 events are missing" in validate([begin, end]).open_because[0]


def test_a_trace_that_is_given_twice_is_wrong_use(
    tmp_path: Path, lives: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the same name, as a copy, and inside one file: it would count twice and compare with itself."""
    first, second, copy, doubled = files(tmp_path, lives[0], lives[1], lives[0], lives[0] + lives[1] + lives[1])
    for given in ([first, first], [first, second, copy], [doubled], [first, doubled]):
        assert main(["validate", *map(str, given)]) == 2
        assert "was given twice" in capsys.readouterr().err


def shifted(content: bytes, seconds: float, host: str | None = None) -> bytes:
    """The same process, so much later; on another host if one is named."""
    moved = []
    for line in content.splitlines():
        record = json.loads(line)
        if "wall" in record:
            record["wall"] += seconds
            record["monotonic"] += seconds
        if host is not None and record["record"] == "header":
            record["host"] = host
        moved.append(json.dumps(record).encode() + b"\n")
    return b"".join(moved)


def test_two_processes_of_a_run_at_once_are_no_run_of_one_after_the_other(tmp_path: Path, lives: list[bytes]) -> None:
    """A zombie that goes on tracing, on this host or another: what it published was not what the next one found."""
    begins = [json.loads(life.splitlines()[0])["wall"] for life in lives]
    for host in (None, "elsewhere"):
        # The second begins in the middle of the first.
        early = shifted(lives[1], begins[0] - begins[1] + 0.000_001, host)
        result = validate(files(tmp_path, lives[0], early))
        assert result.verdict == "inconclusive", said(result)
        assert "two processes of the run at once" in result.open_because[0]
        assert result.restores_compared == 0
    # A restarted machine counts from 0 again, and a clock may be set back: each alone is no reason.
    later = json.loads(lives[1].splitlines()[0])
    for clock, value in (("monotonic", 1.0), ("wall", begins[0] - 3600)):
        header = json.dumps({**later, clock: value}).encode() + b"\n"
        rest = lives[1].split(b"\n", 1)[1]
        assert validate(files(tmp_path, lives[0], header + rest)).verdict == "holds", clock


def test_two_writers_in_one_file_are_named(tmp_path: Path, lives: list[bytes]) -> None:
    """A file system without locks lets them; their lines stay whole, and nobody can tell what came of it."""
    one, other = lives[0].splitlines(keepends=True), lives[1].splitlines(keepends=True)
    (path,) = files(tmp_path, b"".join(one[:30] + other[:10] + one[30:33] + other[10:]))
    result = validate([path])
    assert result.refusal is not None
    assert (result.refusal.line, result.refusal.event) == (41, "a damaged line")
    assert "the segment that begins in line 1 goes on here: two processes wrote into this file" in result.refusal.why


def test_two_runs_in_one_file_are_followed_each_by_its_own_checkpoints(tmp_path: Path, lives: list[bytes]) -> None:
    """Their processes take turns; a restore is held against what its own run saved, and a wrong one is refused."""
    other = two_lives(tmp_path / "other.jsonl")
    header = [i for i, line in enumerate(other) if line["record"] == "header"][1]
    mine = [[json.loads(line) for line in life.splitlines()] for life in lives]
    mixed: Lines = [*mine[0], *other[:header], *mine[1], *other[header:], *mine[2]]
    result = validate([write(tmp_path / "trace.jsonl", json.loads(json.dumps(mixed)))])
    assert (result.verdict, result.restores_compared) == ("holds", 3), said(result)
    fields = mixed[[i for i, line in enumerate(mixed) if line.get("action") == "restore"][1]]["fields"]
    (fields["pending"] or fields["ready"]).pop()
    assert validate([write(tmp_path / "trace.jsonl", mixed)]).verdict == "fails"


# -- what is no trace


def deep(value: bytes) -> bytes:
    return value.replace(b'"fields":{', b'"fields":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b",", 1)


NO_TRACE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "gzip": (gzip.compress, "compressed with gzip. Unpack it first: gzip -dc"),
    "gzip cut short": (lambda whole: gzip.compress(whole)[:300], "compressed with gzip"),
    "bzip2": (bz2.compress, "compressed with bzip2"),
    "xz": (lzma.compress, "compressed with xz"),
    "mark": (lambda whole: b"\xef\xbb\xbf" + whole, "byte order mark of UTF-8"),
    "wide": (lambda whole: whole.decode().encode("utf-16"), "byte order mark of UTF-16"),
    "zeros": (lambda whole: bytes(9000), "this is no line of a trace"),
    "junk": (lambda whole: bytes(range(256)) * 40, "this is no line of a trace"),
    "blank": (lambda whole: b"\n" + whole, "it is blank"),
    "empty": (lambda whole: b"", "the file is empty"),
    "newer": (
        lambda whole: whole.replace(b'"version":1,', b'"version":2,"more":0,', 1),
        "version 2; this version of the library reads 'cleancut.trace', version 1. Read it with the version",
    ),
}


@pytest.mark.parametrize("kind", NO_TRACE)
def test_what_is_no_trace_is_one_clear_line_and_wrong_use(
    tmp_path: Path, lives: list[bytes], capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Exit 2 alone, and behind a trace that is one; there an empty file is that of a process killed at its start."""
    make, says = NO_TRACE[kind]
    good, bad = files(tmp_path, lives[0], make(lives[1]))
    for given in ([bad], [good, bad] if kind != "empty" else [bad]):
        assert main(["validate", *map(str, given)]) == 2
        shown = capsys.readouterr().err
        assert (shown.count("\n"), str(bad) in shown) == (1, True)
        if given == [bad] or "blank" not in kind:
            assert says in shown or "does not go on with a whole line" in shown


DAMAGE: dict[str, tuple[Callable[[bytes, bytes], bytes], str]] = {
    "junk in the middle": (lambda head, tail: head + os.urandom(300).replace(b"\n", b"") + b"\n" + tail, "no line"),
    "junk at the end": (lambda head, tail: head + b"\x93\xf1" * 200, "no line of a trace"),
    "zeros in the middle": (lambda head, tail: head + bytes(500) + b"\n" + tail, "no line of a trace"),
    "deep": (lambda head, tail: head + deep(tail), "nested too deeply"),
    "blank": (lambda head, tail: head + b"\n" + tail, "it is blank"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_refused_at_its_line(
    tmp_path: Path, lives: list[bytes], capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Exit 1, and no traceback; zeros that a power cut left at the end are a line cut short."""
    lines = lives[0].splitlines(keepends=True)
    make, says = DAMAGE[kind]
    (path,) = files(tmp_path, make(b"".join(lines[:20]), b"".join(lines[20:])))
    assert main(["validate", str(path)]) == 1
    shown = capsys.readouterr().out
    assert f"{path}, line 21 (segment 1): a damaged line" in shown
    assert says in shown
    (path,) = files(tmp_path, b"".join(lines[:20]) + bytes(500))
    assert validate([path]).verdict == "holds"


@pytest.mark.parametrize(
    "sampler", [["in_order"], {"name": ["in_order"]}, {"name": "in_order", "parameters": 3}, {"name": "in_order"}, 7]
)
def test_an_identity_of_other_shape_is_not_followed(tmp_path: Path, lives: list[bytes], sampler: Any) -> None:
    """A header may hold anything in its run; what the machine has no words for is said."""
    header, *rest = [json.loads(line) for line in lives[0].splitlines()]
    header["run"]["sampler"] = sampler
    assert validate([write(tmp_path / "trace.jsonl", [header, *rest])]).verdict == "inconclusive"


def test_a_trace_of_every_file_of_a_run_is_counted_by_its_lines(tmp_path: Path, lives: list[bytes]) -> None:
    """Nothing is left out: the lines of all files, and the kills between them."""
    result = validate(files(tmp_path, *lives))
    assert result.lines == sum(life.count(b"\n") for life in lives)
    assert (result.segments, result.cut_short) == (3, 2)
    assert sum(len(lines_of(path)) for path in map(Path, result.files)) == result.lines
