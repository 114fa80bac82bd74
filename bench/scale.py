"""How states, windows and drains grow: the slopes that docs/scale.md extrapolates from.

    python bench/scale.py [--json FILE] [--quick]

States are counted by the compiled engine in families of scopes that differ in one size; growth is how many times more
states the last step of a family has than the one before. The window is what `begin_save` does while everybody is shut
out, over a buffer of so many finished groups; the drain is from asking for a cut to being inside, among so many writers
that are inside a section for one turn of the loop each.

What is pending is groups in the ledger, with a hundredth of them in the spare pool and as many dropped in the accounts.
Each operation is timed on a hundred prompts more; its growth is what a prompt costs beside the most that are pending,
over what it costs beside the fewest. Taking a spare has no bound: a tenth of a microsecond doubles once the oldest
spare has left the cache of the core.

A save with ranks is one of a trainer whose ranks write a file each from processes of their own, to one disk. All are
medians of wall time.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from time import perf_counter
from typing import Any, TypeVar

import torch
from parts.figures import Row, at_most, only_shown, options_of, reported
from parts.ranks import Ranks

from impl import (
    Batch,
    BufferSnapshot,
    CheckpointBarrier,
    Checkpointer,
    HeldCounters,
    InOrderSampler,
    Key,
    Ledger,
    PromptLoader,
    ReplayBuffer,
    SparePool,
    TensorPlane,
)
from impl.checkpoint import read_cut
from spec.engines.compiled import engine
from spec.machines import MACHINES
from spec.machines.barrier import BarrierScope
from spec.machines.cut import CutScope

CUT = CutScope(batches=2, batch_size=1, lookahead=1, saves=1, crashes=1)
PAIRS = CutScope(batches=2, batch_size=2, lookahead=1, saves=1, crashes=1)
BARRIER = BarrierScope(writers=2, rounds=1, checkpointers=1, cancellations=1)
#: Family, machine, the scope it starts from, the size that grows, and its values.
FAMILIES: tuple[tuple[str, str, Any, str, tuple[int, ...]], ...] = (
    ("batches of 1 prompt", "cut", CUT, "batches", (2, 3, 4, 5, 6, 7)),
    ("prompts a batch, 2 batches", "cut", PAIRS, "batch_size", (1, 2, 3, 4)),
    ("lookahead, 5 batches of 1 prompt", "cut", replace(CUT, batches=5), "lookahead", (0, 1, 2, 3, 4)),
    ("saves, 2 batches of 2 prompts", "cut", PAIRS, "saves", (0, 1, 2, 3, 4)),
    ("crashes, 2 batches of 2 prompts, 2 saves", "cut", replace(PAIRS, saves=2), "crashes", (0, 1, 2, 3)),
    ("failures, 2 batches of 2 prompts", "cut", PAIRS, "failures", (0, 1, 2)),
    ("writers of 1 round", "barrier", BARRIER, "writers", (2, 3, 4, 5, 6, 7)),
    ("checkpoints, 3 writers", "barrier", replace(BARRIER, writers=3), "checkpointers", (1, 2, 3, 4, 5)),
)
GROUPS, WRITERS = (100, 1_000, 10_000, 100_000, 1_000_000), (1, 10, 100, 1_000, 10_000)
ADMITTED_TOGETHER = 10_000
PENDING, TOGETHER, FLAT = (1_000, 10_000, 200_000), 100, 1.3
RANKS, BYTES_OF_A_RANK = (1, 2, 4, 8), 32 << 20


def counted(quick: bool) -> Iterable[Row]:
    """States of each member of each family, and the growth at its end."""
    for name, machine, scope, size, values in FAMILIES:
        states = []
        for value in values[:3] if quick else values:
            found = engine.search(MACHINES[machine], replace(scope, **{size: value}))
            assert found.complete, found.why
            states.append(found.states)
            yield only_shown(f"states, {machine}: {name} = {value}", found.states)
        yield only_shown(f"growth, {machine}: each more of {name} (x)", states[-1] / states[-2])


async def filled(groups: int) -> tuple[CheckpointBarrier, Any]:
    """A run whose buffer holds so many finished groups of one small tensor."""
    barrier = CheckpointBarrier()
    ledger, plane = Ledger(barrier), TensorPlane(verify="off")
    together = min(groups, ADMITTED_TOGETHER)
    loader = PromptLoader(range(groups), together, seed=0)
    sampler = InOrderSampler(lookahead=groups // together)
    sampler.bind(together)
    buffer = ReplayBuffer(barrier, groups, plane, ledger)
    checkpointer = Checkpointer("unused", barrier, verify="off")
    checkpointer.attach(ledger=ledger, loader=loader, sampler=sampler, buffer=buffer)
    rows = {"x": torch.zeros(1)}
    for _ in range(groups // together):
        async with barrier.mutation() as cut:
            batch = loader.next_batch(cut)
            assert batch is not None
            admission = ledger.reserve(cut, batch.keys)
            ledger.admit(cut, admission, sampler.commit_admission(cut))
        for group in admission.groups:
            permit, staged = await buffer.acquire_permit(), await plane.stage(group, rows)
            with barrier.mutation_nowait() as cut:
                entry = ledger.entries[group]
                buffer.reserve(cut, group, entry.key, entry.step, 0, permit)
                buffer.commit(cut, group, staged)
            ledger.remove_committed(group)
    return barrier, checkpointer._attached()


async def windows(quick: bool) -> list[Row]:
    """How long everybody is shut out, by the groups in the buffer."""
    rows, medians = [], []
    for groups in GROUPS[:3] if quick else GROUPS:
        barrier, parts = await filled(groups)
        gc.collect()
        gc.freeze()  # as a run that has been up for a while; a full collection would be the machine's affair
        seconds = []
        for _ in range(5 if groups > 100_000 else 31):
            async with barrier.checkpoint() as cut:
                opened = perf_counter()
                captured: Any = read_cut(barrier, parts, cut, "full", None, perf_counter)
                seconds.append(perf_counter() - opened)
            captured.rows.drop()
            parts.buffer.plane.release(captured.rows)
        gc.unfreeze()
        medians.append(statistics.median(seconds))
        rows.append(only_shown(f"window, {groups:,} groups (ms)", medians[-1] * 1e3))
    rows.append(only_shown("window, growth for the last 10 times more groups (x)", medians[-1] / medians[-2]))
    return rows


Result = TypeVar("Result")


class Pending:
    """A run with so many groups pending, and what one more prompt costs in it."""

    def __init__(self, pending: int) -> None:
        self.pending = pending
        self.barrier = CheckpointBarrier()
        self.ledger = Ledger(self.barrier)
        self.pool = SparePool(self.ledger)
        self.micros: dict[str, list[float]] = {}
        self._next = 0

    async def fill(self) -> None:
        """Every other admission has passed the gate."""
        async with self.barrier.mutation() as cut:
            for number in range(self.pending // TOGETHER):
                admission = self.ledger.reserve(cut, self._fresh())
                if number % 2:
                    self.ledger.admit(cut, admission, number)
            for _ in range(self.pending // TOGETHER // 100):
                self.pool.divert(cut, Batch(self._fresh(), (None,) * TOGETHER, ends_epoch=False))
            for _ in range(self.pending // TOGETHER):
                self.ledger.drop_batch(cut, self._fresh(), "failed")

    async def go_on(self) -> None:
        """A hundred prompts through every operation; afterwards as much is pending as before."""
        ledger, pool, step = self.ledger, self.pool, self._next
        keys, ended, spare, better = (self._fresh() for _ in range(4))
        async with self.barrier.mutation() as cut:
            admission = self._timed("reserve", lambda: ledger.reserve(cut, keys))
            self._timed("admit", lambda: ledger.admit(cut, admission, step))
            groups = self._timed("groups_of_step", lambda: ledger.groups_of_step(step))
            self._timed("drop_batch", lambda: ledger.drop_batch(cut, ended, "remainder"))
            batch = Batch(spare, (None,) * TOGETHER, ends_epoch=False)
            self._timed("divert", lambda: pool.divert(cut, batch))
            taken = self._timed("take_many", lambda: pool.take_many(cut, TOGETHER))
            self._timed("fail_attempt", lambda: [ledger.fail_attempt(cut, group, "transient") for group in groups])
            self._timed(
                "replace",
                lambda: [
                    ledger.replace(cut, group, key, None, step) for group, key in zip(groups, better, strict=True)
                ],
            )
            groups = ledger.groups_of_step(step)
            self._timed("drop", lambda: [ledger.drop(cut, group, "failed") for group in groups])
            admission = ledger.reserve(cut, self._fresh())
            self._timed("remove_committed", lambda: [ledger.remove_committed(group) for group in admission.groups])
            ledger.drop_batch(cut, [one.key for one in taken], "remainder")
            self._timed("snapshot of the accounts", ledger.accounts.snapshot)
        async with self.barrier.checkpoint() as cut:
            self._timed("window", lambda: ledger.snapshot(cut, BufferSnapshot({}, 1)))

    def _fresh(self) -> tuple[Key, ...]:
        self._next += TOGETHER
        return tuple(Key(0, index) for index in range(self._next - TOGETHER, self._next))

    def _timed(self, name: str, call: Callable[[], Result]) -> Result:
        began = perf_counter()
        result = call()
        self.micros.setdefault(name, []).append((perf_counter() - began) * 1e6 / TOGETHER)
        return result


async def beside_pending(quick: bool) -> list[Row]:
    """What an operation costs by what is pending: all but the copy of the window must cost the same."""
    runs = [Pending(pending) for pending in (PENDING[:2] if quick else PENDING)]
    for run in runs:
        await run.fill()
    gc.collect()
    gc.freeze()
    for _ in range(20 if quick else 201):
        # In turns, so that what else the machine does meets all of them.
        for run in runs:
            await run.go_on()
    gc.unfreeze()
    rows, over = [], f"{runs[0].pending:,} to {runs[-1].pending:,} pending"
    for name in runs[0].micros:
        medians = [statistics.median(run.micros[name]) for run in runs]
        if name == "window":
            for run, median in zip(runs, medians, strict=True):
                rows.append(
                    only_shown(f"window, the ledger with {run.pending:,} pending (ms)", median * TOGETHER / 1e3)
                )
            continue
        rows.append(only_shown(f"{name}, a prompt beside {runs[-1].pending:,} pending (µs)", medians[-1]))
        growth, value = f"{name}, growth from {over} (x)", medians[-1] / medians[0]
        bounded = not quick and name != "take_many"
        rows.append(at_most(growth, value, FLAT) if bounded else only_shown(growth, value))
    return rows


async def write_once_each_turn(barrier: CheckpointBarrier) -> None:
    while True:
        async with barrier.mutation():
            await asyncio.sleep(0)


async def drains(quick: bool) -> list[Row]:
    """How long a save waits until the writers have left, by their number."""
    rows, medians = [], []
    for writers in WRITERS[:3] if quick else WRITERS:
        barrier = CheckpointBarrier()
        tasks = [asyncio.create_task(write_once_each_turn(barrier)) for _ in range(writers)]
        await asyncio.sleep(0)
        seconds = []
        for _ in range(31):
            asked = perf_counter()
            async with barrier.checkpoint():
                seconds.append(perf_counter() - asked)
            for _ in range(4):
                await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        medians.append(statistics.median(seconds))
        rows.append(only_shown(f"drain, {writers:,} writers (ms)", medians[-1] * 1e3))
    rows.append(only_shown("drain, growth for the last 10 times more writers (x)", medians[-1] / medians[-2]))
    return rows


async def saves_of_ranks(quick: bool) -> list[Row]:
    """How long a trainer's ranks take to be in a checkpoint, and the window meanwhile, by their number."""
    rows, size = [], 1 << 20 if quick else BYTES_OF_A_RANK
    for number in RANKS[:2] if quick else RANKS:
        ranks = Ranks(number, size)
        windows, durables = [], []
        with tempfile.TemporaryDirectory(dir=".") as directory:
            barrier = CheckpointBarrier()
            checkpointer = Checkpointer(directory, barrier, keep=1)
            sampler = InOrderSampler(lookahead=1)
            sampler.bind(2)
            ledger = Ledger(barrier)
            buffer = ReplayBuffer(barrier, 4, TensorPlane(), ledger)
            loader = PromptLoader(range(8), 2, seed=0)
            checkpointer.attach(ledger=ledger, loader=loader, sampler=sampler, buffer=buffer, counters=HeldCounters())
            for _ in range(2 if quick else 6):
                began = perf_counter()
                pending = await checkpointer.begin_save(ranks)
                await pending.durable()
                durables.append(perf_counter() - began)
                windows.append(pending.window_seconds)
            await checkpointer.close()
        ranks.close()
        # Of the first the ranks are still starting.
        rows.append(only_shown(f"window, {number} ranks (ms)", statistics.median(windows[1:]) * 1e3))
        each = f"{size >> 20} MiB of each"
        rows.append(only_shown(f"durable, {number} ranks, {each} (ms)", statistics.median(durables[1:]) * 1e3))
    return rows


async def measured(quick: bool) -> list[Row]:
    return [
        *await beside_pending(quick),
        *await windows(quick),
        *await drains(quick),
        *await saves_of_ranks(quick),
    ]


def main(arguments: list[str]) -> int:
    options = options_of(
        "How states, windows and drains grow.", "the small members; the values are not for quoting"
    ).parse_args(arguments)
    rows = [*counted(options.quick), *asyncio.run(measured(options.quick))]
    heading = f"scale, CPython {sys.version.split()[0]}, torch {torch.__version__}"
    return reported(heading, rows, options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
