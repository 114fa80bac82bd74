"""Figures of tracing: what an event costs without a tracer and with the JSONL tracer, and how fast a trace is read.

    python bench/tracing.py [--json FILE] [--quick]

Events are emitted in bursts with a pause after each, as a run does; the cost is processor time of the emitting thread,
the median of all bursts. The longest event is the longest that a single one kept the loop, in wall time.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import tracemalloc
from pathlib import Path
from time import perf_counter, thread_time

from parts.figures import Row, only_shown, options_of, reported

from impl import CheckpointBarrier, JsonlTracer, read_trace

BURST = 2_000


def without_tracer(bursts: int) -> float:
    """Seconds an event."""
    barrier = CheckpointBarrier()
    costs = []
    for _ in range(bursts):
        begin = thread_time()
        for group in range(BURST):
            barrier.emit("commit_group", group=group)
        costs.append((thread_time() - begin) / BURST)
    return statistics.median(costs)


async def with_tracer(path: Path, bursts: int) -> tuple[float, float]:
    """Seconds an event, and the longest single one."""
    tracer = JsonlTracer(path)
    barrier = CheckpointBarrier(trace=tracer)
    costs, longest = [], 0.0
    for _ in range(bursts):
        begin = thread_time()
        for group in range(BURST):
            barrier.emit("commit_group", group=group)
        costs.append((thread_time() - begin) / BURST)
        await asyncio.sleep(0.02)
        for group in range(100):
            begin = perf_counter()
            barrier.emit("commit_group", group=group)
            longest = max(longest, perf_counter() - begin)
    tracer.close()
    return statistics.median(costs), longest


def measure(bursts: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="cleancut-bench-") as directory:
        path = Path(directory) / "trace.jsonl"
        cost, longest = asyncio.run(with_tracer(path, bursts))
        begin = perf_counter()
        lines = sum(1 for _ in read_trace(path))
        reading = perf_counter() - begin
        tracemalloc.start()
        for _ in read_trace(path):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        size = path.stat().st_size
    return [
        only_shown("an event without a tracer (ns)", without_tracer(bursts) * 1e9),
        only_shown("an event with JsonlTracer, on the loop (us)", cost * 1e6),
        only_shown("the longest single event, wall (ms)", longest * 1e3),
        only_shown(f"reading {lines:,} lines, {size / 1e6:.0f} MB (s)", reading),
        only_shown("reading, for a million lines (s)", reading / lines * 1e6),
        only_shown("reading, most memory in use (KB)", peak / 1e3),
    ]


def main(arguments: list[str]) -> int:
    options = options_of("What tracing costs.").parse_args(arguments)
    bursts = 20 if options.quick else 500
    heading = f"tracing, CPython {sys.version.split()[0]}, {bursts} bursts of {BURST:,} events"
    return reported(heading, measure(bursts), options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
