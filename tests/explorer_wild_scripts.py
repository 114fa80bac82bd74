"""Generated programs that use what is seldom used: every primitive and exit of asyncio, and things kept between steps.

A task runs a script of names from `OPERATIONS` over a shared `Wild`. What may block is released when a deadline passes,
so most programs come to an end, and the end tells everything that was noted.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import itertools
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Any

from explorer_kept_things import KEPT

Operation = Callable[["Wild"], Awaitable[object]]
OPERATIONS: dict[str, Operation] = {}


def operation(function: Operation) -> Operation:
    """Put an operation into the table."""
    OPERATIONS[function.__name__] = function
    return function


class Wild:
    """What the tasks of one run share."""

    def __init__(self) -> None:
        self.number, self.log = 0, list[Any]()
        self.lock, self.event, self.condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
        self.semaphore, self.barrier = asyncio.BoundedSemaphore(1), asyncio.Barrier(2)
        self.queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        self.sorted: asyncio.PriorityQueue[int] = asyncio.PriorityQueue()
        self.stack: asyncio.LifoQueue[int] = asyncio.LifoQueue()
        self.future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
        self.turning, self.table, self.counter = deque([1, 2, 3]), {"a": 0}, itertools.count()
        self.chance, self.tasks = random.Random(1), list[asyncio.Task[Any]]()

    def note(self, what: Any) -> None:
        self.log.append(what)

    def other(self) -> asyncio.Task[Any] | None:
        """The first task that is not the one that asks."""
        return next((task for task in self.tasks if task is not asyncio.current_task()), None)


@operation
async def turn(wild: Wild) -> None:
    await asyncio.sleep(0)


@operation
async def add(wild: Wild) -> None:
    wild.number = wild.number + await _one(wild)


async def _one(wild: Wild) -> int:
    await asyncio.sleep(0)
    return 1


@operation
async def pulse(wild: Wild) -> None:
    wild.number += 1
    await asyncio.sleep(0)
    wild.number -= 1


@operation
async def locked(wild: Wild) -> None:
    async with wild.lock:
        await asyncio.sleep(0)
        wild.note(wild.number)


@operation
async def notify(wild: Wild) -> None:
    async with wild.condition:
        wild.condition.notify(2)


@operation
async def await_notice(wild: Wild) -> None:
    async with wild.condition:
        await wild.condition.wait()
        wild.note("noticed")


@operation
async def limited(wild: Wild) -> None:
    async with wild.semaphore:
        wild.note(wild.semaphore.locked())


@operation
async def meet(wild: Wild) -> None:
    wild.note(await wild.barrier.wait())


@operation
async def set_event(wild: Wild) -> None:
    wild.event.set()
    await asyncio.sleep(0)
    wild.event.clear()


@operation
async def put(wild: Wild) -> None:
    await wild.queue.put(wild.number)


@operation
async def get(wild: Wild) -> None:
    wild.note(await asyncio.wait_for(wild.queue.get(), 1))
    wild.queue.task_done()


@operation
async def join(wild: Wild) -> None:
    await wild.queue.join()
    wild.note("joined")


@operation
async def sort(wild: Wild) -> None:
    wild.sorted.put_nowait(-len(wild.log))
    wild.stack.put_nowait(len(wild.log))
    await asyncio.sleep(0)
    wild.note((wild.sorted.get_nowait(), wild.stack.get_nowait()))


@operation
async def resolve(wild: Wild) -> None:
    def give(how: str) -> None:
        if not wild.future.done():
            wild.future.set_result(len(wild.log))
            wild.note(how)

    loop = asyncio.get_running_loop()
    soon = loop.call_soon(give, "soon")
    if wild.number:
        soon.cancel()
        loop.call_later(1, functools.partial(give, "later"))


@operation
async def await_future(wild: Wild) -> None:
    wild.future.add_done_callback(lambda future: wild.note("called"))
    wild.note(await asyncio.shield(wild.future))


@operation
async def cancel_other(wild: Wild) -> None:
    other = wild.other()
    if other is not None:
        wild.note(other.cancel("away"))
        await asyncio.sleep(0)
        wild.note(other.cancelling())


@operation
async def cancel_myself(wild: Wild) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        wild.note(task.uncancel())


@operation
async def swallow(wild: Wild) -> None:
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError as error:
        wild.note(f"swallowed {error.args}")


@operation
async def clean_slowly(wild: Wild) -> None:
    try:
        await asyncio.sleep(0)
    finally:
        await asyncio.sleep(0)
        wild.note("cleaned")


@operation
async def fail_in_group(wild: Wild) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError(wild.number)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(_one(wild))
    except* ValueError as caught:
        wild.note(repr(caught.exceptions))


@operation
async def first_of_two(wild: Wild) -> None:
    tasks = [asyncio.create_task(_one(wild)), asyncio.create_task(asyncio.sleep(0, 2))]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    wild.note([task in done for task in tasks])
    for completed in asyncio.as_completed(tasks):
        wild.note(await completed)


@operation
async def within(wild: Wild) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(1) as limit:
            await wild.event.wait()
            limit.reschedule(None)
            wild.note("in time")


@operation
async def look_at_the_clock(wild: Wild) -> None:
    await asyncio.sleep(wild.number)
    await asyncio.sleep(0)
    wild.note(asyncio.get_running_loop().time())


@operation
async def walk(wild: Wild) -> None:
    async def numbers() -> AsyncIterator[int]:
        try:
            yield wild.number
            await asyncio.sleep(0)
            yield 2
        finally:
            wild.note("closed")

    walked: Any = numbers()
    wild.note(await anext(walked))
    if wild.number:
        del walked  # its end is the loop's to bring about
        wild.note("dropped")
        await asyncio.sleep(0)
        return
    async with aclosing(walked):
        wild.note([number async for number in walked])


@operation
async def throw_in(wild: Wild) -> None:
    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        except KeyError:
            await asyncio.sleep(0)
            yield wild.number

    walked: Any = numbers()
    await anext(walked)
    wild.note(await walked.athrow(KeyError()))
    await walked.aclose()


@operation
async def manage(wild: Wild) -> None:
    @asynccontextmanager
    async def managed() -> AsyncIterator[int]:
        yield wild.number
        await asyncio.sleep(0)
        wild.note("left")

    async with AsyncExitStack() as stack:
        wild.note(await stack.enter_async_context(managed()))


@operation
async def remember(wild: Wild) -> None:
    token = wild.variable.set(len(wild.log))
    await asyncio.create_task(_one(wild))
    wild.note(wild.variable.get())
    wild.variable.reset(token)


@operation
async def turn_round(wild: Wild) -> None:
    try:
        for number in wild.turning:
            await asyncio.sleep(0)
            if number == 2:
                break
            wild.turning.rotate(3)
    except RuntimeError:
        wild.note("turned")


@operation
async def go_through(wild: Wild) -> None:
    for name, number in list(wild.table.items()):
        await asyncio.sleep(0)
        wild.table[name + "b"[: len(wild.table) - 1]] = number + 1
    wild.note(list(wild.table.items()))


@operation
async def count(wild: Wild) -> None:
    wild.note((next(wild.counter), wild.chance.randrange(9)))


def _keeping(name: str) -> Operation:
    make, show = KEPT[name]

    async def keep(wild: Wild) -> None:
        held = make(wild.number % 2)
        await asyncio.sleep(0)
        wild.note(show(held))

    return keep


OPERATIONS |= {f"keep {name}": _keeping(name) for name in KEPT}


def wild_program(scripts: list[list[str]]) -> Callable[[], Coroutine[Any, Any, str]]:
    """A program with a task for each script, which ends by a deadline and returns all that was noted."""

    async def main() -> str:
        wild = Wild()

        async def run(script: list[str]) -> None:
            for name in script:
                await OPERATIONS[name](wild)

        wild.tasks = [asyncio.create_task(run(script), name=f"task-{place}") for place, script in enumerate(scripts)]
        _, late = await asyncio.wait(wild.tasks, timeout=9)
        for task in wild.tasks:
            if task in late:
                task.cancel()
        ends = await asyncio.gather(*wild.tasks, return_exceptions=True)
        await asyncio.sleep(0)
        wild.future.cancel()
        return repr((wild.number, wild.log, [repr(end) for end in ends]))

    return main


def wild_scripts(chance: random.Random) -> list[list[str]]:
    """Two scripts; one of them changes the number that the other decides by, more often than not."""
    names = list(OPERATIONS)
    first = [chance.choice(names) for _ in range(chance.randint(1, 3))]
    second = [chance.choice(["pulse", "add", *chance.sample(names, 2)]) for _ in range(chance.randint(1, 2))]
    return [first, second]
