"""A run that traces itself and is killed: `python tests/traced_child.py DIRECTORY SEED SAMPLER [KILL_AFTER]`.

It resumes from the checkpoints in DIRECTORY if there are any; its trace goes to DIRECTORY/trace.jsonl, written as soon
as the thread gets to it. Generations take unequal time and some fail; rollout snapshots are taken beside full saves.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from controller_runs import Record, new_controller, rows_of
from memory_runs import SAMPLERS

from impl import CheckpointBarrier, Checkpointer, JsonlTracer
from impl.controller import GenerationRequest

PROMPTS = 23
EPOCHS = 2


async def live(directory: Path, seed: int, sampler: str, kill_after: int | None = None) -> None:
    """One life: to the end of the data, or until somebody kills it; with `kill_after`, it does so itself."""
    record = Record()
    tracer = JsonlTracer(directory / "trace.jsonl", flush_seconds=0.0)
    events = 0

    def trace(action: str, /, **fields: object) -> None:
        nonlocal events
        tracer(action, **fields)
        events += 1
        if events == kill_after:
            # As a power cut would: what was traced may be on its way to the disk or not.
            if kill_after % 2:
                tracer.flush()
            os.kill(os.getpid(), 9)

    trace.begin_run = tracer.begin_run  # type: ignore[attr-defined]
    trace.close = tracer.close  # type: ignore[attr-defined]
    barrier = CheckpointBarrier(trace=trace)
    checkpointer = Checkpointer(directory / "checkpoints", barrier)

    async def generate(request: GenerationRequest) -> Mapping[str, torch.Tensor]:
        chance = random.Random(f"{seed}/{request.key}/{request.attempt}")
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        if chance.random() < 0.15:
            raise ConnectionError("now and then") if chance.random() < 0.5 else ValueError("the data")
        if chance.random() < 0.2:
            await checkpointer.begin_snapshot()
        return rows_of(request)

    controller = new_controller(
        None, record, prompts=PROMPTS, batch_size=3, epochs=EPOCHS, sampler=SAMPLERS[sampler](seed % 3),
        generate=generate, checkpointer=checkpointer, save_period=2, max_in_flight=5, data_retries=1,
        load_buffer=seed % 5 != 4, spares=3 * (seed % 2) if sampler != "windowed" else 0, borrow=seed % 4 == 1,
        remainder="drop" if seed % 3 == 2 else "train",
    )  # fmt: skip
    await controller.run()


def main(arguments: list[str]) -> int:
    directory, seed, sampler, *kill = arguments
    asyncio.run(live(Path(directory), int(seed), sampler, int(kill[0]) if kill else None))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
