"""The same search, the same answer: across hash seeds, processes, earlier runs and sets inside the library."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from explorer_programs import PROGRAMS, barrier_subject, lock_order, lost_update_checked

from interleavings import explore

_SCRIPT = """
import asyncio, json, sys
from explorer_programs import PROGRAMS, barrier_subject, lock_order, lost_update_checked
from interleavings import explore

def report(program, **options):
    result = explore(program, **options)
    trace = result.counterexample
    return [
        result.summary(), result.states, result.transitions, result.runs, sorted(result.outcomes),
        None if trace is None else trace.to_json(),
    ]

async def first_of_five():
    async def run(number):
        await asyncio.sleep(0)
        return number
    tasks = {asyncio.create_task(run(number)) for number in range(3)}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    order = [task.result() for task in done]
    for task in pending:
        task.cancel()
    await asyncio.wait(tasks)
    return order, len(pending)

names = {"alpha", "beta", "gamma", "delta"}
print(json.dumps([
    report(lost_update_checked), report(lock_order), report(barrier_subject(2, 2), cancels=1),
    report(first_of_five), report(PROGRAMS["completion_order"]),
]))
"""


def _in_a_process(seed: str) -> list[Any]:
    folder = Path(__file__).resolve().parent
    finished = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{folder.parent}:{folder}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    report: list[Any] = json.loads(finished.stdout)
    return report


@pytest.mark.slow
def test_case_F01_same_figures_and_traces_for_twenty_hash_seeds() -> None:
    """States, runs, outcomes and traces do not depend on PYTHONHASHSEED or on where objects lie."""
    with ThreadPoolExecutor(2) as pool:
        first, *others = pool.map(_in_a_process, [str(271828 * number) for number in range(20)])
    assert all(other == first for other in others)


@pytest.mark.parametrize("name", ["first_of_two", "completion_order"])
def test_case_F02_sets_inside_wait_and_as_completed_have_one_order(name: str) -> None:
    """`asyncio.wait` and `as_completed` go through sets of tasks; their order is fixed by construction."""
    first, second = explore(PROGRAMS[name]), explore(PROGRAMS[name])
    assert first.verdict == "holds"
    assert (first.states, first.transitions, first.outcomes) == (second.states, second.transitions, second.outcomes)


def test_case_F02_order_of_a_set_of_tasks_follows_their_names() -> None:
    """Iterating a set of tasks gives the same order in every run, which ids would not."""
    orders: set[tuple[str, ...]] = set()

    async def main() -> None:
        tasks = {asyncio.create_task(asyncio.sleep(0), name=f"task {number}") for number in range(20)}
        orders.add(tuple(task.get_name() for task in tasks))
        filler.append(object())
        await asyncio.wait(tasks)

    filler: list[object] = []
    for _ in range(5):
        explore(main, max_states=3)
    assert len(orders) == 1


_SHIFTS_ADDRESSES: list[object] = []


def test_case_F02_coroutines_given_to_as_completed_start_in_their_order() -> None:
    """asyncio puts them into a set of addresses first; which one is `run-1` would be chance."""

    async def main() -> list[int]:
        order: list[int] = []

        async def run(number: int) -> None:
            order.append(number)

        _SHIFTS_ADDRESSES.append([object() for _ in range(len(_SHIFTS_ADDRESSES) + 1)])
        for finished in asyncio.as_completed([run(number) for number in range(3)]):
            await finished
        return order

    explored = explore(main, state=lambda: None)  # what shifts addresses is a global of this module
    assert explored.verdict == "holds"
    assert len(explored.outcomes) == 6
    assert explore(main, prune=False, max_states=1).outcomes == {"returned [0, 1, 2]"}


def test_case_F16_object_shared_by_runs_is_found_and_the_step_is_named() -> None:
    """The usual mistake: what the program changes was made outside of it, so every run starts where the last ended."""
    shared: list[int] = []

    async def main() -> None:
        async def add() -> None:
            shared.append(1)
            await asyncio.sleep(0)

        await asyncio.gather(add(), add())

    result = explore(main)
    assert result.verdict == "inconclusive"
    assert result.why is not None
    assert "program is not deterministic: step" in result.why
    assert "made outside of it" in result.why


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


def test_case_F16_thousandth_run_is_like_the_first() -> None:
    """Context variables, hooks, running loop, collector and current task are what they were before."""

    async def main() -> str:
        seen = VARIABLE.get()
        VARIABLE.set("changed by a run")

        async def count() -> AsyncIterator[int]:
            yield 1
            yield 2

        async for _ in count():
            break
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0), asyncio.sleep(0))
        return seen

    hooks, collecting, frozen = sys.get_asyncgen_hooks(), gc.isenabled(), gc.get_freeze_count()
    result = explore(main, prune=False, max_states=1_000)
    assert result.outcomes == {"returned 'unset'"}
    assert result.runs == 1_000
    assert sys.get_asyncgen_hooks() == hooks
    assert gc.isenabled() is collecting
    assert gc.get_freeze_count() == frozen
    assert VARIABLE.get() == "unset"
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


def test_case_F16_nothing_complains_when_runs_are_thrown_away(recwarn: pytest.WarningsRecorder) -> None:
    """Thousands of half-finished runs leave no warning, no unraisable exception and no log line."""
    unraisable: list[Any] = []
    before = sys.unraisablehook
    sys.unraisablehook = unraisable.append
    try:
        explore(barrier_subject(2, 2), cancels=1, keep_going=True)
        explore(lock_order, keep_going=True)
        explore(PROGRAMS["generators"])
        gc.collect()
    finally:
        sys.unraisablehook = before
    assert unraisable == []
    assert [str(warning.message) for warning in recwarn] == []


def test_exploring_from_inside_a_running_loop_leaves_it_in_place() -> None:
    """An async test may call `explore`: its own loop is the running one again afterwards."""

    async def outer() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert explore(lost_update_checked).verdict == "fails"
        assert asyncio.get_running_loop() is loop
        assert asyncio.current_task() is task
        await asyncio.sleep(0)

    asyncio.run(outer())


def test_tasks_are_named_by_parent_and_coroutine() -> None:
    """Names do not come from asyncio's counter, which goes on from run to run, and depend on living tasks only."""
    names: list[str] = []

    async def leaf() -> None:
        names.append(_name())

    async def branch() -> None:
        names.append(_name())
        await asyncio.create_task(leaf())
        await asyncio.create_task(leaf())

    async def main() -> None:
        names.append(_name())
        await asyncio.gather(branch(), asyncio.create_task(leaf(), name="given"))

    def _name() -> str:
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    explore(main, max_states=1)
    names.clear()
    explore(main, prune=False, max_states=1)
    assert names == ["main", "given", "branch-1", "branch-1/leaf-1", "branch-1/leaf-1"]


def test_loop_that_starts_a_task_in_each_round_comes_back_to_a_state() -> None:
    """Names are given again once their task has ended, so a server's loop is a circle and not an endless tree."""

    async def main() -> None:
        async def request() -> None:
            await asyncio.sleep(0)

        while True:
            await asyncio.create_task(request())

    result = explore(main, max_states=50)
    assert result.failure is not None
    assert result.failure.kind == "no-progress"


def test_task_built_by_hand_is_taken_in() -> None:
    """`asyncio.Task(...)` does not pass through the loop; it is named and scheduled like any other."""

    async def main() -> str:
        async def child() -> str:
            await asyncio.sleep(0)
            return "done"

        return await asyncio.Task(child(), loop=asyncio.get_running_loop())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = explore(main)
    assert result.outcomes == {"returned 'done'"}


def test_task_factory_of_the_program_is_honoured() -> None:
    """A program may build its tasks itself."""
    made: list[str] = []

    async def main() -> int:
        loop = asyncio.get_running_loop()

        def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
            made.append(coroutine.__name__)
            return asyncio.Task(coroutine, loop=loop, **options)

        async def child() -> int:
            await asyncio.sleep(0)
            return 7

        loop.set_task_factory(factory)
        return await asyncio.create_task(child())

    result = explore(main)
    assert result.outcomes == {"returned 7"}
    assert set(made) == {"child"}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="other-python: eager tasks came with Python 3.12")
def test_eager_tasks_run_inside_their_creation() -> None:
    """An eager task's first step is no choice: it happens where the task is made."""

    async def main() -> list[str]:
        order: list[str] = []
        factory: Any = asyncio.eager_task_factory  # type: ignore[attr-defined]
        asyncio.get_running_loop().set_task_factory(factory)

        async def child() -> None:
            order.append("child")
            await asyncio.sleep(0)

        task = asyncio.create_task(child())
        order.append("main")
        await task
        return order

    assert explore(main).outcomes == {"returned ['child', 'main']"}
