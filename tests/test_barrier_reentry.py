"""A context that holds a section and opens another is refused: at once, everywhere alike, and before any change."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

import pytest
from barrier_holders import Holder, Open, exclusive, holding, is_idle, shared
from front_ends import FrontEnd, on_both_front_ends

from impl import BarrierReentered, DrainTimeout, UsageError
from impl.barrier import HELD, BarrierFrontEnd, links

BOTH_SIDES = pytest.mark.parametrize("side", [shared, exclusive])


async def opened(barrier: BarrierFrontEnd, side: Open) -> str:
    """What opening a section comes to: the error's name, or `opened`."""
    try:
        async with side(barrier):
            return "opened"
    except BarrierReentered:
        return "BarrierReentered"


def opened_now(barrier: BarrierFrontEnd) -> str:
    try:
        with barrier.mutation_nowait():
            return "opened"
    except BarrierReentered:
        return "BarrierReentered"


async def waiting_saver(front: FrontEnd, barrier: BarrierFrontEnd) -> Holder:
    """A checkpoint that waits for the caller's own section, as another task would ask for it."""
    with barrier.detached():
        saver = Holder(front, barrier, exclusive)
    await front.turns()
    assert not saver.inside
    return saver


async def directly(front: FrontEnd, barrier: BarrierFrontEnd, side: Open) -> str:
    return await opened(barrier, side)


async def through_a_helper(front: FrontEnd, barrier: BarrierFrontEnd, side: Open) -> str:
    async def helper() -> str:
        return await opened(barrier, side)

    return await helper()


async def in_a_child_task(front: FrontEnd, barrier: BarrierFrontEnd, side: Open) -> str:
    return await front.start(opened, barrier, side).value()


async def in_a_gathered_child(front: FrontEnd, barrier: BarrierFrontEnd, side: Open) -> str:
    """A child of `asyncio.gather`, or of a nursery that the holder opens inside its section."""
    answers = await front.gathered(lambda: opened(barrier, side), lambda: opened(barrier, side))
    assert len(set(answers)) == 1
    return answers[0]


async def in_a_callback(front: FrontEnd, barrier: BarrierFrontEnd, side: Open) -> str:
    return await front.in_callback(lambda: opened_now(barrier))


async def in_a_thread(front: FrontEnd, barrier: BarrierFrontEnd, side: Open) -> str:
    return await front.in_thread(lambda: opened_now(barrier))


async def in_a_loop_of_a_thread(front: FrontEnd, barrier: BarrierFrontEnd, side: Open) -> str:
    return await front.in_thread(lambda: type(front)().run_alone(opened, barrier, side))


Route = Callable[[FrontEnd, BarrierFrontEnd, Open], Awaitable[str]]
ROUTES: list[Route] = [
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
@on_both_front_ends
async def test_case_B09_a_nested_section_is_refused_on_every_route(
    front: FrontEnd,
    side: Open,
    inner: Open,
    route: Route,
    contended: bool,
) -> None:
    """Never a hang: with a checkpoint waiting the naive form deadlocks, and only then."""
    barrier = front.barrier()
    async with side(barrier):
        saver = await waiting_saver(front, barrier) if contended else None
        before = barrier.statistics()
        assert await route(front, barrier, inner) == "BarrierReentered"
        after = barrier.statistics()
        assert (after.blocked, after.active_mutations, after.waiting_mutations, after.waiting_checkpoints) == (
            before.blocked,
            before.active_mutations,
            before.waiting_mutations,
            before.waiting_checkpoints,
        )
        if saver is not None:
            await saver.task.cancel_and_wait()
    assert await is_idle(barrier)


@BOTH_SIDES
@on_both_front_ends
async def test_case_B10_the_exclusive_side_is_refused_under_a_shared_slot(front: FrontEnd, side: Open) -> None:
    """It would wait for the number of holders to become zero, and one of them asks. Others are unaffected."""
    barrier = front.barrier()
    other = await holding(front, barrier, shared)
    async with barrier.mutation() as cut:
        assert await opened(barrier, exclusive) == "BarrierReentered"
        assert cut.live
    assert other.inside
    await other.finish()
    assert await is_idle(barrier)


@on_both_front_ends
async def test_case_B20_a_wrapped_section_is_refused_the_same_whether_or_not_there_is_work(front: FrontEnd) -> None:
    """An operation that opens its own section, called under an outer one, with the barrier free and not."""
    barrier = front.barrier()
    answers = []
    for contended in (False, True):
        async with barrier.mutation("outer"):
            saver = await waiting_saver(front, barrier) if contended else None
            answers.append(await opened(barrier, shared))
            answers.append(opened_now(barrier))
            if saver is not None:
                await saver.task.cancel_and_wait()
    assert set(answers) == {"BarrierReentered"}


@on_both_front_ends
async def test_the_error_names_the_outer_section_and_the_ways_out(front: FrontEnd) -> None:
    """Whoever reads it has to find the outer section without a debugger."""
    barrier = front.barrier(name="cut of run 7")

    async def nest() -> None:
        async with barrier.mutation("sample_clears"), barrier.mutation("advantages"):
            pass

    with pytest.raises(BarrierReentered) as raised:
        await front.start(nest, name="rollout pump").value()
    text = str(raised.value)
    for part in ("cut of run 7", "sample_clears", "rollout pump", "test_barrier_reentry.py:", "detached()"):
        assert part in text


@on_both_front_ends
async def test_a_task_started_inside_a_section_may_open_its_own_once_that_has_ended(front: FrontEnd) -> None:
    """The section dies with its exit, in every context that inherited it."""
    barrier = front.barrier()
    go = front.event()

    async def orphan() -> str:
        await go.wait()
        return await opened(barrier, exclusive)

    async with barrier.mutation():
        task = front.start(orphan)
        await front.turns(1)
    async with barrier.mutation():
        go.set()
        await front.turns(1)
    assert await task.value() == "opened"


@BOTH_SIDES
@pytest.mark.parametrize("ended", [False, True], ids=["while_it_is_open", "once_it_has_ended"])
@pytest.mark.parametrize("inherited", ["refuse", "warn"])
@on_both_front_ends
async def test_case_G42_a_fire_and_forget_task_is_let_in_whatever_its_timing_where_the_barrier_warns(
    front: FrontEnd, side: Open, ended: bool, inherited: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for it, so whether the section is still open is a matter of timing; a refusal tells the way."""
    barrier = front.barrier(inherited=inherited)
    go = front.event()

    async def forgotten() -> str:
        await go.wait()
        return await opened(barrier, shared)

    with caplog.at_level(logging.WARNING, "cleancut.barrier"):
        async with side(barrier):
            task = front.start(forgotten)
            await front.turns(1)
            if not ended:
                go.set()
                await front.turns()
        go.set()
        answer = await task.value()
    warned = [entry.getMessage() for entry in caplog.records]
    if ended or inherited == "warn":
        assert answer == "opened"
    else:
        assert answer == "BarrierReentered"
    # On trio the test runs several times, so it may be there more than once.
    assert bool(warned) is (inherited == "warn" and not ended)
    assert all("has inherited one" in text and "detached()" in text for text in warned)
    assert await is_idle(barrier)


@BOTH_SIDES
@pytest.mark.parametrize("route", [directly, through_a_helper])
@on_both_front_ends
async def test_case_G42_who_holds_a_section_itself_is_refused_also_where_the_barrier_warns(
    front: FrontEnd, side: Open, route: Route
) -> None:
    """It would wait for itself; that is no matter of timing."""
    barrier = front.barrier(inherited="warn")
    async with side(barrier):
        assert await route(front, barrier, shared) == "BarrierReentered"
        assert await route(front, barrier, exclusive) == "BarrierReentered"
    assert await is_idle(barrier)


@pytest.mark.parametrize("inherited", ["refuse", "warn"])
@on_both_front_ends
async def test_case_G42_a_detached_task_is_let_in_without_a_warning(
    front: FrontEnd, inherited: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The way that the message and the warning name is deterministic with either setting."""
    barrier = front.barrier(inherited=inherited)
    with caplog.at_level(logging.WARNING, "cleancut.barrier"):
        async with barrier.mutation():
            with barrier.detached():
                task = front.start(opened, barrier, shared)
            await front.turns()
        assert await task.value() == "opened"
    assert caplog.records == []


@on_both_front_ends
async def test_case_G42_an_heir_that_was_let_in_binds_itself(front: FrontEnd) -> None:
    """Its own section is no matter of timing either."""
    barrier = front.barrier(inherited="warn")

    async def heir() -> str:
        async with barrier.mutation("its own"):
            return await opened(barrier, shared)

    async with barrier.mutation():
        task = front.start(heir)
        await front.turns()
    assert await task.value() == "BarrierReentered"


@on_both_front_ends
async def test_case_G42_a_wait_in_a_circle_that_the_warning_speaks_of_ends_at_the_drain_limit(front: FrontEnd) -> None:
    """What the refusal prevents: the outer waits for the heir, the heir for the checkpoint, that one for the outer."""
    barrier = front.barrier(inherited="warn", drain_timeout=0.05)
    async with barrier.mutation("outer"):
        with barrier.detached():
            saver = Holder(front, barrier, exclusive)
        await front.turns()
        heir = front.start(opened, barrier, shared)
        await front.turns()
        assert not heir.done
        assert await heir.value() == "opened"
    with pytest.raises(DrainTimeout):
        await saver.task.value()
    assert await is_idle(barrier)


@on_both_front_ends
async def test_case_G42_another_word_for_what_becomes_of_heirs_is_refused(front: FrontEnd) -> None:
    """A misspelt one would refuse, or warn, in silence."""
    with pytest.raises(UsageError, match="inherited is 'allow', but must be 'refuse' or 'warn'"):
        front.barrier(inherited="allow")


@on_both_front_ends
async def test_sections_of_different_barriers_may_be_nested(front: FrontEnd) -> None:
    """They do not wait for each other; a second one of either is still refused, at any depth."""
    outer, inner = front.barrier("outer"), front.barrier("inner")
    async with outer.mutation(), inner.checkpoint():
        assert await opened(outer, shared) == "BarrierReentered"
        assert await opened(inner, shared) == "BarrierReentered"
    async with inner.mutation():
        assert await opened(outer, exclusive) == "opened"
        assert await opened(outer, exclusive) == "opened"


@BOTH_SIDES
@on_both_front_ends
async def test_a_detached_task_may_open_sections_and_its_starter_may_not(front: FrontEnd, side: Open) -> None:
    """Work that outlives the section waits for its end like anyone else; the starter would wait for itself."""
    barrier = front.barrier()
    async with barrier.mutation():
        with barrier.detached():
            assert await opened(barrier, shared) == "BarrierReentered"
            task = front.start(opened, barrier, side)
        await front.turns()
        assert await opened(barrier, shared) == "BarrierReentered"
        assert task.done is (side is shared)
    assert await task.value() == "opened"


@on_both_front_ends
async def test_a_detached_task_binds_its_own_children(front: FrontEnd) -> None:
    """Detached is what was held at the start, not the task for ever."""
    barrier = front.barrier()

    async def detached() -> list[str]:
        async with barrier.mutation():
            return [await in_a_child_task(front, barrier, shared), await opened(barrier, exclusive)]

    async with barrier.mutation():
        with barrier.detached():
            task = front.start(detached)
        await front.turns()
    assert await task.value() == ["BarrierReentered", "BarrierReentered"]


@on_both_front_ends
async def test_detachment_ends_with_its_block_also_with_sections_opened_in_between(front: FrontEnd) -> None:
    """A task started after the block is bound again; a section of another barrier opened inside stays held."""
    barrier, other = front.barrier("one"), front.barrier("other")
    async with barrier.mutation():
        detached = barrier.detached()
        detached.__enter__()
        async with other.mutation():
            detached.__exit__(None, None, None)
            assert await in_a_child_task(front, barrier, shared) == "BarrierReentered"
            assert await in_a_child_task(front, other, shared) == "BarrierReentered"


@on_both_front_ends
async def test_detaching_from_one_barrier_leaves_the_other_binding(front: FrontEnd) -> None:
    """The mark hides the sections of its own barrier alone."""
    one, other = front.barrier("one"), front.barrier("other")
    async with one.mutation(), other.mutation():
        with one.detached():
            tasks = [front.start(opened, barrier, shared) for barrier in (one, other)]
        assert [await task.value() for task in tasks] == ["opened", "BarrierReentered"]


async def agen(barrier: BarrierFrontEnd) -> AsyncGenerator[str, None]:
    async with barrier.mutation("in a generator"):
        yield "inside"
        yield "still inside"


@on_both_front_ends
async def test_a_generator_that_holds_a_section_binds_whoever_runs_it(front: FrontEnd) -> None:
    """Its section is entered in the caller's context, and the caller would wait for its own generator."""
    barrier = front.barrier()
    generator = agen(barrier)
    await anext(generator)
    assert await opened(barrier, exclusive) == "BarrierReentered"
    await generator.aclose()
    assert await opened(barrier, exclusive) == "opened"


async def closed(generator: AsyncGenerator[str, None]) -> None:
    await generator.aclose()


@on_both_front_ends
async def test_a_generator_closed_in_another_task_gives_its_section_back(front: FrontEnd) -> None:
    """Resetting the variable in that other context would raise inside the release, and keep the slot."""
    barrier = front.barrier()
    generator = agen(barrier)
    await anext(generator)
    await front.start(closed, generator).value()
    assert barrier.statistics().active_mutations == 0
    assert await opened(barrier, exclusive) == "opened"


@on_both_front_ends
async def test_a_plain_generator_closed_in_another_context_gives_its_section_back(front: FrontEnd) -> None:
    """The same, without a task: the collector may be the one who closes it."""
    barrier = front.barrier()

    def generator() -> Generator[None, None, None]:
        with barrier.mutation_nowait():
            yield

    running = generator()
    contextvars.copy_context().run(next, running)
    assert barrier.statistics().active_mutations == 1
    running.close()
    assert await is_idle(barrier)


@on_both_front_ends
async def test_the_list_of_held_sections_does_not_grow(front: FrontEnd) -> None:
    """Not over many sections, nor when two barriers are held hand over hand and one is always live."""
    one, other = front.barrier("one"), front.barrier("other")
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


@on_both_front_ends
async def test_marks_of_detachment_do_not_pile_up(front: FrontEnd) -> None:
    """A task started detached opens sections for days; the mark goes once nothing lies below it."""
    barrier = front.barrier()
    lengths: list[int] = []

    async def detached() -> None:
        for _ in range(20):
            async with barrier.mutation():
                lengths.append(len(list(links(HELD.get()))))

    async with barrier.mutation():
        with barrier.detached():
            task = front.start(detached)
    await task.value()
    assert max(lengths) == 1
