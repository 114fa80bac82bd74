"""Waiting at the gate: event-driven, changes nothing, and no cancellation loses the opening."""

from __future__ import annotations

import asyncio

import pytest
from loop_turns import turns

from impl.barrier import CheckpointBarrier
from impl.run.samplers import InOrderSampler


async def shut_sampler(lookahead: int = 0) -> InOrderSampler:
    """An in-order sampler that has admitted all it may."""
    barrier = CheckpointBarrier()
    sampler = InOrderSampler(lookahead)
    sampler.bind(2)
    async with barrier.mutation() as cut:
        while sampler.gate_open:
            sampler.commit_admission(cut)
    return sampler


async def test_an_open_gate_is_passed_without_a_turn_of_the_loop() -> None:
    """Waiting must not cost a turn where there is nothing to wait for."""
    sampler = InOrderSampler(0)
    waiting = sampler.wait_until_admissible()
    with pytest.raises(StopIteration):
        waiting.send(None)


async def test_the_gate_opens_by_advance_and_changes_nothing() -> None:
    """The wait reads only: the state before and after differs by what the trainer did."""
    sampler = await shut_sampler()
    before = sampler.state()
    waiter = asyncio.create_task(sampler.wait_until_admissible())
    await turns()
    assert not waiter.done()
    assert sampler.waiting == 1
    sampler.advance(1)
    await waiter
    assert sampler.state() == before
    assert sampler.waiting == 0


async def test_an_advance_that_opens_nothing_leaves_the_waiter_waiting() -> None:
    """Woken waiters look again: with the cursor at 1 version 1 is not enough for lookahead 0."""
    sampler = await shut_sampler(lookahead=1)
    sampler.advance(0)
    waiter = asyncio.create_task(sampler.wait_until_admissible())
    await turns()
    sampler.advance(0)
    await turns()
    assert not waiter.done()
    sampler.advance(1)
    await waiter


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_case_B01_a_wake_up_that_meets_a_cancellation_reaches_the_other_waiter(cancel_first: bool) -> None:
    """`asyncio.Condition` loses such a wake-up on CPython 3.11 and 3.12."""
    sampler = await shut_sampler()
    first = asyncio.create_task(sampler.wait_until_admissible())
    second = asyncio.create_task(sampler.wait_until_admissible())
    await turns()
    if cancel_first:
        first.cancel()
        sampler.advance(1)
    else:
        sampler.advance(1)
        first.cancel()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    assert sampler.waiting == 0


async def test_a_cancelled_wait_leaves_no_waiter_behind() -> None:
    """Any number of cancelled waits costs nothing."""
    sampler = await shut_sampler()
    for _ in range(5):
        waiter = asyncio.create_task(sampler.wait_until_admissible())
        await turns()
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
    assert sampler.waiting == 0
