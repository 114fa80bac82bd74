"""`workers=`: several processes find just what one finds, and say so when they cannot."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from explorer_programs import PROGRAMS, barrier_subject, lost_update_checked

from interleavings import ExplorerUsageError, Result, Subject, explore
from interleavings.command_line import main
from interleavings.correspondence import Coverage
from interleavings.search.parallel import team
from interleavings.state import reading_of


def found(result: Result) -> tuple[Any, ...]:
    """Everything that a search claims; only the number of runs is each search's own."""
    trace = result.counterexample
    return (
        result.verdict, result.complete, result.states, result.transitions, result.depth, result.schedules, result.why,
        result.spin, result.outcomes, None if trace is None else (trace.steps, trace.failure, trace.stock),
    )  # fmt: skip


def assert_the_same(program: Callable[[], Any], **options: Any) -> Result:
    alone, shared = explore(program, **options), explore(program, workers=2, **options)
    assert found(shared) == found(alone)
    assert multiprocessing.active_children() == []
    return shared


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_small_programs_are_the_same_with_two_workers(name: str) -> None:
    """Every primitive, deadlocks and failures: verdict, counts, outcomes and the very counterexample."""
    assert_the_same(PROGRAMS[name], keep_going=True)


@pytest.mark.parametrize("options", [{}, {"cancels": 1}, {"max_states": 60}], ids=str)
@pytest.mark.parametrize("seeded", ["", "waits once"])
def test_condition_barrier_is_the_same_with_two_workers(seeded: str, options: dict[str, Any]) -> None:
    """Complete, failing at the shortest length, and cut short at a bound."""
    assert_the_same(barrier_subject(2, 2, seeded=seeded), **options)


def test_three_workers_find_the_pinned_counts() -> None:
    """The counts of the larger barrier, which two other engines agree on."""
    result = explore(barrier_subject(3, 3, declared=True), workers=3)
    assert (result.verdict, result.states, result.schedules) == ("holds", 571, 71_352)


def observed() -> Subject:
    """A program with a history that only its observer sees."""
    order: list[int] = []

    async def walk(name: int) -> None:
        for _ in range(2):
            order.append(name)
            await asyncio.sleep(0)

    # A number and a truth value are equal, and so are tuples with and without names: one answer, whoever sees it first.
    return Subject([walk(1), walk(2)], observe=lambda: tuple(bool(n) if n == 1 else n for n in order), state=tuple)


def test_what_an_observer_answers_is_the_same_in_every_process() -> None:
    """Answers are numbered by first sight in one process; several call them by their content."""
    assert assert_the_same(observed).schedules == 20


def test_numbers_of_first_sight_would_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: two processes that number answers by themselves contradict each other or count wrongly."""
    monkeypatch.setattr(team, "Answers", dict)
    assert found(explore(observed, workers=2)) != found(explore(observed))


def test_number_of_the_thread_reads_alike_in_every_process() -> None:
    """A program may note the thread it began on, as the barrier does; the number of another is a number."""
    numbers, readings = [threading.get_ident()], [reading_of(("began on", threading.get_ident()))]

    def elsewhere() -> None:
        numbers.append(threading.get_ident())
        readings.append(reading_of(("began on", threading.get_ident())))
        readings.append(reading_of(("began on", numbers[0])))

    other = threading.Thread(target=elsewhere)
    other.start()
    other.join()
    assert numbers[0] != numbers[1]
    assert readings[0] == readings[1] != readings[2]


def test_counts_of_the_callers_own_come_back() -> None:
    """What runs count for the caller in other processes is added up."""
    coverage = Coverage()

    def program() -> Subject:
        async def count(name: str) -> None:
            await asyncio.sleep(0)
            coverage.actions[name] += 1

        return Subject([count("left"), count("right")], state=tuple)

    program.collected = coverage  # type: ignore[attr-defined]
    assert explore(program, workers=2).verdict == "holds"
    assert coverage.actions.keys() == {"left", "right"}
    assert coverage.stutters == Counter()


def test_command_shares_a_scenario_and_keeps_its_coverage(tmp_path: Path) -> None:
    """`check --workers 2`: the pinned counts, and the machine's actions that steps in other processes took."""
    file = tmp_path / "result.json"
    assert main(["check", "barrier", "--workers", "2", "--json", str(file)]) == 0
    (item,) = json.loads(file.read_text())
    assert (item["states"], item["schedules"]) == (1_734, 23_795)
    assert item["actions_taken"]
    assert item["actions_never_taken"] == ["cancel_outside", "expire_cut", "cancel_before_request"]


# ------------------------------------------------------------------------------------------------- when it goes wrong


def killed(when: Callable[[], bool]) -> Callable[[], Subject]:
    """A program that ends its process when it is run by a worker; the process that searches never runs it so far."""
    searching = os.getpid()

    def build() -> Subject:
        async def work() -> None:
            await asyncio.sleep(0)
            if os.getpid() != searching and when():
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.sleep(0)

        return Subject([work(), work(), work()])

    return build


def test_work_of_a_killed_worker_is_done_by_another(tmp_path: Path) -> None:
    """A process that the system kills once costs its work, not the answer."""
    once = tmp_path / "killed"

    def when() -> bool:
        if once.exists():
            return False
        once.touch()
        return True

    shared = explore(killed(when), workers=2)
    assert once.exists()
    assert found(shared) == found(explore(killed(lambda: False)))


def test_worker_that_is_killed_again_and_again_ends_the_search() -> None:
    """It is no verdict on the program, and the likely cause is named."""
    result = explore(killed(lambda: True), workers=2)
    assert result.verdict == "inconclusive"
    assert result.why is not None
    assert "by signal 9" in result.why
    assert "memory" in result.why
    assert multiprocessing.active_children() == []


def test_interrupted_search_says_what_it_covered() -> None:
    """Ctrl-C ends the workers and keeps what is known."""

    def press(*figures: Any) -> None:
        raise KeyboardInterrupt

    result = explore(barrier_subject(3, 3), workers=2, progress=press)
    assert (result.verdict, result.why) == ("bounded", "interrupted")
    assert result.states is not None
    assert result.states >= 50
    assert "covered" in result.summary()
    assert multiprocessing.active_children() == []


def test_time_limit_holds_while_the_workers_are_busy() -> None:
    """The coordinator does not wait for an answer beyond it."""
    result = explore(barrier_subject(4, 4), workers=2, max_seconds=0.05)
    assert result.verdict == "bounded"
    assert result.why == "max_seconds=0.05 passed"
    assert multiprocessing.active_children() == []


async def _asks_the_clock() -> None:
    import time

    await asyncio.sleep(0)
    time.time()


def test_forbidden_call_in_a_worker_is_the_verdict() -> None:
    """The text names call and line, as with one process."""
    assert assert_the_same(_asks_the_clock).verdict == "inconclusive"


def test_object_that_cannot_be_read_ends_the_sharing() -> None:
    """Without identities there is nothing to share: schedules are enumerated in one process, and it is bounded."""

    async def program() -> None:
        held = open(os.devnull)  # noqa: SIM115 - it is what cannot be read

        async def other() -> None:
            await asyncio.sleep(0)

        await asyncio.gather(other(), other())
        held.close()

    result = explore(program, workers=2)
    assert result.verdict == "bounded"
    assert result.why is not None
    assert "not pruned" in result.why


def test_program_that_is_not_deterministic_is_found_out() -> None:
    """Two runs on the same choices that differ conclude nothing, wherever they ran."""
    turns = SimpleNamespace(count=0)

    async def program() -> None:
        turns.count += 1
        mine = turns.count
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        assert mine >= 0

    result = explore(program, workers=2)
    assert result.verdict == "inconclusive"
    assert result.why is not None
    assert "not deterministic" in result.why


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 0},
        {"workers": True},
        {"workers": 2, "prune": False},
        {"workers": 2, "order": "depth"},
        {"workers": 2, "identical": ["a", "b"]},
    ],
    ids=str,
)
def test_wrong_use_of_workers_is_refused(options: dict[str, Any]) -> None:
    """What cannot be shared is said before anything runs."""
    with pytest.raises(ExplorerUsageError, match="workers"):
        explore(lost_update_checked, **options)


def test_platform_without_fork_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is handed to workers by forking; nothing else can hand over any callable."""
    monkeypatch.delattr(os, "fork")
    with pytest.raises(ExplorerUsageError, match="forked"):
        explore(lost_update_checked, workers=2)
