"""Figures of the checkpoint barrier: what a section costs, how soon a cut opens, how a release scales.

    python bench/barrier.py [--json FILE] [--quick]

What is compared is measured in turns inside one run, and the value is the median over all rounds: machines differ, and
single runs by a third. Loops that never wait are measured in processor time, so that what else runs does not count; how
long a save waits is wall time. The peer is a barrier on `asyncio.Condition`, written for this.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from time import perf_counter, process_time

from impl import CheckpointBarrier


class ConditionBarrier:
    """The peer: the same shared and exclusive side, without tokens, queue, limits or statistics."""

    def __init__(self) -> None:
        self._condition = asyncio.Condition()
        self._inside = 0
        self._shut = False

    @asynccontextmanager
    async def mutation(self) -> AsyncIterator[None]:
        async with self._condition:
            while self._shut:
                await self._condition.wait()
            self._inside += 1
        try:
            yield
        finally:
            async with self._condition:
                self._inside -= 1
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


@dataclass(frozen=True)
class Row:
    """One line of the table; without `to_reach` it is there to compare with."""

    figure: str
    value: float
    to_reach: float | None
    ok: bool


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    rounds: int
    pairs: int
    cuts: int
    releases: int


FULL = Effort(rounds=31, pairs=10_000, cuts=300, releases=9)
QUICK = Effort(rounds=15, pairs=2_000, cuts=40, releases=3)


def row(figure: str, value: float, to_reach: float | None = None) -> Row:
    return Row(figure, round(value, 3), to_reach, to_reach is None or value <= to_reach)


# Each loop stands by itself: a call in between would be part of what is measured.


async def lock_pairs(count: int) -> float:
    lock = asyncio.Lock()
    begin = process_time()
    for _ in range(count):
        async with lock:
            pass
    return process_time() - begin


async def mutation_pairs(count: int) -> float:
    barrier = CheckpointBarrier()
    begin = process_time()
    for _ in range(count):
        async with barrier.mutation("bench"):
            pass
    return process_time() - begin


async def nowait_pairs(count: int) -> float:
    barrier = CheckpointBarrier()
    begin = process_time()
    for _ in range(count):
        with barrier.mutation_nowait("bench"):
            pass
    return process_time() - begin


async def peer_pairs(count: int) -> float:
    barrier = ConditionBarrier()
    begin = process_time()
    for _ in range(count):
        async with barrier.mutation():
            pass
    return process_time() - begin


async def uncontended(effort: Effort) -> list[Row]:
    """A pair of enter and exit with nobody else there, against `asyncio.Lock`, which checks nothing."""
    measured: dict[Callable[[int], Awaitable[float]], list[float]] = {
        loop: [] for loop in (lock_pairs, mutation_pairs, nowait_pairs, peer_pairs)
    }
    for _ in range(effort.rounds):
        for loop, seconds in measured.items():
            seconds.append(await loop(effort.pairs))

    def ratio(loop: Callable[[int], Awaitable[float]]) -> float:
        return statistics.median(one / lock for one, lock in zip(measured[loop], measured[lock_pairs], strict=True))

    pair = statistics.median(measured[lock_pairs]) / effort.pairs * 1e9
    return [
        row("asyncio.Lock, uncontended pair (ns)", pair),
        row("mutation(), uncontended pair (x asyncio.Lock)", ratio(mutation_pairs), 3.0),
        row("mutation_nowait(), uncontended pair (x asyncio.Lock)", ratio(nowait_pairs), 2.5),
        row("peer on asyncio.Condition, uncontended pair (x asyncio.Lock)", ratio(peer_pairs)),
    ]


async def write_for_ever(barrier: CheckpointBarrier | ConditionBarrier) -> None:
    while True:
        async with barrier.mutation():
            await asyncio.sleep(0)
        await asyncio.sleep(0)


async def acquire_times(barrier: CheckpointBarrier | ConditionBarrier, writers: int, cuts: int) -> list[float]:
    """From asking for the cut to being inside, among writers that never rest."""
    tasks = [asyncio.create_task(write_for_ever(barrier)) for _ in range(writers)]
    await asyncio.sleep(0)
    times = []
    for _ in range(cuts):
        begin = perf_counter()
        async with barrier.checkpoint():
            times.append(perf_counter() - begin)
        for _ in range(3):
            await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return times


async def among_writers(effort: Effort) -> list[Row]:
    """How long a save waits for its cut when 256 writers are busy."""
    ours = await acquire_times(CheckpointBarrier(), 256, effort.cuts)
    peer = await acquire_times(ConditionBarrier(), 256, max(effort.cuts // 4, 10))
    return [
        row("checkpoint() among 256 writers, p50 (ms)", statistics.median(ours) * 1e3, 2.0),
        row("peer on asyncio.Condition among 256 writers, p50 (ms)", statistics.median(peer) * 1e3),
    ]


async def enter_once(barrier: CheckpointBarrier) -> None:
    async with barrier.mutation():
        pass


async def release_time(waiting: int) -> float:
    """From the end of a cut until every mutation that waited for it has come and gone."""
    barrier = CheckpointBarrier()
    async with barrier.checkpoint():
        with barrier.detached():
            tasks = [asyncio.create_task(enter_once(barrier)) for _ in range(waiting)]
        while barrier.statistics().waiting_mutations < waiting:
            await asyncio.sleep(0)
        gc.collect()
        begin = process_time()
    await asyncio.gather(*tasks)
    return process_time() - begin


async def scaling(effort: Effort) -> list[Row]:
    """Ten times as many waiting mutations: a little over ten times the time, not a hundred times."""
    few, many = [], []
    for _ in range(effort.releases):
        few.append(await release_time(1_000))
        many.append(await release_time(10_000))
    ratio = statistics.median(many) / statistics.median(few)
    return [
        row("1,000 waiting mutations let in and gone (ms)", statistics.median(few) * 1e3),
        row("10,000 against 1,000 waiting mutations (x)", ratio, 15.0),
    ]


async def measure(effort: Effort) -> list[Row]:
    return [*await uncontended(effort), *await among_writers(effort), *await scaling(effort)]


def table(rows: list[Row]) -> str:
    lines = [("figure", "value", "to reach", "ok")]
    for each in rows:
        bound = "" if each.to_reach is None else f"<= {each.to_reach:g}"
        lines.append((each.figure, f"{each.value:g}", bound, "yes" if each.ok else "NO"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Figures of the checkpoint barrier.")
    parser.add_argument("--json", metavar="FILE", help="also write the table as a JSON list")
    parser.add_argument("--quick", action="store_true", help="a few seconds; the values are not for quoting")
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else FULL
    rows = asyncio.run(measure(effort))
    print(f"checkpoint barrier, CPython {sys.version.split()[0]}, medians of {effort.rounds} rounds")
    print(table(rows))
    if options.json:
        try:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump([asdict(each) for each in rows], file, indent=2)
                file.write("\n")
        except OSError as error:
            print(
                f"{options.json} cannot be written: {error.strerror}. Name a file in a directory that exists.",
                file=sys.stderr,
            )
            return 2
    return 0 if all(each.ok for each in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
