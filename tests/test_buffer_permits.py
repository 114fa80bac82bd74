"""Permits: first come first served, conserved by every cancellation, never used twice."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_turns import turns

from impl import InvariantViolated, Permit, UsageError
from impl.run import PermitPool


async def exhausted(capacity: int = 1) -> tuple[PermitPool, list[Permit]]:
    """A pool with nothing free, and the permits that are out."""
    pool = PermitPool(capacity, "test")
    return pool, [await pool.acquire() for _ in range(capacity)]


@pytest.mark.parametrize("cancel_first", [True, False])
async def test_case_B03_a_cancel_at_the_hand_over_conserves_the_permit(cancel_first: bool) -> None:
    """The waiter just chosen is cancelled: the permit is neither lost nor doubled, and a third task gets it."""
    pool, (held,) = await exhausted()
    waiter = asyncio.create_task(pool.acquire())
    third = asyncio.create_task(pool.acquire())
    await turns()
    if cancel_first:
        waiter.cancel()
        held.give_back()
    else:
        held.give_back()
        waiter.cancel()
    permit = await third
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert (pool.free, pool.unspent) == (0, 1)
    permit.give_back()
    assert (pool.free, pool.unspent, pool.waiting) == (1, 0, 0)


async def test_case_B02_a_cancelled_waiter_does_not_block_the_one_behind_it() -> None:
    """Between the cancel and the waiter's clean-up a release must not be spent on the dead entry."""
    pool, (held,) = await exhausted()
    first = asyncio.create_task(pool.acquire())
    second = asyncio.create_task(pool.acquire())
    await turns()
    first.cancel()
    held.give_back()  # at once: `first` has not run its clean-up, and no other release ever happens
    await second
    assert first.cancelled() or first.cancelling()


@given(order=st.permutations(range(5)), cancelled=st.sets(st.integers(0, 4)), interleaved=st.booleans())
def test_case_B03_survivors_are_served_in_arrival_order(
    order: list[int], cancelled: set[int], interleaved: bool
) -> None:
    """Five waiters, any subset cancelled at any moment of the hand-overs."""

    async def scenario() -> None:
        pool, (held,) = await exhausted()
        served: list[int] = []

        async def wait(number: int) -> None:
            permit = await pool.acquire()
            served.append(number)
            try:
                await turns(1)
            finally:
                permit.give_back()

        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(wait(number)))
            await turns(1)
        victims = [number for number in order if number in cancelled]
        if not interleaved:
            for number in victims:
                tasks[number].cancel()
        held.give_back()
        for number in victims if interleaved else []:
            tasks[number].cancel()
            await turns(1)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        survivors = [number for number, result in enumerate(results) if result is None]
        assert [number for number in served if number in survivors] == survivors
        assert (pool.free, pool.unspent, pool.waiting) == (1, 0, 0)

    asyncio.run(scenario())


async def test_a_closed_wait_gives_its_permit_back() -> None:
    """A loop that shuts down closes coroutines without a cancellation."""
    pool, (held,) = await exhausted()
    wait = pool.acquire()
    wait.send(None)
    held.give_back()
    assert pool.unspent == 1
    wait.close()
    assert (pool.free, pool.unspent) == (1, 0)


async def test_giving_back_twice_returns_one_permit() -> None:
    """`give_back` stands in `finally` blocks, where it may come after the permit was used."""
    pool, (held,) = await exhausted()
    held.give_back()
    held.give_back()
    assert (pool.free, pool.unspent) == (1, 0)


async def test_a_spent_permit_belongs_to_its_place() -> None:
    """Giving back a spent permit does nothing; the place returns it."""
    pool, (held,) = await exhausted()
    held.spend(pool)
    held.give_back()
    assert (pool.free, pool.unspent, pool.placed) == (0, 0, 1)
    with pytest.raises(InvariantViolated, match="used twice"):
        held.spend(pool)
    pool.return_place()
    assert (pool.free, pool.placed) == (1, 0)


async def test_a_permit_of_another_pool_is_refused() -> None:
    """Two buffers' permits mixed up would let one exceed its capacity."""
    _, (held,) = await exhausted()
    other = PermitPool(1, "other")
    with pytest.raises(UsageError, match="'test' and was presented to 'other'"):
        held.spend(other)
    assert (held.spent, other.placed) == (False, 0)


def test_returning_a_place_that_is_not_there_is_noticed() -> None:
    """The count may never pass the capacity."""
    pool = PermitPool(1, "test")
    with pytest.raises(InvariantViolated, match="do not balance"):
        pool.return_place()


def test_more_places_than_permits_are_refused_whole() -> None:
    """A restored buffer that does not fit takes nothing."""
    pool = PermitPool(2, "test")
    with pytest.raises(InvariantViolated, match="3 permits"):
        pool.take_places(3)
    assert (pool.free, pool.placed) == (2, 0)


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, None])
def test_a_wrong_capacity_is_refused(capacity: object) -> None:
    """Zero permits would be a run that never starts."""
    with pytest.raises(UsageError, match="capacity"):
        PermitPool(capacity, "test")  # type: ignore[arg-type]
