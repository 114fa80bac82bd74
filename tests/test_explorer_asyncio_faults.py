"""Faults of asyncio itself, found in the real primitives: what a replacement of them could not show."""

from __future__ import annotations

import asyncio
import sys

import pytest

from interleavings import Subject, explore


async def lost_notification() -> str:
    """cpython #112202: a waiter that was notified and is cancelled before it runs keeps the notification."""
    condition = asyncio.Condition()
    waiting = 0

    async def wait() -> str:
        nonlocal waiting
        async with condition:
            waiting += 1
            await condition.wait()
            return "woken"

    first, second = asyncio.create_task(wait(), name="first"), asyncio.create_task(wait(), name="second")
    while waiting < 2:
        await asyncio.sleep(0)

    async def notify() -> None:
        async with condition:
            condition.notify()

    async def cancel() -> None:
        first.cancel()

    await asyncio.gather(notify(), cancel())
    await asyncio.wait([first])
    if not first.cancelled():
        await notify()  # the first waiter has used the notification up, so the second one needs its own
    await second
    return "first was cancelled" if first.cancelled() else "both were woken"


def test_condition_loses_the_notification_of_a_cancelled_waiter_before_python_3_13() -> None:
    """One notification, two waiters, the notified one is cancelled: until 3.12 the other is never woken."""
    result = explore(lost_notification)
    if sys.version_info >= (3, 13):
        assert result.verdict == "holds"
        assert result.outcomes == {"returned 'first was cancelled'", "returned 'both were woken'"}
        return
    assert result.counterexample is not None
    assert result.counterexample.stock == "yes"
    assert result.failure is not None
    assert result.failure.kind == "deadlock"
    blocked = {entry["task"]: entry["waits for"] for entry in result.failure.details["blocked"]}
    assert blocked["second"] == "a notification of Condition condition"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="other-python: wait_for was rewritten in Python 3.12")
def test_wait_for_can_swallow_a_cancellation() -> None:
    """A cancellation that arrives together with the completion is lost: the task goes on as if nothing had happened."""

    def build() -> Subject:
        went_on: list[str] = []

        async def worker() -> None:
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(future.set_result, None)
            await asyncio.wait_for(future, 10)
            went_on.append("after a cancellation")

        async def canceller(task: asyncio.Task[None]) -> None:
            task.cancel()

        async def main() -> str:
            task = asyncio.create_task(worker())
            await asyncio.sleep(0)
            await asyncio.create_task(canceller(task))
            await asyncio.gather(task, return_exceptions=True)
            requested = task.cancelling()
            return "swallowed" if went_on and requested else "went on" if went_on else "cancelled"

        return Subject(main())

    outcomes = explore(build, keep_going=True).outcomes
    assert {"returned 'cancelled'", "returned 'swallowed'"} <= outcomes
