"""The real barrier alone: mutators that write, checkpoints that read, and tasks cancelled anywhere.

`barrier` has one checkpoint among writers, `queue` two checkpoints of which one waits for the other, `drain_limit` one
that gives its drain up after a second of a time in which anything may take long. Each is also run without a tracer,
as production runs it: sections then end by shorter ways, and the machine is followed by what shows alone.
"""

from __future__ import annotations

import asyncio

from impl import CheckpointBarrier
from impl.errors import DrainTimeout
from spec.machines.barrier import BarrierScope
from spec.machines.barrier import barrier as machine

from ..correspondence.follower import Coverage, EventlessFollower, Follower, Remembered
from ..correspondence.refinement import (
    BarrierTasks,
    barrier_model,
    follow_barrier,
    follow_silent_barrier,
    with_cancellation,
)
from ..errors import Violation
from ..runtime.subject import Subject
from .readings import register_barrier
from .scenario import Pinned, Scenario


class Run:
    """Writers that write, an await between the two halves of each write; checkpoints that each read twice."""

    follower: Follower | EventlessFollower

    def __init__(self, scope: BarrierScope, model: Remembered, coverage: Coverage, traced: bool) -> None:
        self.scope = scope
        tasks = BarrierTasks(scope.writers, scope.checkpointers)
        if traced:
            self.follower = told = follow_barrier(model, lambda: self.barrier, tasks, coverage)
            self.barrier = CheckpointBarrier(trace=with_cancellation(told), drain_timeout=self.limit)
        else:
            self.follower = follow_silent_barrier(model, lambda: self.barrier, tasks)
            self.barrier = CheckpointBarrier(drain_timeout=self.limit)
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
        """Start everybody and wait for each, whether it ends, gives up or is cancelled."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self.write(i), name=f"writer-{i}") for i in range(self.scope.writers)]
        tasks += [loop.create_task(self.read(), name=f"checkpoint-{i}") for i in range(self.scope.checkpointers)]
        for task in tasks:
            try:
                await task
            except (asyncio.CancelledError, DrainTimeout):
                continue

    @property
    def limit(self) -> float | None:
        """The limit of a drain in seconds, where the scope lets one run out."""
        return 1.0 if self.scope.expiries else None

    def finish(self) -> str | None:
        """Nobody is inside, waits or is queued; every slot that was held is counted, and maybe one granted in vain."""
        core = self.barrier._core
        if core.mutation_version < sum(self.written):
            return f"{sum(self.written)} slots were held and {core.mutation_version} are counted as ended"
        left = len(core.inside) + len(core._mutations) + len(core._checkpoints) + (core.cut is not None)
        return f"the run ended with {left} sections open or waiting" if left else None


def scenarios(
    name: str, sentence: str, scope: BarrierScope, traced: Pinned, untraced: Pinned, *, quick: bool = True
) -> tuple[Scenario, Scenario]:
    """A scenario on the barrier, with a tracer and without; its scope names who takes part and what interferes."""
    model = barrier_model(scope)

    def made(traced: bool, pinned: Pinned, quick: bool) -> Scenario:
        def program_of(coverage: Coverage) -> Subject:
            register_barrier()
            run = Run(scope, model, coverage, traced)
            told = run.follower.did if isinstance(run.follower, Follower) else None
            return Subject(run.main(), observe=run.follower.observe, finish=run.finish, narrate=told)

        return Scenario(
            name=name if traced else f"{name}_untraced",
            sentence=sentence if traced else f"the run of {name}, without a tracer",
            machine=machine,
            scope=scope,
            cancels=scope.cancellations,
            program_of=program_of,
            claims=("refinement", "cut_excludes_writers", "deadlock", "finish"),
            pinned=pinned,
            quick=quick,
            timers="anytime" if scope.expiries else "idle",
            told=traced,
        )

    return made(True, traced, quick), made(False, untraced, quick and scope.checkpointers == 1)


BARRIER, BARRIER_UNTRACED = scenarios(
    "barrier",
    "2 mutators of 2 writes and 1 checkpoint on the real barrier, one cancellation anywhere",
    BarrierScope(writers=2, rounds=2, checkpointers=1, cancellations=1),
    Pinned(states=1_734, schedules=23_795),
    Pinned(states=2_088, schedules=23_795),
)
QUEUE, QUEUE_UNTRACED = scenarios(
    "queue",
    "2 mutators of 1 write and 2 checkpoints, one behind the other, one cancellation anywhere",
    BarrierScope(writers=2, rounds=1, checkpointers=2, cancellations=1),
    Pinned(states=6_168, schedules=1_013_379),
    Pinned(states=6_511, schedules=1_013_379),
)
DRAIN_LIMIT, DRAIN_LIMIT_UNTRACED = scenarios(
    "drain_limit",
    "2 mutators of 1 write and 1 checkpoint whose drain limit may run out at any moment, one cancellation anywhere",
    BarrierScope(writers=2, rounds=1, checkpointers=1, cancellations=1, expiries=1),
    Pinned(states=1_722, schedules=39_039),
    Pinned(states=1_774, schedules=39_039),
    quick=False,
)
