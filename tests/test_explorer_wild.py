"""Generated programs that use what is seldom used: every schedule, any order on asyncio itself, workers, a fold."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from explorer_wild_scripts import OPERATIONS, Wild, wild_program, wild_scripts
from test_explorer_soundness import LoopWithoutThreads, stock_outcome

from interleavings import Subject, explore, replay
from interleavings.search import pruned as search
from interleavings.state import readers, walkers

LARGEST = 120
"""States of the largest program that is compared; its schedules are then enumerated up to five times as many."""


class AnyOrderLoop(LoopWithoutThreads):
    """asyncio's own loop, which takes one ready handle at a time, by chance: no code of the explorer is in it."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    def _run_once(self) -> None:
        ready: deque[Any] = self._ready  # type: ignore[attr-defined]
        others: list[Any] = []
        if len(ready) > 1:
            ready.rotate(-self._chance.randrange(len(ready)))
            others = [ready.pop() for _ in range(len(ready) - 1)]
        super()._run_once()  # type: ignore[misc]
        self._ready.extendleft(others)  # type: ignore[attr-defined]


def outcome_in_any_order(program: Callable[[], Any], chance: random.Random) -> str:
    with asyncio.Runner(loop_factory=lambda: AnyOrderLoop(chance)) as runner:
        return f"returned {runner.run(program())!r}"


def difference(scripts: list[list[str]]) -> str | None:
    """Say what pruning, or the explorer as a whole, loses of a program; None when nothing, or the program is large."""
    program = wild_program(scripts)
    pruned = explore(program, keep_going=True, max_states=LARGEST)
    if pruned.verdict == "bounded" and pruned.states == LARGEST:
        return None
    if not pruned.complete:
        return f"not searched: {pruned.why}"
    enumerated = explore(program, keep_going=True, prune=False, max_states=5 * LARGEST)
    if enumerated.complete and pruned.schedules != enumerated.schedules:
        return f"{pruned.schedules} schedules of {enumerated.schedules}"
    ends = set(enumerated.outcomes)
    if all(end.startswith("returned") for end in pruned.outcomes):
        ends.add(stock_outcome(program))
        ends |= {outcome_in_any_order(program, random.Random(number)) for number in range(5)}
    return f"lost: {sorted(ends - pruned.outcomes)}" if ends - pruned.outcomes else None


def differences(seeds: range) -> list[tuple[list[list[str]], str]]:
    scripts = [wild_scripts(random.Random(seed)) for seed in seeds]
    return [(each, told) for each in scripts if (told := difference(each)) is not None]


def test_case_F08_wild_programs_lose_nothing() -> None:
    """Some of them; the rest below."""
    assert differences(range(15)) == []


def test_what_is_made_for_a_reading_is_kept_until_its_end() -> None:
    """Of 2,000 of these programs this one showed it: a dictionary made on the way lent its address to a later one."""
    assert difference([["keep finalizer"], ["add", "fail_in_group"]]) is None


def test_order_of_failures_is_that_of_their_coming_in_a_replay_too() -> None:
    """Two tasks fail before anybody looks; a replay once noted them in the order in which they had been started."""
    assert difference([["get", "keep one_list_or_two", "keep module_of_an_error"], ["get"]]) is None

    async def main() -> None:
        async def fail(turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            raise ValueError(turns)

        tasks = [asyncio.create_task(fail(turns)) for turns in (2, 0)]
        await asyncio.sleep(1)
        await asyncio.sleep(1)
        await asyncio.gather(*tasks, return_exceptions=True)

    assert explore(main).verdict == "holds"


def test_context_variables_of_one_name_stand_in_one_order() -> None:
    """A context goes through them by address, which is another in each run."""
    assert difference([["keep token_that_was_used", "remember"], ["pulse"]]) is None


@pytest.mark.slow
def test_case_F08_three_hundred_wild_programs_lose_nothing() -> None:
    """Pruned against every schedule, and against asyncio's own loop in its order and in others."""
    assert differences(range(15, 315)) == []


@pytest.mark.parametrize(
    "scripts",
    [
        [["keep length_of_a_deque"], ["pulse"]],
        [["look_at_the_clock"], ["pulse"]],
        [["resolve", "await_future"], ["pulse", "add"]],
    ],
)
def test_wild_programs_are_the_same_with_two_workers(scripts: list[list[str]]) -> None:
    """The search begins again in the middle of one of them; another has handles that are cancelled."""
    program = wild_program(scripts)
    one, two = explore(program, keep_going=True), explore(program, keep_going=True, workers=2)
    assert one.complete
    assert (one.outcomes, one.states, one.schedules) == (two.outcomes, two.states, two.schedules)


@pytest.mark.parametrize("script", [["look_at_the_clock"], ["turn_round"], ["keep attribute_of_a_class", "add"]])
def test_wild_programs_are_the_same_folded(script: list[str]) -> None:
    """Two tasks of one script and one that does another thing; outcomes up to who is who, schedules exactly."""

    def build(*identical: str) -> Callable[[], Subject]:
        def made() -> Subject:
            wild = Wild()

            async def work() -> str:
                for name in script:
                    await OPERATIONS[name](wild)
                return repr(wild.log)

            async def disturb() -> None:
                await OPERATIONS["pulse"](wild)

            return Subject([work(), work(), disturb()], identical=list(identical))

        return made

    apart, folded = explore(build(), keep_going=True), explore(build("work-1", "work-2"), keep_going=True)

    def without_names(outcomes: frozenset[str]) -> set[tuple[str, ...]]:
        return {tuple(sorted(outcome.split("; "))) for outcome in outcomes}

    assert (apart.verdict, apart.schedules) == ("holds", folded.schedules)
    assert without_names(apart.outcomes) == without_names(folded.outcomes)
    assert (folded.states or 0) < (apart.states or 0)


async def late_look_at_the_clock() -> None:
    wild = Wild()
    await asyncio.gather(OPERATIONS["look_at_the_clock"](wild), OPERATIONS["pulse"](wild))
    assert wild.log == [0.0]


def test_failure_that_depends_on_the_clock_replays() -> None:
    """A schedule that ends at one second, found once the search has begun again."""
    result = explore(late_look_at_the_clock)
    assert result.verdict == "fails"
    assert result.counterexample is not None
    assert replay(late_look_at_the_clock, result.counterexample).reproduced


# ------------------------------------------------------------------------------------------- controls


def test_clock_that_states_leave_out_would_hide_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: with time in the state from the first look at the clock on only, as it once was, an end is lost."""
    every = explore(late_look_at_the_clock, keep_going=True, prune=False).outcomes
    assert explore(late_look_at_the_clock, keep_going=True).outcomes == every
    monkeypatch.setattr(search, "refuse_late_sights", lambda run: None)
    assert explore(late_look_at_the_clock, keep_going=True).outcomes < every


def test_comparison_finds_what_a_reader_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a deque without its greatest length."""
    scripts = [["keep length_of_a_deque"], ["pulse"]]
    assert difference(scripts) is None
    monkeypatch.setitem(walkers._handlers, deque, readers._list)
    assert difference(scripts) is not None
