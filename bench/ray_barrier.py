"""The barrier on Ray: what a leased slot costs, and how long a killed holder keeps a cut shut.

    python bench/ray_barrier.py [--json FILE] [--quick]

On a local Ray. A slot is asked for, granted and given back over messages, so it is compared with one bare call of an
actor, taken in turns with it, and with a slot of the barrier in one process. For the second figure a process is killed
with SIGKILL inside its slot, and the time from there until a checkpoint opens is divided by the lease: its last
heartbeat came at most a quarter of the lease before the kill.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import statistics
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import ray
from parts.figures import Row, at_most, only_shown, options_of, reported
from parts.ray_holders import Counting, Holder

from impl import CheckpointBarrier
from impl.ray import RayBarrier

HERE = Path(__file__).resolve().parent


async def seconds_of(work: Callable[[], Awaitable[object]]) -> float:
    began = perf_counter()
    await work()
    return perf_counter() - began


async def round_trips(times: int) -> list[Row]:
    barrier, here = RayBarrier.start(Counting), CheckpointBarrier()

    async def slot() -> None:
        async with barrier.mutation():
            pass

    async def slot_with_a_call() -> None:
        async with barrier.mutation() as cut:
            await cut.call("count")

    async def bare_call() -> None:
        await barrier._actor.settings.remote()

    async def slot_in_process() -> None:
        async with here.mutation():
            pass

    kinds = {"slot": slot, "call": slot_with_a_call, "bare": bare_call, "here": slot_in_process}
    for work in kinds.values():
        await work()
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(times):
        for kind, work in kinds.items():
            taken[kind].append(await seconds_of(work))
    ray.kill(barrier._actor)
    p50 = {kind: statistics.median(each) for kind, each in taken.items()}
    p99 = sorted(taken["slot"])[int(0.99 * (times - 1))]
    return [
        only_shown("leased slot, round trip, p50 (ms)", p50["slot"] * 1e3),
        only_shown("leased slot, round trip, p99 (ms)", p99 * 1e3),
        only_shown("leased slot with one operation, p50 (ms)", p50["call"] * 1e3),
        only_shown("bare call of an actor, p50 (ms)", p50["bare"] * 1e3),
        at_most("leased slot against a bare call (x)", p50["slot"] / p50["bare"], 3.0),
        only_shown("slot in one process, p50 (us)", p50["here"] * 1e6),
    ]


async def cut_after_a_kill(lease: float) -> float:
    barrier = RayBarrier.start(Counting, lease=lease)
    holder: Any = ray.remote(Holder).options(num_cpus=0).remote()
    process = await holder.process.remote()
    holder.hold.remote(barrier)
    while (await barrier.statistics()).barrier.active_mutations == 0:
        await asyncio.sleep(0.02)
    # Somewhere between two heartbeats.
    await asyncio.sleep(lease * 0.6)
    os.kill(process, signal.SIGKILL)
    began = perf_counter()
    async with barrier.checkpoint():
        opened = perf_counter() - began
    ray.kill(barrier._actor)
    return opened


async def measure(times: int, leases: tuple[float, ...]) -> list[Row]:
    rows = await round_trips(times)
    for lease in leases:
        opened = await cut_after_a_kill(lease)
        rows.append(only_shown(f"cut opens after a kill, lease {lease:g} s (s)", opened))
        rows.append(at_most(f"of the lease of {lease:g} s (x)", opened / lease, 1.1))
    return rows


def main(arguments: list[str]) -> int:
    options = options_of("The barrier on Ray.", quick="half a minute, most of it the start of Ray").parse_args(
        arguments
    )
    times, leases = (50, (1.0,)) if options.quick else (1_000, (1.0, 2.0, 5.0, 10.0))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), str(HERE)])
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        rows = asyncio.run(measure(times, leases))
    finally:
        ray.shutdown()
    heading = (
        f"the barrier on Ray {ray.__version__}, one machine, CPython {sys.version.split()[0]}, {times} round trips"
    )
    return reported(heading, rows, options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
