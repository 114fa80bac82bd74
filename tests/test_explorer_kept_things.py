"""Everything that may be kept from one step to a later one is state, wherever Python keeps it."""

from __future__ import annotations

import asyncio
import re
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from explorer_kept_things import KEPT, Thing
from explorer_outcomes import Cell, outcomes
from test_explorer_soundness import stock_outcome

from interleavings import explore


def keeping(name: str) -> Callable[[], Coroutine[Any, Any, Any]]:
    """A program that makes a thing by what it sees for one turn, and shows it turns later."""
    make, show = KEPT[name]

    async def main() -> Any:
        cell = Cell()

        async def keep() -> Any:
            held = make(cell.value)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return show(held)

        shown, _ = await asyncio.gather(keep(), cell.pulse())
        return shown

    return main


@pytest.mark.parametrize("name", KEPT)
def test_case_F08_what_is_kept_is_state(name: str) -> None:
    """Both things are told apart, and every schedule is counted."""
    program = keeping(name)
    assert len(outcomes(program)) == 2
    assert explore(program).schedules == explore(program, prune=False).schedules


# ------------------------------------------------------------------------------------------- tasks, handles, timers


async def _slept() -> None:
    """One second or two, by what a cell held for one turn."""
    cell = Cell()

    async def sleep() -> None:
        await asyncio.sleep(1 + cell.value)

    await asyncio.gather(sleep(), cell.pulse())
    await asyncio.sleep(0)


async def _deadline() -> float | None:
    await _slept()
    async with asyncio.timeout(5) as limit:
        return limit.when()


async def _moment_of_a_timer() -> float:
    await _slept()
    timer = asyncio.get_running_loop().call_later(5, print)
    timer.cancel()
    return timer.when()


async def _clock() -> float:
    await _slept()
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(("program", "since"), [(_clock, 0), (_deadline, 5), (_moment_of_a_timer, 5)])
def test_time_that_is_looked_at_late_was_state_before(program: Callable[[], Any], since: int) -> None:
    """Two ways to one state at different times: whoever looks at the clock afterwards tells them apart."""
    assert outcomes(program) == {f"returned {since + 1.0}", f"returned {since + 2.0}"}


def test_requests_to_cancel_that_an_ended_task_had_are_state_for_who_asks() -> None:
    """A cancellation that was swallowed, and one that came too late."""

    async def main() -> int:
        async def swallow() -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)

        async def cancel() -> None:
            await asyncio.sleep(0)
            task.cancel()

        task = asyncio.create_task(swallow())
        await asyncio.wait([task, asyncio.create_task(cancel())])
        await asyncio.sleep(0)
        return task.cancelling()

    assert outcomes(main) >= {"returned 0", "returned 1"}


def test_task_that_somebody_looked_at_while_it_ran_is_told_apart() -> None:
    """Whether a cancellation of its own was awaited by nobody is decided before it comes."""

    async def main() -> None:
        cell, end = Cell(), asyncio.Event()

        async def cancel_itself() -> None:
            await end.wait()
            raise asyncio.CancelledError

        async def look() -> None:
            if cell.value:
                task.cancelled()

        task = asyncio.create_task(cancel_itself())
        await asyncio.gather(look(), cell.pulse())
        end.set()
        for _ in range(3):
            await asyncio.sleep(0)

    assert outcomes(main) >= {"returned None", "unseen-exception: CancelledError"}


def test_which_of_two_equal_calls_has_run_is_state() -> None:
    """Cancelling the one that has run comes too late, cancelling the other does not."""

    async def main() -> int:
        log: list[int] = []
        first, _ = (asyncio.get_running_loop().call_soon(log.append, 1) for _ in range(2))
        while not log:
            await asyncio.sleep(0)
        first.cancel()
        for _ in range(2):
            await asyncio.sleep(0)
        return len(log)

    pruned, enumerated = explore(main, keep_going=True), explore(main, keep_going=True, prune=False, max_states=500)
    assert pruned.outcomes == enumerated.outcomes == {"returned 1", "returned 2"}


def test_reading_a_frame_keeps_nothing_alive() -> None:
    """Until Python 3.12 a frame keeps what `f_locals` once showed; a weak reference then told of the explorer."""

    async def main() -> bool:
        thing = Thing()
        ref = weakref.ref(thing)
        await asyncio.sleep(0)
        del thing
        return ref() is None

    assert outcomes(main) == {"returned True"} == {stock_outcome(main)}


def test_dropped_async_generator_is_closed_as_asyncio_does() -> None:
    """The loop hears of it in the step that drops it."""

    async def main() -> str:
        log: list[str] = []

        async def numbers() -> Any:
            try:
                yield 1
            finally:
                log.append("closed")

        walked = numbers()
        await anext(walked)
        await asyncio.sleep(0)
        del walked
        await asyncio.sleep(0)
        log.append("slept")
        await asyncio.sleep(0)
        return " ".join(log)

    assert stock_outcome(main) in outcomes(main)


def test_timers_within_the_resolution_of_the_clock_fire_together() -> None:
    """0.1 + 0.2 is later than 0.3 by a rounding error, and asyncio fires both in one turn."""

    async def main() -> str:
        log: list[str] = []
        loop = asyncio.get_running_loop()
        loop.call_later(0.3, loop.call_soon, log.append, "soon")
        loop.call_later(0.1 + 0.2, log.append, "second")
        await asyncio.sleep(1)
        return " ".join(log)

    assert stock_outcome(main) == "returned 'second soon'"
    assert outcomes(main) == {"returned 'second soon'", "returned 'soon second'"}


def test_exception_that_was_handled_once_leaves_no_trace_in_the_state() -> None:
    """`re` compiles with exceptions the first time and answers from its cache later: one program, not two."""
    re.purge()

    async def main() -> bool:
        async def search(text: str) -> bool:
            pattern = re.compile("a|b|c+")
            await asyncio.sleep(0)
            return pattern.match(text) is not None

        return all(await asyncio.gather(search("a"), search("c")))

    assert outcomes(main) == {"returned True"}


def test_weak_proxy_is_refused_by_name() -> None:
    """It passes every question on, so the explorer says that it cannot compare states, and enumerates."""

    async def main() -> None:
        thing = Thing()
        proxy = weakref.proxy(thing)
        await asyncio.sleep(0)
        assert proxy is not None

    result = explore(main)
    assert result.verdict == "bounded"
    assert "weak proxy" in str(result.why)
