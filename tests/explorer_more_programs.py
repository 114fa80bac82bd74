"""More small programs for the soundness tests of the explorer: one for each thing that asyncio offers."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

Factory = Callable[[], Coroutine[Any, Any, Any]]
MORE_PROGRAMS: dict[str, Factory] = {}


def program(function: Factory) -> Factory:
    """Put a program into the table."""
    MORE_PROGRAMS[function.__name__] = function
    return function


@program
async def failing_group() -> str:
    """A task group whose one task fails while the other is at work."""
    log: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def work() -> None:
        log.append("began")
        await asyncio.sleep(0)
        log.append("ended")

    with suppress(BaseExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(work())
    return " ".join(log)


@program
async def waited_for() -> str:
    """`wait_for` whose limit and whose work come at the same time."""

    async def work() -> str:
        await asyncio.sleep(1)
        return "worked"

    try:
        return await asyncio.wait_for(work(), 1)
    except TimeoutError:
        return "too late"


@program
async def shielded() -> list[str]:
    """Cancelling who waits leaves the shielded task alone."""
    log: list[str] = []

    async def inner() -> None:
        await asyncio.sleep(0)
        log.append("inner ended")

    async def outer() -> None:
        try:
            await asyncio.shield(kept)
            log.append("outer ended")
        except asyncio.CancelledError:
            log.append("outer cancelled")

    kept = asyncio.create_task(inner())
    waiting = asyncio.create_task(outer())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([kept, waiting])
    return log


@program
async def meeting() -> list[int]:
    """Two tasks meet at `asyncio.Barrier`; who came last goes on first."""
    barrier, log = asyncio.Barrier(2), list[int]()

    async def come() -> None:
        log.append(await barrier.wait())

    await asyncio.gather(come(), come())
    return log


@program
async def priorities() -> list[int]:
    """A priority queue that is filled while it is emptied."""
    queue: asyncio.PriorityQueue[int] = asyncio.PriorityQueue()

    async def put(number: int) -> None:
        await asyncio.sleep(0)
        queue.put_nowait(number)

    async def take() -> list[int]:
        return [await queue.get(), await queue.get()]

    _, _, taken = await asyncio.gather(put(2), put(1), take())
    return taken


@program
async def last_in_first_out() -> list[int]:
    """A stack of two, emptied while it is filled."""
    queue: asyncio.LifoQueue[int] = asyncio.LifoQueue()

    async def put() -> None:
        for number in range(3):
            queue.put_nowait(number)
            await asyncio.sleep(0)

    async def take() -> list[int]:
        return [await queue.get(), await queue.get()]

    _, taken = await asyncio.gather(put(), take())
    return taken


@program
async def joined_queue() -> str:
    """`Queue.join` returns when what was taken is done."""
    queue: asyncio.Queue[int] = asyncio.Queue()
    done: list[int] = []
    queue.put_nowait(1)

    async def work() -> None:
        item = await queue.get()
        await asyncio.sleep(0)
        done.append(item)
        queue.task_done()

    worker = asyncio.create_task(work())
    await queue.join()
    seen = len(done)
    await worker
    return f"{seen} done"


@program
async def notified_once() -> int:
    """One notification for two waiters; the second is let go by an event."""
    condition, woken = asyncio.Condition(), list[str]()

    async def wait(name: str) -> None:
        async with condition:
            await condition.wait()
            woken.append(name)

    async def notify() -> None:
        for _ in range(2):
            await asyncio.sleep(0)
            async with condition:
                condition.notify()

    tasks = [asyncio.create_task(wait(name)) for name in "ab"]
    await notify()
    first = len(woken)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return first


@program
async def context_of_a_callback() -> int:
    """A callback runs in the context it was given, whatever was set since."""
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen = asyncio.get_running_loop().create_future()

    async def look() -> None:
        asyncio.get_running_loop().call_soon(tell)

    def tell() -> None:
        if not seen.done():
            seen.set_result(variable.get())

    async def change() -> None:
        variable.set(1)
        await look()

    await asyncio.gather(look(), change())
    found: int = await seen
    return found


@program
async def done_callbacks() -> list[str]:
    """Two callbacks of one future and a task that waits for it."""
    log: list[str] = []
    future = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda _: log.append("first"))
    future.add_done_callback(lambda _: log.append("second"))

    async def wait() -> None:
        await future
        log.append("waiter")

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    future.set_result(None)
    await waiting
    return log


@program
async def later_calls() -> list[int]:
    """Calls at two times and at one time twice."""
    log: list[int] = []
    loop = asyncio.get_running_loop()
    for delay, number in ((2, 3), (1, 1), (1, 2)):
        loop.call_later(delay, log.append, number)
    await asyncio.sleep(3)
    return log


@program
async def cancelled_timer() -> list[str]:
    """A timer that is cancelled by another of the same time."""
    log: list[str] = []
    loop = asyncio.get_running_loop()
    first = loop.call_later(1, log.append, "first")

    def stop() -> None:
        first.cancel()
        log.append("stopped")

    loop.call_later(1, stop)
    await asyncio.sleep(2)
    return log


@program
async def cleanup_that_waits() -> list[str]:
    """A cancelled task whose `finally` awaits."""
    log: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            log.append("cleaned")

    async def watch() -> None:
        await asyncio.sleep(0)
        log.append("watched")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, watch(), return_exceptions=True)
    return log


@program
async def cancellation_withdrawn() -> str:
    """A task that swallows its cancellation and takes the request back."""

    async def work() -> str:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            return f"swallowed, {task.uncancel()} left"
        return "not met"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    return str(result) if not isinstance(result, BaseException) else type(result).__name__


@program
async def nested_limits() -> str:
    """Two timeouts of the same length, one in the other."""
    try:
        async with asyncio.timeout(1):
            try:
                async with asyncio.timeout(1):
                    await asyncio.Event().wait()
            except TimeoutError:
                return "inner"
    except TimeoutError:
        return "outer"
    return "none"


@program
async def values_in_flight() -> dict[str, int]:
    """Two tasks that add to one entry of a dictionary."""
    table = {"sum": 0}

    async def one() -> int:
        await asyncio.sleep(0)
        return 1

    async def add() -> None:
        table["sum"] += await one()

    await asyncio.gather(add(), add())
    return table


@program
async def async_comprehension() -> list[int]:
    """A comprehension over an async generator that reads what another task writes."""
    cell = [0]

    async def numbers() -> Any:
        for _ in range(2):
            await asyncio.sleep(0)
            yield cell[0]

    async def write() -> None:
        await asyncio.sleep(0)
        cell[0] = 1

    async def read() -> list[int]:
        return [number async for number in numbers()]

    seen, _ = await asyncio.gather(read(), write())
    return seen


@program
async def first_exception() -> int:
    """`wait` until the first exception: how many were done then."""

    async def work(fails: bool) -> None:
        await asyncio.sleep(0)
        if fails:
            raise ValueError

    tasks = [asyncio.create_task(work(fails)) for fails in (True, False)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(done) - len(pending)


@program
async def executor_and_timer() -> list[str]:
    """A job of an executor and a timer: the job may take any time."""
    log: list[str] = []
    loop = asyncio.get_running_loop()

    async def slow() -> None:
        await loop.run_in_executor(None, log.append, "job")

    async def tick() -> None:
        await asyncio.sleep(1)
        log.append("tick")

    await asyncio.gather(slow(), tick())
    return log


@program
async def futures_in_a_set() -> str:
    """Futures get their places in sets by who was hashed first."""
    loop = asyncio.get_running_loop()
    left, right = loop.create_future(), loop.create_future()

    async def touch(future: Any) -> None:
        hash(future)

    await asyncio.gather(touch(left), touch(right))
    return "".join("left" if future is left else "right" for future in {left, right})


@program
async def table_of_a_set() -> list[int]:
    """What a set once held decides where the next members stand."""
    numbers = {8}

    async def grow() -> None:
        numbers.update(range(100, 106))
        numbers.difference_update(range(100, 106))

    async def renew() -> None:
        kept = list(numbers)
        numbers.clear()
        numbers.update(kept)

    await asyncio.gather(grow(), renew())
    numbers.add(1)
    return list(numbers)


@program
async def traffic_of_semaphores() -> int:
    """A bounded semaphore that one task gives back and another takes."""
    semaphore = asyncio.BoundedSemaphore(1)
    seen: list[bool] = []

    async def use() -> None:
        async with semaphore:
            seen.append(semaphore.locked())
            await asyncio.sleep(0)
        seen.append(semaphore.locked())

    await asyncio.gather(use(), use())
    return sum(seen)
