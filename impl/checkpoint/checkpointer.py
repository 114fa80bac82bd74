"""The checkpointer: one window in which everything is read, then a background job that makes it durable.

    begin_save:  the save before has ended → the window: every part is read → the trainer's state is copied → returns
    background:  files written and published on one writer thread → `publish` → old ones removed → the next save

Once the window is over nothing the caller does stops the publication: cancelling `begin_save` (it ends once the trainer
is copied), dropping the pending save and cancelling `durable` all leave it running, and the end of `asyncio.run` waits
for what is being written. How it fails is raised by `durable()`, or, if nobody asks, by the next save or by `close()`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from ..barrier import UNSET, CheckpointBarrier, Unset
from ..errors import CheckpointNotFound, UsageError
from ..run.accounts import AccountsSnapshot
from ..store.checkpoint_store import CheckpointStore, Draft
from ..store.files import Files
from ..store.lock import WriterIdentity
from ..store.manifest import AcceptedDataset, Identity, Kind
from ..store.posix_files import PosixFiles
from ..store.retention import UNNAMED
from ..waiting import wait_shielded
from .artifacts import bind_to_loader, check_savable, identity_of, identity_with_steps, name_run
from .capture import Anchor, Captured, CapturedTrainer, read_cut
from .participants import (
    BufferPart,
    CountersPart,
    HeldCounters,
    LedgerPart,
    NoPool,
    Participants,
    PoolPart,
    SamplerPart,
    StatePart,
)
from .pending import CheckpointInfo, PendingSave, SaveStatistics, SnapshotSkipped
from .publication import Publication, Written, failure_of
from .refusals import (
    require_choice,
    require_empty,
    require_no_step,
    require_own_directory,
    require_settings,
    require_still,
    require_trainer,
    warn_of_another_life,
)
from .restoring import Expected, Plan, Restored, newest_valid, read_plan
from .save_log import CheckpointerStatistics, SaveLog, report_save
from .trainer_only import TrainerPlan, read_trainer_plan
from .writer_thread import WriterThread

if TYPE_CHECKING:
    from ..trainer.trainer_state import TrainerState

Verify = Literal["off", "sampled", "digest"]


class Checkpointer:
    """Saves a run into a directory and brings it back. Constructible before there is a loop.

    `keep` is how many full saves are kept; `verify` is how the data plane watches committed rows ("off", "sampled",
    "digest"). `files`, `executor` and `identity` replace the file system, the writer thread (None: the loop's default
    executor) and the source of names. `attach` comes before anything else.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        barrier: CheckpointBarrier,
        keep: int = 3,
        verify: Verify = "sampled",
        files: Files | None = None,
        *,
        executor: Executor | Unset | None = UNSET,
        identity: WriterIdentity | None = None,
    ) -> None:
        require_settings(directory, barrier, verify, files, executor, identity)
        self.barrier = barrier
        self.directory = os.path.abspath(os.fspath(directory))
        self._verify = verify
        files = PosixFiles() if files is None else files
        identity = WriterIdentity.of_this_process() if identity is None else identity
        self._store = CheckpointStore(self.directory, files, keep, identity)
        self._writer = WriterThread(executor)
        self._parts: Participants | None = None
        self._identity: Identity | None = None
        # Held from before a window until its checkpoint is durable or has failed: one save in flight.
        self._turn = asyncio.Lock()
        self._background: asyncio.Task[Written] | None = None
        self._newest: str | None = None
        self._anchor: Anchor | None = None
        # Accounts of which every prompt was found to be handed out, by the newest save or restore.
        self._known = AccountsSnapshot.empty()
        self._accepted: tuple[AcceptedDataset, ...] = ()
        # What all saves of the run have in common, over its restores. UNSET: neither saved nor restored anything yet.
        self._run: str | Unset = UNSET
        self._log = SaveLog()
        self._restoring = False
        # How many mutations had ended when the last restore was over.
        self._untouched_since = 0
        # Why no work is accepted: a failed restore, until one succeeds.
        self._unusable: str | None = None
        self._opened = False
        self._closed = False
        self._close_done = False

    # -- set-up ---------------------------------------------------------------------------------------------------

    def attach(
        self,
        *,
        ledger: LedgerPart,
        loader: StatePart,
        sampler: SamplerPart,
        buffer: BufferPart,
        pool: PoolPart | None = None,
        counters: CountersPart | None = None,
        generations: int | None = None,
        recovery: bool = True,
        accept_dataset: bool = False,
    ) -> None:
        """Name the parts of the run. Refuses at once what a save could not write later.

        `counters` is whoever moves the trainer's version; without it `HeldCounters` are used, which the caller moves
        through `checkpointer.counters`. Without a `pool` an empty one is written, and a checkpoint that holds spares
        is not restored. `generations` is the size of a group, part of the identity. Without `recovery` a save holds
        the trainer and its version alone, and a restore takes up no more. `accept_dataset` says that the content of
        the dataset was changed on purpose, with as many rows as before: checkpoints of before are restored, and each
        manifest from then on names them in `accepted`.
        """
        if self._parts is not None:
            raise UsageError("attach() was called twice. A checkpointer saves one run; make another one for another.")
        counters = HeldCounters() if counters is None else counters
        pool = NoPool() if pool is None else pool
        parts = Participants(ledger, loader, sampler, buffer, counters, generations, recovery, pool, accept_dataset)
        parts.require_good()
        check_savable(sampler, loader, buffer.plane)
        parts.require_barrier(self.barrier)
        bind_to_loader(sampler, loader)
        self._identity = identity_of(loader, sampler, generations)
        self._parts = parts
        name_run(self.barrier.tracer, self._identity, buffer.capacity, recovery)
        if (set_verification := getattr(buffer.plane, "set_verification", None)) is not None:
            set_verification(self._verify)

    @property
    def counters(self) -> CountersPart:
        """Whoever is asked for the trainer's version."""
        return self._attached().counters

    async def prepare(self) -> None:
        """Take the lock of the directory and prove that it can be written, before any work is consumed.

        The first save does it otherwise. Raises StoreBusy naming the other writer, StoreFailed, or
        CheckpointIncompatible if the directory holds another run's checkpoints.
        """
        self._attached()
        async with self._turn:
            self._require_usable()
            await self._open_store()

    # -- saving ---------------------------------------------------------------------------------------------------

    async def begin_save(self, trainer: TrainerState | None = None) -> PendingSave:
        """Take a full save: returns after the window, and after the trainer's state was copied if it is given.

        Between steps only, with no open claim. A second save waits until the first is durable. Raises the error of an
        earlier save that nobody has learnt of, before anything is read.
        """
        require_trainer(trainer)
        pending = await self._begin("full" if self._attached().recovery else "trainer", trainer)
        assert isinstance(pending, PendingSave)
        return pending

    async def begin_snapshot(self) -> PendingSave | SnapshotSkipped:
        """Take a rollout snapshot, at any time: everything but the trainer, claimed groups as ready.

        It belongs to the newest durable full save and is skipped once the trainer is past that.
        """
        return await self._begin("rollout", None)

    async def save(self, trainer: TrainerState | None = None) -> CheckpointInfo:
        """Take a full save and wait until it is durable."""
        return await (await self.begin_save(trainer)).durable()

    async def _begin(self, kind: Kind, trainer: TrainerState | None) -> PendingSave | SnapshotSkipped:
        parts = self._attached()
        self._require_usable()
        clock = asyncio.get_running_loop().time
        asked = clock()
        await self._turn.acquire()
        try:
            self._require_usable()
            self._log.raise_unseen_failure()
            try:
                await self._open_store()
                queued = clock()
                async with self.barrier.checkpoint() as cut:
                    opened = clock()
                    captured = read_cut(self.barrier, parts, cut, kind, self._anchor, clock, self._store.next_number())
            except Exception:
                self._log.not_begun()
                raise
            closed = clock()
            if isinstance(captured, SnapshotSkipped):
                self._log.skipped()
                self._turn.release()
                return captured
        except BaseException:
            self._turn.release()
            raise
        # No await from the end of the window to here: turn and capture now pass to the background task.
        draft = self._draft(kind, captured)
        phases = (queued - asked, opened - queued, closed - opened)
        figures = SaveStatistics.of_window(draft.name, kind, phases, captured.seconds, self.barrier.last_window)
        pending = PendingSave(draft.name, draft.step, draft.sequence, figures.window_seconds)
        stamped = getattr(parts.sampler, "stamped", None)
        publication = Publication(self._store, draft, captured, parts.buffer.plane, trainer, self._known, stamped)
        staged = asyncio.get_running_loop().create_future()
        background = publication.run(self._writer, staged, partial(self._note_success, publication, pending, figures))
        self._background = asyncio.create_task(background, name=f"publish-{draft.name}")
        self._background.add_done_callback(lambda task: self._ended(task, publication, pending, figures, staged))
        if trainer is not None:
            # Whoever is cancelled may go on with training, which must not change what is still being copied.
            pending.asked_for = True
            cancellation = await wait_shielded(staged)
            pending.asked_for = False
            if cancellation is not None:
                raise cancellation
            if pending.done and (failure := pending.take_failure()) is not None:
                raise failure
        return pending

    def _draft(self, kind: Kind, captured: Captured | CapturedTrainer) -> Draft:
        assert self._identity is not None
        if isinstance(self._run, Unset):
            self._run = self._store.claim_token
            warn_of_another_life(self.directory, self._store.newest_known)
        return Draft(
            step=captured.counters.step,
            sequence=self._store.take_sequence(),
            kind=kind,
            parent=self._newest,
            anchor=self._anchor.name if kind == "rollout" and self._anchor else None,
            identity=identity_with_steps(self._identity, self._attached().sampler),
            accepted=self._accepted,
            run=self._run,
        )

    def _ended(
        self,
        task: asyncio.Task[Written],
        publication: Publication,
        pending: PendingSave,
        figures: SaveStatistics,
        staged: asyncio.Future[None],
    ) -> None:
        """Settle a save whose background task has ended, and give the turn on.

        A callback, because a task that is cancelled before its first step runs nothing of its own.
        """
        try:
            if (error := failure_of(task, publication.draft.name)) is None:
                self._note_success(publication, pending, figures, task.result())
            elif not pending.done:
                self._log.failed(pending, error, in_doubt=self._store.is_in_doubt(publication.draft.name))
                self.barrier.emit("fail_save", name=publication.draft.name)
        finally:
            self._turn.release()
            if not staged.done():
                staged.set_result(None)
            publication.captured.release(publication.plane)

    def _note_success(
        self, publication: Publication, pending: PendingSave, figures: SaveStatistics, written: Written
    ) -> None:
        """Tell everybody that a checkpoint is durable; where old ones go, before these are gone."""
        if pending.done:
            return
        draft, published, of = publication.draft, written.published, written.published.manifest
        self._newest = draft.name
        if isinstance(publication.captured, Captured):
            self._known = publication.captured.ledger.accounts
        if draft.kind == "full":
            self._anchor = Anchor(draft.name, publication.captured.counters.version)
        info = CheckpointInfo(draft.name, draft.step, draft.sequence, draft.kind, published.bytes, published.notices)
        ended = written.completing(figures)
        # The waiters run later; before the event, so that a tracer that raises cannot keep them waiting.
        self._log.succeeded(pending, info, ended)
        self.barrier.emit("publish", name=of.name, sequence=of.sequence, step=of.step, kind=of.kind, fence=of.fence)
        report_save(self.barrier, ended)

    # -- restoring ------------------------------------------------------------------------------------------------

    async def restore(
        self,
        step: int | None = None,
        load_buffer: bool = True,
        trainer: TrainerState | None = None,
        *,
        trainer_by_hand: bool = True,
    ) -> Restored:
        """Bring the run back to a checkpoint: the newest valid one, or with `step` exactly that one.

        Everything is read and validated before anything is changed. A damaged newest checkpoint is passed over for the
        one before, with a notice in the log and in `Restored.skipped`; one of another run or format is an error.
        `load_buffer=False` gives finished groups back to the ledger, to be generated again. Without a `trainer` the
        caller loads its state by hand from `Restored.trainer`; `trainer_by_hand=False` refuses a checkpoint with one.

        Refused while a section is open, and while the parts hold work of this process, also such as begins while the
        files are read; and where it would give ids again of groups that were given up while they were made. After a
        failed restore this object accepts no work until one succeeds; if it failed while parts were being replaced, the
        barrier is closed for good.
        """
        parts = self._attached()
        require_choice(step, load_buffer, trainer, trainer_by_hand)
        self._require_idle()
        wanted = True if trainer is not None else None if trainer_by_hand else False
        self._restoring = True
        try:
            plan = await self._writer.run(self._reading(parts, step, load_buffer, wanted))
            if plan is None:
                raise CheckpointNotFound(
                    f"there is no checkpoint in {self.directory}. Either the directory is wrong or nothing was saved "
                    "yet; begin a new run, or name the right directory."
                )
            async with self.barrier.checkpoint() as cut:
                # Once more: a pump may have begun while the files were read.
                require_no_step(parts.buffer)
                self._require_no_work(parts)
                plan.put_into_place(self.barrier, parts, cut, trainer)
        except CheckpointNotFound:
            if step is not None:
                self._unusable = f"step {step} was to be restored and is not there"
            raise
        except BaseException as error:
            self._unusable = f"restoring failed: {error!r}"
            raise
        finally:
            self._restoring = False
        self._unusable = None
        self._untouched_since = self.barrier.mutation_version
        self._newest = plan.restored.name
        self._run = plan.run or UNNAMED
        self._anchor = Anchor(plan.anchor, plan.counters.version)
        self._known = plan.ledger.accounts if isinstance(plan, Plan) else AccountsSnapshot.empty()
        self._accepted = plan.accepted
        return plan.restored

    def _reading(
        self, parts: Participants, step: int | None, load_buffer: bool, with_trainer: bool | None
    ) -> Callable[[], Plan | TrainerPlan | None]:
        """What the writer thread is to read for a restore: the run, or without recovery the trainer alone."""
        assert self._identity is not None
        expected = Expected.of(parts, identity_with_steps(self._identity, parts.sampler))
        if parts.recovery:
            return lambda: read_plan(self._store, expected, step, load_buffer, with_trainer=with_trainer)
        return lambda: read_trainer_plan(self._store, expected, step, with_trainer=with_trainer)

    def latest(self) -> CheckpointInfo | None:
        """The newest checkpoint whose manifest and lengths are right; None if there is none at all.

        Reads no files but manifests: only a restore compares digests. Raises CheckpointCorrupt if there are
        checkpoints and none is valid, so that nobody begins from nothing beside a damaged run.
        """
        return newest_valid(self._store)

    # -- the end --------------------------------------------------------------------------------------------------

    def statistics(self) -> CheckpointerStatistics:
        """A snapshot of the figures."""
        plane = self._parts.buffer.plane if self._parts is not None else None
        mode = getattr(plane, "capture_mode", "references")
        return self._log.statistics(in_flight=self._turn.locked(), capture_mode=mode)

    async def close(self) -> None:
        """Wait for the save in flight, give the lock back, and raise a failure that nobody has learnt of.

        No work is accepted from the call on. A wait that was cancelled may be taken up by calling it again.
        """
        self._closed = True
        async with self._turn:
            if not self._close_done:
                # Also when the store is not open: a cancelled `prepare` may still be opening it on the writer thread.
                await self._writer.run(self._store.close)
                self._writer.shut_down()
                self._close_done = True
        self._log.raise_unseen_failure()

    async def __aenter__(self) -> Checkpointer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"While the checkpointer was being closed: {failure!r}")

    # -- refusals -------------------------------------------------------------------------------------------------

    def _attached(self) -> Participants:
        if self._parts is None:
            raise UsageError("the checkpointer does not know the run yet. Call attach(ledger=, loader=, ...) first.")
        return self._parts

    def _require_usable(self) -> None:
        if self._closed:
            raise UsageError(f"the checkpointer of {self.directory} is closed. Make a new one.")
        if self._restoring:
            raise UsageError("a restore is going on. Wait for it; nothing is saved of a run that is half replaced.")
        if self._unusable is not None:
            raise UsageError(
                f"the checkpointer accepts no work, because {self._unusable}. What it would save may not be what was "
                "on disk. Restore successfully first, or build the run anew."
            )

    def _require_idle(self) -> None:
        if self._closed:
            raise UsageError(f"the checkpointer of {self.directory} is closed. Make a new one.")
        if self._restoring or self._turn.locked():
            raise UsageError(
                f"a restore was asked for while another {'restore' if self._restoring else 'save'} is going on. "
                "Nothing was changed; wait for it."
            )
        parts = self._attached()
        require_still(self.barrier, parts.buffer)
        self._require_no_work(parts)

    def _require_no_work(self, parts: Participants) -> None:
        # What a restore has put there and nobody has touched since is not this process's work.
        if self.barrier.mutation_version != self._untouched_since:
            require_empty(parts)

    async def _open_store(self) -> None:
        # Not `self._store.is_open`: a cancelled `prepare` may still be opening it on the writer thread.
        if not self._opened:
            await self._writer.run(self._open_own_store)
            self._opened = True

    def _open_own_store(self) -> None:
        """Open the store unless it holds another run's checkpoints; one job, which no cancellation can halve."""
        self._store.open()
        try:
            accept = self._attached().accept_dataset
            assert self._identity is not None
            here = identity_with_steps(self._identity, self._attached().sampler)
            require_own_directory(self.directory, self._store.newest_known, here, accept)
        except BaseException:
            self._store.close()
            raise
