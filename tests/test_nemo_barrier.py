"""impl.nemo stands where NeMo-RL's barrier stands: one test for each thing that its controller relies on.

The expectations were read off the call sites of the public NVIDIA-NeMo/RL (pull requests 3480, 3923, 3924 and 3925);
each test is a call site's shape in our words.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from loop_turns import turns
from nemo_sections import Side, cancelled, idle, once, removing, section

from impl import BarrierReentered, CleancutError, DrainTimeout, Key, Ledger, StaleCut, UsageError
from impl.nemo import (
    CHECKPOINT_MUTATION_KINDS,
    CheckpointMutationKind,
    DataPlaneCheckpointBarrier,
    DataPlaneMutationCut,
)

ROOT = Path(__file__).parent.parent


def test_importing_impl_does_not_load_it_and_it_loads_neither_torch_nor_ray() -> None:
    """A controller process has both anyway; a test of the swap on a laptop has neither."""
    program = "import sys, impl; print('impl.nemo' in sys.modules); import impl.nemo; print(*sys.modules)"
    first, modules = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert first == "False"
    assert {name.partition(".")[0] for name in modules.split()}.isdisjoint({"torch", "ray", "numpy"})


def test_made_without_arguments_before_a_loop_and_used_in_one_loop_after_the_other() -> None:
    """The controller makes it in its constructor; its unit tests call `asyncio.run` once for each step."""
    barrier = DataPlaneCheckpointBarrier()

    async def contended() -> None:
        holder = await removing(barrier)
        checkpoint = asyncio.create_task(once(barrier, "checkpoint"))
        await turns()
        await holder.finish()
        await checkpoint

    asyncio.run(contended())
    asyncio.run(contended())
    assert barrier.mutation_version == 2


# -- kinds


async def test_every_kind_of_nemo_rl_is_taken_and_the_default_is_other() -> None:
    """The labels of its telemetry, those of later versions included."""
    barrier = DataPlaneCheckpointBarrier()
    assert list(CHECKPOINT_MUTATION_KINDS) == [
        "advantage_writeback",
        "group_commits",
        "group_removals",
        "gym_acknowledgements",
        "gym_restart_cleanup",
        "other",
        "prompt_reservations",
        "recovery_restore",
        "recovery_retries",
        "sample_clears",
        "sibling_seals",
    ]
    for kind in CHECKPOINT_MUTATION_KINDS:
        async with barrier.mutation(kind) as cut:
            assert cut.kind == kind
    async with barrier.mutation() as cut:
        assert cut.kind == "other"
    with barrier.mutation_nowait() as cut:
        assert cut.kind == "other"


@pytest.mark.parametrize("kind", ["group_commit", "", None, 3, ["other"]])
async def test_an_unknown_kind_is_a_value_error_that_names_it_and_the_set(kind: object) -> None:
    """NeMo-RL raises ValueError, this library a RuntimeError: it is both. Nothing was let in."""
    barrier = DataPlaneCheckpointBarrier()
    with pytest.raises(UsageError, match="unknown checkpoint mutation kind") as caught:
        async with barrier.mutation(cast(CheckpointMutationKind, kind)):
            pytest.fail("let in")
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, RuntimeError)
    assert repr(kind) in str(caught.value)
    assert all(known in str(caught.value) for known in CHECKPOINT_MUTATION_KINDS)
    with (
        pytest.raises(UsageError, match="unknown checkpoint mutation kind"),
        barrier.mutation_nowait(cast(CheckpointMutationKind, kind)),
    ):
        pytest.fail("let in")
    assert barrier.mutation_version == 0
    assert await idle(barrier)


async def test_kinds_that_came_later_are_named_at_construction() -> None:
    """Its set has grown before; the telemetry of a new kind has an entry as well."""
    barrier = DataPlaneCheckpointBarrier(extra_kinds=["weight_syncs", "other", "weight_syncs"])
    assert barrier.kinds == (*CHECKPOINT_MUTATION_KINDS, "weight_syncs")
    async with barrier.mutation("weight_syncs"):
        pass
    assert (await barrier.drain_telemetry()).blocked_by_kind["weight_syncs"] == 0
    for wrong in ("weight_syncs", [""], [1]):
        with pytest.raises(UsageError, match="extra_kinds is"):
            DataPlaneCheckpointBarrier(extra_kinds=wrong)  # type: ignore[arg-type]


# -- cuts


@pytest.mark.parametrize("side", ["mutation", "checkpoint"])
async def test_a_cut_is_live_inside_and_never_again(side: Side) -> None:
    """Ledger and cleanup helpers are handed the cut and ask `require_live` first, on a thread as well."""
    barrier = DataPlaneCheckpointBarrier()

    async def helper(cut: DataPlaneMutationCut) -> None:
        await asyncio.sleep(0)
        cut.require_live()

    async with section(barrier, side) as cut:
        assert isinstance(cut, DataPlaneMutationCut)
        await helper(cut)
        await asyncio.to_thread(cut.require_live)
    with pytest.raises(RuntimeError, match="has ended") as caught:
        cut.require_live()
    assert type(caught.value) is StaleCut


async def test_a_section_that_was_never_entered_is_no_live_cut() -> None:
    """The object before `async with` is not yet a capability."""
    with pytest.raises(StaleCut, match="not open yet"):
        DataPlaneCheckpointBarrier().mutation().require_live()


async def test_parts_of_this_library_take_the_same_cut() -> None:
    """So that barrier, ledger and buffer can be swapped one after the other."""
    barrier = DataPlaneCheckpointBarrier()
    ledger = Ledger(barrier)
    async with barrier.mutation("prompt_reservations") as cut:
        ledger.reserve(cut, [Key(0, 7)])
    async with barrier.checkpoint() as cut:
        assert len(ledger.snapshot(cut, ()).entries) == 1


# -- versions: whether there is anything new to save


async def test_the_version_counts_ended_mutations_also_failed_ones_and_no_checkpoints() -> None:
    """A periodic snapshot is skipped while it has not moved; a half-applied mutation must not be skipped."""
    barrier = DataPlaneCheckpointBarrier()
    async with barrier.mutation():
        assert barrier.mutation_version == 0
    with pytest.raises(ConnectionError):
        async with barrier.mutation():
            raise ConnectionError
    async with barrier.checkpoint():
        at_save = barrier.mutation_version
    assert (at_save, barrier.mutation_version) == (2, 2)
    waiter_barrier = DataPlaneCheckpointBarrier()
    async with waiter_barrier.checkpoint():
        with waiter_barrier.detached():
            waiter = asyncio.create_task(once(waiter_barrier, "mutation"))
        await turns()
        await cancelled(waiter)
    assert waiter_barrier.mutation_version == 0, "a section that was never let in changed nothing"


# -- refusals


@pytest.mark.parametrize("outer", ["mutation", "checkpoint"])
@pytest.mark.parametrize("inner", ["mutation", "checkpoint"])
async def test_a_task_that_holds_a_section_is_refused_another_and_nothing_is_poisoned(outer: Side, inner: Side) -> None:
    """As there since sections are not re-entrant any more; before, a nested mutation joined the outer one."""
    barrier = DataPlaneCheckpointBarrier()
    async with section(barrier, outer) as cut:
        with pytest.raises(RuntimeError, match="already holds one") as caught:
            await once(barrier, inner)
        assert isinstance(caught.value, CleancutError)
        cut.require_live()
    assert await idle(barrier)


@pytest.mark.parametrize("stale", [0, 2])
async def test_case_B20_an_eviction_in_a_section_around_the_buffers_own_is_refused(stale: int) -> None:
    """Reported in a review: the wrapper killed the run at the first stale group, so only with work, and late.

    The buffer's `remove` opens the section whenever it is called; handing the cut down is the cure.
    """
    barrier = DataPlaneCheckpointBarrier()

    async def remove(groups: int) -> int:
        async with barrier.mutation("group_removals") as cut:
            cut.require_live()
        return groups

    async with barrier.mutation("group_removals"):
        with pytest.raises(BarrierReentered, match="Pass the cut you hold"):
            await remove(stale)
    assert await remove(stale) == stale


@pytest.mark.parametrize("side", ["mutation", "checkpoint"])
async def test_a_child_task_is_refused_a_section_under_its_parents_and_is_let_in_when_detached(side: Side) -> None:
    """There it waits unseen, for ever if the parent waits for it: the first difference a user meets."""
    barrier = DataPlaneCheckpointBarrier()
    async with section(barrier, side):
        with pytest.raises(BarrierReentered, match="detached"):
            await asyncio.gather(once(barrier, "mutation"))
        bound = asyncio.create_task(turns(3), name="outlives the section")
        with barrier.detached():
            free = asyncio.create_task(once(barrier, "mutation"))
        await turns()
        assert free.done() is (side == "mutation"), "shared slots never block each other"
    await asyncio.gather(bound, free)


async def test_a_drain_may_have_a_limit_and_its_error_goes_where_the_pump_retries() -> None:
    """The periodic saver takes TimeoutError and OSError for faults that pass, and anything else for the end."""
    barrier = DataPlaneCheckpointBarrier(drain_timeout=0.0)
    holder = await removing(barrier, name="finalizer")
    with pytest.raises(DrainTimeout, match="finalizer") as caught:
        await once(barrier, "checkpoint")
    assert isinstance(caught.value, OSError), "a TimeoutError is one"
    assert isinstance(caught.value, RuntimeError)
    assert [held.kind for held in caught.value.holders] == ["group_removals"]
    await holder.finish()
    await once(barrier, "checkpoint")


async def test_without_arguments_nothing_expires_and_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """As there: a slot may span a call of any length."""
    barrier = DataPlaneCheckpointBarrier()
    holder = await removing(barrier)
    saving = asyncio.create_task(once(barrier, "checkpoint"))
    await turns(200)
    assert holder.inside
    assert not saving.done()
    assert barrier.statistics().expired_checkpoints == 0
    await holder.finish()
    await saving
    assert caplog.records == []
