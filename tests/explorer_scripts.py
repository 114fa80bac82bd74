"""Generated programs for the tests of the explorer: tasks that each run a script over shared cells and primitives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from interleavings import Subject

NAMES = (
    "pass", "add", "double", "copy", "set", "wait", "lock", "unlock", "put", "get", "signal", "await signal", "sleep",
    "limited", "thread", "child", "walk",
)  # fmt: skip
INSTRUCTIONS = st.sampled_from(NAMES)


class World:
    """What the tasks of one run share, and the instructions on it."""

    def __init__(self) -> None:
        self.x, self.y = 1, 0
        self.lock, self.event, self.condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
        self.queue: asyncio.Queue[int] = asyncio.Queue()
        self.log: list[int] = []

    async def run(self, script: list[str]) -> None:
        """Run a script from its first instruction to its last."""
        held = False
        for instruction in script:
            if instruction == "lock" and not held:
                await self.lock.acquire()
                held = True
            elif instruction == "unlock" and held:
                self.lock.release()
                held = False
            else:
                await self._do(instruction)
        if held:
            self.lock.release()

    async def _do(self, instruction: str) -> None:
        if instruction == "pass":
            await asyncio.sleep(0)
        elif instruction == "add":
            self.x = self.x + await plus_one()
        elif instruction == "double":
            self.x *= 2
        elif instruction == "copy":
            self.y = self.x
        elif instruction == "set":
            self.event.set()
        elif instruction == "wait":
            await self.event.wait()
        elif instruction == "put":
            self.queue.put_nowait(self.x)
        elif instruction == "get":
            self.log.append(await self.queue.get())
        elif instruction == "signal":
            async with self.condition:
                self.condition.notify()
        elif instruction == "await signal":
            async with self.condition:
                await self.condition.wait()
        elif instruction == "sleep":
            await asyncio.sleep(1)
        elif instruction == "limited":
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    self.log.append(await self.queue.get())
        elif instruction == "thread":
            await asyncio.to_thread(self.log.append, self.x)
        elif instruction == "child":
            self.log.append(await asyncio.create_task(plus_one()))
        elif instruction == "walk":
            async for number in self._two():
                self.x += number

    async def _two(self) -> AsyncIterator[int]:
        yield self.y
        await asyncio.sleep(0)
        yield 1

    def outcome(self) -> tuple[Any, ...]:
        """Return everything the tasks have changed."""
        return self.x, self.y, tuple(self.log)


async def plus_one() -> int:
    """One, a turn later."""
    await asyncio.sleep(0)
    return 1


def gathered(scripts: list[list[str]], *, catching: bool = False) -> Callable[[], Coroutine[Any, Any, Any]]:
    """Return a program that gathers one task for each script."""

    async def main() -> tuple[Any, ...]:
        world = World()
        await asyncio.gather(*(world.run(script) for script in scripts), return_exceptions=catching)
        return world.outcome()

    return main


def side_by_side(script: list[str], copies: int, other: list[str], **declared: Any) -> Callable[[], Subject]:
    """Return a program of several tasks that run the same script, and one more, all of them main coroutines.

    Each returns what there was when it ended, so that the outcome says who saw what.
    """

    def build() -> Subject:
        world = World()

        async def worker() -> tuple[Any, ...]:
            await world.run(script)
            return world.outcome()

        async def other_worker() -> tuple[Any, ...]:
            await world.run(other)
            return world.outcome()

        return Subject([*(worker() for _ in range(copies)), other_worker()], **declared)

    return build
