"""Runs of the controller on a disk in memory that trace themselves to a file, cut where a process would have died."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from memory_runs import SAMPLERS, MemoryRun

from impl import JsonlTracer
from impl.checkpoint import SnapshotSkipped
from impl.controller import GenerationRequest
from interleavings.scenarios import FakeDisk

Lines = list[dict[str, Any]]


class _Both:
    """A tracer that hands each event to two, of which the second keeps segments."""

    def __init__(self, one: Callable[..., None], tracer: JsonlTracer) -> None:
        self._one, self._tracer, self.begin_run = one, tracer, tracer.begin_run

    def __call__(self, action: str, /, **fields: object) -> None:
        self._one(action, **fields)
        self._tracer(action, **fields)


class TracedRun(MemoryRun):
    """One process; every event also goes to the trace at `path`. With `chance` generations fail, and save snapshots."""

    def __init__(self, path: Path, disk: FakeDisk | None = None, *, chance: int | None = None, **settings: Any) -> None:
        self._tracer = JsonlTracer(path, flush_seconds=0.0)
        self._chance = chance
        self.trace = _Both(super().trace, self._tracer)  # type: ignore[method-assign]
        super().__init__(disk, **settings)
        checkpointer = self.controller._checkpointer
        assert checkpointer is not None
        self.checkpointer = checkpointer

    async def generates(self, request: GenerationRequest) -> Mapping[str, torch.Tensor]:
        if self._chance is not None:
            chance = random.Random(f"{self._chance}/{request.key}/{request.attempt}")
            self._delays = {request.key.index: chance.choice([1, 4, 12, 50])}
            if chance.random() < 0.4:
                raise ConnectionError if chance.random() < 0.3 else ValueError
            if chance.random() < 0.3:
                pending = await self.checkpointer.begin_snapshot()
                if not isinstance(pending, SnapshotSkipped):
                    await pending.durable()
        rows: Mapping[str, torch.Tensor] = await super().generates(request)
        return rows

    def run_to_the_end(self) -> None:
        """Run, and close the trace."""
        try:
            self.run()
        finally:
            self._tracer.close()


def cut_after(path: Path, publication: int) -> None:
    """Let the process have died right after it published for the n-th time in the newest segment, from 0."""
    lines = path.read_bytes().splitlines(keepends=True)
    start = max(i for i, line in enumerate(lines) if line.startswith(b'{"record":"header"'))
    published = [i for i, line in enumerate(lines) if i > start and b'"action":"publish"' in line]
    path.write_bytes(b"".join(lines[: published[publication] + 1]))


def random_lives(path: Path, sampler: str, seed: int, lives: int = 3) -> None:
    """Several processes of one run with settings drawn from the seed, each but the last cut after some publication."""
    chance = random.Random(f"{sampler}/{seed}")
    stamped = sampler == "in_order"
    settings: dict[str, Any] = {
        "prompts": chance.choice([7, 10, 12]), "batch_size": chance.choice([1, 2, 3]), "epochs": chance.choice([1, 2]),
        "spares": chance.choice([0, 2, 4]) if sampler != "windowed" else 0, "borrow": stamped and chance.random() < 0.7,
        "data_retries": chance.choice([0, 1]), "transient_retries": 1, "remainder": chance.choice(["train", "drop"]),
        "max_in_flight": chance.choice([1, 2, 8]), "save_period": chance.choice([1, 2]),
    }  # fmt: skip
    reach = chance.choice([1, 2])
    if sampler == "windowed":
        # More room than a step needs, so that some grow old in it.
        settings["capacity"] = settings["batch_size"] * chance.choice([1, 3, 4])
        reach = chance.choice([0, 1])
    disk = None
    for life in range(lives):
        run = TracedRun(
            path, disk, chance=seed + life, sampler=SAMPLERS[sampler](reach),
            load_buffer=chance.random() < 0.7, **settings,
        )  # fmt: skip
        run.run_to_the_end()
        if life < lives - 1:
            image = chance.randrange(len(run.images))
            disk = run.images[image].disk
            cut_after(path, image)


def two_lives(path: Path) -> Lines:
    """The trace of a run of two processes, in order, with two steps ahead."""
    settings: dict[str, Any] = {"prompts": 12, "batch_size": 2}
    run = TracedRun(path, sampler=SAMPLERS["in_order"](2), delays=dict.fromkeys(range(0, 12, 2), 15), **settings)
    run.run_to_the_end()
    cut_after(path, 2)
    TracedRun(path, run.images[2].disk, sampler=SAMPLERS["in_order"](2), **settings).run_to_the_end()
    return lines_of(path)


# -- traces as records, to be changed


def lines_of(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, lines: Lines) -> Path:
    """Write the records, numbered anew in each segment: a fault is in what happened, not in how it was counted.

    The clocks go with the lines, whenever the processes really ran.
    """
    number = 0
    for at, line in enumerate(lines):
        if "wall" in line:
            line["monotonic"] = line["wall"] = float(at)
        number = 0 if line["record"] == "header" else number
        if line["record"] == "event":
            line["number"], number = number, number + 1
        elif line["record"] == "end":
            line["events"] = number
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def nth(lines: Lines, action: str, number: int = 0) -> int:
    """The place of the n-th event of an action."""
    return [i for i, line in enumerate(lines) if line.get("action") == action][number]
