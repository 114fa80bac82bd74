"""Situations for tests of the checkpointer: a small run with the real parts, driven by hand."""

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import torch
from loop_turns import turns, until
from store_situations import writer_identity

from impl import Admission, Claim, Ledger, PromptLoader, ReplayBuffer, Spare, SparePool, TensorPlane
from impl.barrier import UNSET, CheckpointBarrier, Unset
from impl.checkpoint import Checkpointer
from impl.run.samplers import InOrderSampler, Sampler
from impl.store import DirectoryReader, DirectoryWriter, Files

#: Reads of one save, in the order in which they must come.
READS = ["read_sampler", "read_loader", "read_pool", "read_buffer", "read_ledger", "read_trainer"]


class Run:
    """Barrier, ledger, loader, in-order sampler, pool, buffer and checkpointer, with one method for each thing they do.

    Prompts are the numbers below `length`. Every event is in `events`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        length: int = 16,
        batch_size: int = 4,
        capacity: int = 64,
        lookahead: int = 7,
        sampler: Sampler | None = None,
        epochs: int = 1,
        seed: int = 3,
        keep: int = 3,
        files: Files | None = None,
        name: str = "a",
        verify: Any = "digest",
        generations: int | None = None,
        pool: bool = True,
        drain_timeout: float | None = None,
        executor: Executor | Unset = UNSET,
        plane: TensorPlane | None = None,
        dataset: list[Any] | None = None,
        accept_dataset: bool = False,
        recovery: bool = True,
    ) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        #: Set by a test whose files let this run die.
        self.died = False
        self.barrier = CheckpointBarrier(trace=self._trace, drain_timeout=drain_timeout)
        self.ledger = Ledger(self.barrier)
        self.loader = PromptLoader(dataset or list(range(length)), batch_size, seed, epochs)
        self.sampler = sampler if sampler is not None else InOrderSampler(lookahead)
        self.plane = TensorPlane() if plane is None else plane
        self.buffer = ReplayBuffer(self.barrier, capacity, self.plane, self.ledger)
        self.pool = SparePool(self.ledger)
        self.sampler.bind(batch_size)
        self.checkpointer = Checkpointer(
            directory,
            self.barrier,
            keep=keep,
            verify=verify,
            files=files,
            executor=executor,
            identity=writer_identity(name),
        )
        self.checkpointer.attach(
            ledger=self.ledger,
            loader=self.loader,
            sampler=self.sampler,
            buffer=self.buffer,
            pool=self.pool if pool else None,
            generations=generations,
            accept_dataset=accept_dataset,
            recovery=recovery,
        )

    def _trace(self, action: str, /, **fields: object) -> None:
        self.events.append((action, fields))

    def actions(self, *wanted: str) -> list[str]:
        """The names of the events so far; with `wanted`, only these."""
        return [action for action, _ in self.events if not wanted or action in wanted]

    @property
    def version(self) -> int:
        """The trainer's version."""
        return self.checkpointer.counters.version  # type: ignore[attr-defined, no-any-return]

    async def reserve(self) -> Admission:
        """Draw the next batch into the ledger."""
        async with self.barrier.mutation("reserve") as cut:
            batch = self.loader.next_batch(cut)
            assert batch is not None
            return self.ledger.reserve(cut, batch.keys)

    async def divert(self) -> tuple[Spare, ...]:
        """Draw the next batch into the spare pool."""
        async with self.barrier.mutation("divert") as cut:
            batch = self.loader.next_batch(cut)
            assert batch is not None
            return self.pool.divert(cut, batch)

    async def admit(self) -> Admission:
        """Draw the next batch and pass it through the gate."""
        admission = await self.reserve()
        async with self.barrier.mutation("admit") as cut:
            step = self.sampler.commit_admission(cut)  # type: ignore[attr-defined]
            self.ledger.admit(cut, admission, step)
        return admission

    async def dispatch(self, *groups: int) -> None:
        """Give admitted groups their slots."""
        for group in groups:
            entry = self.ledger.entries[group]
            permit = await self.buffer.acquire_permit()
            async with self.barrier.mutation("dispatch") as cut:
                self.buffer.reserve(cut, group, entry.key, entry.step, self.version, permit)

    async def commit(self, *groups: int, remove: bool = True) -> None:
        """Finish dispatched groups; with `remove` their ledger entries go too, as they do soon after."""
        for group in groups:
            staged = await self.plane.stage(group, rows_of(group))
            async with self.barrier.mutation("commit") as cut:
                self.buffer.commit(cut, group, staged)
            if remove:
                self.ledger.remove_committed(group)

    async def finish(self, *groups: int) -> None:
        """Dispatch and commit."""
        await self.dispatch(*groups)
        await self.commit(*groups)

    async def claim(self, *groups: int) -> Claim:
        """Open a train step."""
        async with self.barrier.mutation("claim") as cut:
            return self.buffer.claim(cut, groups, self.version)

    async def train(self, claim: Claim) -> None:
        """End the train step."""
        async with self.barrier.mutation("finish") as cut:
            self.buffer.finish(cut, claim)
            self.checkpointer.counters.version += 1  # type: ignore[attr-defined]
            self.sampler.advance(self.version)

    def state(self) -> dict[str, object]:
        """Everything that a checkpoint holds, as plain values: equal for equal runs."""
        return {
            "sampler": self.sampler.state(),
            "loader": self.loader.state(),
            "spares": self.pool.spares,
            "ledger": dict(self.ledger.entries),
            "ids": (self.ledger.next_group, self.ledger.next_admission),
            "trained": self.ledger.accounts.trained,
            "dropped": dict(self.ledger.accounts.dropped),
            "slots": {group: (slot.key, slot.step, slot.weight) for group, slot in self.ready().items()},
            "rows": {
                group: {field: t.tolist() for field, t in self.plane.rows(group).items()} for group in self.ready()
            },
            "version": self.version,
        }

    def ready(self) -> dict[int, Any]:
        """The slots that have rows."""
        return {group: slot for group, slot in self.buffer.slots.items() if slot.ready}


def rows_of(group: int) -> dict[str, torch.Tensor]:
    """Rows that tell which group they are of."""
    return {"tokens": torch.full((3, 2), group), "odd / name": torch.tensor(float(group)).to(torch.bfloat16)}


async def mixed(run: Run) -> Run:
    """Bring a fresh run to a state with every kind of owner: trained, buffered, admitted, reserved, unread.

    Groups 0-3 are trained, 4 and 7 buffered, 5 in flight, 6 admitted, 8-11 reserved, the rest unread.
    """
    first = await run.admit()
    await run.finish(*first.groups)
    await run.train(await run.claim(*first.groups))
    second = await run.admit()
    await run.dispatch(second.groups[1])
    await run.finish(second.groups[3], second.groups[0])
    await run.reserve()
    return run


def documents(
    directory: Path, name: str, without: Collection[str] = ("manifest.json", "manifest.sha256")
) -> dict[str, bytes]:
    """The contents of every file of a checkpoint."""
    root = directory / name
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in without
    }


class HeldExecutor(Executor):
    """Keeps jobs until the test runs them, on the test's own thread: it decides how long a save is being written."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, job: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Keep a job."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(job(*arguments, **options))
            except BaseException as error:
                future.set_exception(error)

        self.jobs.append(run)
        return future

    async def run_next(self) -> None:
        """Wait for the next job, run it, and let the loop see that it has ended."""
        await until(lambda: bool(self.jobs))
        self.jobs.pop(0)()
        await turns()


class NumberTrainer:
    """A trainer whose state is one number, staged when the test says so."""

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.may_stage = asyncio.Event()
        self.may_stage.set()
        self.failure: Exception | None = None
        self.refusal: Exception | None = None
        self.persisted_on: threading.Thread | None = None

    async def stage(self) -> int:
        staged = self.value
        await self.may_stage.wait()
        if self.failure is not None:
            raise self.failure
        return staged

    def persist(self, staged: int, writer: DirectoryWriter) -> None:
        self.persisted_on = threading.current_thread()
        writer.write_json("value.json", staged)

    def load(self, reader: DirectoryReader) -> None:
        value = reader.read_json("value.json")
        if self.refusal is not None:
            raise self.refusal
        assert isinstance(value, int)
        self.value = value


async def saved(directory: Path, **options: Any) -> Run:
    """A run with every kind of owner, saved and closed."""
    run = await mixed(Run(directory, **options))
    await run.checkpointer.save()
    await run.checkpointer.close()
    return run


def forge(directory: Path, member: str, change: Callable[[dict[str, Any]], object], name: str = "step_1-1") -> None:
    """Change a document of a checkpoint as a faulty writer would have: all digests and counts fit afterwards."""
    root = directory / name
    document = json.loads((root / member).read_text())
    change(document)
    data = json.dumps(document).encode()
    (root / member).write_bytes(data)
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["files"][member].update(length=len(data), sha256=hashlib.sha256(data).hexdigest())
    if member == "ledger.json":
        buffer = json.loads((root / "buffer.json").read_text())
        stamp = {"ledger_entries": len(document["entries"]), "ledger_sha256": hashlib.sha256(data).hexdigest()}
        buffer["rows"].update(stamp)
        rest = json.dumps(buffer).encode()
        (root / "buffer.json").write_bytes(rest)
        manifest["files"]["buffer.json"].update(length=len(rest), sha256=hashlib.sha256(rest).hexdigest())
    counts = {
        "ledger.json": ("pending", "entries"),
        "buffer.json": ("buffered", "slots"),
        "spares.json": ("spares",) * 2,
    }
    counted, listed = counts.get(member, ("", ""))
    if isinstance(document.get(listed), list):
        manifest["counts"][counted]["value"] = len(document[listed])
    elif member == "trainer.json":
        trained = sum(each["last"] - each["first"] + 1 for each in document["accounts"]["trained"])
        manifest["counts"]["trained"]["value"] = trained
        manifest["counts"]["dropped"]["value"] = len(document["accounts"]["dropped"])
    whole = json.dumps(manifest).encode()
    (root / "manifest.json").write_bytes(whole)
    (root / "manifest.sha256").write_text(f"{hashlib.sha256(whole).hexdigest()}  manifest.json\n")
