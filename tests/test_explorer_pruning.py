"""Pruning by state against no pruning at all: the same outcomes, over fixed and generated programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from explorer_programs import PROGRAMS
from explorer_scripts import INSTRUCTIONS, gathered
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


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scripts=st.lists(st.lists(INSTRUCTIONS, min_size=1, max_size=3), min_size=2, max_size=2))
def test_case_F08_generated_programs_have_the_same_outcomes_pruned_and_unpruned(scripts: list[list[str]]) -> None:
    """Sixty small programs over every primitive, deadlocks included."""
    program = gathered(scripts)
    pruned = explore(program, keep_going=True)
    enumerated = explore(program, keep_going=True, prune=False, max_states=4_000)
    if enumerated.complete:
        assert pruned.outcomes == enumerated.outcomes, scripts
        assert pruned.schedules == enumerated.schedules
    assert enumerated.outcomes <= pruned.outcomes


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scripts=st.lists(st.lists(INSTRUCTIONS, min_size=1, max_size=2), min_size=2, max_size=2))
def test_case_F08_generated_programs_with_a_cancellation(scripts: list[list[str]]) -> None:
    """The same with one cancellation at any point."""
    program = gathered(scripts, catching=True)
    pruned = explore(program, keep_going=True, cancels=1)
    enumerated = explore(program, keep_going=True, prune=False, cancels=1, max_states=3_000)
    if enumerated.complete:
        assert pruned.outcomes == enumerated.outcomes, scripts
    assert enumerated.outcomes <= pruned.outcomes


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
