"""The controller of `impl`, driven action by action on a disk in memory and followed by the cut machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from impl import CheckpointBarrier, Checkpointer, CleancutError, Controller, ControllerConfig, PendingSave
from impl.run.ledger import Admission
from impl.run.pending_groups import Phase
from spec.machines.cut import CutScope, cut

from ..correspondence.follower import Coverage
from ..correspondence.refinement import (
    BARRIER_EVENTS,
    CUT_EVENTS,
    Prompts,
    Saves,
    cut_model,
    follow_cut,
    owners_of_files,
    restored_state,
)
from ..correspondence.refinement.images import handed_out_count
from ..scenarios.fake_disk import FakeDisk
from ..scenarios.whole_run import DIRECTORY, loader_of, sampler_of, writer_identity
from .driving import TURNS, FeatureMissing, StepRefused, settled
from .running_on import run_on


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

    followed = True

    @staticmethod
    def lacks(action: str) -> bool:
        """The machine has it, and the library neither an event of that name nor, as for a window's end, another way."""
        return action in cut.actions and action not in CUT_EVENTS | BARRIER_EVENTS | {"close_window"}

    def __init__(self, **bounds: int) -> None:
        self._scope = CutScope(**bounds)
        self._model = cut_model(self._scope)
        self._disk = FakeDisk(DIRECTORY)
        self._prompts = Prompts()
        self._identity = writer_identity("conformance")
        self._published: list[str] = []
        self._closed_windows = 0
        # The machine where it publishes the newest checkpoint, and the numbers that the prompts have in that.
        self._at_publication: tuple[Any, Prompts] | None = None
        self._start(None)

    def _start(self, state: Any) -> None:
        """Begin a process: fresh objects, the same disk; followed from `state`, or from an empty run."""
        scope = self._scope
        self._saves = Saves()
        self._follower = follow_cut(
            self._model, scope, lambda: self._controller, self._prompts, Coverage(), saves=self._saves, start=state
        )
        barrier = CheckpointBarrier(trace=self._trace)
        self._controller = Controller(
            loader=loader_of(scope),
            generate=self._generate,
            train=lambda batch: None,
            sampler=sampler_of(scope),
            checkpointer=Checkpointer(
                DIRECTORY, barrier, files=self._disk, executor=InlineExecutor(), identity=self._identity
            ),
            config=ControllerConfig(
                stall_warning=None,
                generations=1,
                capacity=scope.capacity,
                save_period=None,
                max_in_flight=scope.in_flight,
                data_retries=scope.retries,
                backoff=0.0,
                borrow=bool(scope.borrow),
                remainder="drop" if scope.drop_short else "train",
            ),
        )
        self._finished: dict[int, asyncio.Future[None]] = {}
        self._admission: Admission | None = None
        self._claim: Any = None
        self._save: asyncio.Task[Any] | None = None

    def _trace(self, action: str, /, **fields: Any) -> None:
        self._follower(action, **fields)
        self._closed_windows += action == "close_cut"
        if action == "publish":
            self._published.append(fields["name"])

    async def _generate(self, request: Any) -> Mapping[str, Any]:
        import torch

        try:
            await self._told(request.group)
        finally:
            self._finished.pop(request.group, None)
        return {"tokens": torch.zeros(1, 1, dtype=torch.uint8)}

    def _told(self, group: int) -> asyncio.Future[None]:
        """What the attempt of a group waits for: to be told how it ends."""
        return self._finished.setdefault(group, asyncio.get_running_loop().create_future())

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

    async def divert_batch(self) -> None:
        """The rollout pump puts a batch into the spare pool."""
        await self._controller.rollout_pump.divert_batch()

    async def drain_pool(self) -> None:
        """The rollout pump takes a step out of the spare pool, or drops what fills none."""
        self._admission = await self._controller.rollout_pump.drain_pool()

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
        finished = self._told(group)
        if not finished.done():
            finished.set_result(None)
        while not self._controller.buffer.slots[group].ready:
            await self._controller.buffer.wait_changed()
        self.check()

    async def fail_attempt(self, prompt: int) -> None:
        """The attempt for one group fails; its task does by itself what follows: a retry, or a spare, or nobody."""
        group = self._group(prompt)
        self._told(group).set_exception(ValueError("the attempt failed"))

    async def evict(self, prompt: int) -> None:
        """The train pump gives up what has become too old, ready or generating."""
        await self._controller.train_pump.give_up_stale()

    abort_stale = evict

    async def empty_step(self) -> None:
        """The train pump passes a step that was shrunk to nothing."""
        await self._controller.train_pump.empty_step()

    async def claim(self) -> None:
        """The train pump opens a step."""
        parts = self._controller._parts
        # What the rollout pump says when it has ended: nothing more will come.
        dispatched = all(group in parts.buffer.slots for group in parts.ledger.entries)
        parts.fed = parts.loader.exhausted and parts.pool.next is None and dispatched
        self._claim = await self._controller.train_pump.claim()

    async def write_back(self) -> None:
        """The open train step writes derived columns for each of its groups."""
        import torch

        if self._claim is None:
            raise StepRefused("no train step is open")
        async with self._controller.barrier.mutation("advantage_writeback") as cut:
            for group in self._claim.groups:
                columns = {"advantages": torch.zeros(1, 1)}
                self._controller.buffer.write_back(cut, self._claim, group, columns)

    async def finish_step(self) -> None:
        """The train pump ends the step."""
        if self._claim is None:
            raise StepRefused("no train step is open")
        await self._controller.train_pump.finish_step(self._claim)

    async def request_cut(self) -> None:
        """The train pump saves; the window opens as soon as the slots have ended and closes in the same instant."""
        checkpointer = self._controller._checkpointer
        assert checkpointer is not None
        self._save, closed = asyncio.ensure_future(checkpointer.save()), self._closed_windows
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if self._save.done() or self._closed_windows > closed:
                break

    async def request_snapshot(self) -> None:
        """Any task takes a rollout snapshot."""
        checkpointer = self._controller._checkpointer
        assert checkpointer is not None
        self._saves.snapshot = True
        try:
            pending = await checkpointer.begin_snapshot()
            self.check()
        finally:
            self._saves.snapshot = False
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
        self.check()
        if self._at_publication is None:
            raise StepRefused("nothing was published")
        await self.close()
        about_to_publish, self._prompts = self._at_publication
        action = "crash_and_restore" if load_buffer else "crash_and_restore_replay_free"
        self._start(restored_state(self._model, about_to_publish, action))
        checkpointer = self._controller._checkpointer
        assert checkpointer is not None
        self._saves.restore = True
        try:
            await checkpointer.restore(load_buffer=load_buffer)
            self._relearn()
            self.check()
        finally:
            self._saves.restore = False

    async def crash_and_restore_replay_free(self) -> None:
        """The same, with the buffer left out."""
        await self.crash_and_restore(load_buffer=False)

    def _relearn(self) -> None:
        """Groups keep their ids over a restart; the admission that waits is found in the ledger."""
        for owners in (self._controller.ledger.entries, self._controller.buffer.slots):
            for group, owner in owners.items():
                self._prompts.learn([group], [owner.key])
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
        self._follower.observe(self._on_action)

    def _on_action(self, action: str, before: Any) -> None:
        # With publication in the background the image is fixed when its window closes, and so are the numbers in it.
        if action == "close_window":
            self._numbers = self._prompts.copy()
        if action == "publish":
            numbers = self._numbers if self._scope.background else self._prompts.copy()
            self._at_publication = (before, numbers)

    async def run_on(self) -> str | None:
        """Go on to the end of the run; what stands in the way, or None."""
        assert cut.progress is not None
        finished = cut.progress.finished
        return await run_on(
            self, self._model, lambda: self._follower.state, finished, settled, (StepRefused, *self.refusals)
        )

    def owners_on_disk(self) -> dict[tuple[int, int], list[str]]:
        """From the files of the newest checkpoint."""
        return owners_of_files(self._documents())

    def handed_out(self) -> Sequence[tuple[int, int]]:
        """The keys behind the cursor of the newest checkpoint, in the loader's order."""
        return self._prompts.handed_out(handed_out_count(self._documents()))

    def _documents(self) -> dict[str, Any]:
        if not self._published:
            raise FeatureMissing("the counterexample ended and no checkpoint was published, so none was looked at")
        return self._disk.documents(f"{DIRECTORY}/{self._published[-1]}")

    async def close(self) -> None:
        """End the generations and give the directory back."""
        await self._controller.generation.close()
        checkpointer = self._controller._checkpointer
        if checkpointer is not None:
            await checkpointer.close()
