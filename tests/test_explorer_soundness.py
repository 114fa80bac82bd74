"""Nothing is lost: pruned against every schedule on fixed programs, and asyncio's own outcome on 1,000 generated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from explorer_more_programs import MORE_PROGRAMS
from explorer_outcomes import outcomes
from explorer_programs import PROGRAMS, barrier_subject
from explorer_scripts import NAMES, gathered
from jumping_clock import VirtualTimeLoop

from interleavings import Result, Subject, explore
from interleavings.state import readers

ENUMERABLE: dict[str, Callable[[], Any]] = {
    **{name: program for name, program in PROGRAMS.items() if name not in ("threads", "completion_order")},
    **MORE_PROGRAMS,
}
GENERATED = 1_000


@pytest.mark.parametrize("name", sorted(MORE_PROGRAMS))
def test_case_F08_no_outcome_is_lost_by_comparing_states(name: str) -> None:
    """Outcomes, verdict and number of schedules are those of the enumeration."""
    program = MORE_PROGRAMS[name]
    pruned = explore(program, keep_going=True)
    enumerated = explore(program, keep_going=True, prune=False)
    assert pruned.outcomes == enumerated.outcomes
    assert (pruned.verdict, pruned.schedules) == (enumerated.verdict, enumerated.schedules)


def test_at_least_thirty_fixed_programs_are_compared() -> None:
    """Those of `test_explorer_pruning.py` and these; more than one outcome means that order matters in them."""
    assert len(ENUMERABLE) >= 30
    several = [name for name, program in ENUMERABLE.items() if len(explore(program, keep_going=True).outcomes) > 1]
    assert len(several) >= 18


@pytest.mark.parametrize("writers", [1, 2])
def test_case_F08_barriers_lose_no_outcome_to_a_cancellation(writers: int) -> None:
    """Whoever is cancelled, the others end in every way that an enumeration finds."""
    assert len(outcomes(barrier_subject(writers, 1), cancels=1)) == writers + 2


# --------------------------------------------------------------------------------------- what a state has to hold


def test_place_in_a_loop_is_state_when_the_state_is_declared() -> None:
    """Items that look alike: only the iterator knows how many are left, and no declaration speaks of it."""

    def build() -> Subject:
        seen: list[int] = []

        async def work() -> None:
            for _ in ("x", "x", "x"):
                await asyncio.sleep(0)
            seen.append(len(seen))

        return Subject([work(), work()], state=lambda: tuple(seen))

    result = explore(build)
    assert (result.verdict, result.schedules) == ("holds", 70)


def test_history_of_a_set_is_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two orders of the last members; control: without the count of used entries and the size one of them is lost."""
    program = MORE_PROGRAMS["table_of_a_set"]
    assert outcomes(program) == {"returned [1, 8]", "returned [8, 1]"}
    monkeypatch.setattr(readers, "_layout", lambda value: None)
    assert len(explore(program, keep_going=True).outcomes) == 1


def test_numbers_of_futures_are_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was hashed first stands first in every later set; control: without the numbers one order is lost."""
    program = MORE_PROGRAMS["futures_in_a_set"]
    assert outcomes(program) == {"returned 'leftright'", "returned 'rightleft'"}
    monkeypatch.setattr(readers, "_number_of", lambda future: None)
    assert len(explore(program, keep_going=True).outcomes) == 1


# ------------------------------------------------------------------------------------------- asyncio's own outcome


class AtOnce(ThreadPoolExecutor):
    """An executor that has done its job when it is asked: one of the times at which a thread may be ready."""

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*args, **options))
        except Exception as error:
            done.set_exception(error)
        return done


class LoopWithoutThreads(VirtualTimeLoop):
    """asyncio's own loop with a clock that jumps and an executor that never needs a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.set_default_executor(AtOnce())

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing is left to wait for, and waiting would take a thread."""


def stock_outcome(program: Callable[[], Any]) -> str:
    """Run a program on asyncio's own loop, whose clock jumps; say how it ended, as the explorer does."""
    with asyncio.Runner(loop_factory=LoopWithoutThreads) as runner:
        try:
            return f"returned {runner.run(program())!r}"
        except RuntimeError as error:
            if "stalled for good" not in str(error):
                raise
            return "deadlock: deadlock"


def scripts_of(chance: random.Random) -> list[list[str]]:
    return [[chance.choice(NAMES) for _ in range(chance.randint(1, 3))] for _ in range(2)]


def compared(chance: random.Random, count: int, explored: Callable[[Any], Result]) -> list[list[list[str]]]:
    """Compare so many programs whose search came to its end; return the scripts whose outcome was not explored."""
    missed, done = [], 0
    while done < count:
        scripts = scripts_of(chance)
        program = gathered(scripts)
        result = explored(program)
        if result.verdict == "bounded":
            continue
        done += 1
        if stock_outcome(program) not in result.outcomes:
            missed.append(scripts)
    return missed


def by_states(program: Any) -> Result:
    return explore(program, keep_going=True, max_states=250)


@pytest.mark.slow
def test_outcome_of_asyncio_is_explored_in_a_thousand_generated_programs() -> None:
    """Deadlocks included: where asyncio stalls, a deadlock is among the outcomes."""
    assert compared(random.Random(1), GENERATED, by_states) == []


def test_outcome_of_asyncio_is_explored_in_some_generated_programs() -> None:
    """The quick part of the same."""
    assert compared(random.Random(2), 40, by_states) == []


def test_explorer_that_lets_callbacks_run_at_once_misses_what_asyncio_does() -> None:
    """Control: callbacks that are no choices leave out orders, and the comparison says so."""
    program = PROGRAMS["callback_order"]
    stock = stock_outcome(program)
    assert stock in explore(program, keep_going=True).outcomes
    assert stock not in explore(program, keep_going=True, atomic_callbacks=True).outcomes
