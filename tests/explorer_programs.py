"""Small asyncio programs for the tests of the explorer: each builds its own state and can be run again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from interleavings import Subject

Factory = Callable[[], Coroutine[Any, Any, Any]]


class Counter:
    """A counter whose update reads, waits and writes; with a lock it loses nothing."""

    def __init__(self, locked: bool) -> None:
        self.value = 0
        self.lock = asyncio.Lock() if locked else None

    async def increment(self) -> None:
        if self.lock is None:
            await self._update()
            return
        async with self.lock:
            await self._update()

    async def _update(self) -> None:
        seen = self.value
        await asyncio.sleep(0)
        self.value = seen + 1


async def lost_update() -> int:
    """Two updates without a lock; returns what is left of them."""
    counter = Counter(locked=False)
    await asyncio.gather(counter.increment(), counter.increment())
    return counter.value


async def lost_update_checked() -> None:
    """The same, failing when an update is lost."""
    value = await lost_update()
    assert value == 2, f"lost update: {value}"


async def safe_update() -> int:
    """Two updates under a lock."""
    counter = Counter(locked=True)
    await asyncio.gather(counter.increment(), counter.increment())
    return counter.value


async def safe_update_checked() -> None:
    """The repaired version of `lost_update_checked`: same tasks, same names, with a lock."""
    value = await safe_update()
    assert value == 2, f"lost update: {value}"


class ConditionBarrier:
    """Many mutations or one checkpoint, on asyncio.Condition; its release awaits, which is the seeded fault."""

    def __init__(self, seeded: str = "") -> None:
        self.condition = asyncio.Condition()
        self.inside = 0
        self.checkpointing = False
        self.seeded = seeded

    @asynccontextmanager
    async def mutation(self) -> AsyncIterator[None]:
        async with self.condition:
            while self.checkpointing:
                await self.condition.wait()
            self.inside += 1
        try:
            yield
        finally:
            async with self.condition:
                self.inside -= 1
                self.condition.notify_all()

    @asynccontextmanager
    async def checkpoint(self) -> AsyncIterator[None]:
        async with self.condition:
            while self.checkpointing:
                await self.condition.wait()
            self.checkpointing = True
            if self.seeded == "waits once":
                if self.inside:
                    await self.condition.wait()
            else:
                while self.inside:
                    await self.condition.wait()
        try:
            yield
        finally:
            async with self.condition:
                self.checkpointing = False
                self.condition.notify_all()


class BarrierWorld:
    """Writers that touch several cells with an await between each, and one reader of all of them."""

    def __init__(self, steps: int, seeded: str = "") -> None:
        self.barrier = ConditionBarrier(seeded)
        self.cells = [0] * steps
        self.snapshot: list[int] = []

    async def mutate(self) -> None:
        async with self.barrier.mutation():
            for index in range(len(self.cells)):
                self.cells[index] += 1
                if index + 1 < len(self.cells):
                    await asyncio.sleep(0)

    async def read(self) -> None:
        async with self.barrier.checkpoint():
            first = self.cells[0]
            await asyncio.sleep(0)
            self.snapshot = [first, *self.cells[1:]]

    def torn(self) -> str | None:
        """Say what is wrong with the snapshot."""
        return None if len(set(self.snapshot)) <= 1 else f"torn snapshot {self.snapshot}"


def barrier_subject(writers: int, steps: int, *, seeded: str = "", declared: bool = False) -> Callable[[], Subject]:
    """Return a program of `writers` mutators with `steps` writes each and one checkpointer, side by side."""

    def build() -> Subject:
        world = BarrierWorld(steps, seeded)
        barrier = world.barrier

        def state() -> tuple[Any, ...]:
            condition: Any = barrier.condition
            return (
                barrier.inside,
                barrier.checkpointing,
                condition._lock,
                condition._waiters,
                tuple(world.cells),
                tuple(world.snapshot),
            )

        mains = [*(world.mutate() for _ in range(writers)), world.read()]
        return Subject(mains, finish=world.torn, state=state if declared else None)

    return build


def steppers(tasks: int, steps: int) -> Callable[[], Subject]:
    """Return a program of independent tasks that take `steps` steps each and write down who went when."""

    def build() -> Subject:
        order: list[int] = []

        async def walker(name: int) -> None:
            order.append(name)
            for _ in range(steps - 1):
                await asyncio.sleep(0)
                order.append(name)

        return Subject([walker(name) for name in range(tasks)], finish=lambda: None if order else "nothing ran")

    return build


async def lock_order() -> None:
    """Two tasks that take two locks in opposite order."""
    first, second = asyncio.Lock(), asyncio.Lock()

    async def forwards() -> None:
        async with first:
            await asyncio.sleep(0)
            async with second:
                pass

    async def backwards() -> None:
        async with second:
            await asyncio.sleep(0)
            async with first:
                pass

    await asyncio.gather(forwards(), backwards())


async def callback_order() -> str:
    """A task that wakes up together with a callback: stock asyncio lets the task run first."""
    done = asyncio.get_running_loop().create_future()
    opened = asyncio.Event()
    seen: list[int] = []
    done.add_done_callback(lambda _: seen.append(1))

    async def opener() -> None:
        await asyncio.sleep(0)
        opened.set()
        done.set_result(None)

    async def waiter() -> str:
        await opened.wait()
        return "seen" if seen else "not yet"

    waiting = asyncio.create_task(waiter())
    await asyncio.create_task(opener())
    return await waiting


async def queue_order() -> list[int]:
    """Two producers and a consumer over a bounded queue."""
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)

    async def produce(item: int) -> None:
        await queue.put(item)

    async def consume() -> list[int]:
        return [await queue.get() for _ in range(2)]

    async with asyncio.TaskGroup() as group:
        group.create_task(produce(1))
        group.create_task(produce(2))
        consumer = group.create_task(consume())
    return consumer.result()


async def event_race() -> str:
    """An event that is set and cleared while another task looks."""
    event = asyncio.Event()

    async def blink() -> None:
        event.set()
        await asyncio.sleep(0)
        event.clear()

    async def look() -> str:
        await asyncio.sleep(0)
        return "set" if event.is_set() else "clear"

    _, seen = await asyncio.gather(blink(), look())
    return seen


async def semaphore_pair() -> int:
    """Three workers behind a semaphore of two; returns how many were inside at once."""
    semaphore = asyncio.Semaphore(2)
    inside = most = 0

    async def worker() -> None:
        nonlocal inside, most
        async with semaphore:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(worker() for _ in range(3)))
    return most


async def first_of_two() -> list[str]:
    """`asyncio.wait` for the first of two tasks."""

    async def run(name: str) -> str:
        await asyncio.sleep(0)
        return name

    tasks = [asyncio.create_task(run(name), name=name) for name in ("left", "right")]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return sorted(task.get_name() for task in done)


async def completion_order() -> list[int]:
    """`asyncio.as_completed` over three tasks."""

    async def run(number: int) -> int:
        await asyncio.sleep(0)
        return number

    return [await finished for finished in asyncio.as_completed([asyncio.create_task(run(n)) for n in range(3)])]


async def timed_out() -> str:
    """A timeout and the work it limits become due at the same virtual time."""

    async def work() -> str:
        await asyncio.sleep(0.001)
        return "worked"

    try:
        async with asyncio.timeout(0.001):
            return await work()
    except TimeoutError:
        return "timed out"


async def generators() -> list[int]:
    """Two async generators that interleave over a shared list."""
    seen: list[int] = []

    async def count(start: int) -> AsyncIterator[int]:
        for number in range(start, start + 2):
            await asyncio.sleep(0)
            yield number

    async def drain(start: int) -> None:
        async for number in count(start):
            seen.append(number)

    await asyncio.gather(drain(0), drain(10))
    return seen


async def cancelled_child() -> str:
    """A child that is cancelled at a point that depends on the schedule."""
    progress: list[str] = []

    async def child() -> None:
        try:
            progress.append("started")
            await asyncio.sleep(0)
            progress.append("went on")
            await asyncio.sleep(0)
        finally:
            progress.append("cleaned")

    task = asyncio.create_task(child())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return ", ".join(progress)


async def threads() -> list[str]:
    """Two calls in threads and a step of the loop's own."""
    order: list[str] = []

    async def own() -> None:
        await asyncio.sleep(0)
        order.append("loop")

    await asyncio.gather(asyncio.to_thread(order.append, "first"), asyncio.to_thread(order.append, "second"), own())
    return order


PROGRAMS: dict[str, Factory] = {
    "lost_update": lost_update,
    "safe_update": safe_update,
    "callback_order": callback_order,
    "queue_order": queue_order,
    "event_race": event_race,
    "semaphore_pair": semaphore_pair,
    "first_of_two": first_of_two,
    "completion_order": completion_order,
    "timed_out": timed_out,
    "generators": generators,
    "cancelled_child": cancelled_child,
    "threads": threads,
    "lock_order": lock_order,
}
