"""A disk that refuses the trace for a while, or for good: the run loses nothing, and the trace says what it lacks."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from memory_runs import assert_nothing_is_held
from traced_runs import TracedRun, lines_of

from impl import JsonlTracer
from interleavings.correspondence.validation import validate

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.usefixtures("quiet_library")

#: A process whose files may have 20,000 bytes, then as many as they like: the write is cut short, then refused.
LIMITED = """
import resource, signal, sys
from impl import JsonlTracer
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
tracer = JsonlTracer(sys.argv[1], flush_seconds=0.0)
for group in range(1000):
    tracer("commit_group", group=group)
assert not tracer.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert tracer.flush()
tracer.close()
"""


class Refusing:
    """Stands before `os.write`: lets through half of what it is given, and refuses while `refuses` says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: int, refuses: Callable[[int], bool]) -> None:
        self._write, self._error, self._refuses = os.write, error, refuses
        self.calls = 0
        monkeypatch.setattr("impl.tracing.jsonl_tracer.os.write", self.write)
        monkeypatch.setattr("impl.tracing.jsonl_tracer._RETRY", 0.0)

    def write(self, descriptor: int, data: Any) -> int:
        self.calls += 1
        if self._refuses(self.calls):
            raise OSError(self._error, os.strerror(self._error))
        return self._write(descriptor, data[: max(1, len(data) // 2)])


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES])
def test_a_disk_that_refuses_now_and_then_costs_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Also in the middle of a line: the rest of it comes when the disk takes it, and before anything else."""
    refusing = True
    disk = Refusing(monkeypatch, error, lambda call: refusing and call % 7 in (2, 3, 5))
    path = tmp_path / "trace.jsonl"
    with caplog.at_level(logging.INFO, "cleancut.trace"):
        run = TracedRun(path, prompts=8, batch_size=2, chance=3)
        run.run()
        refusing = False
        run._tracer.close()
    assert disk.calls > 20
    assert_nothing_is_held(run.controller)
    result = validate([path])
    assert (result.verdict, result.cut_short) == ("holds", 0)
    assert result.events == len(run.events)
    told = {record.getMessage().partition(str(path))[2].split(",")[0].split(":")[0] for record in caplog.records}
    assert told == {" stands still", " is written again."}


def test_what_does_not_fit_while_the_disk_refuses_is_a_gap_and_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory stays bounded; the events are counted, and what comes behind them is not judged."""
    path = tmp_path / "trace.jsonl"
    refusing = True
    Refusing(monkeypatch, errno.ENOSPC, lambda call: refusing)
    run = TracedRun(path, prompts=8, batch_size=2)
    run._tracer._most_waiting = 20
    run.run()
    assert len(run._tracer._waiting) <= 24
    refusing = False
    run._tracer.close()
    *_, gap, end = lines_of(path)
    assert (gap["record"], end["record"]) == ("gap", "end")
    assert end["events"] == len(run.events) == gap["number"] + gap["lost"]
    result = validate([path])
    assert result.verdict == "inconclusive"
    assert "missing" in result.open_because[0]


def test_a_flush_that_the_disk_refuses_says_so_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks whether it is written must not hear yes, and need not wait ten seconds for the no."""
    monkeypatch.setattr("impl.tracing.jsonl_tracer._PATIENCE", 60.0)
    refusing = True
    Refusing(monkeypatch, errno.EIO, lambda call: refusing)
    tracer = JsonlTracer(tmp_path / "trace.jsonl", flush_seconds=0.0)
    tracer("mine")
    assert not tracer.flush()
    refusing = False
    assert tracer.flush()
    assert [line["record"] for line in lines_of(tmp_path / "trace.jsonl")] == ["header", "event"]
    tracer.close()


def test_a_renamed_trace_goes_on_and_a_deleted_one_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A rotation by name loses nothing; of a file that is deleted nobody would know until it is looked for."""
    path = tmp_path / "trace.jsonl"
    tracer = JsonlTracer(path, flush_seconds=0.0)
    tracer("mine")
    assert tracer.flush()
    path.rename(tmp_path / "trace.jsonl.1")
    tracer("mine")
    with caplog.at_level(logging.INFO, "cleancut.trace"):
        assert tracer.flush()
        assert not caplog.records
        (tmp_path / "trace.jsonl.1").unlink()
        for _ in range(3):
            tracer("mine")
            assert tracer.flush()
    (record,) = caplog.records
    assert "was deleted while it was written" in record.getMessage()
    tracer.close()


def test_a_limit_of_the_system_cuts_a_write_short_and_nothing_is_lost(tmp_path: Path) -> None:
    """No stand-in: the kernel writes a part of a line and refuses the rest, until it is allowed."""
    path = tmp_path / "trace.jsonl"
    child = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    assert "stands still" in child.stderr
    _, *events, end = lines_of(path)
    assert [event["fields"]["group"] for event in events] == list(range(1000))
    assert end["events"] == 1000
