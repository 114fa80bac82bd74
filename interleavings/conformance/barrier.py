"""The barrier of `impl`, driven action by action and followed by its machine all the way."""

from __future__ import annotations

import asyncio
from typing import Any

from impl import BarrierReentered, CheckpointBarrier
from spec.machines.barrier import BarrierScope, barrier

from ..correspondence.follower import Coverage
from ..correspondence.refinement import BARRIER_EVENTS, BarrierTasks, barrier_model, follow_barrier, with_cancellation


class ImplBarrier:
    """One task for each section; a section lasts until the trace ends it."""

    followed = True

    @staticmethod
    def lacks(action: str) -> bool:
        """Leases are not driven here, nor time; what a child does follows from its start."""
        return action in barrier.actions and action not in BARRIER_EVENTS and not action.startswith("child_")

    def __init__(self, **bounds: int) -> None:
        scope = BarrierScope(**bounds)
        writers, checkpointers = scope.writers, scope.checkpointers
        tasks = BarrierTasks(writers, checkpointers)
        self._follower = follow_barrier(barrier_model(scope), lambda: self._barrier, tasks, Coverage())
        self._barrier = CheckpointBarrier(trace=with_cancellation(self._follower))
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._orders: dict[str, asyncio.Queue[str]] = {}

    async def _writer(self, orders: asyncio.Queue[str]) -> None:
        async with self._barrier.mutation("writes"):
            while (order := await orders.get()) in ("nest", "child"):
                asks = self._ask_again()
                # A child inherits the section of the task that starts it, and is waited for here.
                await (asyncio.create_task(asks) if order == "child" else asks)

    async def _ask_again(self) -> None:
        try:
            async with self._barrier.mutation("nested"):
                raise AssertionError("a second slot was given to the holder of one")
        except BarrierReentered:
            return

    async def _checkpoint(self, orders: asyncio.Queue[str]) -> None:
        async with self._barrier.checkpoint():
            await orders.get()

    def _start(self, name: str, make: Any) -> None:
        self._orders[name] = asyncio.Queue()
        self._tasks[name] = asyncio.create_task(make(self._orders[name]), name=name)

    # -- actions; entering a slot and opening a cut are what the barrier does by itself

    async def request_slot(self, writer: int) -> None:
        """A writer asks for a slot."""
        self._start(f"writer-{writer}", self._writer)

    async def leave_slot(self, writer: int) -> None:
        """A writer gives its slot back."""
        self._orders[f"writer-{writer}"].put_nowait("leave")

    async def nest(self, writer: int) -> None:
        """A writer asks for a second slot, which must be refused."""
        self._orders[f"writer-{writer}"].put_nowait("nest")

    async def start_child(self, writer: int) -> None:
        """A writer starts a task inside its slot, which asks for a slot of its own and must be refused."""
        self._orders[f"writer-{writer}"].put_nowait("child")

    async def request_cut(self, checkpoint: int) -> None:
        """A checkpoint is asked for."""
        self._start(f"checkpoint-{checkpoint}", self._checkpoint)

    async def close_cut(self, checkpoint: int) -> None:
        """A checkpoint ends."""
        self._orders[f"checkpoint-{checkpoint}"].put_nowait("leave")

    async def cancel_inside(self, writer: int) -> None:
        """A writer is cancelled."""
        self._tasks[f"writer-{writer}"].cancel()

    withdraw_slot = cancel_inside

    async def withdraw_cut(self, checkpoint: int) -> None:
        """A checkpoint is cancelled."""
        self._tasks[f"checkpoint-{checkpoint}"].cancel()

    cancel_in_cut = withdraw_cut

    # -- what is checked

    def check(self) -> None:
        """Raise if the barrier has left the machine."""
        self._follower.observe()

    async def close(self) -> None:
        """Tell everybody to leave; a task that cannot end is a deadlock."""
        for orders in self._orders.values():
            orders.put_nowait("leave")
        if self._tasks:
            _, stuck = await asyncio.wait(self._tasks.values(), timeout=5)
            if stuck:
                raise AssertionError(f"deadlock: {sorted(task.get_name() for task in stuck)} cannot end")
