"""What a verdict may claim: complete, bounded with its bound, or nothing at all."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from explorer_programs import barrier_subject, safe_update_checked, semaphore_pair, steppers

from interleavings import ExplorerUsageError, Subject, explore


def test_case_F13_limit_at_the_number_of_states_is_complete_and_one_below_is_bounded() -> None:
    """The boundary decides whether the word `complete` may be used, so it is exact."""
    program = barrier_subject(2, 2)
    states = explore(program).states
    assert states is not None
    at, above, below = (explore(program, max_states=states + more) for more in (0, 1, -1))
    assert (at.verdict, at.complete, at.states) == ("holds", True, states)
    assert (above.verdict, above.complete) == ("holds", True)
    assert (below.verdict, below.complete, below.states) == ("bounded", False, states - 1)
    assert below.why == f"max_states={states - 1} reached"
    assert below.schedules is None


def test_case_F13_bounded_search_is_never_printed_as_complete() -> None:
    """A limit below the depth of the fault: the summary names the bound and what was covered."""
    result = explore(barrier_subject(3, 3), cancels=1, max_states=10)
    assert result.summary() == "holds (bounded: max_states=10 reached; covered 10 states)"
    with pytest.raises(AssertionError, match="bounded"):
        result.assert_holds()


def test_case_F13_time_limit_is_a_bound() -> None:
    """No time at all: bounded, with the limit in the text."""
    result = explore(barrier_subject(3, 3), max_seconds=1e-9)
    assert result.verdict == "bounded"
    assert result.why == "max_seconds=1e-09 passed"


@pytest.mark.parametrize(("more", "verdict"), [(0, "holds"), (1, "holds"), (-1, "bounded")])
def test_case_F13_limit_on_schedules_without_pruning(more: int, verdict: str) -> None:
    """Without pruning the limit counts schedules, and the last one allowed completes the search."""
    result = explore(steppers(2, 3), prune=False, max_states=20 + more)
    assert result.verdict == verdict


def test_endless_program_without_pruning_is_cut_and_says_so() -> None:
    """A busy wait never ends when the spinner always goes first; the enumeration does."""

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    result = explore(main, prune=False, max_states=2)
    assert result.verdict == "bounded"
    assert result.why is not None
    assert "longer than" in result.why


def test_unreadable_object_turns_pruning_off_and_is_named(tmp_path: Any) -> None:
    """An open file has a position nobody can compare: bounded, naming it and the way to it."""

    async def main() -> None:
        with open(tmp_path / "file") as handle:

            async def read() -> None:
                await asyncio.sleep(0)
                handle.read(1)

            await asyncio.gather(read(), read())

    (tmp_path / "file").write_text("xy")
    result = explore(main)
    assert (result.verdict, result.complete, result.states) == ("bounded", False, None)
    assert result.why is not None
    assert "TextIOWrapper" in result.why
    assert "main <- task main" in result.why
    assert "schedules enumerated" in result.why


def test_unreadable_object_does_not_hide_a_failure(tmp_path: Any) -> None:
    """Without pruning the search goes on, and a failure is a failure."""

    async def main() -> None:
        value = 0
        with open(tmp_path / "file"):

            async def add() -> None:
                nonlocal value
                seen = value
                await asyncio.sleep(0)
                value = seen + 1

            await asyncio.gather(add(), add())
        assert value == 2, "lost"

    (tmp_path / "file").write_text("xy")
    result = explore(main)
    assert result.verdict == "fails"


def test_set_of_objects_is_not_ordered_by_address() -> None:
    """A set of plain objects has no order that every run repeats; it is refused rather than guessed."""

    class Thing:
        pass

    async def main() -> int:
        things = {Thing(), Thing()}
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        return len(things)

    result = explore(main)
    assert result.verdict == "bounded"
    assert result.why is not None
    assert "a set that holds" in result.why


def test_complete_result_says_what_it_rests_on() -> None:
    """Every figure is there, and the summary is the line of the design."""
    result = explore(semaphore_pair)
    assert result.summary() == f"holds (complete: {result.states} states, {result.schedules:,} schedules)"
    assert result.transitions > (result.states or 0)
    assert result.depth > 0
    assert result.runs > 0
    assert result.seconds > 0
    assert result.counterexample is None
    assert result.why is None


def test_progress_is_told() -> None:
    """A long search can be watched."""
    told: list[tuple[int, int, int, float]] = []

    def listen(*figures: Any) -> None:
        told.append(figures)

    explore(barrier_subject(4, 3), max_states=2_000, progress=listen)
    assert told
    assert all(earlier[0] <= later[0] for earlier, later in itertools.pairwise(told))


@pytest.mark.parametrize(
    "options",
    [
        {"cancels": -1},
        {"cancels": 1.5},
        {"crashes": -1},
        {"identical": ("worker",)},
        {"max_states": 0},
        {"max_seconds": 0},
        {"order": "random"},
        {"timers": "never"},
        {"patience": 0},
        {"allow": ("time.tme",)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_wrong_arguments_are_refused_before_anything_runs(options: dict[str, Any]) -> None:
    """What cannot be done is said, in one sentence, by a type of its own."""
    with pytest.raises(ExplorerUsageError, match=next(iter(options))):
        explore(safe_update_checked, **options)


@pytest.mark.parametrize("made", [None, 5, [], Subject([])], ids=["none", "number", "list", "empty"])
def test_program_that_makes_no_coroutine_is_refused(made: Any) -> None:
    """The likely mistake is to pass a coroutine instead of the function that makes it; the text says what to pass."""
    with pytest.raises(ExplorerUsageError, match=r"coroutine"):
        explore(lambda: made)


_PRESSED = iter([False] * 30 + [True])  # global, as a keyboard is: no part of any state


def test_interrupt_ends_the_search_and_says_so() -> None:
    """Ctrl-C during a step looks like an error of the program; it does not come again, so it is not taken for one."""

    async def main() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            if next(_PRESSED, False):
                raise KeyboardInterrupt

    result = explore(lambda: Subject([main(), main()]))
    assert result.verdict == "bounded"
    assert result.why == "interrupted"


def test_factory_may_use_the_running_loop() -> None:
    """Objects of the program are built with its loop running, so futures may be made there."""

    def build() -> Subject:
        future = asyncio.get_running_loop().create_future()

        async def set_it() -> None:
            future.set_result(7)

        async def get_it() -> int:
            return int(await future)

        return Subject([set_it(), get_it()])

    assert explore(build).outcomes == {"returned None; returned 7"}


def test_error_of_the_factory_is_the_callers() -> None:
    """A program that cannot be built is no schedule; the error comes out as it is, and nothing is left behind."""

    def build() -> Subject:
        raise LookupError("no such scenario")

    with pytest.raises(LookupError, match="no such scenario"):
        explore(build)
    explore(safe_update_checked).assert_holds()


def test_exploration_inside_an_exploration_is_refused() -> None:
    """The fence is one for the process."""

    async def main() -> None:
        explore(safe_update_checked)

    result = explore(main)
    assert result.failure is not None
    assert result.failure.property == "ExplorerUsageError"
