"""What callers and tests of NeMo-RL ask of its barrier beyond sections: words of errors, a wait, a count, the kinds."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from loop_turns import turns
from nemo_sections import Side, removing, section

from impl import BarrierReentered, StaleCut, UsageError
from impl.nemo import CHECKPOINT_MUTATION_KINDS, DataPlaneCheckpointBarrier


@pytest.mark.parametrize("side", ["mutation", "checkpoint"])
async def test_case_G40_an_ended_cut_says_that_it_is_no_longer_active(side: Side) -> None:
    """By the type for us, by these words for whoever swapped the barrier in; and still what happened and what to do."""
    barrier = DataPlaneCheckpointBarrier()
    async with section(barrier, side) as cut:
        cut.require_live()
    with pytest.raises(StaleCut, match=r"no longer active.*has ended.*Open a section around the write") as caught:
        cut.require_live()
    assert isinstance(caught.value, RuntimeError)
    with pytest.raises(StaleCut, match="is not open yet") as unopened:
        section(barrier, side).require_live()  # type: ignore[attr-defined]
    assert "no longer" not in str(unopened.value)


@pytest.mark.parametrize("outer", ["mutation", "checkpoint"])
@pytest.mark.parametrize("inner", ["mutation", "checkpoint", "nowait"])
async def test_case_G40_a_nested_section_says_that_the_task_already_holds_one(outer: Side, inner: str) -> None:
    """On every pair of sides, and the barrier goes on afterwards."""
    barrier = DataPlaneCheckpointBarrier()

    async def nested() -> None:
        if inner == "nowait":
            with barrier.mutation_nowait():
                pytest.fail("let in")
        async with section(barrier, "mutation" if inner == "mutation" else "checkpoint"):
            pytest.fail("let in")

    async with section(barrier, outer) as cut:
        with pytest.raises(
            BarrierReentered, match=r"already holds a data-plane barrier section.*Pass the cut you hold"
        ):
            await nested()
        cut.require_live()
    async with barrier.mutation() as cut:
        cut.require_live()


async def test_case_G40_an_unknown_kind_is_named_in_the_words_of_nemo_rl_with_the_kinds_of_this_barrier() -> None:
    """A list that left out the extra kinds would send the reader to the wrong place."""
    barrier = DataPlaneCheckpointBarrier(extra_kinds=["weight_syncs"])
    with pytest.raises(ValueError, match="unknown checkpoint mutation kind 'group_commit'") as caught:
        barrier.mutation("group_commit")
    assert isinstance(caught.value, UsageError)
    assert all(kind in str(caught.value) for kind in (*CHECKPOINT_MUTATION_KINDS, "weight_syncs"))
    assert tuple((await barrier.drain_telemetry()).blocked_by_kind) == barrier.kinds


async def test_case_G40_the_count_of_active_mutations_is_there_under_both_names() -> None:
    """A look that takes nothing, as a reading of the telemetry would."""
    barrier = DataPlaneCheckpointBarrier()
    counts: list[tuple[int, Any]] = []

    def count() -> None:
        counts.append((barrier.active_mutations, barrier._active_mutations))

    count()
    one, other = await removing(barrier), await removing(barrier)
    count()
    await one.finish()
    count()
    await other.finish()
    async with barrier.checkpoint():
        count()
    assert counts == [(0, 0), (2, 2), (1, 1), (0, 0)]


ENDINGS = ["plain", "nowait", "failed", "before a checkpoint", "another thread"]


@pytest.mark.parametrize("ending", ENDINGS)
async def test_case_G40_a_wait_for_a_mutation_ends_with_the_next_one(ending: str) -> None:
    """However it ends; that a mutation begins, or a checkpoint comes and goes, is no end of one."""
    barrier = DataPlaneCheckpointBarrier()
    version = barrier.mutation_version
    waiter = asyncio.create_task(barrier.wait_for_mutation(version, None))
    async with barrier.checkpoint():
        await turns(3)
    await turns(3)
    assert not waiter.done()
    if ending == "nowait":
        with barrier.mutation_nowait():
            await turns(3)
            assert not waiter.done()
    elif ending == "before a checkpoint":
        remover = await removing(barrier)
        saving = asyncio.create_task(checkpoint(barrier))
        await turns(3)
        await remover.finish()
        await saving
    elif ending == "another thread":
        inside = barrier.mutation()
        await inside.__aenter__()
        thread = threading.Thread(target=lambda: asyncio.run(inside.__aexit__(None, None, None)))
        thread.start()
        while not waiter.done():  # the thread gives the section back through this loop
            await asyncio.sleep(0)
        thread.join()
    else:
        try:
            async with barrier.mutation():
                await turns(3)
                assert not waiter.done()
                if ending == "failed":
                    raise LookupError
        except LookupError:
            pass
    await turns(3)
    assert waiter.done()
    assert waiter.result() is None
    assert barrier.mutation_version == version + 1


async def checkpoint(barrier: DataPlaneCheckpointBarrier) -> None:
    async with barrier.checkpoint():
        pass


async def test_case_G40_a_mutation_that_ended_before_the_wait_is_not_missed() -> None:
    """Between the look at the version and the wait another task may have run."""
    barrier = DataPlaneCheckpointBarrier()
    version = barrier.mutation_version
    async with barrier.mutation():
        pass
    waiter = asyncio.create_task(barrier.wait_for_mutation(version, None))
    await turns(1)
    assert waiter.done()


async def test_case_G40_a_wait_for_a_mutation_ends_at_its_limit_and_leaves_nothing() -> None:
    """No error: whoever waits looks at the version itself. A cancelled wait is cancelled."""
    barrier = DataPlaneCheckpointBarrier()
    await barrier.wait_for_mutation(barrier.mutation_version, 0)
    await barrier.wait_for_mutation(barrier.mutation_version, 0.001)
    waiter = asyncio.create_task(barrier.wait_for_mutation(barrier.mutation_version, 60.0))
    await turns(2)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert barrier._ended.waiting == 0
    with pytest.raises(UsageError, match="timeout_s is -1"):
        await barrier.wait_for_mutation(0, -1)


async def test_a_wait_that_nobody_wakes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: without the wake-up the wait goes on."""
    barrier = DataPlaneCheckpointBarrier()
    monkeypatch.setattr(type(barrier._ended), "wake", lambda self: None)
    waiter = asyncio.create_task(barrier.wait_for_mutation(barrier.mutation_version, None))
    await turns(3)
    async with barrier.mutation():
        pass
    await turns(3)
    assert not waiter.done()
    waiter.cancel()
