"""The JSONL tracer: what it writes, that it never disturbs the run, and that a resumed run goes on in its file."""

from __future__ import annotations

import ast
import asyncio
import errno
import itertools
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, new_controller
from loop_turns import HANG_SECONDS

import impl
from impl import CheckpointBarrier, JsonlTracer, UsageError, read_trace
from impl.controller import GenerationRequest
from impl.tracing import FIELDS, End, Event, Gap, Header, Torn

ROOT = Path(__file__).parent.parent


def records(path: Path) -> list[Any]:
    return [line.record for line in read_trace(path)]


def events(path: Path) -> list[Event]:
    return [record for record in records(path) if isinstance(record, Event)]


def traced(path: Path) -> JsonlTracer:
    return JsonlTracer(path, flush_seconds=0.0)


def emits_of_the_library() -> dict[str, set[frozenset[str]]]:
    """Each action that a call in `impl` names literally, with the field names of every such call."""
    found: dict[str, set[frozenset[str]]] = {}
    for path in Path(impl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "emit":
                assert isinstance(node.args[0], ast.Constant), ast.unparse(node)
                names = frozenset(str(keyword.arg) for keyword in node.keywords)
                found.setdefault(str(node.args[0].value), set()).add(names)
    return found


def test_the_schema_lists_every_action_that_is_emitted_with_its_very_fields() -> None:
    """A new action or field that the schema does not know fails here, and so does a row that nobody emits."""
    emitted = emits_of_the_library()
    of_the_barrier = {name for name in FIELDS if name.endswith(("_slot", "_cut"))}
    assert emitted == {name: {frozenset(fields)} for name, fields in FIELDS.items() if name not in of_the_barrier}


def test_the_readme_lists_the_fields_of_every_action() -> None:
    """The table for people says what the table for programs says."""
    text = (ROOT / "impl" / "tracing" / "README.md").read_text(encoding="utf-8")
    rows = {
        cells[1].strip(" `"): [name.strip(" `") for name in cells[2].split(",") if name.strip()]
        for cells in (line.split("|") for line in text.splitlines() if line.startswith("| `"))
    }
    assert {name: rows.get(name) for name in FIELDS} == {name: list(fields) for name, fields in FIELDS.items()}


async def test_a_run_is_one_segment_under_its_identity(tmp_path: Path) -> None:
    """Header, events with consecutive numbers and growing time, end; the controller has closed it."""
    tracer = traced(tmp_path / "trace.jsonl")
    controller = new_controller(tmp_path / "run", Record(), prompts=6, barrier=CheckpointBarrier(trace=tracer))
    await controller.run()
    header, *body, end = records(tmp_path / "trace.jsonl")
    assert isinstance(header, Header)
    assert header.run is not None
    assert (header.run["dataset_length"], header.run["batch_size"], header.run["recovery"]) == (6, 2, True)
    assert header.run["sampler"] == {"name": "in_order", "parameters": {"lookahead": 1}}
    assert header.process == os.getpid()
    assert [event.number for event in body] == list(range(len(body)))
    assert all(first.monotonic <= second.monotonic for first, second in itertools.pairwise(body))
    assert end == End(len(body))
    trained = [group for event in body if event.action == "finish_step" for group in event.fields["groups"]]
    assert sorted(trained) == list(range(6))
    assert {event.task for event in body if event.action == "claim"} == {"train-pump"}
    assert {event.task for event in body if event.action == "dispatch"} == {"rollout-pump"}


async def test_the_trace_says_what_the_tracer_was_told(tmp_path: Path) -> None:
    """Every event with every field, in order, as another tracer has seen them."""
    record, tracer = Record(), traced(tmp_path / "trace.jsonl")

    def both(action: str, /, **fields: object) -> None:
        record.trace(action, **fields)
        tracer(action, **fields)

    async def generate(request: GenerationRequest) -> Any:
        if request.key.index == 3:
            raise ValueError("the data")
        return await record.generate(request)

    barrier = CheckpointBarrier(trace=both)
    await new_controller(tmp_path / "run", record, prompts=5, generate=generate, barrier=barrier).run()
    tracer.close()
    expected = [(action, json.loads(json.dumps(fields))) for action, fields in record.events]
    assert [(event.action, event.fields) for event in events(tmp_path / "trace.jsonl")] == expected
    assert {"fail_attempt", "retry", "shrink", "drop"} <= {action for action, _ in expected}


async def test_a_run_that_resumes_goes_on_in_the_same_file(tmp_path: Path) -> None:
    """Two segments of one identity; the second says what it was restored to."""
    path = tmp_path / "trace.jsonl"
    for steps in (1, None):
        barrier = CheckpointBarrier(trace=traced(path))
        await new_controller(tmp_path / "run", Record(), prompts=8, max_steps=steps, barrier=barrier).run()
    headers = [record for record in records(path) if isinstance(record, Header)]
    assert len(headers) == 2
    assert headers[0].run == headers[1].run
    assert headers[0].segment != headers[1].segment
    (restored,) = [event for event in events(path) if event.action == "restore"]
    published = [event.fields for event in events(path) if event.action == "publish"]
    assert restored.fields["name"] in [fields["name"] for fields in published]
    assert restored.number < 5, "numbers begin anew in each segment"
    owned = [entry[0] for entry in (*restored.fields["pending"], *restored.fields["ready"])]
    trained_later = [
        group for event in events(path) if event.action == "finish_step" for group in event.fields["groups"]
    ]
    assert sorted(trained_later) == list(range(8))
    assert set(owned) <= set(trained_later)


KILLED = """
import os, signal, sys
from impl import JsonlTracer
tracer = JsonlTracer(sys.argv[1], flush_seconds=0.0)
for group in range(1000):
    tracer("commit_group", group=group)
tracer.flush()
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("end", "status"), [("kill", -9), ("forget", 0)])
def test_a_killed_process_leaves_what_was_flushed_and_a_forgotten_close_is_made_up_for(
    tmp_path: Path, end: str, status: int
) -> None:
    """A segment without an end was cut off; a program that just ends has one."""
    path = tmp_path / "trace.jsonl"
    command = [sys.executable, "-c", KILLED, str(path), end]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == status
    *lines, last = records(path)
    assert sum(isinstance(record, Event) for record in (*lines, last)) == 1000
    assert isinstance(last, Event if end == "kill" else End)


def test_case_C07_a_line_that_a_crash_cut_short_stays_and_the_next_run_begins_its_own(tmp_path: Path) -> None:
    """At every length: appending to half a line would make one broken line of two."""
    path = tmp_path / "trace.jsonl"
    tracer = traced(path)
    tracer("commit_group", group=1)
    tracer.close()
    whole = path.read_bytes()
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        again = traced(path)
        again("commit_group", group=2)
        again.close()
        found = records(path)
        assert [type(record) for record in found[-3:]] == [Header, Event, End], length
        assert found[-2].fields == {"group": 2}
        assert all(isinstance(record, Header | Event | End | Torn) for record in found[:-3])


class Disk:
    """Stands between the tracer and `os.write`: lets through, refuses, or waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._write = os.write
        self.error: OSError | None = None
        self.go_on = threading.Event()
        self.go_on.set()
        self.asked = threading.Event()
        monkeypatch.setattr("impl.tracing.jsonl_tracer.os.write", self.write)

    def write(self, descriptor: int, data: Any) -> int:
        self.asked.set()
        self.go_on.wait()
        if self.error is not None:
            raise self.error
        # Short writes are legal; only a loop around them writes everything.
        return self._write(descriptor, data[: max(1, len(data) // 2)])


async def test_a_disk_that_stays_full_ends_the_trace_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line in the log however many events follow, and one at the end; what was written before can be read."""
    disk = Disk(monkeypatch)
    path = tmp_path / "trace.jsonl"
    tracer = traced(path)
    tracer("commit_group", group=1)
    assert tracer.flush()
    disk.error = OSError(errno.ENOSPC, "no space left")
    with caplog.at_level(logging.INFO, "cleancut.trace"):
        barrier = CheckpointBarrier(trace=tracer)
        report = await new_controller(None, Record(), prompts=8, barrier=barrier).run()
    assert report.trained == 8
    stands_still, ends = caplog.records
    assert {(entry.name, entry.levelno) for entry in caplog.records} == {("cleancut.trace", logging.ERROR)}
    assert "stands still" in stands_still.getMessage()
    assert "ends here" in ends.getMessage()
    assert not tracer.flush()
    assert [event.fields for event in events(path)] == [{"group": 1}]


def test_a_disk_that_does_not_answer_holds_nobody_up_and_what_is_lost_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory stays bounded, the file says how many events are missing, and the numbers go on behind the gap."""
    disk = Disk(monkeypatch)
    disk.go_on.clear()
    path = tmp_path / "trace.jsonl"
    tracer = JsonlTracer(path, flush_seconds=0.0, most_waiting=10)
    with caplog.at_level(logging.INFO, "cleancut.trace"):
        tracer("commit_group", group=0)
        # From here on nothing is taken over by the thread, so that there is one gap.
        assert disk.asked.wait(HANG_SECONDS)
        for group in range(1, 100):
            tracer("commit_group", group=group)
    assert len(tracer._waiting) <= 10
    disk.go_on.set()
    assert tracer.flush()
    tracer("commit_group", group=100)
    tracer.close()
    _, *lines, end = records(path)
    (gap,) = [record for record in lines if isinstance(record, Gap)]
    groups = [record.fields["group"] for record in lines if isinstance(record, Event)]
    assert groups == [*range(gap.number), 100]
    assert gap.number + gap.lost == 100
    assert end == End(101)
    assert [entry.levelno for entry in caplog.records] == [logging.WARNING]


def test_a_field_that_is_no_json_is_written_as_text_or_counted_and_never_raises(tmp_path: Path) -> None:
    """A program may emit events of its own; a tracer that raises would end the run inside a slot."""
    path = tmp_path / "trace.jsonl"
    tracer = traced(path)
    tracer("mine", thing=object, keys=(1, 2))
    tracer("mine", text="\ud800")
    tracer("mine", fine=1)
    tracer.close()
    _, first, gap, last, end = records(path)
    assert first.fields == {"thing": "<class 'object'>", "keys": [1, 2]}
    assert gap == Gap(1, 1)
    assert (last.number, last.fields, end) == (2, {"fine": 1}, End(3))


def test_events_outside_a_task_and_after_the_close_are_no_errors(tmp_path: Path) -> None:
    """A callback has no task; the collector may give an abandoned section back at any time."""
    path = tmp_path / "trace.jsonl"
    tracer = traced(path)
    tracer("commit_group", group=1)
    tracer.close()
    tracer.close()
    tracer("commit_group", group=2)
    assert tracer.flush()
    assert [(event.task, event.fields) for event in events(path)] == [(None, {"group": 1})]


def test_a_second_run_under_one_tracer_is_a_segment_of_its_own(tmp_path: Path) -> None:
    """Events before any run have a segment without identity."""
    path = tmp_path / "trace.jsonl"
    tracer = traced(path)
    tracer("mine")
    tracer.begin_run({"seed": 1})
    tracer("mine")
    tracer.close()
    shape = [record.run if isinstance(record, Header) else type(record) for record in records(path)]
    assert shape == [None, Event, End, {"seed": 1}, Event, End]


def test_two_writers_of_one_trace_are_refused(tmp_path: Path) -> None:
    """Their segments would run into each other; once the first has closed, the second may go on."""
    path = tmp_path / "trace.jsonl"
    first = traced(path)
    with pytest.raises(UsageError, match="another tracer writes"):
        traced(path)
    first.close()
    traced(path).close()
    assert [type(record) for record in records(path)] == [Header, End, Header, End]


@pytest.mark.parametrize(
    "content", [b"some other file\n", b'{"record":"header","schema":"cleancut.trace","version":2,']
)
def test_a_file_that_is_no_trace_of_this_version_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    """Appending to a file named by mistake would spoil it."""
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not empty, and no trace of schema version 1"):
        traced(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"path": 3}, "path is 3"),
        ({"path": "no/such/folder/trace.jsonl"}, "path: .* cannot be opened"),
        ({"flush_seconds": -1}, "flush_seconds is -1"),
        ({"flush_seconds": None}, "flush_seconds is None"),
        ({"most_waiting": 0}, "most_waiting is 0"),
        ({"most_waiting": True}, "most_waiting is True"),
    ],
)
def test_wrong_arguments_are_refused_by_name(tmp_path: Path, arguments: dict[str, Any], named: str) -> None:
    """When the tracer is made, not when the run is on its way."""
    with pytest.raises(UsageError, match=named):
        JsonlTracer(**{"path": tmp_path / "trace.jsonl", **arguments})
    assert list(tmp_path.iterdir()) == []


def test_without_a_tracer_an_event_is_one_call_and_one_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked up, formatted or encoded: only `_trace` is read."""
    read: list[str] = []

    class Watched(CheckpointBarrier):
        def __getattribute__(self, name: str) -> Any:
            read.append(name)
            return super().__getattribute__(name)

    barrier = Watched()
    read.clear()
    barrier.emit("commit_group", group=1)
    assert read == ["emit", "_trace"]


async def test_the_close_of_a_run_does_not_stop_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end waits for the disk in a thread; other tasks of the program go on."""
    disk = Disk(monkeypatch)
    disk.go_on.clear()
    barrier = CheckpointBarrier(trace=traced(tmp_path / "trace.jsonl"))
    run = asyncio.create_task(new_controller(None, Record(), prompts=4, barrier=barrier).run())
    while barrier.statistics().closed_because is None:
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not run.done()
    disk.go_on.set()
    assert (await run).trained == 4
    assert isinstance(records(tmp_path / "trace.jsonl")[-1], End)
