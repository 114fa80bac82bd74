"""The host of leases is followed by the barrier machine with its feature `leases`, in random histories of silence."""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

import pytest
from jumping_clock import run_in_virtual_time

import spec.machines.catalogue
from impl import Cut, LeaseExpired
from impl.leases import Asking, Fence, FenceOrder, HostedBarrier, LeaseHost, LeaseTable, Token
from interleavings.correspondence import Coverage, Remembered
from interleavings.correspondence.refinement import BarrierTasks, barrier_model, barrier_of_machine, follow_barrier
from interleavings.errors import Violation
from spec.machines.barrier import BarrierScope, barrier

REGISTERED_BY = (spec.machines.catalogue,)
LEASE, SILENCES, RUNS = 4.0, 3, 60
SCOPE = BarrierScope(writers=3, rounds=3, checkpointers=2, leases=SILENCES)


class Written:
    """What writers do in a section, and what a part elsewhere does: nothing but to look."""

    def __init__(self, barrier: HostedBarrier) -> None:
        self._barrier = barrier

    def write(self, cut: Cut) -> None:
        cut.require(self._barrier)


class SlowPart:
    """A part in another process, whose answers take their time."""

    def __init__(self, choose: random.Random) -> None:
        self.fence = Fence()
        self._choose = choose

    async def obey(self, order: FenceOrder) -> FenceOrder:
        await asyncio.sleep(self._choose.choice((0.0, 0.3, 0.9)))
        return self.fence.obey(order)


class Program:
    """Writers and checkpoints elsewhere, some of which fall silent, sleep past everything, and try to go on."""

    def __init__(self, model: Remembered, coverage: Coverage, choose: random.Random) -> None:
        self.choose = choose
        self.lapsed: set[str] = set()
        self.silences = SILENCES
        self.refused = 0
        tasks = BarrierTasks(SCOPE.writers, SCOPE.checkpointers)
        self.follower = follow_barrier(model, lambda: self.barrier, tasks, coverage)
        self.barrier = HostedBarrier("followed", trace=self.trace)
        self.part = SlowPart(choose)
        clock = asyncio.get_running_loop().time
        table = LeaseTable(1, LEASE)
        self.host = LeaseHost(self.barrier, table, Written(self.barrier), [self.part], clock=clock)

    def trace(self, action: str, /, **fields: Any) -> None:
        task = str(fields["task"])
        if action == "expire_lease":
            self.lapsed.add(task)
        ends = action in ("leave_slot", "close_cut")
        self.follower(action, **fields, cancelled=False, lapsed=ends and task in self.lapsed)
        if ends:
            self.lapsed.discard(task)

    async def beat(self, request: str) -> None:
        while True:
            await asyncio.sleep(1.0)
            try:
                self.host.renew(request)
            except LeaseExpired:
                return

    async def section(self, holder: str, round_: int, exclusive: bool) -> None:
        request = f"{holder}, {round_}"
        beats = asyncio.create_task(self.beat(request))
        try:
            kind = "checkpoint" if exclusive else "write"
            token = await self.host.acquire(Asking(request, holder, kind, "elsewhere.py:1", exclusive, None))
            await asyncio.sleep(self.choose.choice((0.0, 0.5, 2.5)))
            if self.silences and self.choose.random() < 0.4:
                self.silences -= 1
                beats.cancel()
                await asyncio.sleep(LEASE * self.choose.choice((1.6, 4.0)))
                self.expect_refused(token)
            else:
                self.host.call(token, "write", ())
                self.part.fence.require(token)
        finally:
            beats.cancel()
            self.host.release(request)

    def expect_refused(self, token: Token) -> None:
        with pytest.raises(LeaseExpired):
            self.host.call(token, "write", ())
        with pytest.raises(LeaseExpired):
            self.part.fence.require(token)
        self.refused += 1

    async def live(self, holder: str, rounds: int, exclusive: bool) -> None:
        for round_ in range(rounds):
            await asyncio.sleep(self.choose.choice((0.0, 0.5, 1.0)))
            await self.section(holder, round_, exclusive)

    async def run(self) -> None:
        await self.host.announce()
        watch = asyncio.create_task(self.host.watch())
        lives = [(f"writer-{w}", SCOPE.rounds, False) for w in range(SCOPE.writers)]
        lives += [(f"checkpoint-{c}", 1, True) for c in range(SCOPE.checkpointers)]
        tasks = [asyncio.create_task(self.live(*life), name=life[0]) for life in lives]
        try:
            while not all(task.done() for task in tasks):
                await asyncio.sleep(0.25)
                self.follower.observe()
            await asyncio.gather(*tasks)
        finally:
            for task in (*tasks, watch):
                task.cancel()
            await asyncio.gather(*tasks, watch, return_exceptions=True)


def followed(runs: int) -> tuple[Coverage, int]:
    """Follow so many runs, each of its own seed; what the machine did, and how often a late write was refused."""
    model, coverage, refused = barrier_model(SCOPE), Coverage(), 0

    async def run(seed: int) -> int:
        program = Program(model, coverage, random.Random(seed))
        await program.run()
        return program.refused

    for seed in range(runs):
        refused += run_in_virtual_time(run(seed))
    return coverage, refused


def test_every_event_of_the_host_is_a_step_of_the_barrier_machine_with_leases() -> None:
    """Silent writers and silent checkpoints, among others that wait for them; each late write is refused."""
    coverage, refused = followed(RUNS)
    lease_actions = ("fall_silent", "expire_lease", "fence_lease", "learn_of_expiry", "lose_cut")
    assert all(coverage.actions[name] > 10 for name in lease_actions), coverage.actions
    assert refused > RUNS


def test_a_host_that_a_machine_without_expiry_follows_is_found_to_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: in the variant a slot is no lease, and what the host did there is not enabled."""
    model = Remembered(barrier.model(SCOPE, ["slot_for_ever"]), barrier_of_machine)
    monkeypatch.setattr(sys.modules[__name__], "barrier_model", lambda scope: model)
    with pytest.raises(Violation, match="expire_lease"):
        followed(20)


def test_a_part_that_forgets_what_it_was_told_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusals are looked at: a fence that obeys its first order alone takes a late write."""
    obey = Fence.obey
    monkeypatch.setattr(Fence, "obey", lambda self, order: obey(self, order) if self.order is None else order)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        followed(20)
