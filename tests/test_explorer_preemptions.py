"""`order="fewest-preemptions"`: the first counterexample interrupts tasks as seldom as any schedule that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from explorer_programs import PROGRAMS, barrier_subject, lock_order, lost_update_checked
from explorer_scripts import INSTRUCTIONS, gathered
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interleavings import ExplorerUsageError, Subject, explore, replay
from interleavings.runtime import Fence, Rules
from interleavings.search import Setting, look, paused_collection

_MOST_SCHEDULES = 3_000


def every_failing_schedule(program: Callable[[], Any], cancels: int = 0) -> Iterator[tuple[int, int]]:
    """Enumerate all schedules without comparing states; yield preemptions and length of those that fail.

    It counts by itself, from the names that are enabled: the search under test has no part in it.
    """
    with Fence() as fence, paused_collection():
        setting = Setting(program, Rules(cancels=cancels), fence, None, None)
        prefix: list[int] = []
        for _ in range(_MOST_SCHEDULES):
            widths: list[int] = []
            preemptions, last = 0, ""
            with setting.start() as run:
                failure, options = look(run)
                while failure is None and options:
                    depth = len(widths)
                    if depth == len(prefix):
                        prefix.append(0)
                    key = list(options)[prefix[depth]]
                    widths.append(len(options))
                    preemptions += last in options and key != last
                    last = key if key.startswith("task-step ") else ""
                    run.step(options[key])
                    failure, options = look(run)
            if failure is not None:
                yield preemptions, len(widths)
            del prefix[len(widths) :]
            while prefix and prefix[-1] + 1 == widths[len(prefix) - 1]:
                prefix.pop()
            if not prefix:
                return
            prefix[-1] += 1
    raise AssertionError("too many schedules for an enumeration")


def preemptions_in(program: Callable[[], Any], keys: list[str], cancels: int = 0) -> int:
    """Count the preemptions of one schedule."""
    with Fence() as fence, paused_collection():
        setting = Setting(program, Rules(cancels=cancels), fence, None, None)
        count, last = 0, ""
        with setting.start() as run:
            _, options = look(run)
            for key in keys:
                count += last in options and key != last
                last = key if key.startswith("task-step ") else ""
                run.step(options[key])
                _, options = look(run)
    return count


def assert_cheapest(program: Callable[[], Any], cancels: int = 0) -> None:
    result = explore(program, order="fewest-preemptions", cancels=cancels)
    failing = list(every_failing_schedule(program, cancels))
    if not failing:
        assert result.verdict == "holds"
        return
    assert result.counterexample is not None
    keys = [step.key for step in result.counterexample.steps]
    assert (preemptions_in(program, keys, cancels), len(keys)) == min(failing)
    assert replay(program, result.counterexample).reproduced


def needs_no_preemption_but_time() -> Subject:
    """Fails soon when a task is interrupted twice, and later without any interruption."""
    log: list[str] = []

    async def first() -> None:
        for _ in range(3):
            log.append("first")
            await asyncio.sleep(0)

    async def second() -> None:
        log.append("second")

    def judge() -> str | None:
        if log[:3] == ["first", "second", "first"]:
            return "interrupted"
        return "late" if log == ["first"] * 3 + ["second"] else None

    return Subject([first(), second()], invariant=judge)


def test_counterexample_without_an_interruption_comes_before_a_shorter_one() -> None:
    """Breadth first finds the shortest, which interrupts; this order finds the one that lets tasks run."""
    shortest = explore(needs_no_preemption_but_time)
    fewest = explore(needs_no_preemption_but_time, order="fewest-preemptions")
    assert shortest.failure is not None
    assert fewest.failure is not None
    assert (shortest.failure.message, fewest.failure.message) == ("interrupted", "late")
    assert fewest.counterexample is not None
    keys = [step.key for step in fewest.counterexample.steps]
    assert preemptions_in(needs_no_preemption_but_time, keys) == 0
    assert shortest.counterexample is not None
    assert len(shortest.counterexample.steps) < len(keys)


@pytest.mark.parametrize("program", [lost_update_checked, lock_order, needs_no_preemption_but_time])
def test_no_failing_schedule_has_fewer_preemptions(program: Callable[[], Any]) -> None:
    """Against an enumeration of every schedule: fewest interruptions, then fewest steps."""
    assert_cheapest(program)


def test_no_failing_schedule_of_a_barrier_has_fewer_preemptions() -> None:
    """A torn snapshot, and a deadlock by one cancellation."""
    assert_cheapest(barrier_subject(1, 2, seeded="waits once"))
    assert_cheapest(barrier_subject(1, 1), cancels=1)


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scripts=st.lists(st.lists(INSTRUCTIONS, min_size=1, max_size=2), min_size=2, max_size=2))
def test_generated_deadlocks_have_the_fewest_preemptions(scripts: list[list[str]]) -> None:
    """Thirty generated programs, those that hold included."""
    program = gathered(scripts)
    enumerated = explore(program, keep_going=True, prune=False, max_states=600)
    if enumerated.why is None or "max_states" not in enumerated.why:
        assert_cheapest(program)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_complete_search_counts_the_same_states(name: str) -> None:
    """States are visited once for each task that may have run last, and counted once."""
    breadth = explore(PROGRAMS[name], keep_going=True)
    fewest = explore(PROGRAMS[name], keep_going=True, order="fewest-preemptions")
    assert (fewest.verdict, fewest.states, fewest.transitions, fewest.schedules, fewest.outcomes) == (
        breadth.verdict, breadth.states, breadth.transitions, breadth.schedules, breadth.outcomes,
    )  # fmt: skip


def test_bounds_hold_in_this_order_too() -> None:
    """A bounded search says so."""
    assert explore(barrier_subject(2, 2), order="fewest-preemptions", max_states=20).states == 20
    assert explore(barrier_subject(3, 3), order="fewest-preemptions", max_seconds=0.01).verdict == "bounded"


def test_this_order_and_identical_tasks_do_not_go_together() -> None:
    """In a folded state nobody knows which of the tasks ran last."""
    with pytest.raises(ExplorerUsageError, match="identical"):
        explore(barrier_subject(2, 2), order="fewest-preemptions", identical=["mutate-1", "mutate-2"])
