"""What a crash or a power cut leaves of a trace that had hardly begun: the next run begins it anew, and says so."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from impl import JsonlTracer, UsageError, read_trace
from impl.tracing import FIRST_BYTES, Header

HEADER = FIRST_BYTES + b'"segment":"ab","run":null,"process":1,"host":"h","monotonic":1.0,"wall":2.0}'
EVENT = (
    b'{"record":"event","number":0,"monotonic":1.0,"wall":2.0,"action":"dispatch","task":null,"fields":{"group":1}}\n'
)


def traced(path: Path) -> None:
    tracer = JsonlTracer(path, flush_seconds=0.0)
    tracer("dispatch", group=1)
    tracer.close()


def test_case_G19_any_beginning_of_a_header_and_any_zeros_after_it_are_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that restarts itself never started again: a file of zeros was somebody else's."""
    path = tmp_path / "trace.jsonl"
    for begin in range(len(HEADER) + 1):
        for nuls in (0, 1, 7, 4096, 70_000) if begin in (0, 5, len(FIRST_BYTES), len(HEADER)) else (0, 3):
            path.write_bytes(HEADER[:begin] + bytes(nuls))
            caplog.clear()
            traced(path)
            assert isinstance(next(iter(read_trace(path))).record, Header)
            assert len(list(read_trace(path))) == 3, "header, event, end, and nothing before them"
            told = [record for record in caplog.records if "It is begun anew" in record.getMessage()]
            assert len(told) == (begin + nuls > 0)
            assert all(record.levelno == logging.WARNING for record in told)


@pytest.mark.parametrize("lost", [HEADER[:9], b"", HEADER])
def test_case_G19_zeros_before_lines_that_were_written_keep_the_lines(
    tmp_path: Path, lost: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The blocks of a file are written in any order; nothing that is left is thrown away, and the job starts."""
    path = tmp_path / "trace.jsonl"
    before = lost + bytes(4096) + b'fields":{}}\n' + EVENT
    path.write_bytes(before)
    traced(path)
    written = path.read_bytes()
    assert written.startswith(before)
    assert written[len(before) :].startswith(FIRST_BYTES)
    assert "has lost its beginning" in caplog.text


@pytest.mark.parametrize("content", [
    b"\0\0\0hello",
    b"\0" * 5000 + b"\x7fELF", b"x" + bytes(100), HEADER[:20] + b"x" + bytes(9), bytes(9) + b"\nhello\n",
    HEADER[:20] + bytes(5) + b"x\ny\n", HEADER.replace(b'"version":1', b'"version":2') + bytes(9), b"\n" + bytes(9),
    b"\n", b"{\n  \"a\": 1\n}\n", b"{}\n", b"\0\n\0\n", b"[" + bytes(10),
])  # fmt: skip
def test_case_G19_a_foreign_file_is_refused_and_untouched_whatever_zeros_it_holds(
    tmp_path: Path, content: bytes
) -> None:
    """Zeros alone make no trace: all that is beside them is ours, or the file is not."""
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="no trace of schema version"):
        JsonlTracer(path)
    assert path.read_bytes() == content
