"""The real barrier alone: mutators that write, checkpoints that read, and tasks cancelled anywhere.

`barrier` has one checkpoint among writers, `queue` two checkpoints of which one waits for the other.
"""

from __future__ import annotations

import asyncio

from impl import CheckpointBarrier
from spec.barrier import BarrierScope
from spec.barrier import barrier as machine

from ..errors import Violation
from ..follower import Coverage, Remembered
from ..refinement import BarrierTasks, barrier_model, follow_barrier, with_cancellation
from ..subject import Subject
from .readings import register_barrier
from .scenario import Pinned, Scenario


class Run:
    """Writers that write, an await between the two halves of each write; checkpoints that each read twice."""

    def __init__(self, scope: BarrierScope, model: Remembered, coverage: Coverage) -> None:
        self.scope = scope
        tasks = BarrierTasks(scope.writers, scope.checkpointers)
        self.follower = follow_barrier(model, lambda: self.barrier, tasks, coverage)
        self.barrier = CheckpointBarrier(trace=with_cancellation(self.follower))
        self.begun = [0] * scope.writers
        self.written = [0] * scope.writers

    async def write(self, writer: int) -> None:
        """Take a slot for each write."""
        for _ in range(self.scope.rounds):
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
        tasks = [loop.create_task(self.write(i), name=f"writer-{i}") for i in range(self.scope.writers)]
        tasks += [loop.create_task(self.read(), name=f"checkpoint-{i}") for i in range(self.scope.checkpointers)]
        for task in tasks:
            try:
                await task
            except asyncio.CancelledError:
                continue


def scenario(name: str, sentence: str, scope: BarrierScope, pinned: Pinned) -> Scenario:
    """A scenario on the barrier; its scope names who takes part, and how often the environment interferes."""
    model = barrier_model(scope)

    def program_of(coverage: Coverage) -> Subject:
        register_barrier()
        run = Run(scope, model, coverage)
        return Subject(run.main(), observe=run.follower.observe, narrate=run.follower.did)

    return Scenario(
        name=name,
        sentence=sentence,
        machine=machine,
        scope=scope,
        cancels=scope.cancellations,
        program_of=program_of,
        claims=("refinement", "cut_excludes_writers", "deadlock"),
        pinned=pinned,
    )


BARRIER = scenario(
    "barrier",
    "2 mutators of 2 writes and 1 checkpoint on the real barrier, one cancellation anywhere",
    BarrierScope(writers=2, rounds=2, checkpointers=1, cancellations=1),
    Pinned(states=1_710, schedules=23_795),
)
QUEUE = scenario(
    "queue",
    "2 mutators of 1 write and 2 checkpoints, one behind the other, one cancellation anywhere",
    BarrierScope(writers=2, rounds=1, checkpointers=2, cancellations=1),
    Pinned(states=6_150, schedules=1_013_379),
)
