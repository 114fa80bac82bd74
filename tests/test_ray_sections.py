"""The holder's side of a Ray barrier, against the host's real one: cancelled, cut off, overtaken, refused, abandoned.

In virtual time and one process, so every moment can be tried; `test_ray_barrier` has real processes.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.needs("ray")
pytest.importorskip("ray", reason="ray: ray is not installed")

from actors_here import LEASE, ActorHere, at_once, barrier_here, cut_off, killed_for_memory, with_actors_here  # noqa: E402
from ray.exceptions import RayError  # noqa: E402

from impl import HostUnreachable, LeaseExpired, WrongLoop  # noqa: E402
from impl.leases import FenceOrder, LeaseHost, Token  # noqa: E402
from impl.ray import RayBarrier, RayCut  # noqa: E402
from impl.ray.actor import ActorGuard, Answer  # noqa: E402


def now() -> float:
    return asyncio.get_running_loop().time()


async def counted(barrier: RayBarrier, exclusive: bool = False) -> int:
    async with barrier.checkpoint() if exclusive else barrier.mutation("counts") as cut:
        number: int = await cut.call("count")
    return number


def still_taken(cut: RayCut, barrier: RayBarrier) -> bool:
    """By this process's clock, as a part that lives here asks."""
    try:
        cut.require(barrier)
    except LeaseExpired:
        return False
    return True


def held_at_host(host: LeaseHost, cut: RayCut) -> bool:
    try:
        host._table.require(cut.token)
    except LeaseExpired:
        return False
    return True


async def expect_nothing_left(actor: ActorHere) -> None:
    host = await actor.host()
    assert not host._holdings
    assert not list(host._table)
    assert not [task for task in asyncio.all_tasks() if "beats for" in task.get_name()]


@with_actors_here
async def test_a_holder_that_is_cancelled_at_any_await_leaves_nothing_behind() -> None:
    """Of a slot and of a cut, alone and behind another, after so many turns of the loop; no lease has to lapse."""
    barrier, actor = barrier_here()
    assert await counted(barrier) == 1

    order = itertools.count()

    def in_batches() -> float:
        # A request and its withdrawal arrive in one turn of the loop, whose timers are not exact, and in this order.
        return 0.05 - now() % 0.05 + next(order) * 1e-13

    for exclusive, behind, actor.delay in itertools.product((False, True), (False, True), (at_once, in_batches)):
        for turns in range(24):
            first = asyncio.create_task(counted(barrier, exclusive=True)) if behind else None
            task = asyncio.create_task(counted(barrier, exclusive))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, *([first] if first else []), return_exceptions=True)
            await asyncio.sleep(1)
            await expect_nothing_left(actor)
    assert (await barrier.statistics()).leases.lapsed == 0


@with_actors_here
async def test_messages_that_overtake_each_other_and_cancelled_holders_leave_nothing_behind() -> None:
    """Each message takes its own time, a release less than its request; after a lease the host is empty."""
    choose = random.Random(1)
    barrier, actor = barrier_here()
    actor.delay = lambda: choose.choice((0.0, 0.0, 0.05, 0.7))
    for _ in range(40):
        tasks = [asyncio.create_task(counted(barrier, choose.random() < 0.3)) for _ in range(4)]
        await asyncio.sleep(choose.choice((0.0, 0.05, 0.4, 1.0, 2.0)))
        for task in tasks:
            if choose.random() < 0.6:
                task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(answer, int | asyncio.CancelledError) for answer in answers)
        await asyncio.sleep(2)
        await expect_nothing_left(actor)


def test_a_cut_is_over_here_no_later_than_at_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long messages take, loops are blocked or others wait; also when `longest_hold` ends it."""
    ended = [0, 0]

    @with_actors_here
    async def history() -> None:
        choose = random.Random(2)
        for run in range(60):
            barrier, actor = barrier_here(longest_hold=choose.choice((None, 3.0, 11.0)))
            actor.delay = lambda: choose.choice((0.0, 0.1, 0.5, 1.5))
            host = await actor.host()
            before = asyncio.create_task(slow(barrier, choose.choice((0.0, 6.0, 20.0))))
            await asyncio.sleep(choose.choice((0.0, 4.0)))
            try:
                async with barrier.mutation(f"run {run}") as cut:
                    until = now() + 30
                    while now() < until and still_taken(cut, barrier):
                        assert held_at_host(host, cut)
                        await asyncio.sleep(0.05)
                        if choose.random() < 0.002:
                            # The process is paused; the host is another.
                            cut._beat.cancel()
                    ended[now() < until] += 1
            except LeaseExpired:
                pass
            await asyncio.gather(before, return_exceptions=True)
            actor.actor._watch.cancel()  # type: ignore[union-attr]

    async def slow(barrier: RayBarrier, seconds: float) -> None:
        async with barrier.checkpoint():
            await asyncio.sleep(seconds)

    history(monkeypatch)
    assert min(ended) > 5


@with_actors_here
async def test_what_the_host_has_refused_is_over_here_at_once() -> None:
    """Not a quarter of a lease later, at the next heartbeat: a part of this process would still take it."""
    barrier, actor = barrier_here()
    host = await actor.host()
    async with barrier.mutation("x") as cut:
        host.release(cut._request)  # as `longest_hold` or an operator might
        await asyncio.sleep(0.1)
        with pytest.raises(LeaseExpired):
            await cut.call("count")
        assert not still_taken(cut, barrier)


@pytest.mark.parametrize("error", [cut_off, killed_for_memory])
def test_the_patience_with_a_lost_host_counts_from_its_loss(
    error: Callable[[], RayError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that had waited in the queue for longer than that is asked again all the same."""

    @with_actors_here
    async def history() -> None:
        barrier, actor = barrier_here(patience=5.0)
        actor.error = error
        await lost_and_found(barrier, actor)

    history(monkeypatch)


async def lost_and_found(barrier: RayBarrier, actor: ActorHere) -> None:
    async with barrier.mutation("long") as cut:
        with barrier.detached():
            waiting = asyncio.create_task(counted(barrier, exclusive=True))
        await asyncio.sleep(20)
        actor.lose()
        await asyncio.sleep(4)
        assert not waiting.done()
        actor.there = True
        with pytest.raises(LeaseExpired):
            await cut.call("count")
    assert await waiting == 1


@with_actors_here
async def test_a_host_that_does_not_come_back_is_given_up_after_the_patience() -> None:
    """And not before."""
    barrier, actor = barrier_here(patience=5.0)
    actor.there = False
    began = now()
    with pytest.raises(HostUnreachable, match="newest checkpoint"):
        await counted(barrier)
    assert 5.0 <= now() - began <= 5.5


@with_actors_here
async def test_an_error_of_ray_after_the_grant_is_a_lease_that_is_over() -> None:
    """Raised as Ray names it, whoever handles refusals would not handle it."""
    barrier, actor = barrier_here()
    await counted(barrier)
    holding = asyncio.Event()

    async def hold() -> None:
        async with barrier.checkpoint():
            await asyncio.sleep(LEASE)
            holding.set()

    held = asyncio.create_task(hold())
    await asyncio.sleep(0.1)
    asked = asyncio.create_task(counted(barrier))
    await holding.wait()
    for _ in range(50):
        if held.done() and actor.sent[-1] == "renew":
            break  # it was granted after a long wait, and asks how much is left
        await asyncio.sleep(0)
    actor.there = False
    with pytest.raises(LeaseExpired, match="was lost"):
        await asked


@with_actors_here
async def test_a_release_that_cannot_be_sent_hides_nothing() -> None:
    """Ray is gone; what ended the section is what its caller has to know. The lease lapses."""
    barrier, actor = barrier_here()

    def no_ray(name: str, *arguments: object) -> None:
        raise ConnectionError("no Ray")

    host = await actor.host()

    async def fails() -> None:
        async with barrier.mutation("x"):
            actor.send = no_ray  # type: ignore[method-assign, assignment]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    await asyncio.sleep(LEASE + 2)
    assert host.counts.lapsed == 1


@with_actors_here
async def test_a_part_whose_process_is_dead_is_not_waited_for_and_one_cut_off_is() -> None:
    """Dead it writes nothing, and another in its place takes no token before it is told; cut off it might."""

    def raises(error: Callable[[], RayError]) -> ActorGuard:
        async def obey(order: FenceOrder) -> None:
            raise error()

        return ActorGuard(SimpleNamespace(obey=SimpleNamespace(remote=obey)))

    order = FenceOrder(1, 1)
    assert await raises(killed_for_memory).obey(order) is order
    with pytest.raises(ConnectionError):
        await raises(cut_off).obey(order)


def test_a_holder_abandoned_with_its_loop_closed_gives_its_section_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector finds it; there is no loop any more in which its heartbeats could be cancelled."""

    class Noting:
        """Grants, and notes what it is told."""

        def __init__(self) -> None:
            self.told: list[str] = []

        def __getattr__(self, name: str) -> Any:
            return SimpleNamespace(remote=functools.partial(self._told, name))

        def _told(self, name: str, *arguments: Any) -> Any:
            self.told.append(name)
            granted: asyncio.Future[Answer] | None = None
            if name == "acquire":
                granted = asyncio.get_running_loop().create_future()
                granted.set_result(Answer((Token(1, 1), LEASE)))
            return granted

    complaints: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", complaints.append)
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    actor = Noting()

    async def inside() -> None:
        async with RayBarrier(actor, "here", LEASE, 1.0).mutation("x"):
            await asyncio.Event().wait()

    def abandon() -> None:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)  # says that tasks were destroyed, which is so
        task = loop.create_task(inside())
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(asyncio.sleep(0))
        assert not task.done()
        loop.close()

    abandon()
    gc.collect()
    assert complaints == []
    assert actor.told == ["acquire", "release"]


def test_where_no_loop_of_asyncio_runs_it_says_so() -> None:
    """On trio and in plain threads the error of asyncio would name neither cause nor way."""
    trio = pytest.importorskip("trio")
    barrier = RayBarrier(None, "here", LEASE, 1.0)

    async def section() -> None:
        async with barrier.mutation("x"):
            pass

    for attempt in (section, barrier.statistics):
        with pytest.raises(WrongLoop, match=r"or trio.*asyncio.run"):
            trio.run(attempt)
