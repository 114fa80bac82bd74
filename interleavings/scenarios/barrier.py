"""The real barrier alone: mutators that write, one checkpoint that reads, and tasks cancelled anywhere."""

from __future__ import annotations

import asyncio

from impl import CheckpointBarrier
from spec.barrier import BarrierScope
from spec.barrier import barrier as machine

from ..errors import Violation
from ..follower import Coverage
from ..refinement import BarrierTasks, barrier_model, follow_barrier, with_cancellation
from ..subject import Subject
from .readings import register_barrier
from .scenario import Pinned, Scenario

WRITERS, WRITES = 2, 2
SCOPE = BarrierScope(writers=WRITERS, rounds=WRITES, checkpointers=1, cancellations=1)
MODEL = barrier_model(SCOPE)


class Run:
    """Two writers that each write twice, an await between the two halves of a write; a checkpoint reads twice."""

    def __init__(self, coverage: Coverage) -> None:
        tasks = BarrierTasks(WRITERS, 1)
        self.follower = follow_barrier(MODEL, lambda: self.barrier, tasks, coverage)
        self.barrier = CheckpointBarrier(trace=with_cancellation(self.follower))
        self.begun = [0] * WRITERS
        self.written = [0] * WRITERS

    async def write(self, writer: int) -> None:
        """Take a slot for each write."""
        for _ in range(WRITES):
            async with self.barrier.mutation("writes"):
                self.begun[writer] += 1
                try:
                    await asyncio.sleep(0)
                finally:
                    self.written[writer] += 1

    async def read(self) -> None:
        """Read twice inside one cut: both readings agree, and no write is half done."""
        async with self.barrier.checkpoint() as cut:
            first = (tuple(self.begun), tuple(self.written))
            await asyncio.sleep(0)
            second = (tuple(self.begun), tuple(self.written))
            if first != second or first[0] != first[1] or not cut.live:
                raise Violation(
                    "cut_excludes_writers",
                    "a writer was inside a slot while the cut was open",
                    {"first reading": first, "second reading": second},
                )

    async def main(self) -> None:
        """Start everybody and wait for each, whether it ends or is cancelled."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self.write(i), name=f"writer-{i}") for i in range(WRITERS)]
        tasks.append(loop.create_task(self.read(), name="checkpoint-0"))
        for task in tasks:
            try:
                await task
            except asyncio.CancelledError:
                continue


def program_of(coverage: Coverage) -> Subject:
    """A fresh run, followed by the barrier machine."""
    register_barrier()
    run = Run(coverage)
    return Subject(run.main(), observe=run.follower.observe)


SCENARIO = Scenario(
    name="barrier",
    sentence="2 mutators of 2 writes and 1 checkpoint on the real barrier, one cancellation anywhere",
    machine=machine,
    scope=SCOPE,
    cancels=1,
    program_of=program_of,
    claims=("refinement", "cut_excludes_writers", "deadlock"),
    pinned=Pinned(states=1_710, schedules=23_795),
)
