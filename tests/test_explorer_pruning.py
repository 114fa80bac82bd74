"""Pruning by state against no pruning at all: the same outcomes, over fixed and generated programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
from explorer_programs import PROGRAMS, Factory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interleavings import Subject, explore

_ENUMERABLE = sorted(set(PROGRAMS) - {"threads", "completion_order"})


@pytest.mark.parametrize("name", _ENUMERABLE)
def test_case_F08_pruned_search_has_the_outcomes_and_the_verdict_of_every_schedule(name: str) -> None:
    """A reduction that loses an outcome is worse than none. The number of schedules is checked in the same breath."""
    pruned = explore(PROGRAMS[name], keep_going=True)
    enumerated = explore(PROGRAMS[name], keep_going=True, prune=False)
    assert pruned.outcomes == enumerated.outcomes
    assert pruned.verdict == enumerated.verdict
    assert pruned.schedules == enumerated.schedules


@pytest.mark.parametrize("name", ["lost_update", "safe_update", "event_race", "first_of_two", "cancelled_child"])
def test_case_F08_the_same_with_a_cancellation_anywhere(name: str) -> None:
    """Cancellations multiply the schedules and must not be merged away."""
    pruned = explore(PROGRAMS[name], keep_going=True, cancels=1)
    enumerated = explore(PROGRAMS[name], keep_going=True, prune=False, cancels=1)
    assert pruned.outcomes == enumerated.outcomes
    assert pruned.verdict == enumerated.verdict


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"threads", "lock_order"}))
def test_outcome_of_stock_asyncio_is_among_the_explored_ones(name: str) -> None:
    """What asyncio itself does is one of the schedules."""
    stock = f"returned {asyncio.run(PROGRAMS[name]())!r}"
    assert stock in explore(PROGRAMS[name]).outcomes


def test_outcome_of_real_threads_is_among_the_explored_ones() -> None:
    """An executor's job may complete at any point; what real threads did is one of them."""
    stock = f"returned {asyncio.run(PROGRAMS['threads']())!r}"
    result = explore(PROGRAMS["threads"])
    assert stock in result.outcomes
    assert len(result.outcomes) == 6


# -- generated programs ----------------------------------------------------------------------------------------------

_INSTRUCTIONS = st.sampled_from(
    [
        "pass",
        "add",
        "double",
        "copy",
        "set",
        "wait",
        "lock",
        "unlock",
        "put",
        "get",
        "signal",
        "await signal",
        "sleep",
        "limited",
        "thread",
        "child",
        "walk",
    ]
)


def interpret(scripts: list[list[str]], catching: bool) -> Callable[[], Factory]:
    """Return a program of tasks that each run a script over shared cells, primitives, timers and threads."""

    def make() -> Factory:
        async def main() -> tuple[Any, ...]:
            cells = {"x": 1, "y": 0}
            lock, event, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
            queue: asyncio.Queue[int] = asyncio.Queue()
            log: list[int] = []

            async def run(script: list[str]) -> None:
                held = False
                for instruction in script:
                    if instruction == "pass":
                        await asyncio.sleep(0)
                    elif instruction == "add":
                        cells["x"] = cells["x"] + await plus_one()
                    elif instruction == "double":
                        cells["x"] *= 2
                    elif instruction == "copy":
                        cells["y"] = cells["x"]
                    elif instruction == "set":
                        event.set()
                    elif instruction == "wait":
                        await event.wait()
                    elif instruction == "lock" and not held:
                        await lock.acquire()
                        held = True
                    elif instruction == "unlock" and held:
                        lock.release()
                        held = False
                    elif instruction == "put":
                        queue.put_nowait(cells["x"])
                    elif instruction == "get":
                        log.append(await queue.get())
                    elif instruction == "signal":
                        async with condition:
                            condition.notify()
                    elif instruction == "await signal":
                        async with condition:
                            await condition.wait()
                    elif instruction == "sleep":
                        await asyncio.sleep(1)
                    elif instruction == "limited":
                        with suppress(TimeoutError):
                            async with asyncio.timeout(1):
                                log.append(await queue.get())
                    elif instruction == "thread":
                        await asyncio.to_thread(log.append, cells["x"])
                    elif instruction == "child":
                        log.append(await asyncio.create_task(plus_one()))
                    elif instruction == "walk":
                        async for number in two():
                            cells["x"] += number
                if held:
                    lock.release()

            async def plus_one() -> int:
                await asyncio.sleep(0)
                return 1

            async def two() -> AsyncIterator[int]:
                yield cells["y"]
                await asyncio.sleep(0)
                yield 1

            await asyncio.gather(*(run(script) for script in scripts), return_exceptions=catching)
            return cells["x"], cells["y"], tuple(log)

        return main

    return make


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scripts=st.lists(st.lists(_INSTRUCTIONS, min_size=1, max_size=3), min_size=2, max_size=2))
def test_case_F08_generated_programs_have_the_same_outcomes_pruned_and_unpruned(scripts: list[list[str]]) -> None:
    """Sixty small programs over every primitive, deadlocks included."""
    program = interpret(scripts, catching=False)()
    pruned = explore(program, keep_going=True)
    enumerated = explore(program, keep_going=True, prune=False, max_states=4_000)
    if enumerated.complete:
        assert pruned.outcomes == enumerated.outcomes, scripts
        assert pruned.schedules == enumerated.schedules
    assert enumerated.outcomes <= pruned.outcomes


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scripts=st.lists(st.lists(_INSTRUCTIONS, min_size=1, max_size=2), min_size=2, max_size=2))
def test_case_F08_generated_programs_with_a_cancellation(scripts: list[list[str]]) -> None:
    """The same with one cancellation at any point."""
    program = interpret(scripts, catching=True)()
    pruned = explore(program, keep_going=True, cancels=1)
    enumerated = explore(program, keep_going=True, prune=False, cancels=1, max_states=3_000)
    if enumerated.complete:
        assert pruned.outcomes == enumerated.outcomes, scripts
    assert enumerated.outcomes <= pruned.outcomes


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scripts=st.lists(st.lists(_INSTRUCTIONS, min_size=1, max_size=4), min_size=2, max_size=3))
def test_generated_programs_in_stock_order_are_explored(scripts: list[list[str]]) -> None:
    """asyncio's own outcome is among the explored ones, and a deadlock of its own is found as one."""
    program = interpret(scripts, catching=False)()
    explored = explore(program, keep_going=True, max_states=6_000)

    async def limited() -> Any:
        return await asyncio.wait_for(program(), 0.05)

    try:
        stock = f"returned {asyncio.run(limited())!r}"
    except TimeoutError:
        stock = "deadlock: deadlock"
    if explored.verdict != "bounded":
        assert stock in explored.outcomes, scripts


def test_declared_state_has_the_outcomes_of_the_generic_one() -> None:
    """Declaring what is shared makes the search faster and changes nothing when it says enough."""

    def build(declared: bool) -> Callable[[], Subject]:
        def make() -> Subject:
            cells = [0, 0]

            async def move(source: int, target: int) -> None:
                seen = cells[source]
                await asyncio.sleep(0)
                cells[target] = seen + 1

            async def main() -> list[int]:
                await asyncio.gather(move(0, 1), move(1, 0), move(0, 0))
                return cells

            return Subject(main(), state=(lambda: tuple(cells)) if declared else None)

        return make

    assert explore(build(declared=True)).outcomes == explore(build(declared=False)).outcomes
