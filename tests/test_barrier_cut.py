"""Cut tokens: proof of being inside a section of one particular barrier, and of nothing else."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from barrier_holders import exclusive, holding, shared
from loop_turns import turns

from impl import CheckpointBarrier, ForeignCut, StaleCut


async def test_a_cut_names_its_barrier_and_side_and_expires_at_exit() -> None:
    """Live between enter and exit, on both sides and on the one that does not wait."""
    barrier = CheckpointBarrier()
    async with barrier.mutation() as first:
        assert (first.live, first.exclusive, first.barrier) == (True, False, barrier)
        first.require(barrier)
    async with barrier.checkpoint() as second:
        assert (second.live, second.exclusive, second.barrier) == (True, True, barrier)
        second.require(barrier, exclusive=True)
    with barrier.mutation_nowait() as third:
        assert (third.live, third.exclusive, third.barrier) == (True, False, barrier)
    for cut in (first, second, third):
        assert not cut.live
        with pytest.raises(StaleCut, match="has ended"):
            cut.require(barrier)


async def test_an_exclusive_cut_passes_where_a_shared_one_would() -> None:
    """A restore writes inside a checkpoint: nobody else is there."""
    barrier = CheckpointBarrier()
    async with barrier.checkpoint() as cut:
        cut.require(barrier)


async def test_a_cut_of_another_barrier_is_foreign() -> None:
    """Also with the same name, and also when it is live: the two barriers do not exclude each other."""
    barrier, other = CheckpointBarrier("run"), CheckpointBarrier("run")
    async with other.checkpoint() as cut:
        with pytest.raises(ForeignCut, match="do not exclude each other"):
            cut.require(barrier)
        with pytest.raises(ForeignCut):
            cut.require(barrier, exclusive=True)


async def test_a_shared_cut_is_refused_where_the_exclusive_one_is_needed() -> None:
    """Other writers may be inside now."""
    barrier = CheckpointBarrier()
    async with barrier.mutation("group_commits") as cut:
        with pytest.raises(ForeignCut, match="where the exclusive one is needed"):
            cut.require(barrier, exclusive=True)


async def test_a_cut_that_is_not_open_yet_is_stale() -> None:
    """The section object exists from the call on, and proves nothing before it was let in."""
    barrier = CheckpointBarrier()
    section = barrier.mutation()
    with pytest.raises(StaleCut, match="not open yet"):
        section.require(barrier)
    assert "new" in repr(section)


async def test_an_expired_cut_keeps_no_task_alive() -> None:
    """Contexts keep the last token for long; it must not keep the task, its frames and its tensors as well."""
    barrier = CheckpointBarrier()
    kept = []

    async def run() -> None:
        async with barrier.mutation() as cut:
            kept.append(cut)
        async with barrier.checkpoint() as cut:
            kept.append(cut)

    task = asyncio.create_task(run())
    await task
    reference = weakref.ref(task)
    del task
    await turns(2)
    gc.collect()
    assert reference() is None
    assert [cut.task_name for cut in kept] == [None, None]


async def test_a_cut_describes_itself() -> None:
    """What a debugger or a log shows: side, barrier, kind and whether it counts."""
    barrier = CheckpointBarrier("run")
    async with barrier.mutation("clears") as cut:
        assert repr(cut) == "<shared cut of 'run', kind 'clears', live>"
    assert repr(cut) == "<shared cut of 'run', kind 'clears', ended>"
    async with barrier.checkpoint() as cut:
        assert repr(cut) == "<exclusive cut of 'run', kind 'checkpoint', live>"


async def test_a_granted_section_counts_before_its_task_runs() -> None:
    """From the grant on it holds: a checkpoint that came in between would meet a writer that is about to write."""
    barrier = CheckpointBarrier()
    saver = await holding(barrier, exclusive)
    writer = await holding(barrier, shared)
    saver.leave.set()
    await asyncio.sleep(0)
    assert not writer.inside
    assert barrier.statistics().active_mutations == 1
    await writer.finish()
