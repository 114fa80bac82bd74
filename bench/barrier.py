"""Figures of the checkpoint barrier: what a section costs, how soon a cut opens, how a release scales.

    python bench/barrier.py [--json FILE] [--quick]

What is compared is measured in turns inside one run, and the value is the median over all rounds: machines differ, and
single runs by a third. Loops that never wait are measured in processor time, so that what else runs does not count; how
long a save waits is wall time.

The peer is a barrier on `asyncio.Condition`, written for this in the usual way: every exit notifies all. One that
notifies only when the last writer has left is shown beside it, because most of the peer's wait for a cut is the crowd
that it wakes. A counter that checks nothing shows how much of a wait is the writers' own tasks. On a busy machine what
takes longer is also interrupted more often, so a ratio of two waits needs a quiet one. trio's rows compare with
`trio.Lock`.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import perf_counter, process_time, thread_time
from typing import Any

import trio
from parts.figures import Row, at_least, at_most, only_shown, options_of, reported

import impl.trio
from impl import CheckpointBarrier
from impl.barrier import BarrierFrontEnd


class ConditionBarrier:
    """The peer: the same shared and exclusive side, without tokens, queue, limits or statistics."""

    def __init__(self) -> None:
        self._condition = asyncio.Condition()
        self._inside = 0
        self._shut = False

    @asynccontextmanager
    async def mutation(self, kind: str = "") -> AsyncIterator[None]:
        async with self._condition:
            while self._shut:
                await self._condition.wait()
            self._inside += 1
        try:
            yield
        finally:
            async with self._condition:
                self._inside -= 1
                self.notify()

    def notify(self) -> None:
        """Wake whoever may wait for the exit of a writer."""
        self._condition.notify_all()

    @asynccontextmanager
    async def checkpoint(self) -> AsyncIterator[None]:
        async with self._condition:
            while self._shut:
                await self._condition.wait()
            self._shut = True
            while self._inside:
                await self._condition.wait()
        try:
            yield
        finally:
            async with self._condition:
                self._shut = False
                self._condition.notify_all()


class ThriftyConditionBarrier(ConditionBarrier):
    """The peer, but the only exit that notifies is the one after which nobody is inside."""

    def notify(self) -> None:
        if not self._inside:
            self._condition.notify_all()


class CounterBarrier:
    """The least that shuts writers out: a counter and futures, and nothing is checked. Shows what the tasks cost."""

    def __init__(self) -> None:
        self._inside = 0
        self._open: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def mutation(self, kind: str = "") -> AsyncIterator[None]:
        while self._open is not None:
            await self._open
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            if self._drained is not None and not self._inside:
                self._drained.set_result(None)

    @asynccontextmanager
    async def checkpoint(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        self._open = loop.create_future()
        if self._inside:
            self._drained = loop.create_future()
            await self._drained
            self._drained = None
        try:
            yield
        finally:
            self._open.set_result(None)
            self._open = None


AnyBarrier = CheckpointBarrier | ConditionBarrier | CounterBarrier


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    rounds: int
    pairs: int
    cuts: int
    releases: int
    turns: int


FULL = Effort(rounds=31, pairs=10_000, cuts=300, releases=9, turns=20_000)
QUICK = Effort(rounds=15, pairs=2_000, cuts=40, releases=3, turns=2_000)


# Each loop stands by itself: a call in between would be part of what is measured.


async def lock_pairs(lock: asyncio.Lock | trio.Lock, count: int) -> float:
    begin = process_time()
    for _ in range(count):
        async with lock:
            pass
    return process_time() - begin


async def mutation_pairs(barrier: BarrierFrontEnd | ConditionBarrier, count: int) -> float:
    begin = process_time()
    for _ in range(count):
        async with barrier.mutation("bench"):
            pass
    return process_time() - begin


async def nowait_pairs(barrier: BarrierFrontEnd, count: int) -> float:
    begin = process_time()
    for _ in range(count):
        with barrier.mutation_nowait("bench"):
            pass
    return process_time() - begin


async def uncontended(effort: Effort) -> list[Row]:
    """A pair of enter and exit with nobody else there, against `asyncio.Lock`, which checks nothing."""
    locks, mutations, immediate, peer = [], [], [], []
    for _ in range(effort.rounds):
        locks.append(await lock_pairs(asyncio.Lock(), effort.pairs))
        mutations.append(await mutation_pairs(CheckpointBarrier(), effort.pairs))
        immediate.append(await nowait_pairs(CheckpointBarrier(), effort.pairs))
        peer.append(await mutation_pairs(ConditionBarrier(), effort.pairs))
    return [
        only_shown("asyncio.Lock, uncontended pair (ns)", statistics.median(locks) / effort.pairs * 1e9),
        at_most("mutation(), uncontended pair (x asyncio.Lock)", ratio(mutations, locks), 3.0),
        at_most("mutation_nowait(), uncontended pair (x asyncio.Lock)", ratio(immediate, locks), 2.5),
        only_shown("peer on asyncio.Condition, uncontended pair (x asyncio.Lock)", ratio(peer, locks)),
        at_least("mutation(), times faster than the peer", ratio(peer, mutations), 2.5),
    ]


def ratio(those: list[float], these: list[float]) -> float:
    """How many times `these` go into `those`, round by round."""
    return statistics.median(that / this for that, this in zip(those, these, strict=True))


async def write_for_ever(barrier: AnyBarrier, number: int) -> None:
    """Hold for 1 to 8 turns and rest for 1 to 5, each writer at a beat of its own.

    In step they would all be outside at once in some turns, and how long a cut takes would be a matter of the phase.
    """
    while True:
        async with barrier.mutation():
            for _ in range(number % 8 + 1):
                await asyncio.sleep(0)
        for _ in range(number % 5 + 1):
            await asyncio.sleep(0)


async def acquire_times(barrier: AnyBarrier, writers: int, cuts: int) -> list[float]:
    """From asking for the cut to being inside, among writers that never rest."""
    tasks = [asyncio.create_task(write_for_ever(barrier, number)) for number in range(writers)]
    await asyncio.sleep(0)
    times = []
    for _ in range(cuts):
        begin = perf_counter()
        async with barrier.checkpoint():
            times.append(perf_counter() - begin)
        for _ in range(20):
            await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return times


async def among_writers(effort: Effort) -> list[Row]:
    """How long a save waits for its cut when 256 writers are busy."""
    ours, peer, thrifty, least = [], [], [], []
    for _ in range(4):
        ours += await acquire_times(CheckpointBarrier(), 256, effort.cuts // 4)
        peer += await acquire_times(ConditionBarrier(), 256, effort.cuts // 4)
        thrifty += await acquire_times(ThriftyConditionBarrier(), 256, effort.cuts // 4)
        least += await acquire_times(CounterBarrier(), 256, effort.cuts // 4)
    p50 = statistics.median(ours)
    return [
        at_most("checkpoint() among 256 writers, p50 (ms)", p50 * 1e3, 2.0),
        only_shown("peer on asyncio.Condition among 256 writers, p50 (ms)", statistics.median(peer) * 1e3),
        at_least("checkpoint() among 256 writers, times faster than the peer", statistics.median(peer) / p50, 5.0),
        only_shown(
            "checkpoint() among 256 writers, times faster than a peer that notifies at the last exit alone",
            statistics.median(thrifty) / p50,
        ),
        only_shown(
            "a counter that checks nothing among 256 writers, times faster than the peer",
            statistics.median(peer) / statistics.median(least),
        ),
    ]


async def enter_once(barrier: CheckpointBarrier) -> None:
    async with barrier.mutation():
        pass


@contextmanager
def timed_callbacks(timed: bool) -> Iterator[list[float]]:
    """Collect the processor time of each callback of asyncio, a step of a task being one; none if not `timed`."""
    times: list[float] = []
    if not timed:
        yield times
        return
    run = asyncio.Handle._run

    def run_and_time(handle: asyncio.Handle) -> None:
        begin = thread_time()
        run(handle)
        times.append(thread_time() - begin)

    asyncio.Handle._run = run_and_time  # type: ignore[method-assign,assignment]
    try:
        yield times
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


async def release_times(waiting: int, timed: bool) -> tuple[float, float]:
    """From the end of a cut until every mutation that waited for it has come and gone; and the longest callback.

    Timing each callback slows all of them down, so the second figure is zero unless it is `timed`.
    """
    barrier = CheckpointBarrier()
    with timed_callbacks(timed) as times:
        async with barrier.checkpoint():
            with barrier.detached():
                tasks = [asyncio.create_task(enter_once(barrier)) for _ in range(waiting)]
            while barrier.statistics().waiting_mutations < waiting:
                await asyncio.sleep(0)
            gc.collect()
            # A step of its own for the release, so that none of the above is timed with it.
            await asyncio.sleep(0)
            times.clear()
            begin = process_time()
        await asyncio.gather(*tasks)
        seconds = process_time() - begin
    return seconds, max(times, default=0.0)


async def scaling(effort: Effort) -> list[Row]:
    """Ten times as many waiting mutations: a little over ten times the time, not a hundred times."""
    few, many, longest = [], [], []
    for _ in range(effort.releases):
        few.append((await release_times(1_000, timed=False))[0])
        many.append((await release_times(10_000, timed=False))[0])
        longest.append((await release_times(10_000, timed=True))[1])
    return [
        only_shown("1,000 waiting mutations let in and gone (ms)", statistics.median(few) * 1e3),
        at_most("10,000 against 1,000 waiting mutations (x)", statistics.median(many) / statistics.median(few), 15.0),
        at_most("10,000 waiting mutations, longest callback of all rounds (ms)", max(longest) * 1e3, 50.0),
    ]


async def count_entries(side: Callable[[], Any], turn: Callable[[], Awaitable[None]], entries: list[int]) -> None:
    while True:
        async with side():
            await turn()
        entries[0] += 1


async def one_turn() -> None:
    await asyncio.sleep(0)


def smaller_share(saves: list[int], writes: list[int]) -> float:
    """Of all entries, in percent, those of the side that had fewer."""
    return 100 * min(saves[0], writes[0]) / (saves[0] + writes[0])


async def tight_loop(effort: Effort) -> list[Row]:
    """Two checkpointers and two mutators that do nothing else: neither side starves."""
    barrier, saves, writes = CheckpointBarrier(), [0], [0]
    tasks = [
        asyncio.create_task(count_entries(side, one_turn, entries))
        for side, entries in ((barrier.checkpoint, saves), (barrier.mutation, writes))
        for _ in range(2)
    ]
    for _ in range(effort.turns):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [
        at_least(
            "tight loop, 2 checkpointers and 2 mutators, smaller side (% of entries)",
            smaller_share(saves, writes),
            30.0,
        )
    ]


# The same on trio.


async def trio_tight_loop(effort: Effort) -> list[Row]:
    """The rule is the same: each side has its part."""
    barrier, saves, writes = impl.trio.CheckpointBarrier(), [0], [0]
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(count_entries, barrier.checkpoint, trio.lowlevel.checkpoint, saves)
            nursery.start_soon(count_entries, barrier.mutation, trio.lowlevel.checkpoint, writes)
        for _ in range(effort.turns):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    return [
        at_least(
            "trio: tight loop, 2 checkpointers and 2 mutators, smaller side (% of entries)",
            smaller_share(saves, writes),
            30.0,
        )
    ]


async def on_trio(effort: Effort) -> list[Row]:
    """No section may cost more than trio's own lock, which goes through the scheduler each time."""
    locks, mutations, immediate = [], [], []
    for _ in range(effort.rounds):
        locks.append(await lock_pairs(trio.Lock(), effort.pairs // 4))
        mutations.append(await mutation_pairs(impl.trio.CheckpointBarrier(), effort.pairs // 4))
        immediate.append(await nowait_pairs(impl.trio.CheckpointBarrier(), effort.pairs // 4))
    return [
        only_shown("trio: trio.Lock, uncontended pair (ns)", statistics.median(locks) / (effort.pairs // 4) * 1e9),
        at_most("trio: mutation(), uncontended pair (x trio.Lock)", ratio(mutations, locks), 1.0),
        at_most("trio: mutation_nowait(), uncontended pair (x trio.Lock)", ratio(immediate, locks), 1.0),
        *await trio_tight_loop(effort),
    ]


async def measure(effort: Effort) -> list[Row]:
    return [
        *await uncontended(effort),
        *await among_writers(effort),
        *await scaling(effort),
        *await tight_loop(effort),
    ]


def main(arguments: list[str]) -> int:
    options = options_of("Figures of the checkpoint barrier.").parse_args(arguments)
    effort = QUICK if options.quick else FULL
    rows = [*asyncio.run(measure(effort)), *trio.run(on_trio, effort)]
    heading = f"checkpoint barrier, CPython {sys.version.split()[0]}, medians of {effort.rounds} rounds"
    return reported(heading, rows, options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
