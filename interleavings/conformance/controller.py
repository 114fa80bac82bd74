"""The controller of `impl`, driven action by action on a disk in memory and followed by the cut machine."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from impl import (
    CheckpointBarrier,
    Checkpointer,
    CleancutError,
    Controller,
    ControllerConfig,
    InOrderSampler,
    PendingSave,
    PromptLoader,
    WindowedSampler,
)
from impl.ledger import Admission, Phase
from impl.store.lock import WriterIdentity
from spec.cut import IN_ORDER, WINDOWED, CutScope

from ..follower import Coverage
from ..refinement import Prompts, cut_model, follow_cut, owners_of_files
from ..scenarios.fake_disk import FakeDisk
from .driving import FeatureMissing, StepRefused

DIRECTORY = "/checkpoints"


class InlineExecutor(Executor):
    """Runs a job where it is submitted: the writer needs no thread, and a step ends when its work has."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run now; the result is there before anybody asks."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class ImplController:
    """One method an action, on the pumps of a real controller. A save is one call, and takes its cut in one instant."""

    # The library refuses what must not be, an admission at a shut gate for example, and changes nothing.
    refusals = (CleancutError,)

    def __init__(self, **bounds: int) -> None:
        self._scope = scope = CutScope(**bounds)
        if scope.sampler not in (IN_ORDER, WINDOWED):
            raise FeatureMissing("the library has the in-order and the windowed sampler only")
        if scope.spares or scope.borrow:
            raise FeatureMissing("the library has no spare pool yet")
        self._disk = FakeDisk(DIRECTORY)
        self._prompts = Prompts()
        self._tokens = itertools.count()
        self._published: list[str] = []
        self._start()
        # The refinement knows the actions of the plain scopes so far; beyond them only the images are looked at.
        plain = CutScope(scope.batches, scope.batch_size, scope.lookahead, scope.saves, scope.crashes)
        self.followed = scope == plain

    def _start(self) -> None:
        """Begin a process: fresh objects, the same disk."""
        scope = self._scope
        self._follower = follow_cut(cut_model(scope), lambda: self._controller, self._prompts, Coverage())
        barrier = CheckpointBarrier(trace=self._trace)
        sampler: InOrderSampler | WindowedSampler = InOrderSampler(lookahead=scope.lookahead)
        if scope.sampler == WINDOWED:
            sampler = WindowedSampler(staleness=scope.lookahead)
        identity = WriterIdentity("conformance", lambda: str(next(self._tokens)))
        self._controller = Controller(
            loader=PromptLoader(
                [f"prompt {i}" for i in range(scope.prompts_of_an_epoch)], scope.batch_size, 0, epochs=scope.epochs
            ),
            generate=self._generate,
            train=lambda batch: None,
            sampler=sampler,
            checkpointer=Checkpointer(
                DIRECTORY, barrier, files=self._disk, executor=InlineExecutor(), identity=identity
            ),
            config=ControllerConfig(
                stall_warning=None,
                generations=1,
                capacity=scope.capacity,
                save_period=None,
                max_in_flight=scope.in_flight,
                data_retries=scope.retries,
                backoff=0.0,
                remainder="drop" if scope.drop_short else "train",
            ),
        )
        self._finished: dict[int, asyncio.Future[None]] = {}
        self._admission: Admission | None = None
        self._claim: Any = None
        self._save: asyncio.Task[Any] | None = None

    def _trace(self, action: str, /, **fields: Any) -> None:
        self._follower(action, **fields)
        if action == "reserve_batch":
            self._prompts.learn(fields["groups"], fields["keys"])
        if action == "publish":
            self._published.append(fields["name"])

    async def _generate(self, request: Any) -> Mapping[str, Any]:
        import torch

        await self._finished.setdefault(request.group, asyncio.get_running_loop().create_future())
        return {"tokens": torch.zeros(1, 1, dtype=torch.uint8)}

    def _group(self, prompt: int) -> int:
        living = {**self._controller.ledger.entries, **self._controller.buffer.slots}
        for group in living:
            if self._prompts.of_group(group) == prompt:
                return group
        raise StepRefused(f"prompt {prompt} is in no hands here: it is not handed out, or it is trained")

    # -- actions

    async def reserve_batch(self) -> None:
        """The rollout pump takes a batch."""
        self._admission = await self._controller.rollout_pump.reserve_batch()
        self.check()

    async def pass_gate(self) -> None:
        """The rollout pump waits at the gate."""
        await self._controller.rollout_pump.pass_gate(self._pending_admission())

    async def commit_admission(self) -> None:
        """The rollout pump commits the admission that passed."""
        await self._controller.rollout_pump.commit_admission(self._pending_admission())

    async def dispatch(self, prompt: int) -> None:
        """The rollout pump dispatches one group; its generation waits until it is told to end."""
        await self._controller.rollout_pump.dispatch(self._group(prompt))

    async def commit_group(self, prompt: int) -> None:
        """The generation of one group ends; its task commits and removes the ledger's entry."""
        group = self._group(prompt)
        finished = self._finished.setdefault(group, asyncio.get_running_loop().create_future())
        if not finished.done():
            finished.set_result(None)
        while not self._controller.buffer.slots[group].ready:
            await self._controller.buffer.wait_changed()

    async def fail_attempt(self, prompt: int) -> None:
        """The attempt for one group fails; what follows, a retry or the end of the group, its task does by itself."""
        group = self._group(prompt)
        failed = self._finished.pop(group, None) or asyncio.get_running_loop().create_future()
        failed.set_exception(ValueError("the attempt failed"))

    async def evict(self, prompt: int) -> None:
        """The train pump gives up what has become too old, ready or generating."""
        await self._controller.train_pump.give_up_stale()

    abort_stale = evict

    async def empty_step(self) -> None:
        """The train pump passes a step that was shrunk to nothing."""
        await self._controller.train_pump.empty_step()

    async def claim(self) -> None:
        """The train pump opens a step."""
        self._claim = await self._controller.train_pump.claim()

    async def finish_step(self) -> None:
        """The train pump ends the step."""
        if self._claim is None:
            raise StepRefused("no train step is open")
        await self._controller.train_pump.finish_step(self._claim)

    async def request_cut(self) -> None:
        """The train pump saves; the window opens as soon as the slots have ended and closes in the same instant."""
        checkpointer = self._controller._checkpointer
        assert checkpointer is not None
        self._save = asyncio.ensure_future(checkpointer.save())
        await asyncio.sleep(0)

    async def request_snapshot(self) -> None:
        """Any task takes a rollout snapshot."""
        checkpointer = self._controller._checkpointer
        assert checkpointer is not None
        pending = await checkpointer.begin_snapshot()
        if not isinstance(pending, PendingSave):
            self._save = None
            raise StepRefused("the snapshot was skipped: the trainer is past the newest durable full save")
        self._save = asyncio.ensure_future(pending.durable())

    async def publish(self) -> None:
        """The save is durable."""
        if self._save is None:
            raise StepRefused("no save is under way")
        await self._save

    async def crash_and_restore(self, load_buffer: bool = True) -> None:
        """The newest checkpoint is durable, the process is dropped, and a new one starts from the disk."""
        await self.publish()
        await self.close()
        self._start()
        # The machine is followed from an empty run only; from here the images on disk are what is checked.
        self.followed = False
        checkpointer = self._controller._checkpointer
        assert checkpointer is not None
        await checkpointer.restore(load_buffer=load_buffer)
        self._relearn()

    async def crash_and_restore_replay_free(self) -> None:
        """The same, with the buffer left out."""
        await self.crash_and_restore(load_buffer=False)

    def _relearn(self) -> None:
        """Groups keep their ids over a restart; the admission that waits is found in the ledger."""
        for group, entry in self._controller.ledger.entries.items():
            self._prompts.learn([group], [entry.key])
        reserved = [e for e in self._controller.ledger.entries.values() if e.phase is Phase.RESERVED]
        if reserved:
            groups, keys = tuple(e.group for e in reserved), tuple(e.key for e in reserved)
            self._admission = Admission(reserved[0].admission, groups, keys)

    def _pending_admission(self) -> Admission:
        if self._admission is None:
            raise StepRefused("no admission waits; the loader had no batch to reserve")
        return self._admission

    # -- what is checked

    def check(self) -> None:
        """Raise if the implementation has left the machine."""
        if self.followed:
            self._follower.observe()

    def owners_on_disk(self) -> dict[tuple[int, int], list[str]]:
        """From the files of the newest checkpoint."""
        return owners_of_files(self._documents())

    def handed_out(self) -> Sequence[tuple[int, int]]:
        """The keys behind the cursor of the newest checkpoint, in the loader's order."""
        position = self._documents()["loader.json"]["state"]["position"]
        return [key for key, number in self._prompts.known().items() if number < position]

    def _documents(self) -> dict[str, Any]:
        if not self._published:
            raise AssertionError("the counterexample ended and no checkpoint was published")
        return self._disk.documents(f"{DIRECTORY}/{self._published[-1]}")

    async def close(self) -> None:
        """End the generations and give the directory back."""
        await self._controller.generation.close()
        checkpointer = self._controller._checkpointer
        if checkpointer is not None:
            await checkpointer.close()
