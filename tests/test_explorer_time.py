"""Virtual time, timers, timeouts and executor jobs: what is a choice and what is not."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from interleavings import explore


def test_time_stands_still_while_anything_can_run() -> None:
    """A timer never overtakes work that is ready, however long the work is."""

    async def main() -> str:
        async def work() -> str:
            for _ in range(5):
                await asyncio.sleep(0)
            return "worked"

        return await asyncio.wait_for(work(), 0.001)

    assert explore(main).outcomes == {"returned 'worked'"}


def test_timers_at_any_time_find_the_late_timeout() -> None:
    """A step can take long in reality: with timers="anytime" the timeout may strike between any two steps."""

    async def main() -> str:
        async def work() -> str:
            await asyncio.sleep(0)
            return "worked"

        try:
            async with asyncio.timeout(1):
                return await work()
        except TimeoutError:
            return "timed out"

    assert explore(main).outcomes == {"returned 'worked'"}
    assert explore(main, timers="anytime").outcomes == {"returned 'worked'", "returned 'timed out'"}


def test_timers_of_the_same_instant_fire_in_any_order() -> None:
    """asyncio's heap promises no order among equal times."""

    async def main() -> str:
        order: list[str] = []

        async def late(name: str) -> None:
            await asyncio.sleep(1)
            order.append(name)

        await asyncio.gather(late("a"), late("b"), late("c"))
        return "".join(order)

    assert len(explore(main).outcomes) == 6


def test_later_timers_fire_later() -> None:
    """Different times are not a choice."""

    async def main() -> str:
        order: list[str] = []

        async def late(name: str, delay: float) -> None:
            await asyncio.sleep(delay)
            order.append(name)

        await asyncio.gather(late("slow", 2), late("fast", 1))
        return ", ".join(order)

    assert explore(main).outcomes == {"returned 'fast, slow'"}


def test_due_timer_and_ready_work_are_both_choices() -> None:
    """Once its time has come a timer competes with what the first one made ready."""

    async def main() -> str:
        order: list[str] = []

        async def late(name: str) -> None:
            await asyncio.sleep(1)
            order.append(name)
            await asyncio.sleep(0)
            order.append(name)

        await asyncio.gather(late("a"), late("b"))
        return "".join(order)

    assert explore(main).outcomes == {f"returned {text!r}" for text in ("aabb", "abab", "abba", "baab", "baba", "bbaa")}


def test_cancelled_timer_never_fires() -> None:
    """A handle that was cancelled is no choice."""

    async def main() -> list[str]:
        fired: list[str] = []
        loop = asyncio.get_running_loop()
        loop.call_later(1, fired.append, "kept")
        loop.call_later(1, fired.append, "cancelled").cancel()
        ready = loop.call_soon(fired.append, "never")
        ready.cancel()
        await asyncio.sleep(2)
        return fired

    assert explore(main).outcomes == {"returned ['kept']"}


def test_absolute_time_is_state_only_for_programs_that_read_it() -> None:
    """A program that compares deadlines with the clock is told apart by the clock."""

    async def main() -> list[bool]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 2
        late: list[bool] = []
        for _ in range(3):
            await asyncio.sleep(1)
            late.append(loop.time() > deadline)
        return late

    assert explore(main).outcomes == {"returned [False, False, True]"}


def test_job_of_an_executor_completes_at_any_point() -> None:
    """The function of a thread may run before, between and after the loop's own steps."""

    async def main() -> list[str]:
        order: list[str] = []

        async def own() -> None:
            for _ in range(2):
                await asyncio.sleep(0)
                order.append("loop")

        await asyncio.gather(asyncio.to_thread(order.append, "thread"), own())
        return order

    assert explore(main).outcomes == {
        "returned ['thread', 'loop', 'loop']",
        "returned ['loop', 'thread', 'loop']",
        "returned ['loop', 'loop', 'thread']",
    }


def test_job_runs_without_a_running_loop_and_in_no_other_thread() -> None:
    """It sees what a thread would see, but runs where every step runs, so that nothing races."""

    async def main() -> tuple[bool, bool]:
        def look() -> tuple[bool, bool]:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return True, threading.current_thread() is threading.main_thread()
            return False, False

        return await asyncio.to_thread(look)

    assert explore(main).outcomes == {"returned (True, True)"}


def test_error_in_a_job_reaches_who_awaits_it() -> None:
    """The exception is the future's, as with a real executor."""

    async def main() -> str:
        def broken() -> None:
            raise ValueError("in a thread")

        try:
            await asyncio.get_running_loop().run_in_executor(None, broken)
        except ValueError as error:
            return str(error)
        return "nothing"

    assert explore(main).outcomes == {"returned 'in a thread'"}


def test_job_that_nobody_awaits_any_more_still_runs() -> None:
    """A thread cannot be cancelled: its effect comes even after the timeout that gave it up."""

    async def main() -> list[str]:
        done: list[str] = []
        task = asyncio.create_task(asyncio.to_thread(done.append, "written"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(1)
        return list(done)

    assert explore(main).outcomes == {"returned []", "returned ['written']"}


def test_waiting_for_a_job_is_no_deadlock() -> None:
    """A thread that has not answered yet is pending work."""

    async def main() -> None:
        await asyncio.to_thread(lambda: None)

    explore(main).assert_holds()


def test_case_F17_blocking_on_the_loop_from_a_job_is_refused() -> None:
    """A thread that waits for the loop would hang the tool; it is refused by name."""

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def answer() -> int:
            return 1

        def ask() -> Any:
            coroutine = answer()
            try:
                return asyncio.run_coroutine_threadsafe(coroutine, loop).result()
            finally:
                coroutine.close()

        await asyncio.to_thread(ask)

    result = explore(main)
    assert result.verdict == "inconclusive"
    assert result.why is not None
    assert result.why.startswith("asyncio.run_coroutine_threadsafe was called")


@pytest.mark.parametrize("name", ["timeout", "wait_for"])
def test_keep_alive_with_a_timeout_comes_back_to_a_state(name: str) -> None:
    """Deadlines are read relative to now, so a loop of timeouts is a circle and its stall is proved."""

    async def main() -> None:
        never = asyncio.Event()
        while True:
            try:
                if name == "timeout":
                    async with asyncio.timeout(5):
                        await never.wait()
                else:
                    await asyncio.wait_for(never.wait(), 5)
            except TimeoutError:
                pass

    result = explore(main)
    assert result.failure is not None
    assert result.failure.kind == "no-progress"
