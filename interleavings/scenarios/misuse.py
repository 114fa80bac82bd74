"""Sections inside sections on the real barrier: each misuse is refused in every schedule, and nobody waits for ever.

    writer-0   opens a second slot, and the cut, inside its slot: itself, through a helper, and under `detached()`,
               which frees what it starts and not itself; it starts child-0 in its slot and leaves that to itself
    writer-1   starts child-1 in its slot and waits for it there
    writer-2   is started by writer-1 inside its slot in `barrier.detached()`: a writer like any other

A refusal changes nothing and emits nothing, so that the program names it to the machine (`refuse_child`), as it names
the birth of a child. A child that asks once the section it inherited has ended is let in like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from impl import CheckpointBarrier
from impl.barrier import Cut
from impl.errors import BarrierReentered
from spec.machines.barrier import BarrierScope
from spec.machines.barrier import barrier as machine

from ..correspondence.follower import Coverage, Remembered
from ..correspondence.refinement import BarrierTasks, barrier_model, follow_barrier, with_cancellation
from ..errors import Violation
from ..runtime.subject import Subject
from .readings import register_barrier
from .scenario import Pinned, Scenario
from .waiting import register_waits


class Run:
    """Three writers, two children and a checkpoint; each misuse must be refused, and what is right let through."""

    def __init__(self, model: Remembered, coverage: Coverage) -> None:
        tasks = BarrierTasks(SCOPE.writers, SCOPE.checkpointers)
        self.follower = follow_barrier(model, lambda: self.barrier, tasks, coverage)
        self.barrier = CheckpointBarrier(trace=with_cancellation(self.follower))
        self.started: list[asyncio.Task[None]] = []

    # -- what must be refused

    async def refused(self, section: Callable[[], AbstractAsyncContextManager[Cut]], holder: str, how: str) -> None:
        """Ask for a section inside that of `holder`: refused, and the error says whose section is in the way."""
        try:
            async with section():
                pass
        except BarrierReentered as error:
            if f"task '{holder}'" not in str(error):
                raise Violation(
                    "refusal_names_the_holder", f"{how}: the error does not name {holder}: {error}"
                ) from error
            return
        raise Violation("sections_do_not_nest", f"{how}: a section inside the section of {holder} was let in")

    async def helper(self) -> None:
        """A function of somebody else, which opens a slot without knowing whether its caller has one."""
        async with self.barrier.mutation("helper"):
            pass

    # -- the tasks

    async def nests(self) -> None:
        """Writer 0: everything that a task may do wrong by itself, with a save asked for before or after."""
        async with self.barrier.mutation("outer"):
            self.start_child(0)
            await asyncio.sleep(0)
            await self.refused(lambda: self.barrier.mutation("inner"), "writer-0", "itself")
            await self.refused(self.barrier.checkpoint, "writer-0", "the cut")
            try:
                await self.helper()
            except BarrierReentered:
                pass
            else:
                raise Violation("sections_do_not_nest", "through a helper: a section inside a section was let in")
            with self.barrier.detached():
                await self.refused(lambda: self.barrier.mutation("inner"), "writer-0", "under its own detached()")

    async def starts(self) -> None:
        """Writer 1: a child that it waits for inside, and a task that may outlive its slot."""
        async with self.barrier.mutation("parent"):
            child = self.start_child(1)
            with self.barrier.detached():
                self.started.append(asyncio.create_task(self.detached(), name="writer-2"))
            await child

    def start_child(self, writer: int) -> asyncio.Task[None]:
        """Start a task inside the slot of the running one; it inherits the section."""
        self.follower("start_child", writer=writer)
        child = asyncio.create_task(self.child(writer), name=f"child-{writer}")
        self.started.append(child)
        return child

    async def child(self, writer: int) -> None:
        """Ask for a slot: refused while the section of the parent is open, whoever waits for whom."""
        try:
            async with self.barrier.mutation("child"):
                pass
        except BarrierReentered:
            self.follower("refuse_child", writer=writer)

    async def detached(self) -> None:
        """Writer 2: lets nobody tell it that it holds a section."""
        async with self.barrier.mutation("detached"):
            pass

    async def save(self) -> None:
        """The checkpoint, which may be asked for before, inside and after each slot."""
        async with self.barrier.checkpoint():
            pass

    async def main(self) -> None:
        """Start everybody, and see everybody's end."""
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self.nests(), name="writer-0"),
            loop.create_task(self.starts(), name="writer-1"),
            loop.create_task(self.save(), name="checkpoint-0"),
        ]
        for task in tasks:
            await task
        for task in self.started:
            await task

    def finish(self) -> str | None:
        """The machine is at its end too: all slots had, all children ended, the cut read."""
        view = self.follower.state
        assert machine.progress is not None
        return None if machine.progress.finished(view) else f"the run ended, but the machine is not finished: {view}"


SCOPE = BarrierScope(writers=3, rounds=1, checkpointers=1, children=1)
MODEL = barrier_model(SCOPE)


def program_of(coverage: Coverage) -> Subject:
    """A fresh run."""
    register_barrier()
    register_waits()
    run = Run(MODEL, coverage)
    return Subject(run.main(), observe=run.follower.observe, finish=run.finish, narrate=run.follower.did)


SCENARIO = Scenario(
    name="misuse",
    sentence="sections inside sections: nested, through a helper, in a child, under detached(); and 1 checkpoint",
    machine=machine,
    scope=SCOPE,
    cancels=0,
    program_of=program_of,
    claims=("refinement", "sections_do_not_nest", "refusal_names_the_holder", "deadlock"),
    pinned=Pinned(states=1_032, schedules=71_766),
)
