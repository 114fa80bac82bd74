"""Every event of a barrier, on either front end, is a step of the barrier machine, whatever is cancelled and when.

The explorer goes through all schedules of asyncio. trio's scheduler cannot be driven from outside, so here it is run
with many seeds, each of which is another order of the tasks in every turn; asyncio runs the same programs.
"""

from __future__ import annotations

import random

import pytest
from front_ends import FrontEnd, Started, in_virtual_time, on_both_front_ends

from impl import DrainTimeout
from impl.barrier import BarrierFrontEnd
from interleavings.correspondence import Coverage, Remembered
from interleavings.correspondence.refinement import BarrierTasks, barrier_model, follow_barrier
from spec.machines.barrier import BarrierScope

RUNS = 300


class Program:
    """Writers that write twice and checkpoints that read, of which some are cancelled at some turn."""

    def __init__(self, front: FrontEnd, scope: BarrierScope, model: Remembered, coverage: Coverage) -> None:
        self.front = front
        self.scope = scope
        self.cancelled: set[str] = set()
        tasks = BarrierTasks(scope.writers, scope.checkpointers)
        self.follower = follow_barrier(model, lambda: self.barrier, tasks, coverage)
        self.barrier: BarrierFrontEnd = front.barrier(trace=self.trace)

    def trace(self, action: str, /, **fields: object) -> None:
        self.follower(action, **fields, cancelled=fields["task"] in self.cancelled)

    async def pause(self) -> None:
        await self.front.turns(1)

    async def wait_a_little(self) -> None:
        await self.front.turns(1)

    def drain_limit(self) -> float | None:
        return None

    async def write(self) -> None:
        for _ in range(self.scope.rounds):
            async with self.barrier.mutation():
                await self.pause()

    async def read(self) -> None:
        async with self.barrier.checkpoint(timeout=self.drain_limit()):
            await self.pause()

    async def run(self, choose: random.Random) -> None:
        """Run to the end, following every turn."""
        programs = [(f"writer-{writer}", self.write) for writer in range(self.scope.writers)]
        programs += [(f"checkpoint-{checkpoint}", self.read) for checkpoint in range(self.scope.checkpointers)]
        choose.shuffle(programs)
        tasks: dict[str, Started[None]] = {}
        for name, program in programs:
            tasks[name] = self.front.start(program, name=name)
            await self.front.turns(choose.randrange(2))
        victims = {choose.randrange(12): name for name in choose.sample(sorted(tasks), self.scope.cancellations)}
        for turn in range(200):
            if turn in victims and not tasks[victims[turn]].done:
                self.cancelled.add(victims[turn])
                tasks[victims[turn]].cancel()
            await self.wait_a_little()
            self.follower.observe()
            if all(task.done for task in tasks.values()):
                break
        for name, task in tasks.items():
            task.looked_at = True
            assert task.done, f"{name} is stuck"
            assert task.error is None or isinstance(task.error, DrainTimeout)
            assert not task.cancelled or name in self.cancelled
        assert self.barrier._core.free


class ProgramWithLimits(Program):
    """The same in virtual time: writers hold for a while, and some checkpoints do not wait so long."""

    async def run(self, choose: random.Random) -> None:
        self.choose = choose
        await super().run(choose)

    async def pause(self) -> None:
        await self.front.sleep(self.choose.choice((0.5, 1.0, 1.5)))

    async def wait_a_little(self) -> None:
        await self.front.sleep(0.25)

    def drain_limit(self) -> float | None:
        return self.choose.choice((0.0, 0.5, 1.0, None))


@pytest.mark.parametrize(
    "scope",
    [
        BarrierScope(writers=2, rounds=2, checkpointers=2, cancellations=1),
        BarrierScope(writers=3, rounds=1, checkpointers=2, cancellations=2),
        BarrierScope(writers=1, rounds=2, checkpointers=3, cancellations=2),
    ],
    ids=["two writers", "three writers", "three checkpoints"],
)
@on_both_front_ends
async def test_every_event_is_a_step_of_the_barrier_machine(front: FrontEnd, scope: BarrierScope) -> None:
    """Enabled in turn, with the same state after every turn; and all that the machine can do was done."""
    model, coverage = barrier_model(scope), Coverage()
    for run in range(RUNS):
        await Program(front, scope, model, coverage).run(random.Random(run))
    assert set(coverage.actions) >= {
        "request_slot",
        "enter_slot",
        "leave_slot",
        "cancel_inside",
        "withdraw_slot",
        "request_cut",
        "open_cut",
        "close_cut",
        "cancel_in_cut",
        "withdraw_cut",
    }


@in_virtual_time
async def test_every_event_is_a_step_of_the_machine_when_drains_are_given_up(front: FrontEnd) -> None:
    """A limit may meet a release and a cancellation in one instant; whatever comes out is a step of the machine."""
    scope = BarrierScope(writers=2, rounds=2, checkpointers=2, cancellations=1, expiries=2)
    model, coverage = barrier_model(scope), Coverage()
    for run in range(RUNS):
        await ProgramWithLimits(front, scope, model, coverage).run(random.Random(run))
    assert coverage.actions["expire_cut"] > 10
    assert coverage.actions["open_cut"] > 10
