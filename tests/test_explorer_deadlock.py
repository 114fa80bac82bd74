"""Programs that come to a standstill: deadlocks, stalls behind a timer, and circles; and what is none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from explorer_programs import lock_order

from interleavings import ExplorerUsageError, Failure, Wait, explore, register_wait


def failure_of(program: Callable[[], Any], **options: Any) -> Failure:
    """Explore a program that is expected to fail and return its failure."""
    result = explore(program, **options)
    assert result.verdict == "fails", result.summary()
    assert result.failure is not None
    return result.failure


def test_deadlock_names_tasks_locks_holders_and_the_circle() -> None:
    """A deadlock report without the holder leaves the work to the reader."""
    failure = failure_of(lock_order)
    assert failure.kind == "deadlock"
    blocked = {entry["task"]: entry for entry in failure.details["blocked"]}
    assert blocked["forwards-1"]["waits for"] == "Lock second"
    assert blocked["forwards-1"]["held by"] == "backwards-1"
    assert blocked["backwards-1"]["waits for"] == "Lock first"
    assert blocked["backwards-1"]["held by"] == "forwards-1"
    assert blocked["main"]["waits for"] == "gather of backwards-1, forwards-1"
    assert "explorer_programs.py" in blocked["forwards-1"]["at"]
    assert failure.details["circle"] == "backwards-1 -> forwards-1 -> backwards-1"


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (lambda: asyncio.Event().wait(), "Event"),
        (lambda: asyncio.Queue().get(), "an item of Queue"),
        (lambda: asyncio.Semaphore(0).acquire(), "Semaphore"),
        (lambda: asyncio.Barrier(2).wait(), "Barrier"),
    ],
    ids=["event", "queue", "semaphore", "barrier"],
)
def test_deadlock_names_what_is_waited_for(wait: Callable[[], Coroutine[Any, Any, Any]], expected: str) -> None:
    """Each of asyncio's primitives is recognised by its own waiting frame."""

    async def main() -> None:
        await wait()

    (entry,) = failure_of(main).details["blocked"]
    assert entry["waits for"].startswith(expected)


def test_deadlock_names_a_task_and_a_bare_future() -> None:
    """A main that awaits a task which awaits a future nobody resolves."""

    async def main() -> None:
        never = asyncio.get_running_loop().create_future()

        async def child() -> None:
            await never

        await asyncio.create_task(child(), name="child")

    blocked = {entry["task"]: entry for entry in failure_of(main).details["blocked"]}
    assert blocked["main"]["waits for"] == "task child"
    assert blocked["child"]["waits for"] == "future never"


def test_lock_held_without_a_with_statement_has_a_holder_too() -> None:
    """The holder is the task whose step took the lock, however it was taken."""

    async def main() -> None:
        lock = asyncio.Lock()

        async def keeper() -> None:
            await lock.acquire()

        async def other() -> None:
            async with lock:
                pass

        await asyncio.gather(keeper(), other())

    failure = failure_of(main)
    waiting = {entry["task"]: entry for entry in failure.details["blocked"]}["other-1"]
    assert waiting["held by"] == "keeper-1"


def test_case_F10_no_false_deadlock_from_a_stale_count() -> None:
    """A holds m, B holds n, B waits for m, A releases m and then waits for n: nobody is stuck."""

    async def main() -> None:
        m, n = asyncio.Lock(), asyncio.Lock()
        m_taken, n_taken = asyncio.Event(), asyncio.Event()

        async def a() -> None:
            async with m:
                m_taken.set()
                await n_taken.wait()
            async with n:
                pass

        async def b() -> None:
            async with n:
                n_taken.set()
                await m_taken.wait()
                async with m:
                    pass

        await asyncio.gather(a(), b())

    explore(main).assert_holds()
    explore(main, prune=False).assert_holds()


def test_case_F12_keep_alive_timer_does_not_hide_a_stall() -> None:
    """Time goes on without end and main waits for ever: proved, because the states form a circle without an exit."""

    async def main() -> None:
        never = asyncio.Event()

        async def keep_alive() -> None:
            while True:
                await asyncio.sleep(10)

        task = asyncio.create_task(keep_alive(), name="keep-alive")
        await never.wait()
        task.cancel()

    result = explore(main)
    assert result.verdict == "fails"
    assert result.failure is not None
    assert result.failure.kind == "no-progress"
    blocked = {entry["task"]: entry for entry in result.failure.details["blocked"]}
    assert blocked["main"]["waits for"] == "Event never"
    assert blocked["keep-alive"]["at"].endswith("keep_alive")


def test_case_F12_keep_alive_that_counts_ends_after_its_patience() -> None:
    """With a counter no state comes back, so nothing is proved; the search ends all the same and names who waits."""

    async def main() -> None:
        never = asyncio.Event()

        async def keep_alive() -> None:
            rounds = 0
            while True:
                rounds += 1
                await asyncio.sleep(10)

        task = asyncio.create_task(keep_alive(), name="keep-alive")
        await never.wait()
        task.cancel()

    result = explore(main, patience=50)
    assert result.verdict == "inconclusive"
    assert result.why is not None
    assert "no progress: 50 timers fired" in result.why
    assert "main at" in result.why
    assert "waits for Event never" in result.why


def test_spin_that_can_end_is_reported_and_holds() -> None:
    """A busy wait has endlessly many schedules: it holds, the count is None, and the circle is named."""

    async def main() -> None:
        opened = False

        async def spin() -> None:
            while not opened:
                await asyncio.sleep(0)

        task = asyncio.create_task(spin(), name="spinner")
        await asyncio.sleep(0)
        opened = True
        await task

    result = explore(main)
    assert (result.verdict, result.schedules) == ("holds", None)
    assert result.spin is not None
    assert "spinner" in result.spin
    assert "schedules without end" in result.summary()


class Turnstile:
    """A class of the user's that keeps a future of its own."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self.passage = asyncio.get_running_loop().create_future()

    async def pass_through(self) -> None:
        """Wait for whoever is inside."""
        await self.passage


async def two_turnstiles() -> None:
    """Each waits at the turnstile that the other is in."""
    there, back = Turnstile("coming"), Turnstile("going")
    tasks = [asyncio.create_task(there.pass_through(), name="going")]
    tasks += [asyncio.create_task(back.pass_through(), name="coming")]
    for task in tasks:
        await task


def test_a_library_can_say_what_its_own_waits_are_for_and_who_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a future that some class keeps the explorer knows the name at most; the circle needs the holders."""
    assert "circle" not in failure_of(two_turnstiles).details
    monkeypatch.setattr("interleavings.runtime.waits._EXPLAINED", {})
    register_wait(Turnstile.pass_through, lambda held: Wait("the turnstile", [held["self"].holder]))
    failure = failure_of(two_turnstiles)
    blocked = {entry["task"]: entry for entry in failure.details["blocked"]}
    assert (blocked["going"]["waits for"], blocked["going"]["held by"]) == ("the turnstile", "coming")
    assert failure.details["circle"] == "coming -> going -> coming"
    assert failure.message.endswith("; coming waits for going, going waits for coming")


def test_register_wait_refuses_what_is_no_function() -> None:
    """A wait is found by the code of the function that waits."""
    with pytest.raises(ExplorerUsageError, match="the first is a coroutine function"):
        register_wait(Turnstile, lambda held: Wait("nothing"))
