"""Situations at a barrier: tasks that hold a section until they are told to leave, and whether nobody is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from loop_turns import turns

from impl import CheckpointBarrier, Cut

Open = Callable[[CheckpointBarrier], AbstractAsyncContextManager[Cut]]


class Events:
    """A tracer that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, object]]] = []

    def __call__(self, action: str, /, **fields: object) -> None:
        self.seen.append((action, fields))

    def actions(self) -> list[str]:
        """The names alone, in order."""
        return [action for action, _ in self.seen]

    def short(self) -> list[str]:
        """Name and section of each event, like `enter_slot 2`."""
        return [f"{action} {fields['section']}" for action, fields in self.seen]


def shared(barrier: CheckpointBarrier) -> AbstractAsyncContextManager[Cut]:
    return barrier.mutation("write")


def exclusive(barrier: CheckpointBarrier) -> AbstractAsyncContextManager[Cut]:
    return barrier.checkpoint()


class Holder:
    """A task that holds a section until it is told to leave."""

    def __init__(self, barrier: CheckpointBarrier, side: Open, name: str | None = None) -> None:
        self.leave = asyncio.Event()
        self.inside = False
        self.barrier = barrier
        self.side = side
        self.task = asyncio.create_task(self._hold(), name=name)

    async def _hold(self) -> None:
        async with self.side(self.barrier):
            self.inside = True
            await self.leave.wait()
            self.inside = False

    async def finish(self) -> None:
        self.leave.set()
        await self.task


async def holding(barrier: CheckpointBarrier, side: Open, name: str | None = None) -> Holder:
    holder = Holder(barrier, side, name)
    await turns(3)
    return holder


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def entering(barrier: CheckpointBarrier, side: Open, entered: list[bool]) -> None:
    async with side(barrier):
        entered.append(True)


async def is_idle(barrier: CheckpointBarrier) -> bool:
    """Nobody holds or waits, and both sides open."""
    figures = barrier.statistics()
    open_or_waiting = (
        figures.active_mutations,
        figures.waiting_mutations,
        figures.waiting_checkpoints,
        figures.checkpoint_active,
    )
    async with barrier.mutation():
        pass
    async with barrier.checkpoint():
        pass
    return open_or_waiting == (0, 0, 0, False)
