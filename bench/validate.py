"""Figures of `python -m interleavings validate`: how fast a production trace is followed, and in how much memory.

    python bench/validate.py [--json FILE] [--quick]

The trace is generated, of a run that restarts now and then, so that it can be of any length. Memory is what Python
objects hold after a collection, a tenth of the way into the trace and at its end, in a pass of its own that tracemalloc
slows down. Processor time grows with how many groups are alive at once, so the rate is given for two sizes.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import tracemalloc
from pathlib import Path
from time import process_time

from parts.figures import Row, at_most, only_shown, options_of, reported, truth
from parts.long_trace import LongTrace

from interleavings.correspondence.validation import Validation, validate

EVENTS, QUICK_EVENTS = 1_000_000, 60_000


def memory_along(path: Path) -> list[float]:
    """Kilobytes that are held after every 20,000 events."""
    held: list[float] = []

    def note(result: Validation) -> None:
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0] / 1e3)

    tracemalloc.start()
    validate([path], note)
    tracemalloc.stop()
    return held


def measure(events: int) -> list[Row]:
    """All rows."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="cleancut-bench-") as directory:
        path = Path(directory) / "trace.jsonl"
        written = LongTrace(batch_size=16, lookahead=1).write(path, events)
        begin = process_time()
        result = validate([path])
        seconds = process_time() - begin
        rows += [
            truth(
                f"every one of {written:,} events is accepted", result.verdict == "holds" and result.events == written
            ),
            only_shown("groups alive at once", result.most_alive),
            only_shown("restarts followed and compared with what was saved", result.restores_compared),
            only_shown(f"processor time for {path.stat().st_size / 1e6:.0f} MB (s)", seconds),
            only_shown("a million events (s)", seconds / written * 1e6),
        ]
        held = memory_along(path)
        early, late = held[len(held) // 10], held[-1]
        rows += [
            only_shown("memory held a tenth of the way (KB)", early),
            only_shown("memory held at the end (KB)", late),
            at_most("the end against a tenth of the way", late / early, 1.2),
        ]
        wide = LongTrace(batch_size=256, lookahead=1).write(path, events // 10)
        begin = process_time()
        result = validate([path])
        seconds = process_time() - begin
        rows += [
            truth(f"{wide:,} events with {result.most_alive} groups alive are accepted", result.verdict == "holds"),
            only_shown("with so many, a million events (s)", seconds / wide * 1e6),
        ]
    return rows


def main(arguments: list[str]) -> int:
    options = options_of("What following a production trace costs.").parse_args(arguments)
    events = QUICK_EVENTS if options.quick else EVENTS
    return reported(f"validate, CPython {sys.version.split()[0]}", measure(events), options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
