"""A context that holds a section and opens another is refused: at once, everywhere alike, and before any change."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path

import pytest
from barrier_holders import Holder, Open, cancelled, exclusive, holding, is_idle, shared
from loop_turns import turns

from impl import BarrierReentered, CheckpointBarrier
from impl.barrier.cut import HELD, links

BOTH_SIDES = pytest.mark.parametrize("side", [shared, exclusive])


async def opened(barrier: CheckpointBarrier, side: Open) -> str:
    """What opening a section comes to: the error's name, or `opened`."""
    try:
        async with side(barrier):
            return "opened"
    except BarrierReentered:
        return "BarrierReentered"


def opened_now(barrier: CheckpointBarrier) -> str:
    try:
        with barrier.mutation_nowait():
            return "opened"
    except BarrierReentered:
        return "BarrierReentered"


async def waiting_saver(barrier: CheckpointBarrier) -> Holder:
    """A checkpoint that waits for the caller's own section, as another task would ask for it."""
    with barrier.detached():
        saver = Holder(barrier, exclusive)
    await turns()
    assert not saver.inside
    return saver


async def directly(barrier: CheckpointBarrier, side: Open) -> str:
    return await opened(barrier, side)


async def through_a_helper(barrier: CheckpointBarrier, side: Open) -> str:
    async def helper() -> str:
        return await opened(barrier, side)

    return await helper()


async def in_a_child_task(barrier: CheckpointBarrier, side: Open) -> str:
    return await asyncio.create_task(opened(barrier, side))


async def in_a_gathered_child(barrier: CheckpointBarrier, side: Open) -> str:
    return (await asyncio.gather(opened(barrier, side), asyncio.sleep(0)))[0]


async def in_a_callback(barrier: CheckpointBarrier, side: Open) -> str:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: answer.set_result(opened_now(barrier)))
    return await answer


async def in_a_thread(barrier: CheckpointBarrier, side: Open) -> str:
    return await asyncio.to_thread(opened_now, barrier)


async def in_a_loop_of_a_thread(barrier: CheckpointBarrier, side: Open) -> str:
    return await asyncio.to_thread(lambda: asyncio.run(opened(barrier, side)))


ROUTES: list[Callable[[CheckpointBarrier, Open], Awaitable[str]]] = [
    directly,
    through_a_helper,
    in_a_child_task,
    in_a_gathered_child,
    in_a_callback,
    in_a_thread,
    in_a_loop_of_a_thread,
]


@BOTH_SIDES
@pytest.mark.parametrize("inner", [shared, exclusive], ids=["inner_shared", "inner_exclusive"])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("contended", [False, True])
async def test_case_B09_a_nested_section_is_refused_on_every_route(
    side: Open, inner: Open, route: Callable[[CheckpointBarrier, Open], Awaitable[str]], contended: bool
) -> None:
    """Never a hang: with a checkpoint waiting the naive form deadlocks, and only then."""
    barrier = CheckpointBarrier()
    async with side(barrier):
        saver = await waiting_saver(barrier) if contended else None
        before = barrier.statistics()
        assert await route(barrier, inner) == "BarrierReentered"
        after = barrier.statistics()
        assert (after.blocked, after.active_mutations, after.waiting_mutations, after.waiting_checkpoints) == (
            before.blocked,
            before.active_mutations,
            before.waiting_mutations,
            before.waiting_checkpoints,
        )
        if saver is not None:
            await cancelled(saver.task)
    assert await is_idle(barrier)


@BOTH_SIDES
async def test_case_B10_the_exclusive_side_is_refused_under_a_shared_slot(side: Open) -> None:
    """It would wait for the number of holders to become zero, and one of them asks. Others are unaffected."""
    barrier = CheckpointBarrier()
    other = await holding(barrier, shared)
    async with barrier.mutation() as cut:
        assert await opened(barrier, exclusive) == "BarrierReentered"
        assert cut.live
    assert other.inside
    await other.finish()
    assert await is_idle(barrier)


async def test_case_B20_a_wrapped_section_is_refused_the_same_whether_or_not_there_is_work() -> None:
    """An operation that opens its own section, called under an outer one, with the barrier free and not."""
    barrier = CheckpointBarrier()
    answers = []
    for contended in (False, True):
        async with barrier.mutation("outer"):
            saver = await waiting_saver(barrier) if contended else None
            answers.append(await opened(barrier, shared))
            answers.append(opened_now(barrier))
            if saver is not None:
                await cancelled(saver.task)
    assert set(answers) == {"BarrierReentered"}


async def test_the_error_names_the_outer_section_and_the_ways_out() -> None:
    """Whoever reads it has to find the outer section without a debugger."""
    barrier = CheckpointBarrier(name="cut of run 7")
    task = asyncio.current_task()
    assert task is not None
    task.set_name("rollout pump")
    async with barrier.mutation("sample_clears"):
        with pytest.raises(BarrierReentered) as raised:
            async with barrier.mutation("advantages"):
                pass
    text = str(raised.value)
    for part in ("cut of run 7", "sample_clears", "rollout pump", "test_barrier_reentry.py:", "detached()"):
        assert part in text


async def test_a_task_started_inside_a_section_may_open_its_own_once_that_has_ended() -> None:
    """The section dies with its exit, in every context that inherited it."""
    barrier = CheckpointBarrier()
    go = asyncio.Event()

    async def orphan() -> str:
        await go.wait()
        return await opened(barrier, exclusive)

    async with barrier.mutation():
        task = asyncio.create_task(orphan())
        await turns(1)
    async with barrier.mutation():
        go.set()
        await turns(1)
    assert await task == "opened"


async def test_sections_of_different_barriers_may_be_nested() -> None:
    """They do not wait for each other; a second one of either is still refused, at any depth."""
    outer, inner = CheckpointBarrier("outer"), CheckpointBarrier("inner")
    async with outer.mutation(), inner.checkpoint():
        assert await opened(outer, shared) == "BarrierReentered"
        assert await opened(inner, shared) == "BarrierReentered"
    async with inner.mutation():
        assert await opened(outer, exclusive) == "opened"
        assert await opened(outer, exclusive) == "opened"


@BOTH_SIDES
async def test_a_detached_task_may_open_sections_and_its_starter_may_not(side: Open) -> None:
    """Work that outlives the section waits for its end like anyone else; the starter would wait for itself."""
    barrier = CheckpointBarrier()
    async with barrier.mutation():
        with barrier.detached():
            assert await opened(barrier, shared) == "BarrierReentered"
            task = asyncio.create_task(opened(barrier, side))
        await turns()
        assert await opened(barrier, shared) == "BarrierReentered"
        assert task.done() is (side is shared)
    assert await task == "opened"


async def test_a_detached_task_binds_its_own_children() -> None:
    """Detached is what was held at the start, not the task for ever."""
    barrier = CheckpointBarrier()

    async def detached() -> list[str]:
        async with barrier.mutation():
            return [await in_a_child_task(barrier, shared), await opened(barrier, exclusive)]

    async with barrier.mutation():
        with barrier.detached():
            task = asyncio.create_task(detached())
        await turns()
    assert await task == ["BarrierReentered", "BarrierReentered"]


async def test_detachment_ends_with_its_block_also_with_sections_opened_in_between() -> None:
    """A task started after the block is bound again; a section of another barrier opened inside stays held."""
    barrier, other = CheckpointBarrier("one"), CheckpointBarrier("other")
    async with barrier.mutation():
        detached = barrier.detached()
        detached.__enter__()
        async with other.mutation():
            detached.__exit__(None, None, None)
            assert await in_a_child_task(barrier, shared) == "BarrierReentered"
            assert await in_a_child_task(other, shared) == "BarrierReentered"


async def test_detaching_from_one_barrier_leaves_the_other_binding() -> None:
    """The mark hides the sections of its own barrier alone."""
    one, other = CheckpointBarrier("one"), CheckpointBarrier("other")
    async with one.mutation(), other.mutation():
        with one.detached():
            tasks = [asyncio.create_task(opened(barrier, shared)) for barrier in (one, other)]
        assert await asyncio.gather(*tasks) == ["opened", "BarrierReentered"]


async def agen(barrier: CheckpointBarrier) -> AsyncGenerator[str, None]:
    async with barrier.mutation("in a generator"):
        yield "inside"
        yield "still inside"


async def test_a_generator_that_holds_a_section_binds_whoever_runs_it() -> None:
    """Its section is entered in the caller's context, and the caller would wait for its own generator."""
    barrier = CheckpointBarrier()
    generator = agen(barrier)
    await anext(generator)
    assert await opened(barrier, exclusive) == "BarrierReentered"
    await generator.aclose()
    assert await opened(barrier, exclusive) == "opened"


async def closed(generator: AsyncGenerator[str, None]) -> None:
    await generator.aclose()


async def test_a_generator_closed_in_another_task_gives_its_section_back() -> None:
    """Resetting the variable in that other context would raise inside the release, and keep the slot."""
    barrier = CheckpointBarrier()
    generator = agen(barrier)
    await anext(generator)
    await asyncio.create_task(closed(generator))
    assert barrier.statistics().active_mutations == 0
    assert await opened(barrier, exclusive) == "opened"


def test_a_plain_generator_closed_in_another_context_gives_its_section_back() -> None:
    """The same, without a task: the collector may be the one who closes it."""

    async def main() -> None:
        barrier = CheckpointBarrier()

        def generator() -> Generator[None, None, None]:
            with barrier.mutation_nowait():
                yield

        running = generator()
        contextvars.copy_context().run(next, running)
        assert barrier.statistics().active_mutations == 1
        running.close()
        assert await is_idle(barrier)

    asyncio.run(main())


async def test_the_list_of_held_sections_does_not_grow() -> None:
    """Not over many sections, nor when two barriers are held hand over hand and one is always live."""
    one, other = CheckpointBarrier("one"), CheckpointBarrier("other")
    for _ in range(50):
        async with one.mutation():
            pass
    assert len(list(links(HELD.get()))) == 1
    current = one.mutation()
    await current.__aenter__()
    for number in range(50):
        following = (other if number % 2 == 0 else one).mutation()
        await following.__aenter__()
        await current.__aexit__(None, None, None)
        current = following
        assert len(list(links(HELD.get()))) <= 2
    await current.__aexit__(None, None, None)


async def test_marks_of_detachment_do_not_pile_up() -> None:
    """A task started detached opens sections for days; the mark goes once nothing lies below it."""
    barrier = CheckpointBarrier()
    lengths: list[int] = []

    async def detached() -> None:
        for _ in range(20):
            async with barrier.mutation():
                lengths.append(len(list(links(HELD.get()))))

    async with barrier.mutation():
        with barrier.detached():
            task = asyncio.create_task(detached())
    await task
    assert max(lengths) == 1


EAGER = """
import asyncio
from impl import BarrierReentered, CheckpointBarrier

async def opened(section):
    try:
        async with section:
            return "opened"
    except BarrierReentered:
        return "refused"

async def main():
    barrier = CheckpointBarrier()
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    async with barrier.mutation():
        child = asyncio.create_task(opened(barrier.mutation()))
        assert child.done(), "not eager"
        with barrier.detached():
            sibling = asyncio.create_task(opened(barrier.mutation()))
            saver = asyncio.create_task(opened(barrier.checkpoint()))
        await asyncio.sleep(0)
        assert not saver.done()
    print(await child, await sibling, await saver)

asyncio.run(main())
"""


@pytest.mark.needs("other-python")
def test_an_eager_child_is_refused_like_any_other(other_pythons: list[Path]) -> None:
    """It starts inside its creator's stretch of code, with a context of its own. Eager tasks came with CPython 3.12."""
    pythons = [str(python) for python in other_pythons] + [sys.executable]
    for python in pythons:
        supported = subprocess.run([python, "-c", "from asyncio import eager_task_factory"], capture_output=True)
        if supported.returncode == 0:
            root = Path(__file__).parent.parent
            run = subprocess.run([python, "-c", EAGER], capture_output=True, text=True, cwd=root)
            assert run.stdout == "refused opened opened\n", run.stderr
            break
    else:
        raise AssertionError(f"none of {pythons} has eager tasks")
