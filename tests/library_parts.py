"""The real parts of a run, each action called by hand: what the controller's tasks do, without its tasks.

The pumps are the controller's own, method by method. A generation is not a task here but a permit held in a table, so
that a test decides when it ends; the writer thread is a list of jobs, so that a test decides when a save is durable;
and the disk is in memory, so that a crash is a copy of it.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from copy import deepcopy
from typing import Any, TypeVar

import torch
from library_model import Key, Setting, View
from loop_turns import turns
from memory_runs import DIRECTORY, SAMPLERS
from run_situations import HeldExecutor
from store_situations import writer_identity

from impl import Claim, Ledger, Permit, Phase, PromptLoader, ReplayBuffer, SparePool, TensorPlane
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Checkpointer, PendingSave
from impl.controller import (
    ControllerConfig,
    Generation,
    Replacement,
    RolloutPump,
    RunParts,
    SaveFailures,
    SaveSchedule,
    Supervisor,
    TrainPump,
    UserFunction,
)
from impl.run.samplers import StepSampler
from impl.store import DirectoryReader, DirectoryWriter, Handle
from interleavings.scenarios import FakeDisk

T = TypeVar("T")


class FillingDisk(FakeDisk):
    """A disk in memory that is full once it has taken `room` more writes; None: never."""

    room: int | None = None

    def write(self, handle: Handle, data: bytes | bytearray | memoryview) -> None:
        if self.room is not None:
            if self.room == 0:
                raise OSError(errno.ENOSPC, "no space left")
            self.room -= 1
        super().write(handle, data)

    def after_crash(self) -> FillingDisk:
        """What the next process finds; the locks of a process that died are free."""
        found = deepcopy(self)
        found._locked.clear()
        found.room = None
        return found


class WriterByHand(HeldExecutor):
    """Does each job where it is submitted, or, while `holding`, keeps it for `run_all`."""

    def __init__(self) -> None:
        super().__init__()
        self.holding = False

    def submit(self, job: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future = super().submit(job, *arguments, **options)
        if not self.holding:
            self.run_all()
        return future

    def run_all(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


class StepCounter:
    """A trainer whose state is the number of steps it has passed: it must come back as the version that was saved."""

    steps = 0

    async def stage(self) -> int:
        return self.steps

    def persist(self, staged: int, writer: DirectoryWriter) -> None:
        writer.write_json("steps.json", staged)

    def load(self, reader: DirectoryReader) -> None:
        self.steps = int(reader.read_json("steps.json"))  # type: ignore[call-overload]


class HandGeneration(Generation):
    """Generation without tasks: `held` has the permit of each group that generates."""

    def __init__(self, parts: RunParts) -> None:
        super().__init__(parts, UserFunction("generate", print, threads=1, see_out=False), Supervisor())
        self.held: dict[int, Permit] = {}
        self.replacement = Replacement(parts)

    def start(self, group: int, prompt: Any, permit: Permit) -> None:
        self.held[group] = permit
        assert prompt == self._parts.buffer.slots[group].key.index, "a group generates from its own prompt"

    def abort(self, group: int) -> None:
        self.end(group)

    def end(self, group: int) -> None:
        """The attempt is over, however: its permit goes back. Nothing to do for a group that waits without one."""
        permit = self.held.pop(group, None)
        if permit is not None:
            permit.give_back()


class LibraryRun:
    """One process of a run: every part, and the pumps over them. Every coroutine runs to its end in `do`."""

    def __init__(
        self, setting: Setting, disk: FillingDisk, loop: asyncio.AbstractEventLoop, process: int, events: set[str]
    ) -> None:
        self.setting = setting
        self.disk = disk
        self.loop = loop
        self.barrier = CheckpointBarrier(trace=lambda action, /, **fields: events.add(action))
        self.loader = PromptLoader(list(range(setting.length)), setting.whole, 3, setting.epochs)
        sampler = SAMPLERS[setting.sampler](setting.bound)
        assert isinstance(sampler, StepSampler)
        self.sampler = sampler
        self.plane = TensorPlane()
        self.buffer = ReplayBuffer(self.barrier, setting.capacity, self.plane)
        config = ControllerConfig(
            max_in_flight=setting.in_flight,
            remainder="train" if setting.train_remainder else "drop",
            spares=setting.whole if setting.keeps_spares else 0,
            borrow=setting.borrow,
            transient_retries=setting.retries,
            data_retries=setting.retries,
        )
        ledger, pool = Ledger(self.barrier), SparePool()
        self.parts = RunParts(self.barrier, ledger, self.loader, sampler, self.buffer, pool, config)
        self.generation = HandGeneration(self.parts)
        self.rollout = RolloutPump(self.parts, self.generation)
        self.training = TrainPump(
            self.parts,
            UserFunction("train", print, threads=1, see_out=False),
            SaveSchedule(self.parts, None, None, SaveFailures(self.parts)),
            self.generation,
            Supervisor(),
        )
        self.trainer = StepCounter()
        self.writer = WriterByHand()
        self.checkpointer = Checkpointer(
            DIRECTORY,
            self.barrier,
            verify="digest",
            files=disk,
            executor=self.writer,
            identity=writer_identity(f"process {process}"),
        )
        self.checkpointer.attach(
            ledger=ledger,
            loader=self.loader,
            sampler=sampler,
            buffer=self.buffer,
            pool=pool,
            counters=self.parts.progress,
        )
        self.open_claim: Claim | None = None
        self.pending: PendingSave | None = None

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def die(self) -> FillingDisk:
        """The process ends here; what the next one finds. What this one still has to do happens to nobody's disk."""
        found = self.disk.after_crash()
        self.writer.holding = False
        self.writer.run_all()
        self.do(turns())
        return found

    def admission(self, number: int) -> Any:
        return next(a for a in self.parts.ledger.admissions(Phase.RESERVED) if a.id == number)

    async def commit_group(self, group: int) -> bool:
        """The attempt has succeeded: its rows are staged, outside any slot, and committed."""
        self.generation.end(group)
        key = self.buffer.slots[group].key
        staged = await self.plane.stage(group, rows_of(group, key))
        return await self.generation.commit_group(group, staged)

    async def fail_attempt(self, group: int, error: Exception) -> float | None:
        self.generation.end(group)
        return await self.generation.fail_attempt(group, error)

    async def retry(self, group: int) -> None:
        self.generation.held[group] = await self.generation.in_flight.acquire()
        await self.generation.retry(group)

    async def write_back(self, group: int) -> None:
        claim = self.open_claim
        assert claim is not None
        async with self.barrier.mutation("advantage_writeback") as cut:
            self.buffer.write_back(cut, claim, group, {"advantage": torch.ones(2)})
        assert "advantage" in claim.rows(group)

    # -- what is held against the model

    def memory(self) -> View:
        """Every part, read by its public views, in the words of the model; the buffer and permits check themselves."""
        parts = self.parts
        self.generation.in_flight.check()
        self.buffer.statistics()
        state, loader, accounts = self.sampler.state(), self.loader.state(), parts.ledger.accounts
        slots = self.buffer.slots.values()
        entries = parts.ledger.entries.values()
        return {
            "loader": (loader.epoch, loader.position, loader.exhausted),
            "sampler": (state.cursor, {s: n for s, n in state.shortfalls if n}, state.dropped),
            "spares": [tuple(spare.key) for spare in parts.pool.spares],
            "ids": (parts.ledger.next_group, parts.ledger.next_admission),
            "version": parts.progress.version,
            "budgets": {f"{group}/{cause}": n for (group, cause), n in parts.progress._failures.items()},
            "trained": {(i.epoch, index) for i in accounts.trained for index in range(i.first, i.last + 1)},
            "dropped": {tuple(key): reason for key, reason in accounts.dropped.items()},
            "ledger": {
                e.group: (tuple(e.key), e.phase is Phase.ADMITTED, e.admission, e.step, e.attempt) for e in entries
            },
            "slots": {
                s.group: (tuple(s.key), s.step, s.weight, "claimed" if s.claimed else "ready" if s.ready else "unready")
                for s in slots
            },
            "arrived": [slot.group for slot in slots if slot.ready],
            "rows": sorted(self.plane.groups()),
            "free permits": self.buffer.permits,
            "free in-flight permits": self.generation.in_flight.free,
            "gate open": self.sampler.gate_open,
        }

    def wrong_rows(self) -> list[int]:
        """Groups whose rows in the plane are not those that were generated for them."""
        wanted = {slot.group: rows_of(slot.group, slot.key) for slot in self.buffer.slots.values() if slot.ready}
        return [
            group
            for group, rows in wanted.items()
            if self.plane.rows(group).keys() != rows.keys()
            or any(not torch.equal(self.plane.rows(group)[name], rows[name]) for name in rows)
        ]


def image_of(disk: FillingDisk, name: str) -> View:
    """A published checkpoint in the words of the model, read from its JSON files alone."""
    files = {file.removesuffix(".json"): document for file, document in disk.documents(f"{DIRECTORY}/{name}").items()}
    sampler, loader, trainer = files["sampler"]["state"], files["loader"]["state"], files["trainer"]
    accounts = trainer["accounts"]
    return {
        "loader": (loader["epoch"], loader["position"], loader["exhausted"]),
        "sampler": (sampler["cursor"], {s: n for s, n in sampler["shortfalls"] if n}, sampler["dropped"]),
        "spares": [(spare["epoch"], spare["index"]) for spare in files["spares"]["spares"]],
        "ids": (trainer["next_group"], trainer["next_admission"]),
        "version": trainer["version"],
        "budgets": trainer["budgets"],
        "trained": {(i["epoch"], n) for i in accounts["trained"] for n in range(i["first"], i["last"] + 1)},
        "dropped": {(d["epoch"], d["index"]): d["reason"] for d in accounts["dropped"]},
        "ledger": {
            e["group"]: (
                (e["epoch"], e["index"]),
                e["phase"] == "admitted",
                e["admission"],
                e["step"],
                e["attempt"],
            )
            for e in files["ledger"]["entries"]
        },
        "buffer": [(s["group"], (s["epoch"], s["index"]), s["step"], s["weight"]) for s in files["buffer"]["slots"]],
        "permits held": trainer["permits"]["held"],
    }


def rows_of(group: int, key: Key) -> dict[str, torch.Tensor]:
    """Rows that tell the prompt and the group."""
    return {"tokens": torch.tensor([key[0], key[1]]), "group": torch.tensor([group, group])}
