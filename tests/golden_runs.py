"""The runs whose checkpoints and traces are kept in tests/golden, and how a fresh process restores each of them.

    python tests/golden_runs.py format-1        writes tests/golden/format-1, which must not be there yet

Everything comes from the public names alone, so that this goes on working while the inside changes. A later format
adds a folder of its own; nobody writes one anew that is there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, is_dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import torch

from impl import (
    CheckpointBarrier,
    Checkpointer,
    Controller,
    ControllerConfig,
    GenerationRequest,
    HeldCounters,
    InOrderSampler,
    JsonlTracer,
    Ledger,
    PendingSave,
    PromptLoader,
    ReadyFirstSampler,
    ReplayBuffer,
    Restored,
    Sampler,
    SparePool,
    TensorPlane,
    TrainBatch,
    WeightFifoSampler,
    WindowedSampler,
    steps,
)
from impl.store import WriterIdentity

GOLDEN = Path(__file__).parent / "golden"
GENERATIONS = 2


class Killed(Exception):
    """Ends the second process in the middle of a train step, so that its last save is one of a run that went on."""


class FolderTrainer:
    """A trainer with a number, tensors of an odd type among them, and a folder that other processes write."""

    value = 0

    async def stage(self) -> int:
        return self.value

    def persist(self, staged: int, writer: Any) -> None:
        writer.write_json("value.json", staged)
        ranks = Path(writer.folder("ranks"))
        (ranks / "step").mkdir()
        for name, data in ((".metadata", b"about"), ("__0_0.distcp", b"a" * 30), ("step/__1_0.distcp", b"b")):
            (ranks / name).write_bytes(data)
        weights = {"w": torch.arange(6.0) + staged, "c": torch.zeros(2, dtype=torch.complex64)}
        writer.write_tensors("weights.safetensors", {**weights, "b": torch.ones(3, dtype=torch.bfloat16)})

    def load(self, reader: Any) -> None:
        assert (Path(reader.folder("ranks")) / ".metadata").read_bytes() == b"about"
        value = reader.read_json("value.json")
        assert reader.read_tensors("weights.safetensors")["w"].tolist() == [float(value + n) for n in range(6)]
        self.value = value


@dataclass
class Parts:
    """One process of a run: what a restore fills."""

    checkpointer: Checkpointer
    sampler: Sampler
    ledger: Ledger
    loader: Any
    pool: SparePool
    buffer: ReplayBuffer
    trainer: FolderTrainer | None
    run: Callable[[], Any]

    async def restore(self, **options: Any) -> Restored:
        """The newest checkpoint, or as `options` say, with the trainer if there is one."""
        return await self.checkpointer.restore(trainer=self.trainer, **options)

    def state(self) -> dict[str, Any]:
        """Everything that a restore has brought back, as JSON has it."""
        slots = {group: slot for group, slot in self.buffer.slots.items() if slot.ready}
        rows = {
            group: {name: [str(t.dtype), t.tolist()] for name, t in self.buffer.plane.rows(group).items()}
            for group in slots
        }
        found = {
            "sampler": _plain(self.sampler.state()),
            "loader": _plain(self.loader.state()),
            "spares": [[*spare.key, spare.payload] for spare in self.pool.spares],
            "ledger": [
                [e.group, *e.key, e.phase.value, e.admission, e.step, e.attempt, e.payload]
                for e in self.ledger.entries.values()
            ],
            "ids": [self.ledger.next_group, self.ledger.next_admission],
            "trained": [list(interval) for interval in self.ledger.accounts.trained],
            "dropped": [[*key, reason] for key, reason in self.ledger.accounts.dropped.items()],
            "slots": [[s.group, *s.key, s.step, s.weight] for s in slots.values()],
            "rows": {str(group): fields for group, fields in rows.items()},
            "version": self.checkpointer.counters.version,  # type: ignore[attr-defined]
            "trainer": None if self.trainer is None else self.trainer.value,
        }
        return dict(json.loads(json.dumps(found)))


def _plain(state: Any) -> Any:
    return asdict(state) if is_dataclass(state) and not isinstance(state, type) else msgspec.to_builtins(state)


# -- runs of the controller


def _controller_parts(
    directory: Path,
    trace: JsonlTracer | None,
    sampler: Sampler,
    *,
    life: str,
    steps_to_do: int,
    snapshots: bool = False,
    with_trainer: bool = False,
    recovery: bool = True,
    spares: int = 3,
    torchdata: bool = False,
) -> Parts:
    """A run in which some rows fail for good, some once, and those that do not are generated in odd turns."""
    barrier = CheckpointBarrier(trace=trace) if trace is not None else CheckpointBarrier()
    checkpointer = Checkpointer(directory, barrier, keep=2, verify="digest", identity=_writer(life))
    trainer = FolderTrainer() if with_trainer else None

    async def generate(request: GenerationRequest) -> Mapping[str, torch.Tensor]:
        index = request.key.index
        # A second attempt takes long, so that a save finds a group with a failure behind it.
        for _ in range(1 + index % 7 if request.attempt == 0 else 250):
            await asyncio.sleep(0)
        if index % 6 == 3:
            raise ValueError(f"row {index} fails")
        if index % 4 == 2 and request.attempt == 0:
            raise ConnectionError(f"row {index} fails once")
        return {
            "tokens": torch.full((GENERATIONS, 2), index, dtype=torch.int64),
            "odd / name": torch.full((GENERATIONS,), index / 4, dtype=torch.bfloat16),
        }

    async def train(batch: TrainBatch) -> None:
        for _ in range(40):
            await asyncio.sleep(0)
        if snapshots:
            pending = await checkpointer.begin_snapshot()
            if (durable := getattr(pending, "durable", None)) is not None:
                await durable()
        if life == "b" and batch.step == steps_to_do:
            raise Killed
        if trainer is not None:
            trainer.value = batch.step + 1

    rows = [f"prompt {number}" for number in range(23)]
    if torchdata:
        from torchdata.stateful_dataloader import StatefulDataLoader

        from impl import Indexed, TorchdataPromptLoader

        dataloader = StatefulDataLoader(Indexed(rows), batch_size=3, shuffle=True, collate_fn=list)
        loader: Any = TorchdataPromptLoader(dataloader, 4, 5, 2)
    else:
        loader = PromptLoader(rows, batch_size=4, seed=5, epochs=2)
    controller = Controller(
        loader=loader,
        generate=generate,
        train=train,
        sampler=sampler,
        checkpointer=checkpointer,
        config=ControllerConfig(
            recovery=recovery, generations=GENERATIONS, max_in_flight=5, max_steps=steps_to_do + (life == "b"),
            spares=spares, save_period=1, data_retries=0, transient_retries=2, backoff=0.0, stall_warning=None,
        ),
        buffer=ReplayBuffer(barrier, 16, TensorPlane(verify="digest")),
        trainer=trainer,
    )  # fmt: skip
    parts = (controller.ledger, loader, controller.pool, controller.buffer)
    return Parts(checkpointer, sampler, *parts, trainer, controller.run)


# -- a run without a controller


def _by_hand_parts(directory: Path, trace: JsonlTracer | None, *, life: str, steps_to_do: int) -> Parts:
    """Prompts that carry payloads of their own, spares among them, and no group size."""
    barrier = CheckpointBarrier(trace=trace) if trace is not None else CheckpointBarrier()
    ledger, sampler, counters = Ledger(barrier), InOrderSampler(lookahead=2), HeldCounters()
    loader = PromptLoader([f"prompt {number}" for number in range(23)], 4, seed=5, epochs=2)
    buffer, pool = ReplayBuffer(barrier, 16, TensorPlane(verify="digest"), ledger), SparePool(ledger)
    sampler.bind(4)
    checkpointer = Checkpointer(directory, barrier, keep=2, verify="digest", identity=_writer(life))
    checkpointer.attach(ledger=ledger, loader=loader, sampler=sampler, buffer=buffer, pool=pool, counters=counters)

    async def drawn(kind: str) -> Any:
        async with barrier.mutation(kind) as cut:
            batch = loader.next_batch(cut)
            assert batch is not None
            payloads = [{"text": prompt, "turns": [1, None, 2.5]} for prompt in batch.prompts]
            return pool.divert(cut, batch, payloads) if kind == "divert" else ledger.reserve(cut, batch.keys, payloads)

    async def admitted() -> None:
        admission = await drawn("reserve")
        await steps.admit(ledger, sampler, admission, 4)
        for group in admission.groups:
            await steps.dispatch(ledger, buffer, group, counters.version)

    async def finish(step: int | None, most: int) -> None:
        waiting = [s.group for s in buffer.slots.values() if not s.ready and (step is None or s.step == step)]
        for group in waiting[:most]:
            await steps.commit(ledger, buffer, group, {"tokens": torch.full((2,), group)})

    async def run() -> None:
        if await steps.resume(checkpointer, sampler) is None:
            await admitted()
            await drawn("divert")
            await checkpointer.save()
        else:
            for admission in steps.pending(ledger):
                await steps.admit(ledger, sampler, admission, 4)
                for group in admission.groups:
                    await steps.dispatch(ledger, buffer, group, counters.version)
        while counters.version < steps_to_do:
            await admitted()
            await finish(counters.version, 4)
            claim = await steps.claim(buffer, sampler, counters.version, loader)
            await steps.finish(buffer, sampler, counters, claim)
            await finish(None, 1)
            await checkpointer.save()
            await finish(None, 1)
            snapshot = await checkpointer.begin_snapshot()
            assert isinstance(snapshot, PendingSave)
            await snapshot.durable()
        await checkpointer.close()

    return Parts(checkpointer, sampler, ledger, loader, pool, buffer, None, run)


def _writer(life: str) -> WriterIdentity:
    tokens = count()
    return WriterIdentity(f"golden {life}", lambda: f"{life}{next(tokens)}")


#: Each of these makes one process of one kind of run, in a directory, with a trace or without.
RUNS: dict[str, Callable[..., Parts]] = {
    "in_order": lambda d, t, **o: _controller_parts(d, t, InOrderSampler(lookahead=2), **o),
    "weight_fifo": lambda d, t, **o: _controller_parts(d, t, WeightFifoSampler(staleness=2), **o),
    "ready_first": lambda d, t, **o: _controller_parts(d, t, ReadyFirstSampler(staleness=2), **o),
    "windowed": lambda d, t, **o: _controller_parts(d, t, WindowedSampler(staleness=1), spares=0, **o),
    "rollout": lambda d, t, **o: _controller_parts(
        d, t, InOrderSampler(lookahead=1), snapshots=True, with_trainer=True, **o
    ),
    "with_trainer": lambda d, t, **o: _controller_parts(d, t, WeightFifoSampler(staleness=1), with_trainer=True, **o),
    "trainer_alone": lambda d, t, **o: _controller_parts(
        d, t, InOrderSampler(lookahead=1), with_trainer=True, recovery=False, spares=0, **o
    ),
    "torchdata": lambda d, t, **o: _controller_parts(d, t, InOrderSampler(lookahead=1), torchdata=True, **o),
    "by_hand": _by_hand_parts,
}


def fresh(kind: str, directory: Path) -> Parts:
    """A process of one kind of run that has done nothing yet."""
    return RUNS[kind](directory, None, life="z", steps_to_do=9)


# -- writing them


def write(kind: str, folder: Path) -> None:
    """Two processes, the second resumed; what every checkpoint that is left brings back goes into expected.json."""
    checkpoints, trace = folder / "checkpoints", folder / "trace.jsonl"
    folder.mkdir(parents=True)
    for life, steps_to_do in (("a", 1), ("b", 3)):
        tracer = JsonlTracer(trace, flush_seconds=0.0)
        with suppress(Killed):
            asyncio.run(RUNS[kind](checkpoints, tracer, life=life, steps_to_do=steps_to_do).run())
        tracer.close()
    (checkpoints / ".LOCK").unlink()
    expected = {path.name: restored_state(kind, checkpoints, path.name) for path in sorted(checkpoints.glob("step_*"))}
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


def restored_state(kind: str, checkpoints: Path, name: str) -> dict[str, Any]:
    """What a fresh process has after a restore from this one checkpoint, and the full save it may be anchored on."""
    manifest = json.loads((checkpoints / name / "manifest.json").read_bytes())
    with tempfile.TemporaryDirectory() as alone:
        for each in filter(None, (name, manifest["anchor"])):
            shutil.copytree(checkpoints / each, Path(alone) / each)

        async def state() -> dict[str, Any]:
            parts = fresh(kind, Path(alone))
            restored = await parts.restore()
            assert restored.name == name, "the newest of the copies"
            return parts.state()

        return asyncio.run(state())


def digests(folder: Path) -> dict[str, str]:
    """The digest of every file below a folder, by its name there."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def main(name: str) -> None:
    """Write all runs of today's format under tests/golden/<name>."""
    target = GOLDEN / name
    if target.exists():
        sys.exit(f"{target} is there already; golden files are never written anew. Choose the name of a new format.")
    logging.disable(logging.WARNING)  # groups fail on purpose
    # Nothing of the machine goes into the files.
    socket.gethostname = lambda: "golden"
    os.getpid = lambda: 1
    random.seed(0)
    torch.manual_seed(0)
    for kind in RUNS:
        write(kind, target / kind)
    lines = "".join(f"{digest}  {file}\n" for file, digest in digests(target).items())
    (target / "SHA256SUMS").write_text(lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
