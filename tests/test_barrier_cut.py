"""Cut tokens: proof of being inside a section of one particular barrier, and of nothing else."""

from __future__ import annotations

import gc
import weakref

import pytest
from barrier_holders import holding, shared
from front_ends import FrontEnd, on_both_front_ends

from impl import Cut, ForeignCut, StaleCut


@on_both_front_ends
async def test_a_cut_names_its_barrier_and_side_and_expires_at_exit(front: FrontEnd) -> None:
    """Live between enter and exit, on both sides and on the one that does not wait."""
    barrier = front.barrier()
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


@on_both_front_ends
async def test_an_exclusive_cut_passes_where_a_shared_one_would(front: FrontEnd) -> None:
    """A restore writes inside a checkpoint: nobody else is there."""
    barrier = front.barrier()
    async with barrier.checkpoint() as cut:
        cut.require(barrier)


@on_both_front_ends
async def test_a_cut_of_another_barrier_is_foreign(front: FrontEnd) -> None:
    """Also with the same name, and also when it is live: the two barriers do not exclude each other."""
    barrier, other = front.barrier("run"), front.barrier("run")
    async with other.checkpoint() as cut:
        with pytest.raises(ForeignCut, match="do not exclude each other"):
            cut.require(barrier)
        with pytest.raises(ForeignCut):
            cut.require(barrier, exclusive=True)


@on_both_front_ends
async def test_a_shared_cut_is_refused_where_the_exclusive_one_is_needed(front: FrontEnd) -> None:
    """Other writers may be inside now."""
    barrier = front.barrier()
    async with barrier.mutation("group_commits") as cut:
        with pytest.raises(ForeignCut, match="where the exclusive one is needed"):
            cut.require(barrier, exclusive=True)


@on_both_front_ends
async def test_a_cut_that_is_not_open_yet_is_stale(front: FrontEnd) -> None:
    """The section object exists from the call on, and proves nothing before it was let in."""
    barrier = front.barrier()
    section = barrier.mutation()
    assert isinstance(section, Cut)
    with pytest.raises(StaleCut, match="not open yet"):
        section.require(barrier)
    assert "new" in repr(section)


@on_both_front_ends
async def test_an_expired_cut_keeps_no_task_alive(front: FrontEnd) -> None:
    """Contexts keep the last token for long; it must not keep the task, its frames and its tensors as well."""
    barrier = front.barrier()
    kept: list[Cut] = []
    references: list[weakref.ref[object]] = []

    async def run() -> None:
        references.append(weakref.ref(front.running_task()))
        async with barrier.mutation() as cut:
            kept.append(cut)
        async with barrier.checkpoint() as cut:
            kept.append(cut)

    await front.start(run).value()
    front.started.clear()
    await front.turns(2)
    gc.collect()
    assert [reference() for reference in references] == [None]
    assert [cut.task_name for cut in kept] == [None, None]


@on_both_front_ends
async def test_a_cut_describes_itself(front: FrontEnd) -> None:
    """What a debugger or a log shows: side, barrier, kind and whether it counts."""
    barrier = front.barrier("run")
    async with barrier.mutation("clears") as cut:
        assert repr(cut) == "<shared cut of 'run', kind 'clears', live>"
    assert repr(cut) == "<shared cut of 'run', kind 'clears', ended>"
    async with barrier.checkpoint() as cut:
        assert repr(cut) == "<exclusive cut of 'run', kind 'checkpoint', live>"


@on_both_front_ends
async def test_a_granted_section_counts_before_its_task_runs(front: FrontEnd) -> None:
    """From the grant on it holds: a checkpoint that came in between would meet a writer that is about to write."""
    barrier = front.barrier()
    async with barrier.checkpoint():
        with barrier.detached():
            writer = await holding(front, barrier, shared)
    assert not writer.inside
    assert barrier.statistics().active_mutations == 1
    await writer.finish()
