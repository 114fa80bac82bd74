"""A trainer that is sharded over processes, as a part of the checkpoint: FSDP2 on gloo, saved by torch's own DCP.

    python examples/sharded_trainer.py DIRECTORY [--ranks 2] [--prompts 64]

Kill it whenever you like and start it again, also with another number of ranks: it goes on from the newest checkpoint.

The controller's process holds no weights. Each rank is a process with two lines to it: one for training, one for
writing, since a save is written while training goes on. Every rank writes its shards into one folder of the checkpoint
by itself; `persist` waits for all of them, and what they wrote is synced, digested and listed with the rest. So the
checkpoint has shards and prompts of one instant, or it is none.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import multiprocessing.connection
import tempfile
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_shards
from torch.distributed.checkpoint.state_dict_saver import save as save_shards
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from impl import (
    CheckpointBarrier,
    Checkpointer,
    CheckpointIncompatible,
    CleancutError,
    Controller,
    ControllerConfig,
    GenerationRequest,
    InOrderSampler,
    PromptLoader,
    TrainBatch,
)
from impl.store import DirectoryReader, DirectoryWriter

WIDTH, GENERATIONS, PROMPTS_PER_STEP = 64, 2, 4
SHARDS, ABOUT = "shards", "sharded.json"
FORMAT = "torch.distributed.checkpoint"

# ------------------------------------------------------------------------------------------- In the process of a rank


class Rank:
    """Its shards of model and optimizer, and the copies of them that are still to be written."""

    def __init__(self, rank: int, ranks: int, meeting_point: str) -> None:
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=ranks, timeout=timedelta(minutes=2)
        )
        # Collectives of training and of writing go on side by side, so each has a group of its own.
        writing = dist.new_group(backend="gloo")
        assert isinstance(writing, dist.ProcessGroup)  # every rank is a member
        self._writing = writing
        self._rank, self._ranks = rank, ranks
        torch.manual_seed(0)
        self._model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1))
        mesh = init_device_mesh("cpu", (ranks,))
        for layer in (*self._model, self._model):
            fully_shard(layer, mesh=mesh)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-2)
        self._staged: dict[int, Any] = {}

    def train(self, rows: torch.Tensor) -> float:
        """One step on this rank's part of the rows; the loss over it."""
        mine = rows.tensor_split(self._ranks)[self._rank]
        loss = (self._model(mine) - mine.sum(dim=1, keepdim=True)).square().mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return float(loss.detach())

    def stage(self, number: int) -> None:
        """Copy the shards; until this has returned nobody trains."""
        self._staged[number] = _copied(self._live())

    def persist(self, number: int, folder: str) -> None:
        """Write the copy, together with all ranks."""
        save_shards(self._staged.pop(number), checkpoint_id=folder, process_group=self._writing)

    def load(self, folder: str) -> None:
        """Take the saved shards, of whatever number of ranks, in place of the live ones."""
        live = self._live()
        load_shards(live, checkpoint_id=folder)
        set_state_dict(self._model, self._optimizer, model_state_dict=live["model"], optim_state_dict=live["optimizer"])

    def weights(self) -> dict[str, list[float]]:
        """All weights, gathered from all ranks."""
        return {name: shard.full_tensor().flatten().tolist() for name, shard in self._model.state_dict().items()}

    def _live(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optimizer": optimizer}


def _copied(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return state.detach().clone()
    if isinstance(state, Mapping):
        return {name: _copied(part) for name, part in state.items()}
    if isinstance(state, list):
        return [_copied(part) for part in state]
    return state


def serve(rank: int, ranks: int, meeting_point: str, training: Connection, writing: Connection) -> None:
    """The whole life of a rank: do what is asked on either line, until that ends."""
    torch.set_num_threads(1)
    me = Rank(rank, ranks, meeting_point)
    threading.Thread(target=_answer, args=(me, writing), name="writing", daemon=True).start()
    _answer(me, training)
    dist.destroy_process_group()


def _answer(rank: Rank, line: Connection) -> None:
    while True:
        try:
            what, arguments = line.recv()
        except EOFError:
            return
        try:
            answer = getattr(rank, what)(*arguments)
        except Exception as error:
            answer = error if isinstance(error, OSError) else RuntimeError(f"{type(error).__name__}: {error}")
        line.send(answer)


# --------------------------------------------------------------------------------------- In the controller's process


class RankFailed(CleancutError):
    """A rank ended, or could not do what it was asked."""


class ShardedTrainer:
    """The ranks, and the `TrainerState` that puts their shards into a checkpoint."""

    def __init__(self, ranks: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.ranks: list[BaseProcess] = []
        self._training: list[Connection] = []
        self._writing: list[Connection] = []
        self._numbers = count()
        self._folder = tempfile.TemporaryDirectory(prefix="ranks-")
        for rank in range(ranks):
            (training, its_training), (writing, its_writing) = context.Pipe(), context.Pipe()
            meeting_point = f"{self._folder.name}/meeting-point"
            process = context.Process(
                target=serve, args=(rank, ranks, meeting_point, its_training, its_writing), daemon=True
            )
            process.start()
            # Here the far ends are closed, so that the end of a rank is the end of its lines.
            its_training.close()
            its_writing.close()
            self.ranks.append(process)
            self._training.append(training)
            self._writing.append(writing)

    async def train(self, batch: TrainBatch) -> None:
        """One step of all ranks."""
        groups = sorted(batch, key=lambda group: group.key)  # arrival is a matter of chance
        rows = torch.cat([torch.as_tensor(group.rows["x"]) for group in groups])
        losses = await asyncio.to_thread(_asked, self._training, "train", rows)
        print(f"step {batch.step}: loss {sum(losses) / len(losses):.4f}", flush=True)

    # -- a TrainerState

    async def stage(self) -> int:
        """Let each rank copy its shards; the number of the copy."""
        number = next(self._numbers)
        await asyncio.to_thread(_asked, self._training, "stage", number)
        return number

    def persist(self, staged: int, writer: DirectoryWriter) -> None:
        """Let each rank write its copy, and wait for all."""
        _asked(self._writing, "persist", staged, writer.folder(SHARDS))
        writer.write_json(ABOUT, {"format": FORMAT, "ranks": len(self.ranks)})

    def load(self, reader: DirectoryReader) -> None:
        """Let each rank read its part, which may be cut otherwise than it was written."""
        about = reader.read_json(ABOUT)
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise CheckpointIncompatible(f"the checkpoint's trainer is {about!r}, and this one reads {FORMAT}.")
        _asked(self._training, "load", reader.folder(SHARDS))

    def weights(self) -> dict[str, list[float]]:
        """All weights, as the first rank has them from all."""
        found: dict[str, list[float]] = _asked(self._training, "weights")[0]
        return found

    def close(self) -> None:
        """Let the ranks end."""
        for line in (*self._writing, *self._training):
            line.close()
        for process in self.ranks:
            process.join(10)
            process.kill()
        self._folder.cleanup()


def _asked(lines: Sequence[Connection], what: str, *arguments: Any) -> list[Any]:
    """Ask every rank, and wait until each has answered; RankFailed names the first that could not."""
    for rank, line in enumerate(lines):
        try:
            line.send((what, arguments))
        except OSError as gone:
            raise RankFailed(f"rank {rank} is gone, so nothing can {what}. Start the run again; it resumes.") from gone
    answers: dict[int, Any] = {}
    while len(answers) < len(lines):
        # Whoever answers first is heard first: when one rank fails the others may wait for it for minutes.
        waiting = {line: rank for rank, line in enumerate(lines) if rank not in answers}
        answered = multiprocessing.connection.wait(waiting)
        for rank in [rank for line, rank in waiting.items() if line in answered]:
            try:
                answers[rank] = lines[rank].recv()
            except (EOFError, OSError) as gone:
                raise RankFailed(
                    f"rank {rank} ended while it was asked to {what}. Start the run again; it resumes."
                ) from gone
            if isinstance(answers[rank], OSError):
                raise answers[rank]
            if isinstance(answers[rank], Exception):
                raise RankFailed(f"rank {rank} could not {what}: {answers[rank]}")
    return [answers[rank] for rank in range(len(lines))]


# --------------------------------------------------------------------------------------------------------- The run


async def generate(request: GenerationRequest) -> Mapping[str, torch.Tensor]:
    """What an engine would: rows that follow from the prompt."""
    seeded = torch.Generator().manual_seed(int(request.prompt))
    return {"x": torch.randn(GENERATIONS, WIDTH, generator=seeded)}


async def run(directory: Path, trainer: ShardedTrainer, prompts: int) -> None:
    """From the newest checkpoint, or from the beginning, to the end of the data."""
    barrier = CheckpointBarrier()
    controller = Controller(
        loader=PromptLoader([str(number) for number in range(prompts)], batch_size=PROMPTS_PER_STEP, seed=0),
        generate=generate,
        train=trainer.train,
        sampler=InOrderSampler(lookahead=0),
        checkpointer=Checkpointer(directory, barrier),
        trainer=trainer,
        config=ControllerConfig(generations=GENERATIONS, capacity=2 * PROMPTS_PER_STEP, save_period=2),
    )
    report = await controller.run()
    print(f"{report.outcome}: {report.trained} prompts trained", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run in this process, with the ranks in theirs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=64)
    options = parser.parse_args(arguments)
    trainer = ShardedTrainer(options.ranks)
    try:
        asyncio.run(run(options.directory, trainer, options.prompts))
    finally:
        trainer.close()


if __name__ == "__main__":
    main()
