"""The spare pool by itself: first in, first out, one owner, and refusals that change nothing."""

from __future__ import annotations

import pytest

from impl import (
    Batch,
    CheckpointCorrupt,
    ForeignCut,
    InvariantViolated,
    Key,
    Ledger,
    PromptLoader,
    Spare,
    SparePool,
    StaleCut,
    UsageError,
)
from impl.barrier import CheckpointBarrier, Cut


def batch(*rows: int) -> Batch:
    return Batch(tuple(Key(0, row) for row in rows), tuple(f"prompt {row}" for row in rows), ends_epoch=False)


async def test_a_diverted_batch_is_taken_in_its_order_with_its_prompts() -> None:
    """The contract of the design: `divert(cut, batch)`, `take(cut)`."""
    barrier, pool = CheckpointBarrier(), SparePool()
    loader = PromptLoader(["a", "b", "c", "d"], batch_size=2, seed=0)
    async with barrier.mutation() as cut:
        first, second = loader.next_batch(cut), loader.next_batch(cut)
        assert first is not None
        assert second is not None
        pool.divert(cut, first)
        pool.divert(cut, second)
        assert len(pool) == 4
        taken = [pool.take(cut) for _ in range(4)]
    assert [spare.key for spare in taken] == [*first.keys, *second.keys]
    assert [spare.prompt for spare in taken] == [*first.prompts, *second.prompts]
    assert pool.next is None


async def test_case_A24_payloads_of_spares_are_copied() -> None:
    """A prompt that is no row of a dataset is kept as it was diverted (case A24)."""
    barrier, pool = CheckpointBarrier(), SparePool()
    payload = {"text": "as it was"}
    async with barrier.mutation() as cut:
        pool.divert(cut, batch(0), [payload])
    payload["text"] = "changed by its owner"
    assert pool.spares == (Spare(Key(0, 0), {"text": "as it was"}),)


async def test_the_event_names_the_prompts() -> None:
    """`divert_batch`, as in the machine."""
    events: list[tuple[str, dict[str, object]]] = []
    barrier = CheckpointBarrier(trace=lambda action, /, **fields: events.append((action, fields)))
    async with barrier.mutation() as cut:
        SparePool().divert(cut, batch(3, 1))
    assert ("divert_batch", {"keys": (Key(0, 3), Key(0, 1))}) in events


async def test_an_empty_pool_gives_nothing_and_says_why() -> None:
    """Whoever takes looks inside the section; two that looked outside would take one spare twice."""
    barrier, pool = CheckpointBarrier(), SparePool()
    async with barrier.mutation() as cut:
        with pytest.raises(InvariantViolated, match="1 spare was to be taken from a pool of 0"):
            pool.take(cut)
        pool.divert(cut, batch(0, 1))
        with pytest.raises(InvariantViolated, match="3 spares were to be taken from a pool of 2"):
            pool.take_many(cut, 3)
    assert len(pool) == 2


@pytest.mark.parametrize("count", [0, -1, True, 1.0, None])
async def test_a_wrong_count_is_refused_by_name(count: object) -> None:
    """A typed error that names the argument."""
    barrier, pool = CheckpointBarrier(), SparePool()
    async with barrier.mutation() as cut:
        pool.divert(cut, batch(0, 1))
        with pytest.raises(UsageError, match="count is"):
            pool.take_many(cut, count)  # type: ignore[arg-type]
    assert len(pool) == 2


async def refuses(pool: SparePool, cut: Cut, kind: type[Exception], match: str, rows: tuple[int, ...]) -> None:
    before = pool.spares
    with pytest.raises(kind, match=match):
        pool.divert(cut, batch(*rows))
    assert pool.spares == before


async def test_a_prompt_that_has_an_owner_is_not_diverted() -> None:
    """A spare, a pending group, or an account: each is named, and the pool stays as it was."""
    barrier = CheckpointBarrier()
    ledger = Ledger(barrier)
    pool = SparePool(ledger)
    async with barrier.mutation() as cut:
        pool.divert(cut, batch(0))
        admission = ledger.reserve(cut, [Key(0, 1), Key(0, 2)])
        ledger.drop(cut, admission.groups[1], "failed")
        await refuses(pool, cut, InvariantViolated, "is a spare already", (5, 0))
        await refuses(pool, cut, InvariantViolated, "is a spare already", (5, 5))
        await refuses(pool, cut, InvariantViolated, "is group 0 already", (5, 1))
        await refuses(pool, cut, InvariantViolated, "was dropped", (5, 2))
        await refuses(pool, cut, UsageError, "batch has no prompts", ())
        with pytest.raises(UsageError, match="payloads has 1 value for 2 keys"):
            pool.divert(cut, batch(5, 6), ["one"])
    assert [spare.key for spare in pool.spares] == [Key(0, 0)]


async def test_foreign_and_ended_cuts_are_refused() -> None:
    """A token proves nothing about another barrier, nor after its section."""
    barrier, other = CheckpointBarrier(), CheckpointBarrier()
    pool = SparePool(Ledger(barrier))
    async with barrier.mutation() as cut:
        pool.divert(cut, batch(0))
    async with other.mutation() as foreign:
        await refuses(pool, foreign, ForeignCut, "barrier", (1,))
        with pytest.raises(ForeignCut):
            pool.take(foreign)
    await refuses(pool, cut, StaleCut, "has ended", (1,))
    async with barrier.mutation() as shared:
        with pytest.raises(ForeignCut, match="the exclusive one is needed"):
            pool.load(shared, ())
    assert [spare.key for spare in pool.spares] == [Key(0, 0)]


async def test_the_first_cut_decides_whose_a_pool_without_a_ledger_is() -> None:
    """As with the loader; binding a ledger of another barrier later is refused."""
    barrier, pool = CheckpointBarrier(), SparePool()
    async with barrier.mutation() as cut:
        pool.divert(cut, batch(0))
    with pytest.raises(UsageError, match="different barriers"):
        pool.bind_ledger(Ledger(CheckpointBarrier()))
    ledger = Ledger(barrier)
    pool.bind_ledger(ledger)
    with pytest.raises(UsageError, match="another ledger"):
        pool.bind_ledger(Ledger(barrier))


async def test_a_load_replaces_everything_and_refuses_a_key_twice() -> None:
    """A saved pool with one prompt twice would have it trained twice."""
    barrier, pool = CheckpointBarrier(), SparePool()
    async with barrier.checkpoint() as cut:
        pool.divert(cut, batch(0))
        with pytest.raises(CheckpointCorrupt, match=r"2 spares with 1 different key\."):
            pool.load(cut, [Spare(Key(0, 4)), Spare(Key(0, 4))])
        assert [spare.key for spare in pool.snapshot(cut)] == [Key(0, 0)]
        pool.load(cut, [Spare(Key(1, 4)), Spare(Key(0, 2))])
    assert [spare.key for spare in pool.spares] == [Key(1, 4), Key(0, 2)]
