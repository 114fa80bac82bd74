"""Figures of the store: how long everybody is shut out, how soon a checkpoint is durable and back, what it costs.

    python bench/store.py [--json FILE] [--quick] [--directory DIR]

A buffer of 256 groups of three tensors, eight writers that never rest. What is compared is measured in turns inside one
run, and a ratio is the median over the rounds: disks and machines differ by more than what is measured. DIR is where
checkpoints are written (the temporary directory otherwise); `/dev/shm` shows what is left when a disk costs nothing.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

import torch
from parts.figures import Row, at_least, at_most, only_shown, options_of, reported
from parts.store_peers import (
    save_with_dcp,
    save_with_torch,
    seconds_of_load,
    seconds_of_restore,
    write_digested,
    write_direct,
    write_inside,
    write_raw,
)
from parts.store_situation import Situation, SlowFiles, rows

from impl import TorchTrainerState
from impl.checkpoint.publication import Publication

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Effort:
    """How much is measured. Sizes in bytes."""

    size: int
    large: int
    small: int
    cuts: int
    rounds: int
    slow_saves: int
    many_saves: int
    many_size: int


FULL = Effort(GIB, 4 * GIB, GIB // 4, cuts=500, rounds=5, slow_saves=8, many_saves=200, many_size=64 * MIB)
QUICK = Effort(GIB // 16, GIB // 4, GIB // 64, cuts=100, rounds=3, slow_saves=3, many_saves=20, many_size=4 * MIB)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def windows(effort: Effort, place: Path) -> list[Row]:
    """How long everybody is shut out."""
    run = await Situation(place / "w").fill(effort.size)
    async with run.among_writers():
        found = await run.windows(effort.cuts)
        inside = [await write_inside(run, place / f"inside-{number}") for number in range(max(2, effort.rounds // 2))]
    p50 = statistics.median(found)
    del run
    by_size = {}
    for size in (effort.small, effort.large):
        other = await Situation(place / "w").fill(size)
        async with other.among_writers():
            by_size[size] = statistics.median(await other.windows(effort.cuts))
        del other
    size_text, large, small = f"{effort.size / GIB:g} GiB", f"{effort.large / GIB:g} GiB", f"{effort.small / MIB:g} MiB"
    return [
        at_most(f"window, {size_text}, p50 (ms)", p50 * 1e3, 0.3),
        at_most(f"window, {size_text}, p99 (ms)", percentile(found, 0.99) * 1e3, 0.5),
        at_most(f"window, {large} against {small} (x)", by_size[effort.large] / by_size[effort.small], 2.0),
        at_most("window, 200 ms added to every fsync against none (x)", await slow_disk(effort, place), 2.0),
        at_least(f"window against writing inside it, {size_text} (x shorter)", statistics.median(inside) / p50, 1000.0),
    ]


async def slow_disk(effort: Effort, place: Path) -> float:
    """Windows of whole saves, each on its own run, in turns."""
    medians = []
    runs = [await Situation(place / name, files).fill(effort.many_size) for name, files in
            (("plain", None), ("slow", SlowFiles()))]  # fmt: skip
    found: list[list[float]] = [[], []]
    for _ in range(effort.slow_saves):
        for number, run in enumerate(runs):
            async with run.among_writers():
                pending = await run.checkpointer.begin_save()
                await pending.durable()
            found[number].append(pending.window_seconds)
    for run, seconds in zip(runs, found, strict=True):
        await run.checkpointer.close()
        medians.append(statistics.median(seconds))
    return medians[1] / medians[0]


async def durable(effort: Effort, place: Path) -> list[Row]:
    """From the call to durable, against what else writes the same bytes."""
    run = await Situation(place / "ours").fill(effort.size)
    tensors = {f"{group}/{field}": tensor for group in run.plane.groups()
               for field, tensor in run.plane.rows(group).items()}  # fmt: skip
    peers: dict[str, Callable[[dict[str, torch.Tensor], Path], None]] = {
        "torch.save + fsync": save_with_torch,
        "torch DCP save": save_with_dcp,
        "raw parallel writev + fsync": write_raw,
        "raw parallel writes past the page cache + fsync": write_direct,
        "the same, each byte digested": write_digested,
    }
    ours: list[float] = []
    unasked: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(2):  # after these two the disk space and the pages of an older checkpoint are used again
        await run.checkpointer.save()
    for _ in range(effort.rounds):
        os.sync()
        begin = perf_counter()
        await run.checkpointer.save()
        ours.append(perf_counter() - begin)
        os.sync()
        with mock.patch.object(Publication, "_require_restorable", return_value=None):
            begin = perf_counter()
            await run.checkpointer.save()
            unasked.append(perf_counter() - begin)
        for name, peer in peers.items():
            with tempfile.TemporaryDirectory(dir=place) as fresh:
                os.sync()
                begin = perf_counter()
                peer(tensors, Path(fresh))
                theirs[name].append(perf_counter() - begin)
    await run.checkpointer.close()
    size = f"{effort.size / GIB:g} GiB"

    def ratio(slow: str, fast: list[float]) -> float:
        return statistics.median(one / other for one, other in zip(theirs[slow], fast, strict=True))

    wanted = dict(zip(tuple(peers)[:3], (1.5, 1.2, 0.7), strict=True))
    plain, least, digested = "torch.save + fsync", *tuple(peers)[3:]
    return [
        only_shown(f"save to durable, {size}, digests included (s)", statistics.median(ours)),
        only_shown(
            "save to durable against one that does not ask whether a restore would take it (x)",
            statistics.median(one / other for one, other in zip(ours, unasked, strict=True)),
        ),
        *(only_shown(f"{name}, {size} (s)", statistics.median(seconds)) for name, seconds in theirs.items()),
        *(
            at_least(f"save to durable against {name} (x faster)", ratio(name, ours), bound)
            for name, bound in wanted.items()
        ),
        only_shown(
            "what the disk takes at the least, against torch.save + fsync (x faster)",
            ratio(plain, theirs[least]),
        ),
        only_shown(
            "what disk and digests take at the least, against torch.save + fsync (x faster)",
            ratio(plain, theirs[digested]),
        ),
    ]


async def lateness(until: Awaitable[Any]) -> list[float]:
    """How much later than asked a sleep of one millisecond ends, until something is done."""
    done = asyncio.ensure_future(until)
    found = []
    while not done.done():
        begin = perf_counter()
        await asyncio.sleep(0.001)
        found.append(perf_counter() - begin - 0.001)
    await done
    return found


async def loop_delay(effort: Effort, place: Path) -> list[Row]:
    """What a save does to everybody else on the loop, above a control without one; also with a trainer to be copied."""
    model = torch.nn.Linear(effort.size // 4 // 1024, 1024, bias=False)
    found = []
    for what, trainer in (("a save", None), ("a save with a trainer as large", TorchTrainerState(model))):
        run = await Situation(place / what.replace(" ", "-")).fill(effort.size)
        p99, worst = [], []
        async with run.among_writers():
            for _ in range(effort.rounds):
                begin = perf_counter()
                during = await lateness(run.checkpointer.save(trainer))
                control = await lateness(asyncio.sleep(perf_counter() - begin))
                p99.append(percentile(during, 0.99) - percentile(control, 0.99))
                worst.append(max(during) - max(control))
        await run.checkpointer.close()
        found += [
            at_most(f"loop delay during {what} above a control, p99 (ms)", statistics.median(p99) * 1e3, 10.0),
            at_most(f"loop delay during {what} above a control, worst (ms)", statistics.median(worst) * 1e3, 50.0),
        ]
    return found


def anonymous_bytes() -> int:
    """Memory of this process that is no file's."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon:"))


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The most that was in use inside the block."""
    peak, over = [anonymous_bytes()], threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            peak[0] = max(peak[0], anonymous_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


async def memory(effort: Effort, place: Path) -> list[Row]:
    """What a save takes besides the buffer, also when every group is replaced meanwhile; and over many saves."""
    run = await Situation(place / "memory").fill(effort.size)
    await run.checkpointer.save()
    before = anonymous_bytes()
    with peak_memory() as alone:
        await run.checkpointer.save()
    with peak_memory() as turnover:
        pending = await run.checkpointer.begin_save()
        for group in list(run.plane.groups()):
            staged = await run.plane.stage(group, rows(effort.size))
            async with run.barrier.mutation("bench") as cut:
                run.plane.clear(group)
                run.plane.commit(cut, group, staged)
        await pending.durable()
    await run.checkpointer.close()
    del run
    many = await Situation(place / "many").fill(effort.many_size)
    settled = 0
    for number in range(effort.many_saves):
        await many.checkpointer.save()
        if number == effort.many_saves // 10:
            settled = anonymous_bytes()
    grown = anonymous_bytes() - settled
    await many.checkpointer.close()
    return [
        at_most("extra memory of a save (x the buffer)", (alone[0] - before) / effort.size, 0.25),
        at_most("extra memory of a save, the buffer replaced meanwhile (x the buffer)",
                (turnover[0] - before) / effort.size, 1.25),
        at_most(f"memory grown over {effort.many_saves} saves of {effort.many_size / MIB:g} MiB (MiB)",
                grown / MIB, 16.0),
    ]  # fmt: skip


async def restore(effort: Effort, place: Path) -> list[Row]:
    """Back in memory, every digest compared, against `torch.load`; the files are in the page cache of both.

    Each in a process of its own, as a restart is one. In a process that has loaded before, memory may be taken that is
    mapped already, and whether it is hangs on what was allocated in between: such figures are of the allocator.
    """
    run = await Situation(place / "restore").fill(effort.size)
    await run.checkpointer.save()
    await run.checkpointer.close()
    tensors = {f"{group}/{field}": tensor for group in run.plane.groups()
               for field, tensor in run.plane.rows(group).items()}  # fmt: skip
    save_with_torch(tensors, place)
    del run, tensors
    ours, theirs = [], []
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as fresh:
        for number in range(effort.rounds + 1):
            our = fresh.submit(seconds_of_restore, place / "restore").result()
            their = fresh.submit(seconds_of_load, place).result()
            if number:  # the first pair warms both
                ours.append(our)
                theirs.append(their)
    ratio = statistics.median(their / our for their, our in zip(theirs, ours, strict=True))
    return [
        only_shown(f"restore, {effort.size / GIB:g} GiB, digests checked (s)", statistics.median(ours)),
        only_shown(f"torch.load, {effort.size / GIB:g} GiB (s)", statistics.median(theirs)),
        at_least("restore against torch.load (x as fast)", ratio, 0.8),
    ]


async def artifacts(effort: Effort, place: Path) -> list[Row]:
    """The exclusive window by artifact, and with nothing to read."""
    at: list[tuple[str, float]] = []
    run = await Situation(place / "a", trace=lambda action, /, **_: at.append((action, perf_counter()))).fill(
        effort.small
    )
    spent: dict[str, list[float]] = {}
    for _ in range(effort.cuts):
        at.clear()
        await run.windows(1)
        for (_, begin), (action, end) in pairwise(at):
            if action.startswith("read_") or action == "close_cut":
                name = action.removeprefix("read_") if action != "close_cut" else "data plane, and closing"
                spent.setdefault(name, []).append(end - begin)
    empty = []
    for _ in range(effort.cuts):
        async with run.barrier.checkpoint():
            opened = perf_counter()
        empty.append(perf_counter() - opened)
    return [
        only_shown("exclusive window with recovery off (us)", statistics.median(empty) * 1e6),
        *(
            only_shown(f"exclusive window: {name} (us)", statistics.median(found) * 1e6)
            for name, found in spent.items()
        ),
    ]


async def measure(effort: Effort, place: Path) -> list[Row]:
    found: list[Row] = []
    for part in (windows, durable, loop_delay, memory, restore, artifacts):
        with tempfile.TemporaryDirectory(dir=place) as own:
            found += await part(effort, Path(own))
    return found


def main(arguments: list[str]) -> int:
    parser = options_of("Figures of the store.", "small and short; the values are not for quoting")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="where to write (the temporary directory)")
    options = parser.parse_args(arguments)
    if options.directory is not None and not options.directory.is_dir():
        parser.error(f"{options.directory} is not a directory")
    effort = QUICK if options.quick else FULL
    found = asyncio.run(measure(effort, options.directory or Path(tempfile.gettempdir())))
    heading = f"store, torch {torch.__version__}, {os.cpu_count()} cores, medians of {effort.rounds} rounds"
    return reported(heading, found, options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
