"""The crash budget: a crash anywhere, what it leaves, and the process that goes on from there."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from crashing_programs import CachedDisk, counting, scripted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interleavings import ExplorerUsageError, Subject, Trace, Violation, emit, explore, replay

# ------------------------------------------------------------------------------------- what a crash does and does not


def test_a_program_that_syncs_before_it_promises_holds_with_two_crashes_anywhere() -> None:
    """Complete: crashes are counted like every other choice."""
    result = explore(counting(2, syncs=True), crashes=2)
    assert result.verdict == "holds", result.summary()
    assert result.complete
    assert result.outcomes == {"returned 2"}


def test_a_promise_before_the_sync_is_found_with_the_shortest_trace_and_the_image_named() -> None:
    """The control: the same program without its sync loses what it had promised."""
    result = explore(counting(2, syncs=False), crashes=1)
    assert result.verdict == "fails"
    assert result.failure is not None
    assert "1 was said to be safe, and 0 is left (in recover, after a crash)" in result.failure.message
    assert result.counterexample is not None
    steps = result.counterexample.steps
    assert (steps[-1].kind, steps[-1].what) == ("crash", "what was synced")
    assert [step.kind for step in steps[:-1]] == ["task-step"] * 3
    assert result.counterexample.stock == "yes"
    assert explore(counting(2, syncs=False)).verdict == "holds", "without a crash nothing is lost"


def lives_of(at_death: str) -> tuple[Callable[[], Subject], list[str]]:
    """A process with everything that could still run after its death, and what ran."""
    ran: list[str] = []

    def program() -> Subject:
        ran.clear()

        async def generator() -> Any:
            try:
                yield 1
                await asyncio.Event().wait()
            finally:
                ran.append("generator")

        async def first() -> None:
            loop = asyncio.get_running_loop()
            loop.call_soon(ran.append, "callback")
            loop.call_later(1, ran.append, "timer")
            job = loop.run_in_executor(None, ran.append, "job")
            job.add_done_callback(lambda job: ran.append("delivery"))
            steps = generator()
            try:
                async for _ in steps:
                    await asyncio.Event().wait()
            finally:
                ran.append("finally")

        async def second() -> None:
            seen = list(ran)
            for _ in range(3):
                await asyncio.sleep(1)
            if ran != seen:
                raise Violation("dead", f"{ran} after {seen}: something of the dead process ran")

        return Subject(first(), recover=lambda image: second())

    return program, ran


def test_nothing_of_the_dead_process_runs_any_more() -> None:
    """No `finally`, callback, timer, job or generator of it, in any schedule; the end of the run cleans up quietly."""
    program, ran = lives_of("anywhere")
    result = explore(program, crashes=1, keep_going=True)
    assert "violation: dead" not in result.outcomes
    assert result.outcomes == {"returned None", "deadlock: deadlock"}, "the first process waits for ever, the next ends"
    assert "finally" in ran, "closed when the run was over"


def test_a_crash_does_not_hide_a_deadlock() -> None:
    """Where nothing can go on but a crash, the program stands still."""

    async def stuck() -> None:
        await asyncio.Event().wait()

    async def fine() -> None:
        pass

    result = explore(lambda: Subject(stuck(), recover=lambda image: fine()), crashes=1)
    assert result.verdict == "fails"
    assert result.failure is not None
    assert result.failure.property == "deadlock"


def test_an_error_nobody_looked_at_dies_with_its_process() -> None:
    """The next process is judged by itself; without the crash the same error is a failure."""

    async def main() -> None:
        async def fails() -> None:
            raise ValueError("unseen")

        await asyncio.wait([asyncio.create_task(fails())])  # which looks at nothing
        await asyncio.sleep(0)

    async def fine() -> None:
        pass

    result = explore(lambda: Subject(main(), recover=lambda image: fine()), crashes=1, keep_going=True)
    assert result.outcomes == {"unseen-exception: ValueError", "returned None"}


def test_a_main_coroutine_cancelled_before_the_crash_does_not_excuse_one_after_it() -> None:
    """Whose cancellation it was is forgotten with the process, and is part of the state while it matters."""

    async def patient() -> None:
        await asyncio.sleep(1)

    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    def program() -> Subject:
        return Subject([patient(), patient()], recover=lambda image: cancels_itself())

    result = explore(program, crashes=1, cancels=1, keep_going=True)
    assert "exception: CancelledError" in result.outcomes
    assert result.outcomes == explore(program, crashes=1, cancels=1, keep_going=True, prune=False).outcomes


def test_time_contexts_and_random_numbers_begin_anew() -> None:
    """A new process: its clock starts, no variable of the old context is set, nobody has seeded."""
    variable: ContextVar[int] = ContextVar("variable", default=0)

    async def first() -> None:
        variable.set(1)
        await asyncio.sleep(5)
        await asyncio.sleep(5)

    async def second() -> tuple[float, int]:
        return asyncio.get_running_loop().time(), variable.get()

    result = explore(lambda: Subject(first(), recover=lambda image: second()), crashes=1)
    assert result.outcomes == {"returned None", "returned (0.0, 0)"}


def test_what_recover_returns_may_be_a_subject_of_its_own() -> None:
    """It brings its own end and invariant; what survives and how it goes on it takes over where it says nothing."""

    async def live() -> None:
        await asyncio.sleep(0)

    def finish_of(name: str) -> Callable[[], None]:
        def finish() -> None:
            raise Violation(name, "ended")

        return finish

    def program() -> Subject:
        def recover(image: int) -> Subject:
            return Subject(live(), finish=finish_of(f"life {image}"), durable=lambda: {"": image + 1})

        return Subject(live(), finish=finish_of("life 0"), durable=lambda: {"": 1}, recover=recover)

    result = explore(program, crashes=2, keep_going=True)
    assert result.outcomes == {f"violation: life {number}" for number in range(3)}


def test_every_image_is_a_choice_and_every_close_is_called_once_a_run() -> None:
    """Three images, three outcomes; `close` of each process, and that of the first once."""
    closed: list[int] = []

    async def live(number: int) -> int:
        await asyncio.sleep(0)
        return number

    def program() -> Subject:
        closed.clear()

        def close() -> None:
            closed.append(0)

        return Subject(
            live(0), close=close, durable=lambda: {"one": 1, "two": 2, "three": 3}, recover=lambda image: live(image)
        )

    result = explore(program, crashes=1)
    assert result.outcomes == {f"returned {number}" for number in range(4)}
    assert closed == [0]


@pytest.mark.parametrize(
    ("subject", "says"),
    [
        (lambda main: main(), "does not say how it goes on after a crash"),
        (lambda main: Subject(main(), durable=lambda: {"": 1}), "does not say how it goes on after a crash"),
        (lambda main: Subject(main(), durable=dict, recover=lambda image: main()), "returned {}"),
        (lambda main: Subject(main(), durable=list, recover=lambda image: main()), r"returned \[\]"),  # type: ignore[arg-type]
        (lambda main: Subject(main(), recover=str), "Subject.recover returned str"),  # type: ignore[arg-type]
        (lambda main: Subject(main(), recover=lambda image: []), "Subject.coroutine is empty"),
    ],
)
def test_a_program_that_cannot_be_crashed_is_refused(subject: Any, says: str) -> None:
    """A budget that nothing could use would make a complete search say more than was looked at."""

    async def main() -> None:
        await asyncio.sleep(0)

    with pytest.raises(ExplorerUsageError, match=says):
        explore(lambda: subject(main), crashes=1)


# ------------------------------------------------------------------------------------------------- traces of a crash


def test_a_trace_with_a_crash_replays_from_its_file_and_as_a_generated_test(tmp_path: Path) -> None:
    """By name: the crash, and the image it left; the generated test fails while the failure is there."""
    trace = explore(counting(2, syncs=False), crashes=1).counterexample
    assert trace is not None
    trace.save(tmp_path / "trace.json")
    loaded = Trace.load(tmp_path / "trace.json")
    assert loaded.budgets["crashes"] == 1
    assert "crash: what was synced" in loaded.describe()
    assert replay(counting(2, syncs=False), loaded).reproduced
    mended = replay(counting(2, syncs=True), loaded)
    assert mended.outcome == "completed", mended.describe()
    text = emit(loaded, "crashing_programs:lost_update")
    path = tmp_path / "test_generated.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("test_generated", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (test,) = (value for name, value in vars(module).items() if name.startswith("test_"))
    with pytest.raises(AssertionError, match="1 was said to be safe"):
        test()


def test_an_image_that_is_not_there_any_more_makes_the_trace_stale() -> None:
    """The name of what a crash left is part of the step."""

    def counting_on(name: str) -> Callable[[], Subject]:
        def program() -> Subject:
            subject = counting(2, syncs=False)()
            images = subject.durable
            assert images is not None
            subject.durable = lambda: {name if key == "what was synced" else key: i for key, i in images().items()}
            return subject

        return program

    trace = explore(counting_on("old"), crashes=1).counterexample
    assert trace is not None
    result = replay(counting_on("renamed"), trace)
    assert result.stale
    assert "crash: old" in result.describe()
    assert any("crash: renamed" in enabled for enabled in result.enabled)


def test_stock_asyncio_cannot_show_a_failure_that_needs_another_order_and_a_crash() -> None:
    """The label asks with crashes too: here the failure needs the younger task to run first."""

    def program(order: tuple[str, str]) -> Callable[[], Subject]:
        def make() -> Subject:
            disk = CachedDisk()

            async def write(name: str) -> None:
                disk.write(name, 1)
                disk.sync()
                await asyncio.sleep(0)

            def recover(image: CachedDisk) -> Any:
                assert image.read("b") <= image.read("a"), "b without a"
                return write("c")

            return Subject([write(name) for name in order], durable=disk.images, recover=recover)

        return make

    for order, label in ((("a", "b"), "no"), (("b", "a"), "yes")):
        trace = explore(program(order), crashes=1).counterexample
        assert trace is not None
        assert trace.stock == label


# ---------------------------------------------------------------------------------------------- pruned against unpruned


FIXED = {
    "add and sync": (("add", "sync"), ("pass",)),
    "copy": (("add", "copy"), ("sync",)),
    "hand over": (("put", "sync"), ("get", "pass")),
    "wait": (("set",), ("wait", "add")),
    "timer": (("sleep", "add"), ("sync",)),
    "thread": (("thread",), ("sync",)),
}


@pytest.mark.parametrize("scripts", FIXED.values(), ids=FIXED)
def test_case_F08_pruned_search_has_outcomes_verdict_and_count_of_every_schedule_with_crashes(scripts: Any) -> None:
    """What would be left is state: a merge of two states with other durable content would lose an outcome here."""
    pruned = explore(scripted(scripts), keep_going=True, crashes=1)
    enumerated = explore(scripted(scripts), keep_going=True, crashes=1, prune=False, max_states=60_000)
    assert enumerated.complete
    assert pruned.outcomes == enumerated.outcomes
    assert pruned.verdict == enumerated.verdict
    assert pruned.schedules == enumerated.schedules


INSTRUCTIONS = st.sampled_from(["pass", "add", "copy", "sync", "set", "wait", "put", "get", "sleep", "thread"])


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    scripts=st.lists(st.lists(INSTRUCTIONS, min_size=1, max_size=2), min_size=1, max_size=2),
    budgets=st.sampled_from([(1, 0), (1, 1), (2, 0)]),
)
def test_case_F08_generated_programs_have_the_same_outcomes_with_crashes(
    scripts: list[list[str]], budgets: tuple[int, int]
) -> None:
    """Small programs that crash anywhere, deadlocks and cancellations included."""
    program, (crashes, cancels) = scripted(scripts), budgets
    enumerated = explore(program, keep_going=True, crashes=crashes, cancels=cancels, prune=False, max_states=600)
    pruned = explore(program, keep_going=True, crashes=crashes, cancels=cancels, max_states=2_000)
    if enumerated.complete:
        assert pruned.complete
        assert pruned.outcomes == enumerated.outcomes, scripts
        assert pruned.schedules == enumerated.schedules
    assert not pruned.complete or enumerated.outcomes <= pruned.outcomes


def test_case_F08_durable_content_is_part_of_the_state() -> None:
    """Two orders leave the same memory and another disk; only a crash tells them apart, and both must be seen."""

    async def write(disk: CachedDisk) -> None:
        disk.write("x", 1)

    async def sync(disk: CachedDisk) -> None:
        disk.sync()

    async def both(disks: list[CachedDisk]) -> None:
        await asyncio.gather(write(disks[0]), sync(disks[0]))
        del disks
        await asyncio.sleep(0)  # from here on the process knows nothing of the disk

    async def read(image: CachedDisk) -> int:
        return image.read("x")

    def program() -> Subject:
        disk = CachedDisk()
        return Subject(both([disk]), durable=lambda: {"": CachedDisk(disk.durable)}, recover=read)

    result = explore(program, crashes=1)
    assert result.outcomes == {"returned None", "returned 0", "returned 1"}
    assert result.outcomes == explore(program, crashes=1, prune=False).outcomes


@pytest.mark.parametrize("how", ["argument", "subject"])
def test_a_program_that_crashes_has_no_folded_tasks(how: str) -> None:
    """The tasks of the next process have names of their own, of which a declaration knows nothing."""
    plain = counting(1, syncs=True)

    def program() -> Subject:
        subject = plain()
        assert isinstance(subject, Subject)
        subject.identical = ("main", "other") if how == "subject" else ()
        return subject

    with pytest.raises(ExplorerUsageError, match="crashes= and identical="):
        explore(program, crashes=1, identical=["main", "other"] if how == "argument" else ())
