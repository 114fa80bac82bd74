"""impl.steps: what a controller of one's own calls. What is waited for is waited for outside of any slot."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import torch
from loop_turns import HANG_SECONDS

from impl import (
    Admission,
    BarrierReentered,
    CheckpointBarrier,
    Checkpointer,
    GroupId,
    HeldCounters,
    InOrderSampler,
    InvariantViolated,
    Ledger,
    Phase,
    PromptLoader,
    ReadyFirstSampler,
    ReplayBuffer,
    Sampler,
    TensorPlane,
    WeightFifoSampler,
    WindowedSampler,
    steps,
)
from impl.run.samplers import SamplerState

ROWS = {"tokens": torch.zeros(2, 3)}


class Parts:
    """The parts of one run of five prompts, two a step."""

    def __init__(self, sampler: Sampler | None = None, capacity: int = 4) -> None:
        self.barrier = CheckpointBarrier(drain_timeout=5)
        self.ledger = Ledger(self.barrier)
        self.loader = PromptLoader(list(range(5)), 2, seed=0)
        self.sampler = sampler or InOrderSampler(lookahead=0)
        self.sampler.bind(2)
        self.buffer = ReplayBuffer(self.barrier, capacity, TensorPlane(), self.ledger)
        self.counters = HeldCounters()

    async def reserved(self) -> Admission:
        admission = await steps.reserve(self.ledger, self.loader)
        assert admission is not None
        return admission

    async def admitted(self) -> Admission:
        admission = await self.reserved()
        await steps.admit(self.ledger, self.sampler, admission, 2)
        return admission

    async def passed(self) -> None:
        """The trainer is one step further."""
        self.counters.version += 1
        self.sampler.advance(self.counters.version)

    def checkpointer(self, directory: Path) -> Checkpointer:
        checkpointer = Checkpointer(directory, self.barrier)
        checkpointer.attach(
            ledger=self.ledger, loader=self.loader, sampler=self.sampler, buffer=self.buffer, counters=self.counters
        )
        return checkpointer


async def waits(call: Awaitable[object]) -> "asyncio.Task[object]":
    """The call, under way and waiting."""

    async def run() -> object:
        return await call

    task = asyncio.create_task(run())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_a_checkpoint_opens_while_the_gate_is_waited_for() -> None:
    """The trap: a gate waited for inside a slot shuts out the save that the trainer is waiting for."""
    parts = Parts()
    await parts.admitted()
    waiting = await waits(steps.admit(parts.ledger, parts.sampler, await parts.reserved(), 2))
    async with parts.barrier.checkpoint(timeout=1) as cut:
        saved = parts.ledger.snapshot(cut, ()).entries.values()
        assert [entry.phase for entry in saved][2:] == [Phase.RESERVED] * 2
    await parts.passed()
    await waiting
    assert all(entry.phase is Phase.ADMITTED for entry in parts.ledger.entries.values())


async def test_a_checkpoint_opens_while_a_permit_is_waited_for() -> None:
    parts = Parts(capacity=1)
    first, second = (await parts.admitted()).groups
    await steps.dispatch(parts.ledger, parts.buffer, first, 0)
    waiting = await waits(steps.dispatch(parts.ledger, parts.buffer, second, 0))
    async with parts.barrier.checkpoint(timeout=1):
        pass
    await steps.commit(parts.ledger, parts.buffer, first, ROWS)
    async with parts.barrier.mutation("evictions") as cut:
        parts.buffer.evict(cut, first)
    entry = await waiting
    assert entry is parts.ledger.entries[second]
    assert list(parts.buffer.slots) == [second]


async def test_a_checkpoint_opens_while_a_step_is_waited_for() -> None:
    parts = Parts()
    groups = (await parts.admitted()).groups
    for group in groups:
        await steps.dispatch(parts.ledger, parts.buffer, group, 0)
    waiting = await waits(steps.claim(parts.buffer, parts.sampler, 0, parts.loader))
    await steps.commit(parts.ledger, parts.buffer, groups[0], ROWS)
    async with parts.barrier.checkpoint(timeout=1):
        pass
    assert not waiting.done(), "one of two is no step"
    await steps.commit(parts.ledger, parts.buffer, groups[1], ROWS)
    claim = await waiting
    assert claim.groups == groups  # type: ignore[attr-defined]
    assert not parts.ledger.entries


@pytest.mark.parametrize("which", ["admit", "dispatch", "claim"])
async def test_who_is_cancelled_while_it_waits_has_taken_nothing(which: str) -> None:
    parts = Parts(capacity=1)
    first, second = (await parts.admitted()).groups
    await steps.dispatch(parts.ledger, parts.buffer, first, 0)
    later = await parts.reserved()
    before = (dict(parts.ledger.entries), dict(parts.buffer.slots), parts.sampler.state(), parts.buffer.permits)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "admit": lambda: steps.admit(parts.ledger, parts.sampler, later, 2),
        "dispatch": lambda: steps.dispatch(parts.ledger, parts.buffer, second, 0),
        "claim": lambda: steps.claim(parts.buffer, parts.sampler, 0, parts.loader),
    }
    waiting = await waits(calls[which]())
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert before == (dict(parts.ledger.entries), dict(parts.buffer.slots), parts.sampler.state(), parts.buffer.permits)
    assert parts.buffer.waiting_for_permit == 0


async def test_a_dispatch_that_is_cancelled_before_its_slot_returns_the_permit() -> None:
    """It waits for the slot, not for the permit: a save has the barrier."""
    parts = Parts(capacity=1)
    group = (await parts.admitted()).groups[0]
    async with parts.barrier.checkpoint():
        with parts.barrier.detached():
            waiting = await waits(steps.dispatch(parts.ledger, parts.buffer, group, 0))
        assert parts.buffer.permits == 0
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert parts.buffer.permits == 1


async def test_inside_a_section_each_is_refused() -> None:
    """With and without anything to wait for."""
    parts = Parts()
    group = (await parts.admitted()).groups[0]
    later = await parts.reserved()
    async with parts.barrier.mutation("outer"):
        for call in (
            steps.reserve(parts.ledger, parts.loader),
            steps.admit(parts.ledger, parts.sampler, later, 2),
            steps.dispatch(parts.ledger, parts.buffer, group, 0),
            steps.commit(parts.ledger, parts.buffer, group, ROWS),
            steps.fail_attempt(parts.ledger, group),
            steps.retry(parts.ledger, group),
            steps.give_up(parts.ledger, parts.buffer, parts.sampler, group),
            steps.claim(parts.buffer, parts.sampler, 0, parts.loader),
            steps.finish(parts.buffer, parts.sampler, parts.counters, None),
        ):
            with pytest.raises(BarrierReentered):
                await call
    assert parts.loader.state().position == 4


async def test_a_short_batch_is_a_short_step() -> None:
    """Of five prompts, two a step, the third step has one."""
    parts = Parts()
    for step, size in enumerate((2, 2, 1)):
        groups = (await parts.admitted()).groups
        assert len(groups) == size
        for group in groups:
            await steps.dispatch(parts.ledger, parts.buffer, group, step)
            await steps.commit(parts.ledger, parts.buffer, group, ROWS)
        claim = await asyncio.wait_for(steps.claim(parts.buffer, parts.sampler, step, parts.loader), HANG_SECONDS)
        assert claim is not None
        assert claim.groups == groups
        await steps.finish(parts.buffer, parts.sampler, parts.counters, claim)
        assert parts.counters.version == step + 1
    assert await steps.reserve(parts.ledger, parts.loader) is None


@pytest.mark.parametrize("sampler", [WeightFifoSampler(staleness=0), ReadyFirstSampler(staleness=0)])
async def test_a_short_batch_does_not_shut_the_gate_of_a_sampler_that_counts(sampler: Sampler) -> None:
    """The gate counts groups; what the short batch lacks will not come."""
    parts = Parts(sampler)
    parts.loader = PromptLoader(list(range(3)), 2, seed=0, epochs=2)
    for version in range(4):
        await asyncio.wait_for(parts.admitted(), HANG_SECONDS)
        assert sampler.cursor == version
        await parts.passed()


@pytest.mark.parametrize("slow", range(3))
async def test_what_comes_when_its_time_is_over_is_given_up_and_the_run_ends(slow: int) -> None:
    """Of three prompts, two a step, one at a time: a late one is counted by the gate, and no step would follow."""
    parts = Parts(WeightFifoSampler(staleness=0), capacity=3)
    parts.loader = PromptLoader(list(range(3)), 2, seed=0, epochs=3)
    one_at_a_time = asyncio.Lock()
    trained = 0

    async def generate(group: GroupId) -> None:
        async with one_at_a_time:
            for _ in range(40 if parts.ledger.entries[group].key.index == slow else 1):
                await asyncio.sleep(0)
            await steps.commit(parts.ledger, parts.buffer, group, ROWS)

    async def roll_out(tasks: asyncio.TaskGroup) -> None:
        while not parts.loader.exhausted:
            for group in (await parts.admitted()).groups:
                await steps.dispatch(parts.ledger, parts.buffer, group, parts.counters.version)
                tasks.create_task(generate(group))

    async with asyncio.timeout(HANG_SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(roll_out(tasks))
        while parts.ledger.entries or parts.buffer.slots or not parts.loader.exhausted:
            claim = await steps.claim(parts.buffer, parts.sampler, parts.counters.version, parts.loader)
            trained += 0 if claim is None else len(claim.groups)
            await steps.finish(parts.buffer, parts.sampler, parts.counters, claim)
    assert trained + len(parts.ledger.accounts.dropped) == 9
    assert "stale_ready" in parts.ledger.accounts.dropped.values()
    assert parts.buffer.statistics()["free"] == 3
    assert await steps.claim(parts.buffer, parts.sampler, parts.counters.version, parts.loader) is None


async def test_a_group_that_is_given_up_makes_its_step_smaller_and_frees_its_place() -> None:
    """With the ledger's entry alone gone, its permit would stay taken and the step be waited for without end."""
    parts = Parts()
    lost, kept = (await parts.admitted()).groups
    for group in (lost, kept):
        await steps.dispatch(parts.ledger, parts.buffer, group, 0)
    assert [await steps.fail_attempt(parts.ledger, lost, "data") for _ in range(2)] == [1, 2]
    waiting = await waits(steps.claim(parts.buffer, parts.sampler, 0, parts.loader))
    await steps.commit(parts.ledger, parts.buffer, kept, ROWS)
    await steps.give_up(parts.ledger, parts.buffer, parts.sampler, lost)
    claim = await asyncio.wait_for(waiting, HANG_SECONDS)
    assert claim.groups == (kept,)  # type: ignore[attr-defined]
    counts = parts.buffer.statistics()
    assert (counts["free"], counts["claimed"], counts["unready"]) == (3, 1, 0)
    assert set(parts.ledger.accounts.dropped.values()) == {"failed"}


async def test_a_step_whose_groups_were_all_given_up_is_claimed_by_none_and_passed() -> None:
    """Nobody waits for it, and the gate is told."""
    parts = Parts()
    waiting = await waits(steps.claim(parts.buffer, parts.sampler, 0, parts.loader))
    groups = (await parts.admitted()).groups
    gate = await waits(steps.admit(parts.ledger, parts.sampler, await parts.reserved(), 2))
    for group in groups:
        await steps.dispatch(parts.ledger, parts.buffer, group, 0)
        assert not waiting.done()
        await steps.give_up(parts.ledger, parts.buffer, parts.sampler, group)
    assert await asyncio.wait_for(waiting, HANG_SECONDS) is None
    await steps.finish(parts.buffer, parts.sampler, parts.counters, None)
    await asyncio.wait_for(gate, HANG_SECONDS)
    assert parts.sampler.cursor == parts.counters.version == 1


async def test_only_a_group_with_an_unready_slot_and_an_entry_is_given_up() -> None:
    """Before its dispatch, after its commit, and where its entry was dropped alone: refused, and nothing changes."""
    parts = Parts(capacity=3)
    ready, early = (await parts.admitted()).groups
    await steps.dispatch(parts.ledger, parts.buffer, ready, 0)
    await steps.commit(parts.ledger, parts.buffer, ready, ROWS)
    for group in (ready, early):
        before = (dict(parts.ledger.entries), dict(parts.buffer.slots), parts.sampler.state(), parts.buffer.permits)
        with pytest.raises(InvariantViolated, match=f"group {group} was to be"):
            await steps.give_up(parts.ledger, parts.buffer, parts.sampler, group)
        after = (dict(parts.ledger.entries), dict(parts.buffer.slots), parts.sampler.state(), parts.buffer.permits)
        assert before == after
    await steps.dispatch(parts.ledger, parts.buffer, early, 0)
    async with parts.barrier.mutation("wrong") as cut:
        parts.ledger.drop(cut, early, "failed")
    with pytest.raises(InvariantViolated, match="no such entry"):
        await steps.give_up(parts.ledger, parts.buffer, parts.sampler, early)
    assert early in parts.buffer.slots
    with pytest.raises(InvariantViolated, match=rf"groups \[{early}\] have a slot and a permit, and no entry"):
        parts.buffer.statistics()


@pytest.mark.parametrize("sampler", [WeightFifoSampler(staleness=1), ReadyFirstSampler(1), WindowedSampler(1)])
async def test_the_last_step_of_a_sampler_without_stamps_is_what_there_is(sampler: Sampler) -> None:
    """Of five prompts, two a step: the fifth alone would be waited for for ever."""
    parts = Parts(sampler, capacity=6)
    sizes = []
    for version in range(3):
        for group in (await parts.admitted()).groups:
            await steps.dispatch(parts.ledger, parts.buffer, group, version)
            assert await steps.commit(parts.ledger, parts.buffer, group, ROWS)
        claim = await asyncio.wait_for(steps.claim(parts.buffer, sampler, version, parts.loader), HANG_SECONDS)
        assert claim is not None
        sizes.append(len(claim.groups))
        assert await steps.finish(parts.buffer, sampler, parts.counters, claim) == ()
    assert sizes == [2, 2, 1]
    assert parts.ledger.accounts.trained_count == 5


async def test_what_is_too_old_after_a_step_is_given_up_and_its_rows_come_too_late() -> None:
    """The windowed sampler: a ready group is evicted, one in flight named to the caller, who may end it."""
    parts = Parts(WindowedSampler(staleness=0), capacity=6)
    trained = (await parts.admitted()).groups
    in_flight, ready = (await parts.admitted()).groups
    for group in (*trained, in_flight, ready):
        await steps.dispatch(parts.ledger, parts.buffer, group, 0)
    for group in (*trained, ready):
        await steps.commit(parts.ledger, parts.buffer, group, ROWS)
    claim = await asyncio.wait_for(steps.claim(parts.buffer, parts.sampler, 0, parts.loader), HANG_SECONDS)
    assert claim is not None
    assert claim.groups == trained
    assert await steps.finish(parts.buffer, parts.sampler, parts.counters, claim) == (in_flight,)
    assert not await steps.commit(parts.ledger, parts.buffer, in_flight, ROWS)
    assert sorted(parts.ledger.accounts.dropped.values()) == ["stale_inflight", "stale_ready"]
    assert parts.buffer.statistics()["free"] == 6


async def test_an_admitted_admission_passes_no_gate_again() -> None:
    """As a restore brings it: it may be the only work that opens the gate."""
    parts = Parts()
    admission = await parts.admitted()
    state = parts.sampler.state()
    await asyncio.wait_for(steps.admit(parts.ledger, parts.sampler, admission, 2), HANG_SECONDS)
    assert parts.sampler.state() == state


async def test_a_resumed_run_does_admitted_work_first_and_its_gate_knows_the_trainer(tmp_path: Path) -> None:
    parts = Parts(InOrderSampler(lookahead=1))
    parts.counters.version = 3
    parts.sampler.load_state(SamplerState("in_order", cursor=2))
    parts.sampler.advance(3)
    early, admitted = await parts.reserved(), await parts.admitted()
    async with parts.checkpointer(tmp_path) as checkpointer:
        assert await steps.resume(checkpointer, parts.sampler) is None, "nothing was saved yet"
        await checkpointer.save()
    fresh = Parts(InOrderSampler(lookahead=1))
    async with fresh.checkpointer(tmp_path) as checkpointer:
        restored = await steps.resume(checkpointer, fresh.sampler)
    assert restored is not None
    assert fresh.counters.version == 3
    assert [admission.id for admission in steps.pending(fresh.ledger)] == [admitted.id, early.id]
    await asyncio.wait_for(steps.admit(fresh.ledger, fresh.sampler, steps.pending(fresh.ledger)[1], 2), HANG_SECONDS)


async def test_a_windowed_sampler_is_never_waited_for() -> None:
    parts = Parts(WindowedSampler(staleness=1))
    for _ in range(3):
        await asyncio.wait_for(parts.admitted(), HANG_SECONDS)
    assert await steps.reserve(parts.ledger, parts.loader) is None
