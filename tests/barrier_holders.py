"""Situations at a barrier: tasks that hold a section until they are told to leave, and whether nobody is left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from front_ends import FrontEnd

from impl import Cut
from impl.barrier import BarrierFrontEnd

Open = Callable[[BarrierFrontEnd], AbstractAsyncContextManager[Cut]]


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


def shared(barrier: BarrierFrontEnd) -> AbstractAsyncContextManager[Cut]:
    return barrier.mutation("write")


def exclusive(barrier: BarrierFrontEnd) -> AbstractAsyncContextManager[Cut]:
    return barrier.checkpoint()


class Holder:
    """A task that holds a section until it is told to leave."""

    def __init__(self, front: FrontEnd, barrier: BarrierFrontEnd, side: Open, name: str | None = None) -> None:
        self.leave = front.event()
        self.inside = False
        self.barrier = barrier
        self.side = side
        self.task = front.start(self._hold, name=name)

    async def _hold(self) -> None:
        async with self.side(self.barrier):
            self.inside = True
            await self.leave.wait()
            self.inside = False

    async def finish(self) -> None:
        self.leave.set()
        await self.task.value()


async def holding(front: FrontEnd, barrier: BarrierFrontEnd, side: Open, name: str | None = None) -> Holder:
    holder = Holder(front, barrier, side, name)
    await front.turns(3)
    return holder


async def entering(barrier: BarrierFrontEnd, side: Open, entered: list[bool]) -> None:
    async with side(barrier):
        entered.append(True)


async def is_idle(barrier: BarrierFrontEnd) -> bool:
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
