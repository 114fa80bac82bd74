"""`drain_telemetry` of impl.nemo: six fields, what a reading takes with it, and what stays."""

import asyncio
import dataclasses

import pytest
from jumping_clock import run_in_virtual_time
from loop_turns import turns
from nemo_sections import cancelled, once, removing

from impl import BarrierClosed
from impl.nemo import (
    CHECKPOINT_MUTATION_KINDS,
    KEPT_WAITS,
    CheckpointMutationKind,
    DataPlaneCheckpointBarrier,
    DataPlaneCheckpointBarrierTelemetry,
)

NONE_BLOCKED: dict[str, int] = dict.fromkeys(CHECKPOINT_MUTATION_KINDS, 0)
QUIET = DataPlaneCheckpointBarrierTelemetry(
    blocked_by_kind=NONE_BLOCKED,
    wait_durations_s=(),
    active_mutations=0,
    waiting_mutations=0,
    max_waiting_mutations=0,
    checkpoint_active=False,
)


async def mutate(barrier: DataPlaneCheckpointBarrier, kind: CheckpointMutationKind) -> None:
    async with barrier.mutation(kind):
        pass


async def test_a_reading_has_the_six_fields_and_every_kind() -> None:
    """The consumer indexes `blocked_by_kind` with each kind, and reads nothing else than these fields."""
    reading = await DataPlaneCheckpointBarrier().drain_telemetry()
    assert [field.name for field in dataclasses.fields(reading)] == [
        "blocked_by_kind",
        "wait_durations_s",
        "active_mutations",
        "waiting_mutations",
        "max_waiting_mutations",
        "checkpoint_active",
    ]
    assert reading == QUIET
    with pytest.raises(dataclasses.FrozenInstanceError):
        reading.active_mutations = 1  # type: ignore[misc]


def test_waits_show_when_they_have_ended_and_a_reading_takes_them() -> None:
    """Read inside the window, after it, and once more: 5 s and 3 s waited, the second reading gets nothing."""

    async def program() -> None:
        barrier = DataPlaneCheckpointBarrier()
        window = asyncio.Event()

        async def save() -> None:
            async with barrier.checkpoint():
                await window.wait()

        saving = asyncio.create_task(save())
        await turns(3)
        commit = asyncio.create_task(mutate(barrier, "group_commits"))
        await asyncio.sleep(2)
        seal = asyncio.create_task(mutate(barrier, "sibling_seals"))
        await asyncio.sleep(3)
        inside = await barrier.drain_telemetry()
        window.set()
        await asyncio.gather(saving, commit, seal)
        after = await barrier.drain_telemetry()
        again = await barrier.drain_telemetry()
        assert inside == dataclasses.replace(
            QUIET, waiting_mutations=2, max_waiting_mutations=2, checkpoint_active=True
        )
        assert after == dataclasses.replace(
            QUIET,
            blocked_by_kind={**NONE_BLOCKED, "group_commits": 1, "sibling_seals": 1},
            wait_durations_s=(5.0, 3.0),
            max_waiting_mutations=2,
        )
        assert again == QUIET

    run_in_virtual_time(program())


async def test_the_state_of_the_instant_is_not_reset() -> None:
    """Active and waiting mutations are still there in the next reading; the highest count begins at those that wait."""
    barrier = DataPlaneCheckpointBarrier()
    holder = await removing(barrier)
    saving = asyncio.create_task(once(barrier, "checkpoint"))
    await turns()
    waiters = [asyncio.create_task(once(barrier, "mutation")) for _ in range(3)]
    await turns()
    await cancelled(waiters.pop())
    first, second = await barrier.drain_telemetry(), await barrier.drain_telemetry()
    assert (first.active_mutations, first.waiting_mutations, first.max_waiting_mutations) == (1, 2, 3)
    assert (second.active_mutations, second.waiting_mutations, second.max_waiting_mutations) == (1, 2, 2)
    await holder.finish()
    await asyncio.gather(saving, *waiters)


async def test_a_checkpoint_is_active_while_it_drains_while_it_is_open_and_not_after() -> None:
    """Active means: a mutation that asks now has to wait."""
    barrier = DataPlaneCheckpointBarrier()
    holder = await removing(barrier)
    saver = asyncio.create_task(once(barrier, "checkpoint"))
    await turns()
    assert (await barrier.drain_telemetry()).checkpoint_active, "draining"
    await cancelled(saver)
    assert not (await barrier.drain_telemetry()).checkpoint_active, "given up"
    await holder.finish()
    async with barrier.checkpoint():
        assert (await barrier.drain_telemetry()).checkpoint_active, "open"
    assert await barrier.drain_telemetry() == QUIET


async def test_a_waiter_counts_as_active_from_the_end_of_the_window_on() -> None:
    """It is counted in by the release itself, before its task has run; its wait shows once it has."""
    barrier = DataPlaneCheckpointBarrier()
    async with barrier.checkpoint():
        with barrier.detached():
            waiter = asyncio.create_task(mutate(barrier, "other"))
        await turns()
    released = await barrier.drain_telemetry()
    assert (released.active_mutations, released.waiting_mutations, released.wait_durations_s) == (1, 0, ())
    await waiter
    assert len((await barrier.drain_telemetry()).wait_durations_s) == 1


@pytest.mark.parametrize("ending", ["cancelled", "closed"])
async def test_a_wait_that_ends_without_a_section_counts_too(ending: str) -> None:
    """It was blocked all the same; the counts of a run that shuts down would not add up otherwise."""
    barrier = DataPlaneCheckpointBarrier()
    async with barrier.checkpoint():
        with barrier.detached():
            waiter = asyncio.create_task(mutate(barrier, "recovery_retries"))
        await turns()
        if ending == "cancelled":
            await cancelled(waiter)
        else:
            barrier.close("the run ends")
            with pytest.raises(BarrierClosed):
                await waiter
    reading = await barrier.drain_telemetry()
    assert reading.blocked_by_kind == {**NONE_BLOCKED, "recovery_retries": 1}
    assert len(reading.wait_durations_s) == 1


async def test_who_need_not_wait_leaves_no_trace_and_what_was_read_does_not_change() -> None:
    """Only checkpoint-induced waits are telemetry; a reading is a record, not a view."""
    barrier = DataPlaneCheckpointBarrier()
    for kind in CHECKPOINT_MUTATION_KINDS:
        await mutate(barrier, kind)
    quiet = await barrier.drain_telemetry()
    async with barrier.checkpoint():
        with barrier.detached():
            waiter = asyncio.create_task(mutate(barrier, "other"))
        await turns()
    await waiter
    assert quiet == QUIET
    assert (await barrier.drain_telemetry()).blocked_by_kind["other"] == 1


async def test_durations_are_the_newest_ten_thousand_and_counts_are_of_all() -> None:
    """A run that nobody reads must not grow."""
    barrier = DataPlaneCheckpointBarrier()
    count = KEPT_WAITS + 5
    async with barrier.checkpoint():
        with barrier.detached():
            waiters = [asyncio.create_task(mutate(barrier, "sample_clears")) for _ in range(count)]
        await turns(2)
    await asyncio.gather(*waiters)
    reading = await barrier.drain_telemetry()
    assert reading.blocked_by_kind["sample_clears"] == reading.max_waiting_mutations == count
    assert len(reading.wait_durations_s) == KEPT_WAITS


async def test_statistics_stay_for_everybody_else() -> None:
    """A reading takes nothing from `statistics`, and `statistics` nothing from a reading."""
    barrier = DataPlaneCheckpointBarrier()
    async with barrier.checkpoint():
        with barrier.detached():
            waiter = asyncio.create_task(mutate(barrier, "group_removals"))
        await turns()
    await waiter
    assert barrier.statistics().blocked == {"group_removals": 1}
    assert (await barrier.drain_telemetry()).blocked_by_kind["group_removals"] == 1
    assert barrier.statistics().blocked == {"group_removals": 1}
    assert barrier.statistics().waits["group_removals"].count == 1
