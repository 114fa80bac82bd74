"""A shared and exclusive barrier on `asyncio.Condition`, to explore: mutators that write, and one reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from interleavings import Subject


class ConditionBarrier:
    """Many mutations or one checkpoint. Its release awaits: one cancellation there shuts it for ever."""

    def __init__(self, waits_once: bool) -> None:
        self.condition = asyncio.Condition()
        self.inside = 0
        self.checkpointing = False
        self.waits_once = waits_once  # the seeded fault: the checkpoint does not look again when it is woken

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
            while self.inside:
                await self.condition.wait()
                if self.waits_once:
                    break
        try:
            yield
        finally:
            async with self.condition:
                self.checkpointing = False
                self.condition.notify_all()


class World:
    """Cells that every mutator adds to one after another, with an await between; a reader that reads all of them."""

    def __init__(self, cells: int, waits_once: bool) -> None:
        self.barrier = ConditionBarrier(waits_once)
        self.cells = [0] * cells
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
        """Say what is wrong with what was read."""
        return None if len(set(self.snapshot)) <= 1 else f"torn snapshot {self.snapshot}"

    def shared(self) -> tuple[Any, ...]:
        """Return the shared state: what `state=` declares."""
        barrier, condition = self.barrier, vars(self.barrier.condition)
        return (
            barrier.inside, barrier.checkpointing, condition["_lock"], condition["_waiters"], tuple(self.cells),
            tuple(self.snapshot),
        )  # fmt: skip


def side_by_side(mutators: int, writes: int, *, declared: bool = False) -> Callable[[], Subject]:
    """Return the program with its mutators and its reader as main coroutines."""

    def build() -> Subject:
        world = World(writes, waits_once=False)
        mains = [*(world.mutate() for _ in range(mutators)), world.read()]
        return Subject(mains, finish=world.torn, state=world.shared if declared else None)

    return build


def gathered(mutators: int, writes: int, *, waits_once: bool = False) -> Callable[[], Any]:
    """Return the program as one coroutine, as any explorer takes it."""

    async def main() -> None:
        world = World(writes, waits_once)
        await asyncio.gather(*(world.mutate() for _ in range(mutators)), world.read())
        assert world.torn() is None, world.torn()

    return main
