"""`identical=`: states that differ only in who is who are one, and nothing else changes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from explorer_programs import barrier_subject
from explorer_scripts import INSTRUCTIONS, side_by_side
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interleavings import ExplorerUsageError, Result, Subject, Trace, emit, explore, replay
from interleavings.runtime import Fence, Identical

Program = Callable[[], Subject]


def named(task: str, copies: int) -> list[str]:
    return [f"{task}-{number + 1}" for number in range(copies)]


def up_to_exchange(outcomes: frozenset[str], copies: int) -> set[str]:
    """Outcomes with the results of the first `copies` main coroutines in any order."""
    found = set()
    for outcome in outcomes:
        parts = outcome.split("; ")
        found.add("; ".join([*sorted(parts[:copies]), *parts[copies:]]))
    return found


def assert_same_but_folded(program: Program, task: str, copies: int, **options: Any) -> tuple[Result, Result]:
    """Explore with and without folding; everything that is claimed of a program has to agree."""
    plain = explore(program, keep_going=True, **options)
    folded = explore(program, keep_going=True, identical=named(task, copies), **options)
    assert (folded.verdict, folded.complete, folded.depth) == (plain.verdict, plain.complete, plain.depth)
    assert folded.schedules == plain.schedules
    assert (folded.spin is None) == (plain.spin is None)
    assert up_to_exchange(folded.outcomes, copies) == up_to_exchange(plain.outcomes, copies)
    assert folded.states is not None
    assert plain.states is not None
    assert folded.states <= plain.states
    if plain.counterexample is not None and folded.counterexample is not None:
        assert len(folded.counterexample.steps) == len(plain.counterexample.steps)
        assert folded.failure is not None
        assert folded.failure.same_as(plain.failure)
        assert replay(program, folded.counterexample).reproduced
    assert (plain.counterexample is None) == (folded.counterexample is None)
    return plain, folded


@pytest.mark.parametrize(("declared", "states"), [(False, 178), (True, 141)])
def test_condition_barrier_folds_to_a_quarter_and_keeps_its_71352_schedules(declared: bool, states: int) -> None:
    """Every choice stays a transition of its own, so paths of the unfolded program are still counted."""
    result = explore(barrier_subject(3, 3, declared=declared), identical=named("mutate", 3))
    assert (result.verdict, result.complete) == ("holds", True)
    assert (result.states, result.schedules) == (states, 71_352)


def test_four_by_four_is_complete_in_547_states() -> None:
    """Eleven thousand million schedules in half a second: the count is that of the unfolded search."""
    result = explore(barrier_subject(4, 4, declared=True), identical=named("mutate", 4))
    assert (result.states, result.schedules) == (547, 11_660_889_264)


@pytest.mark.parametrize("cancels", [0, 1])
@pytest.mark.parametrize("seeded", ["", "waits once"])
@pytest.mark.parametrize(("writers", "steps"), [(2, 2), (3, 1)])
def test_condition_barriers_keep_verdict_length_and_outcomes(
    writers: int, steps: int, seeded: str, cancels: int
) -> None:
    """Torn snapshots and deadlocks are found at the same depth."""
    program = barrier_subject(writers, steps, seeded=seeded)
    plain, folded = assert_same_but_folded(program, "mutate", writers, cancels=cancels)
    assert folded.states is not None
    assert plain.states is not None
    assert folded.states < plain.states


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    script=st.lists(INSTRUCTIONS, min_size=1, max_size=2),
    other=st.lists(INSTRUCTIONS, min_size=1, max_size=1),
    copies=st.sampled_from([2, 2, 3]),
    cancels=st.sampled_from([0, 0, 1]),
)
def test_generated_programs_are_the_same_folded_and_unfolded(
    script: list[str], other: list[str], copies: int, cancels: int
) -> None:
    """Forty programs of two or three tasks that do the same, over every primitive, and one that does not."""
    program = side_by_side(script, copies, other)
    if explore(program, keep_going=True, cancels=cancels, max_states=600).verdict != "bounded":
        assert_same_but_folded(program, "worker", copies, cancels=cancels)


def test_children_of_identical_tasks_are_folded_with_them() -> None:
    """A child is called after the task that started it: exchanged parents exchange their children."""

    def build() -> Subject:
        log: list[int] = []

        async def child() -> None:
            await asyncio.sleep(0)
            log.append(len(log))

        async def parent() -> None:
            await asyncio.create_task(child())

        return Subject([parent(), parent(), parent()], finish=lambda: None if len(log) == 3 else "lost")

    plain, folded = assert_same_but_folded(build, "parent", 3)
    assert plain.states is not None
    assert folded.states is not None
    assert folded.states * 3 < plain.states


def test_tasks_that_a_main_coroutine_starts_and_forgets_are_folded() -> None:
    """They need not be main coroutines: it is enough that nobody keeps a list of them."""

    def build() -> Subject:
        done = asyncio.Semaphore(0)

        async def work() -> None:
            await asyncio.sleep(0)
            done.release()

        async def main() -> None:
            loop = asyncio.get_running_loop()
            for _ in range(3):
                loop.create_task(work())  # noqa: RUF006 - that nobody keeps it is the point
            for _ in range(3):
                await done.acquire()

        return Subject(main())

    plain, folded = assert_same_but_folded(build, "work", 3)
    assert plain.states is not None
    assert folded.states is not None
    assert folded.states * 2 < plain.states


def test_two_groups_are_folded_each_by_itself() -> None:
    """Readers are exchanged with readers, writers with writers."""

    def build() -> Subject:
        lock = asyncio.Lock()
        total = [0]

        async def read() -> int:
            async with lock:
                await asyncio.sleep(0)
                return total[0]

        async def write() -> None:
            async with lock:
                total[0] += 1

        return Subject([read(), read(), write(), write()], identical=[named("read", 2), named("write", 2)])

    folded = explore(build)
    halves = explore(build, identical=named("read", 2))
    assert folded.states is not None
    assert halves.states is not None
    assert folded.states < halves.states
    assert folded.schedules == halves.schedules == explore(build, prune=False).schedules


# ------------------------------------------------------------------------------------------------ what is refused


def refusal(program: Callable[[], Any], identical: Any) -> str:
    with pytest.raises(ExplorerUsageError) as raised:
        explore(program, identical=identical)
    return str(raised.value)


def with_arguments(*arguments: Any) -> Program:
    def build() -> Subject:
        async def work(item: Any) -> None:
            await asyncio.sleep(0)

        return Subject([work(item) for item in arguments])

    return build


def test_tasks_with_different_arguments_are_refused() -> None:
    """A number that differs is enough; which argument and what it holds is said."""
    assert "different 'item': 0 and 1" in refusal(with_arguments(0, 1), named("work", 2))
    shared: list[int] = []
    assert explore(with_arguments(shared, shared), identical=named("work", 2)).verdict == "holds"
    assert explore(with_arguments([1], [1]), identical=named("work", 2)).verdict == "holds"


def test_tasks_that_share_a_part_with_one_of_the_others_are_refused() -> None:
    """Equal content is not enough: two that hold the same list are not as one that holds another."""

    def build() -> Subject:
        shared, own = [1], [1]
        return with_arguments(shared, shared, own)()

    assert "cannot be exchanged" in refusal(build, named("work", 3))


def test_tasks_with_different_code_are_refused() -> None:
    """The functions are named."""

    def build() -> Subject:
        async def read() -> None:
            await asyncio.sleep(0)

        async def write() -> None:
            await asyncio.sleep(0)

        return Subject([read(), write()])

    text = refusal(build, ["read-1", "write-1"])
    assert "read-1 runs" in text
    assert "write-1 runs" in text


def test_tasks_in_a_list_are_refused_with_the_way_to_them() -> None:
    """Their places in the list tell them apart; gather keeps such a list, since its results are in order."""

    async def gathering() -> None:
        async def work() -> None:
            await asyncio.sleep(0)

        await asyncio.gather(work(), work())

    text = refusal(gathering, named("work", 2))
    assert "a place of its own" in text
    assert "list" in text


def test_tasks_that_are_never_together_at_their_start_are_refused() -> None:
    """They were never compared, so nothing is known of them."""

    def build() -> Subject:
        async def work() -> None:
            await asyncio.sleep(0)

        async def main() -> None:
            await asyncio.create_task(work(), name="first")
            await asyncio.create_task(work(), name="second")

        return Subject(main())

    assert "never compared" in refusal(build, ["first", "second"])


@pytest.mark.parametrize(
    ("identical", "says"),
    [
        ("work-1", "list of task names"),
        (["work-1"], "two tasks or more"),
        (["work-1", "work-1"], "two tasks or more"),
        (["work-1", "work-9"], "leaves out work-2"),
        ([["work-1", "work-2"], ["work-2", "other"]], "two groups"),
        (["work-1", "work-1/child"], "started by another"),
        (["work-1", "missing"], "which no schedule started"),
        ([3], "list of task names"),
    ],
)
def test_declarations_that_cannot_be_meant_are_refused(identical: Any, says: str) -> None:
    """A name that does not exist would fold nothing and look as if it did."""
    assert says in refusal(with_arguments(1, 1), identical)


# ----------------------------------------------------------------------------------- what would tell members apart


def whoever(look: Callable[[], object]) -> Program:
    """Two tasks that do the same, except that the first to come looks at who it is when the other has ended."""

    def build() -> Subject:
        came: list[None] = []
        ended = asyncio.Event()

        async def work() -> str:
            first = not came
            came.append(None)
            if not first:
                ended.set()
                return ""
            await ended.wait()
            return "1" if "work-1" in str(look()) else "2"

        return Subject([work(), work()])

    return build


LOOKS: dict[str, Callable[[], object]] = {
    "Task.get_name": lambda: asyncio.current_task().get_name(),  # type: ignore[union-attr]
    "repr(task)": lambda: f"{asyncio.current_task()}",
    "asyncio.all_tasks": lambda: len(asyncio.all_tasks()),
}


@pytest.mark.parametrize("look", LOOKS)
def test_program_that_looks_at_names_is_not_folded(look: str) -> None:
    """Folded states would lead to different ends. Nothing is concluded, and the line is named."""
    result = explore(whoever(LOOKS[look]), identical=named("work", 2))
    assert result.verdict == "inconclusive"
    assert result.why is not None
    assert look in result.why
    assert "test_explorer_identical.py" in result.why


def test_a_fold_that_allowed_names_would_lose_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: without the refusal one of two outcomes is gone, so the refusal is needed."""
    program = whoever(LOOKS["Task.get_name"])
    assert len(explore(program, keep_going=True).outcomes) == 2
    monkeypatch.setattr(Fence, "_nameless", lambda self, name, original: original)
    assert len(explore(program, keep_going=True, identical=named("work", 2)).outcomes) == 1


def in_a_set() -> Subject:
    """Two tasks that do the same join a log and then a set; a third says in which order the set goes through them.

    It calls them by their places in the log, so the outcome says whether the first in the log is the first in the set.
    """
    members: set[Any] = set()
    log: list[Any] = []
    joined = asyncio.Semaphore(0)

    async def work() -> None:
        log.append(asyncio.current_task())
        await asyncio.sleep(0)
        members.add(asyncio.current_task())
        joined.release()

    async def look() -> tuple[int, ...]:
        await joined.acquire()
        await joined.acquire()
        return tuple(log.index(member) for member in members)

    return Subject([work(), work(), look()])


def test_sets_of_identical_tasks_are_in_the_order_of_joining() -> None:
    """Their hashes are alike, so a set cannot tell by a name who comes first."""
    folded = explore(in_a_set, keep_going=True, identical=named("work", 2))
    assert folded.outcomes == explore(in_a_set, keep_going=True, prune=False, identical=named("work", 2)).outcomes
    assert len(folded.outcomes) == 2


def test_hashes_by_name_would_lose_an_order_of_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: with hashes that follow the names, the fold loses what an enumeration finds."""
    monkeypatch.setattr(Identical, "hashed", lambda self, label: label)
    folded = explore(in_a_set, keep_going=True, identical=named("work", 2))
    enumerated = explore(in_a_set, keep_going=True, prune=False, identical=named("work", 2))
    assert folded.outcomes < enumerated.outcomes


def test_local_that_differs_between_members_keeps_states_apart() -> None:
    """Identical at the start, different later: what a task has picked up is state, whoever it is."""

    def build() -> Subject:
        numbers = itertools.count()

        async def work() -> int:
            mine = next(numbers)
            await asyncio.sleep(0)
            return mine

        return Subject([work(), work()])

    plain, folded = assert_same_but_folded(build, "work", 2)
    assert len(up_to_exchange(plain.outcomes, 2)) == 1
    assert folded.states is not None
    assert folded.states > 4


# -------------------------------------------------------------------------------------------------------- traces


def test_trace_of_a_folded_search_replays_and_survives_a_file(tmp_path: Path) -> None:
    """Its steps are those of a real run, and its budgets say what was declared, because sets depend on it."""
    program = barrier_subject(3, 2, seeded="waits once")
    result = explore(program, identical=named("mutate", 3))
    assert result.counterexample is not None
    result.counterexample.save(tmp_path / "trace.json")
    trace = Trace.load(tmp_path / "trace.json")
    assert trace.budgets["identical"] == [named("mutate", 3)]
    assert replay(program, trace).reproduced
    assert "identical" in emit(trace, "explorer_programs:lost_update")


def test_deadlock_of_a_folded_search_is_labelled_and_explained() -> None:
    """The stock label and the blocked tasks are worked out on real runs as ever."""
    plain, result = assert_same_but_folded(barrier_subject(2, 2), "mutate", 2, cancels=1)
    assert result.failure is not None
    assert result.failure.kind == "deadlock"
    assert result.failure.details["blocked"]
    assert result.counterexample is not None
    assert plain.counterexample is not None
    assert result.counterexample.stock == plain.counterexample.stock


def test_prune_false_enumerates_every_schedule_whatever_is_declared() -> None:
    """Enumeration compares no states, so there is nothing to fold."""

    async def nothing() -> None:
        await asyncio.sleep(0)

    def build() -> Subject:
        mains: list[Coroutine[Any, Any, None]] = [nothing(), nothing()]
        return Subject(mains)

    assert explore(build, prune=False, identical=named("nothing", 2)).schedules == 6
