"""One save after its window: the background task, and what the writer thread does with what was captured."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from traceback import clear_frames
from typing import TYPE_CHECKING, Any

from ..errors import CleancutError, DurabilityUnknown, InvariantViolated
from ..store.checkpoint_store import CheckpointStore, Draft, Published
from ..store.manifest import Count
from ..store.staging import StagedDirectory
from .artifacts import write_artifacts, write_progress
from .capture import Captured, CapturedTrainer
from .checks import Checked, Problem, first_problem
from .documents import TRAINER_DIRECTORY
from .file_checks import progress_is_of_a_run
from .pending import SaveStatistics
from .validation import Documents
from .writer_thread import WriterThread

if TYPE_CHECKING:
    from ..rows.plane import DataPlane
    from ..run.accounts import AccountsSnapshot
    from ..trainer.trainer_state import TrainerState

_log = logging.getLogger("cleancut.checkpointer")


@dataclass(frozen=True, slots=True)
class Written:
    """A checkpoint that is durable, and how long it took."""

    published: Published
    stage_seconds: float
    persist_seconds: float

    def completing(self, so_far: SaveStatistics) -> SaveStatistics:
        """The figures of the save, now that all of them are known."""
        return replace(
            so_far,
            stage_seconds=self.stage_seconds,
            persist_seconds=self.persist_seconds,
            bytes=self.published.bytes,
        )


@dataclass(frozen=True, slots=True)
class Publication:
    """A captured instant on its way to the disk."""

    store: CheckpointStore
    draft: Draft
    captured: Captured | CapturedTrainer
    plane: DataPlane
    trainer: TrainerState | None
    known: AccountsSnapshot
    """Accounts of which every prompt was found to be handed out: those of the save or the restore before."""
    stamped: bool | None
    """Whether the sampler stamps."""

    async def run(
        self, writer: WriterThread, staged: asyncio.Future[None], durable: Callable[[Written], None]
    ) -> Written:
        """Copy the trainer's state, then write; `staged` is set in between, when the trainer may go on.

        `durable` is called on the loop where the checkpoint is durable before this ends, since old ones are still to
        be removed. What the writer thread has begun is seen to its end: the capture must not be released while it is
        read.
        """
        loop = asyncio.get_running_loop()
        clock = loop.time
        began = clock()
        # In a list, so that the writer thread can let go of it: to give gigabytes back stops the loop for long.
        copies = [await self.trainer.stage()] if self.trainer is not None else []
        staged.set_result(None)
        copied = clock()

        def tell(published: Published) -> None:
            with suppress(RuntimeError):  # the loop was closed under the save: nobody waits any more
                loop.call_soon_threadsafe(durable, Written(published, copied - began, clock() - copied))

        published = await writer.see_out(lambda: self.write(copies, tell))
        return Written(published, copied - began, clock() - copied)

    def write(self, copies: list[Any], durable: Callable[[Published], None]) -> Published:
        """Write and publish; on the writer thread. What was captured and copied is dropped here, not on the loop."""
        try:
            return self.store.publish(self.draft, lambda staged: self._fill(staged, copies), durable)
        except BaseException as error:
            # Also said here: a program may end before anybody asks what became of the save.
            if isinstance(error, DurabilityUnknown):
                _log.error("checkpoint %s is in doubt: %s", self.draft.name, error)
            elif isinstance(error, Exception):
                _log.error("checkpoint %s was not published: %s", self.draft.name, error)
            else:
                _log.error("%s", _stopped(error, self.draft.name))
            _forget_locals(error)
            raise
        finally:
            copies.clear()
            self._drop_captured()

    def _drop_captured(self) -> None:
        try:
            self.captured.drop()
        except Exception:
            # Neither the reason of a save that failed nor a fault of one that is durable.
            _log.warning("%s: the plane could not let go of what was captured", self.draft.name, exc_info=True)

    def _fill(self, staged: StagedDirectory, copies: list[Any]) -> Mapping[str, Count]:
        if isinstance(self.captured, Captured):
            counts, written = write_artifacts(self.captured, self.draft.identity, staged)
            self._require_restorable(counts, written, staged)
            self.plane.persist(self.captured.rows, staged.writer())
        else:
            counts, progress = write_progress(self.captured, staged)
            manifest = self.draft.manifest(counts, staged.records)
            self._refuse_to_publish(next(progress_is_of_a_run(manifest, progress), None))
        if self.trainer is not None:
            self.trainer.persist(copies.pop(), staged.writer(TRAINER_DIRECTORY))
        return counts

    def _require_restorable(
        self, counts: Mapping[str, Count], written: Mapping[str, Any], staged: StagedDirectory
    ) -> None:
        """Publish nothing that a restore would refuse: retention would remove what it takes for older."""
        assert isinstance(self.captured, Captured)
        documents = Documents(self.draft.name, self.draft.manifest(counts, staged.records), **written)
        checked = Checked(documents, self.stamped, self.known, self.captured.ledger.accounts)
        self._refuse_to_publish(first_problem(checked))

    def _refuse_to_publish(self, problem: Problem | None) -> None:
        if problem is not None:
            raise InvariantViolated(
                f"{self.draft.name} was not published, since no restore would take it: {problem}. The parts of this "
                "run contradict each other: likely causes are a part that is not the one attached, such as a second "
                "buffer or ledger, or a batch that was drawn and not reserved. Those before it are untouched; mend "
                "the program and resume from them."
            )


def _forget_locals(error: BaseException | None) -> None:
    """Let go of what the frames of an error hold: it is kept until somebody asks, and rows and copies must not be."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def failure_of(task: asyncio.Task[Written], name: str) -> BaseException | None:
    """What the background task of a save failed with, as somebody who waits for the checkpoint should see it."""
    if task.cancelled():
        failure = CleancutError(
            f"{name} was not published: its background task was cancelled before anything was written, as the end of "
            "asyncio.run does to every task. Await durable() or close() before the event loop ends."
        )
        _log.error("%s", failure)
        return failure
    error = task.exception()
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return _stopped(error, name)
    return error


def _stopped(error: BaseException, name: str) -> CleancutError:
    return CleancutError(
        f"the program was told to stop ({error!r}) while {name} was being written. Whether it was published shows at "
        "the next restore."
    )
