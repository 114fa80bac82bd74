"""The call sites of NeMo-RL's controller on impl.nemo: sections that span remote calls, failures, cancellation.

The shapes were read off the public NVIDIA-NeMo/RL (pull requests 3480, 3923, 3924 and 3925) and are in our words.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from loop_turns import HANG_SECONDS, turns
from nemo_sections import idle, once, removing

from impl import BarrierReentered
from impl.nemo import CheckpointMutationKind, DataPlaneCheckpointBarrier, DataPlaneMutationCut


class Rpc:
    """A remote call: it returns, or fails, when the test says so."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> str:
        self.begun.set()
        return await self.answer


async def test_mutations_overlap_and_a_checkpoint_waits_for_the_answer_of_a_remote_call() -> None:
    """The finalizer's call runs inside its slot: rows and index are both in the snapshot, or neither is."""
    barrier = DataPlaneCheckpointBarrier()
    first, second = Rpc(), Rpc()
    order: list[str] = []

    async def finalize(call: Rpc) -> None:
        async with barrier.mutation("group_commits") as cut:
            rows = await call()
            cut.require_live()
            order.append(rows)

    async def save() -> None:
        async with barrier.checkpoint():
            order.append("saved")

    tasks = [asyncio.create_task(finalize(call)) for call in (first, second)]
    await first.begun.wait()
    await second.begun.wait()
    tasks.append(asyncio.create_task(save()))
    await turns()
    first.answer.set_result("first")
    await turns()
    assert order == ["first"]
    second.answer.set_result("second")
    await asyncio.gather(*tasks)
    assert order == ["first", "second", "saved"]


@pytest.mark.parametrize("ending", ["fails", "is cancelled"])
async def test_a_commit_that_ends_badly_cleans_up_inside_its_slot_and_a_checkpoint_waits_for_it(ending: str) -> None:
    """The rollback is a remote call of its own, awaited under the same cut, also by a task that is being cancelled."""
    barrier = DataPlaneCheckpointBarrier()
    put, clear = Rpc(), Rpc()
    order: list[str] = []

    async def commit() -> None:
        async with barrier.mutation("group_commits") as cut:
            try:
                await put()
            except BaseException:
                await clear()
                cut.require_live()
                order.append("rolled back")
                raise

    async def save() -> None:
        async with barrier.checkpoint():
            order.append("saved")

    committing = asyncio.create_task(commit())
    await put.begun.wait()
    saving = asyncio.create_task(save())
    await turns()
    if ending == "fails":
        put.answer.set_exception(ConnectionError("the put failed"))
    else:
        committing.cancel()
    await clear.begun.wait()
    await turns()
    assert order == []
    clear.answer.set_result("cleared")
    expected = ConnectionError if ending == "fails" else asyncio.CancelledError
    with pytest.raises(expected):
        await committing
    await saving
    assert order == ["rolled back", "saved"]
    assert barrier.mutation_version == 1


async def test_a_second_cancellation_while_the_slot_is_left_leaks_nothing() -> None:
    """There an exit that awaits a lock can be cancelled in between; here it awaits nothing."""
    barrier = DataPlaneCheckpointBarrier()
    holder = await removing(barrier)
    saving = asyncio.create_task(once(barrier, "checkpoint"))
    await turns()
    holder.task.cancel()
    holder.task.cancel()
    with suppress(asyncio.CancelledError):
        await holder.task
    await saving
    assert await idle(barrier)


async def test_break_continue_and_return_leave_the_section() -> None:
    """The rollout pump leaves its reservation section in all three ways."""
    barrier = DataPlaneCheckpointBarrier()
    batches = iter(["spare", "batch"])
    taken = []

    async def reserve() -> str | None:
        async with barrier.mutation("prompt_reservations"):
            return next(batches, None)

    while True:
        async with barrier.mutation("prompt_reservations"):
            batch = next(batches, None)
            if batch is None:
                break
            if batch == "spare":
                continue
            taken.append(batch)
    assert taken == ["batch"]
    assert await reserve() is None
    assert await idle(barrier)


async def test_a_section_behind_a_context_manager_of_the_users_is_the_same_section() -> None:
    """The rollout manager wraps it with `asynccontextmanager`, callers put it on an exit stack."""
    barrier = DataPlaneCheckpointBarrier()

    @asynccontextmanager
    async def recovery_mutation(kind: CheckpointMutationKind) -> AsyncIterator[DataPlaneMutationCut]:
        async with barrier.mutation(kind) as cut:
            yield cut

    async with recovery_mutation("recovery_retries") as cut:
        cut.require_live()
        with pytest.raises(BarrierReentered):
            await once(barrier, "mutation")
    async with AsyncExitStack() as stack:
        cut = await stack.enter_async_context(barrier.mutation("sibling_seals"))
        cut.require_live()
    assert await idle(barrier)


async def test_threads_work_inside_a_window_and_writers_wait_for_them() -> None:
    """The capture writes files with `to_thread` while the window is open."""
    barrier = DataPlaneCheckpointBarrier()
    order: list[str] = []
    async with barrier.checkpoint() as cut:
        with barrier.detached():
            writer = asyncio.create_task(once(barrier, "mutation"))
        await asyncio.to_thread(order.append, "written")
        cut.require_live()
        assert not writer.done()
    await writer
    assert order == ["written"]


async def test_stale_rollouts_are_cancelled_inside_a_section_and_clean_up_in_sections_of_their_own() -> None:
    """Owners go under the cut and the tasks are cancelled there, while a save waits: the cleanups come behind it."""
    barrier = DataPlaneCheckpointBarrier()
    order: list[str] = []
    may_abort = asyncio.Event()

    async def rollout(number: int) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            async with barrier.mutation("group_removals"):
                order.append(f"removed {number}")

    async def abort() -> None:
        async with barrier.mutation("group_removals"):
            await may_abort.wait()
            for task in rollouts:
                task.cancel()
            await turns()
        await asyncio.gather(*rollouts, return_exceptions=True)

    async def save() -> None:
        async with barrier.checkpoint():
            order.append("saved")

    rollouts = [asyncio.create_task(rollout(number)) for number in range(3)]
    aborting = asyncio.create_task(abort())
    await turns()
    saving = asyncio.create_task(save())
    await turns()
    may_abort.set()
    await asyncio.gather(aborting, saving)
    assert order == ["saved", "removed 0", "removed 1", "removed 2"]
    assert all(rollout.cancelled() for rollout in rollouts)


async def test_two_checkpoints_follow_each_other_in_order_of_arrival() -> None:
    """Full and periodic saves meet."""
    barrier = DataPlaneCheckpointBarrier()
    order: list[str] = []

    async def save(name: str) -> None:
        async with barrier.checkpoint():
            order.append(f"{name} in")
            await turns(2)
            order.append(f"{name} out")

    async with asyncio.timeout(HANG_SECONDS):
        await asyncio.gather(save("first"), save("second"))
    assert order == ["first in", "first out", "second in", "second out"]
