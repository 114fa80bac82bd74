"""Traces: written by name, read back, walked again, and honest about a program that has changed."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from explorer_programs import barrier_subject, lock_order, lost_update_checked, safe_update_checked

from interleavings import ExplorerUsageError, Failure, Step, Subject, Trace, TraceUnreadable, emit, explore, replay


def trace_of(program: Callable[[], Any], **options: Any) -> Trace:
    """Explore a program that is expected to fail and return the trace."""
    trace = explore(program, **options).counterexample
    assert trace is not None
    return trace


async def _keep_alive() -> None:
    never = asyncio.Event()

    async def beat() -> None:
        while True:
            await asyncio.sleep(10)

    task = asyncio.create_task(beat(), name="beat")
    await never.wait()
    task.cancel()


async def _timeout() -> None:
    async def work() -> None:
        await asyncio.to_thread(int)
        await asyncio.sleep(1)

    async with asyncio.timeout(1):
        await work()


def _torn() -> Subject:
    return barrier_subject(3, 3, seeded="waits once")()


def _wrong_middle() -> Subject:
    inside = 0

    async def enter() -> None:
        nonlocal inside
        inside += 1
        await asyncio.sleep(0)
        inside -= 1

    return Subject([enter(), enter()], invariant=lambda: inside < 2)


@pytest.mark.parametrize(
    ("program", "cancels"),
    [(lost_update_checked, 0), (lock_order, 0), (_keep_alive, 0), (_timeout, 0), (_torn, 0), (_wrong_middle, 0),
     (barrier_subject(2, 2), 1)],
    ids=["exception", "deadlock", "no-progress", "timeout", "finish", "invariant", "cancellation"],
)  # fmt: skip
def test_case_F04_every_kind_of_failure_replays_from_memory_and_from_file(
    program: Callable[[], Any], cancels: int, tmp_path: Path
) -> None:
    """A trace that cannot be loaded or ends elsewhere is worth nothing."""
    trace = trace_of(program, cancels=cancels)
    path = tmp_path / "trace.json"
    trace.save(path)
    loaded = Trace.load(path)
    assert loaded.steps == trace.steps
    for one in (trace, loaded):
        result = replay(program, one)
        assert result.outcome == "reproduced", result.describe()
        assert result.position == len(trace.steps)
        assert result.failure is not None
        assert result.failure.same_as(trace.failure)


def test_steps_are_named_by_task_and_line() -> None:
    """A reader sees who moved and where, not an index."""
    trace = trace_of(lost_update_checked)
    assert trace.steps[0] == Step("task-step", "main", trace.steps[0].where)
    places = {step.where.partition(":")[0] for step in trace.steps}
    assert places <= {"explorer_programs.py", "tasks.py"}
    increments = [step for step in trace.steps if step.task == "increment-1" and step.kind == "task-step"]
    assert increments[0].where.endswith("in Counter.increment")
    assert increments[1].where.endswith("in Counter._update")


def test_trace_says_what_it_is(tmp_path: Path) -> None:
    """Format, version, program, Python and budgets are in the file."""
    path = tmp_path / "trace.json"
    trace_of(barrier_subject(2, 2), cancels=1).save(path)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["format"] == "cleancut-interleaving-trace"
    assert document["version"] == 1
    assert document["program"]["reference"].startswith("explorer_programs:barrier_subject")
    assert document["python"] == ".".join(map(str, sys.version_info[:3]))
    assert document["budgets"]["cancels"] == 1
    assert document["failure"]["kind"] == "deadlock"
    assert document["failure"]["details"]["blocked"]


def test_details_of_any_kind_are_saved(tmp_path: Path) -> None:
    """An observer may put anything into its details; the file is strict JSON all the same."""
    details: dict[Any, Any] = {
        "set": {1},
        ("a", 1): float("nan"),
        "object": Path("x"),
        "nested": {"tuple": (1, 2.5, None, True)},
    }
    trace = Trace({}, (), Failure("violation", "p", "m\ud800", details))
    trace.save(tmp_path / "trace.json")
    assert Trace.load(tmp_path / "trace.json").failure.details == {
        "set": [1],
        "('a', 1)": "nan",
        "object": "x",
        "nested": {"tuple": [1, 2.5, None, True]},
    }


def test_program_may_name_itself() -> None:
    """A program built from parameters says what it is by an attribute."""

    def program() -> Any:
        return lost_update_checked()

    program.trace_identity = {"scenario": "counter", "parameters": {"tasks": 2}}  # type: ignore[attr-defined]
    assert trace_of(program).program == {"scenario": "counter", "parameters": {"tasks": 2}}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe\x00", "no UTF-8 text"),
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "its format is not"),
        (b'{"format": "other"}', "its format is not"),
        (b'{"format": "cleancut-interleaving-trace", "version": 2}', "version 2"),
        (b'{"format": "cleancut-interleaving-trace", "version": true}', "no valid version"),
        (b'{"format": "cleancut-interleaving-trace", "version": 1}', "is damaged"),
        (b'{"format": "cleancut-interleaving-trace", "version": 1, "program": {}, "failure": {"kind": "a", '
         b'"property": "b", "message": "c"}, "steps": [{"kind": "jump", "task": "x"}]}', "unknown kind of step"),
    ],
    ids=["missing", "binary", "cut", "nested", "list", "other", "newer", "boolean", "empty", "step"],
)  # fmt: skip
def test_unreadable_trace_is_refused_in_one_line(content: bytes | None, says: str, tmp_path: Path) -> None:
    """Each way a file can be wrong has its own sentence."""
    path = tmp_path / "trace.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TraceUnreadable, match=says) as raised:
        Trace.load(path)
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)


def test_case_F07_every_position_of_a_repeating_trace_is_replayed() -> None:
    """A-B-A-C: the program comes back to a state, and the replay goes through it again."""
    visits: list[str] = []

    async def main() -> None:
        at = "A"
        for following in ("B", "A", "C"):
            visits.append(at)
            at = following
            await asyncio.sleep(0)
        visits.append(at)
        raise AssertionError("at C")

    trace = trace_of(main)
    assert len(trace.steps) == 4
    visits.clear()
    assert replay(main, trace).reproduced
    assert visits == ["A", "B", "A", "C"]


def test_moved_lines_do_not_make_a_trace_stale() -> None:
    """An edit elsewhere in the file moves every line; the function is what is compared."""
    trace = trace_of(lost_update_checked)
    moved = tuple(
        dataclasses.replace(step, where=step.where.replace(":", ":9", 1)) if ":" in step.where else step
        for step in trace.steps
    )
    result = replay(lost_update_checked, dataclasses.replace(trace, steps=moved))
    assert result.reproduced
    assert result.moved == len(trace.steps)


def test_renamed_task_makes_a_trace_stale_and_says_where() -> None:
    """At which step, what was asked, and what was enabled instead."""
    trace = trace_of(lost_update_checked)
    steps = list(trace.steps)
    steps[2] = dataclasses.replace(steps[2], task="increment-9")
    result = replay(lost_update_checked, dataclasses.replace(trace, steps=tuple(steps)))
    assert result.stale
    assert result.position == 3
    assert "increment-9" in result.asked
    assert any("increment-2" in enabled for enabled in result.enabled)
    assert result.describe().startswith("stale at step 3: asked for task-step increment-9")


def test_step_in_another_function_makes_a_trace_stale() -> None:
    """The task is there, but it is somewhere else in the program."""
    trace = trace_of(lost_update_checked)
    steps = list(trace.steps)
    steps[1] = dataclasses.replace(steps[1], where="explorer_programs.py:1 in Counter.decrement")
    result = replay(lost_update_checked, dataclasses.replace(trace, steps=tuple(steps)))
    assert result.stale
    assert "but it is now at" in result.asked


def test_schedule_that_a_fix_forbids_is_stale_and_not_a_pass() -> None:
    """With a lock the second task has to wait where the trace wants it to go on. An edit could look the same."""
    trace = trace_of(lost_update_checked)
    renamed = tuple(
        dataclasses.replace(step, where=step.where.replace("lost_update", "safe_update")) for step in trace.steps
    )
    result = replay(safe_update_checked, dataclasses.replace(trace, steps=renamed))
    assert result.stale, result.describe()
    assert result.failure is None


def test_replay_of_a_fixed_program_completes() -> None:
    """Every step is there and nothing fails any more."""

    def build(wrong: bool) -> Callable[[], Any]:
        async def main() -> None:
            await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
            assert not wrong, "still wrong"

        return main

    assert replay(build(wrong=False), trace_of(build(wrong=True))).outcome == "completed"


def test_other_failure_on_the_way_is_told_apart() -> None:
    """A replay that fails differently has not reproduced anything."""

    def build(error: type[Exception]) -> Callable[[], Any]:
        async def main() -> None:
            await asyncio.sleep(0)
            raise error("here")

        return main

    result = replay(build(TypeError), trace_of(build(ValueError)))
    assert result.outcome == "failed"
    assert result.failure is not None
    assert result.failure.property == "TypeError"


EMITTED_PROGRAM = """
import asyncio

LOCKED = {locked}

async def program():
    value = 0
    lock = asyncio.Lock()

    async def add():
        nonlocal value
        if LOCKED:
            await lock.acquire()
        seen = value
        await asyncio.sleep(0)
        value = seen + 1
        if LOCKED:
            lock.release()

    {renamed}
    assert value == 2, f"lost update: {{value}}"
"""
GATHER = "await asyncio.gather(add(), add())"
RENAMED = "await asyncio.gather(*(asyncio.create_task(add(), name=f'adder {n}') for n in range(2)))"


SCRIPT = """
import interleavings
from shop import program as in_a_module


async def program():
    await in_a_module()


if __name__ == "__main__":
    interleavings.explore(program).counterexample.save("trace.json")
"""


def test_a_program_in_the_script_that_runs_is_named_by_its_file(tmp_path: Path) -> None:
    """`__main__` is another module in every process: a trace that names it could not be replayed."""
    (tmp_path / "shop.py").write_text(EMITTED_PROGRAM.format(locked=False, renamed=GATHER), encoding="utf-8")
    (tmp_path / "my_script.py").write_text(SCRIPT, encoding="utf-8")
    assert _python(tmp_path, "my_script.py")[0] == 0
    document = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert document["program"]["reference"] == "my_script:program"
    status, said = _python(tmp_path, "-m", "interleavings", "replay", "trace.json", "--trust")
    assert status == 1
    assert "lost update" in said


def _run_emitted(folder: Path, *, locked: bool, body: str = GATHER) -> tuple[int, str]:
    (folder / "shop.py").write_text(EMITTED_PROGRAM.format(locked=locked, renamed=body), encoding="utf-8")
    return _python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_emitted.py")


def _python(folder: Path, *arguments: str) -> tuple[int, str]:
    root = Path(__file__).resolve().parent.parent
    finished = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PYTHONPATH": f"{root}:{folder}", "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.returncode, finished.stdout


def test_emitted_test_fails_on_the_fault_passes_on_the_fix_and_says_when_it_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way back: counterexample, file, red, repaired, green, renamed, stale."""
    (tmp_path / "shop.py").write_text(EMITTED_PROGRAM.format(locked=False, renamed=GATHER), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import shop  # type: ignore[import-not-found]

    trace = trace_of(shop.program)
    text = emit(trace, "shop:program")
    assert text == emit(trace, "shop:program")
    assert text.count("    Step(") == len(trace.steps)
    (tmp_path / "test_emitted.py").write_text(text, encoding="utf-8")
    sys.modules.pop("shop")

    red, red_output = _run_emitted(tmp_path, locked=False)
    green, green_output = _run_emitted(tmp_path, locked=True)
    stale, stale_output = _run_emitted(tmp_path, locked=False, body=RENAMED)
    bounded = emit(trace, "shop:program", max_states=3)
    (tmp_path / "test_emitted.py").write_text(bounded, encoding="utf-8")
    unsettled, unsettled_output = _run_emitted(tmp_path, locked=True)
    codes = (red, green, stale, unsettled)
    assert codes == (1, 0, 1, 1), red_output + green_output + stale_output + unsettled_output
    assert "reproduced at step" in red_output
    assert "lost update: 1" in red_output
    assert "1 passed" in green_output
    assert "stale trace: stale at step 2" in stale_output
    assert "Every schedule was asked instead: fails (exception: AssertionError" in stale_output
    assert "emit the new counterexample" in stale_output
    assert "Every schedule was asked instead: holds (bounded: max_states=3" in unsettled_output


def test_emitted_text_survives_awkward_names() -> None:
    """Quotes, backslashes and newlines in names and messages stay inside their literals."""
    step = Step("task-step", 'a "quoted" \\ task\n', "f.py:1 in g")
    trace = Trace({"reference": "m:p"}, (step,), Failure("exception", "E", 'says """ and \\'))
    text = emit(trace, "package.module:Class.program")
    compile(text, "emitted", "exec")
    namespace: dict[str, Any] = {"__name__": "emitted"}
    exec(text, namespace)
    assert namespace["STEPS"] == (step,)


@pytest.mark.parametrize("reference", ["", "module", "module:", "module:a b", "os; x:y"])
def test_emit_refuses_what_is_no_reference(reference: str) -> None:
    """The reference is put into source text, so its form is checked."""
    with pytest.raises(ExplorerUsageError, match="module:callable"):
        emit(Trace({}, (), Failure("a", "b", "c")), reference)
