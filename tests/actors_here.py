"""The actor of a Ray barrier in this very process and in virtual time: real code on both sides, and messages as wished.

What is sent is pickled, and takes its time; what is lost, late, or finds nobody there is up to the test.
"""

from __future__ import annotations

import asyncio
import functools
import pickle
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import ray
from jumping_clock import run_in_virtual_time
from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayError

from impl import Cut
from impl.leases import HostedBarrier, LeaseHost
from impl.ray import RayBarrier, sections
from impl.ray.actor import BarrierActor, Settings

LEASE = 8.0


class Counting:
    """The least that a host may have."""

    def __init__(self, barrier: HostedBarrier) -> None:
        self.barrier = barrier
        self.counted = 0

    def count(self, cut: Cut) -> int:
        cut.require(self.barrier)
        self.counted += 1
        return self.counted


def at_once() -> float:
    return 0.0


def cut_off() -> RayError:
    """What Ray raises when the process cannot be reached, or is being started anew."""
    return ActorUnavailableError("The actor is temporarily unavailable", b"0" * 16)


def killed_for_memory() -> RayError:
    """What Ray raises when it has killed the process itself, also where it starts it anew."""
    return OutOfMemoryError("1 worker(s) were killed due to the node running low on memory")  # type: ignore[no-untyped-call]


class Method:
    """`handle.method`, of which only `remote` is used."""

    def __init__(self, actor: ActorHere, name: str) -> None:
        self.remote = functools.partial(actor.send, name)


class ActorHere:
    """A handle of an actor, and the actor. `delay()` is how long the next message takes, in either direction."""

    def __init__(self, settings: Settings, make_operations: Callable[[HostedBarrier], Any] = Counting) -> None:
        self._make, self._settings = make_operations, settings
        self.delay: Callable[[], float] = at_once
        self.there = True
        self.error: Callable[[], RayError] = cut_off
        self.sent: list[str] = []
        self._inside: set[asyncio.Future[Any]] = set()
        # Kept, for the tasks of a process that ends are not collected one by one.
        self._gone: list[BarrierActor] = []
        self.actor = BarrierActor(self._make, self._settings, ())

    def lose(self) -> None:
        """Its process is gone, and all calls with it. From when `there` is set again on there is a new one."""
        self.there = False
        if self.actor._watch is not None:
            self.actor._watch.cancel()
        self._gone.append(self.actor)
        self.actor = BarrierActor(self._make, self._settings, ())
        for call in self._inside:
            call.cancel()

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)

    def send(self, name: str, *arguments: Any) -> asyncio.Future[Any]:
        self.sent.append(name)
        # As of Ray, a call goes on when whoever waits for its answer is cancelled; and an answer may find nobody.
        call = asyncio.ensure_future(self._call(name, pickle.dumps(arguments)))
        call.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return asyncio.shield(call)

    async def _call(self, name: str, sent: bytes) -> Any:
        await asyncio.sleep(self.delay())
        self._require_there()
        actor = self.actor
        call = asyncio.ensure_future(getattr(actor, name)(*pickle.loads(sent)))
        self._inside.add(call)
        try:
            answer = pickle.dumps(await call)
        except asyncio.CancelledError:
            self._require_the_same(actor)
            raise
        finally:
            self._inside.discard(call)
        await asyncio.sleep(self.delay())
        self._require_the_same(actor)
        return pickle.loads(answer)

    def _require_there(self) -> None:
        if not self.there:
            raise self.error()

    def _require_the_same(self, actor: BarrierActor) -> None:
        if actor is not self.actor:
            raise self.error()

    async def host(self) -> LeaseHost:
        return await self.actor._host()


def barrier_here(
    *,
    longest_hold: float | None = None,
    patience: float | None = 5.0,
    make_operations: Callable[[HostedBarrier], Any] = Counting,
) -> tuple[RayBarrier, ActorHere]:
    """A barrier and its actor."""
    actor = ActorHere(Settings("here", LEASE, longest_hold, None, None, 30.0), make_operations)
    return RayBarrier(actor, "here", LEASE, patience), actor


async def _watched(program: Coroutine[Any, Any, None]) -> None:
    """Whatever the loop is told of, such as an error that nobody looked at, fails the test."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    await program
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0)
    assert complaints == [], [context.get("exception", context) for context in complaints]


def with_actors_here(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[pytest.MonkeyPatch], None]:
    """Run the test in virtual time, by which holder and host go, too."""

    def run(monkeypatch: pytest.MonkeyPatch) -> None:
        def now() -> float:
            return asyncio.get_running_loop().time()

        monkeypatch.setattr(sections, "monotonic", now)
        defaults: Any = LeaseHost.__init__.__kwdefaults__
        monkeypatch.setitem(defaults, "clock", now)
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        run_in_virtual_time(_watched(test()))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
