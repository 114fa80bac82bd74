"""What recovery costs: the exclusive window with recovery on and off, and the part of each artifact in it.

    python bench/recovery.py [--json FILE] [--quick]

One run with 256 finished groups of three tensors and 256 pending prompts is saved again and again, in turns with
recovery and without; the value is the median of all windows. Without recovery the same window is opened and the
trainer's version is read in it: what is left is the price of the window itself. The ledger and the buffer are kept in
memory in both, since the pumps work on them.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from parts.figures import Row, only_shown, options_of, reported

from impl import (
    CheckpointBarrier,
    Checkpointer,
    InOrderSampler,
    Ledger,
    PromptLoader,
    ReplayBuffer,
    TensorPlane,
)

GROUPS = 256
STEPS_AHEAD = 64
PROMPTS_PER_STEP = 8


class Situation:
    """A run that stands still between two steps: half of what was admitted is finished, the other half pending."""

    def __init__(self, directory: Path, recovery: bool, elements: int) -> None:
        self.barrier = CheckpointBarrier()
        self.ledger = Ledger(self.barrier)
        self.loader = PromptLoader(range(4 * GROUPS), PROMPTS_PER_STEP, seed=0)
        self.sampler = InOrderSampler(lookahead=STEPS_AHEAD)
        self.sampler.bind(PROMPTS_PER_STEP)
        self.plane = TensorPlane()
        self.buffer = ReplayBuffer(self.barrier, 2 * GROUPS, self.plane, self.ledger)
        self.checkpointer = Checkpointer(directory, self.barrier, keep=1, verify="off")
        self.checkpointer.attach(
            ledger=self.ledger, loader=self.loader, sampler=self.sampler, buffer=self.buffer, recovery=recovery
        )
        self._elements = elements

    async def fill(self) -> None:
        for _ in range(2 * GROUPS // PROMPTS_PER_STEP):
            async with self.barrier.mutation() as cut:
                batch = self.loader.next_batch(cut)
                assert batch is not None
                admission = self.ledger.reserve(cut, batch.keys)
                self.ledger.admit(cut, admission, self.sampler.commit_admission(cut))
        for entry in list(self.ledger.entries.values())[:GROUPS]:
            permit = await self.buffer.acquire_permit()
            rows = {name: torch.zeros(8, self._elements) for name in ("tokens", "mask", "logprobs")}
            staged = await self.plane.stage(entry.group, rows)
            async with self.barrier.mutation() as cut:
                self.buffer.reserve(cut, entry.group, entry.key, entry.step, 0, permit)
                self.buffer.commit(cut, entry.group, staged)
            self.ledger.remove_committed(entry.group)


async def measure(saves: int, elements: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="cleancut-bench-") as directory:
        situations = {on: Situation(Path(directory) / str(on), on, elements) for on in (True, False)}
        for situation in situations.values():
            await situation.fill()
        for _ in range(saves):
            for situation in situations.values():
                await situation.checkpointer.save()
        figures = {on: each.checkpointer.statistics().saves for on, each in situations.items()}
        for situation in situations.values():
            await situation.checkpointer.close()
    windows = {on: statistics.median(save.window_seconds for save in each) for on, each in figures.items()}
    rows = [
        only_shown("exclusive window, recovery on, p50 (us)", windows[True] * 1e6),
        only_shown("exclusive window, recovery off, p50 (us)", windows[False] * 1e6),
    ]
    for artifact in figures[True][0].artifacts:
        seconds = statistics.median(save.artifacts[artifact] for save in figures[True])
        rows.append(only_shown(f"of it, recovery on: {artifact}, p50 (us)", seconds * 1e6))
    seconds = statistics.median(save.artifacts["trainer"] for save in figures[False])
    rows.append(only_shown("of it, recovery off: trainer, p50 (us)", seconds * 1e6))
    return rows


def main(arguments: list[str]) -> int:
    options = options_of("The exclusive window with recovery on and off.").parse_args(arguments)
    saves, elements = (5, 64) if options.quick else (31, 4096)
    rows = asyncio.run(measure(saves, elements))
    megabytes = GROUPS * 3 * 8 * elements * 4 / 1e6
    heading = (
        f"recovery, CPython {sys.version.split()[0]}, {GROUPS} finished groups ({megabytes:.0f} MB), {GROUPS} pending, "
        f"medians of {saves} saves"
    )
    return reported(heading, rows, options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
