"""Taking up a trainer without its prompts: what a run without recovery restores.

The trainer's state and version come back; the ledger, the buffer and the loader stay as they are, so the data begins
anew. What was in flight at the save is not recoverable, and that is said: in the log and in `Restored.notice`.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import CheckpointCorrupt, CheckpointIncompatible
from ..store.checkpoint_store import CheckpointStore
from ..store.manifest import AcceptedDataset
from ..store.reader import CheckpointReader
from . import documents as doc
from .checks import Checked, refuse_first, require_whole
from .file_checks import progress_is_of_a_run
from .participants import Counters, Participants
from .restoring import Expected, Restored, accepted_by, newest_readable, read_documents, require_rows, trainer_files
from .validation import check_identity, cursor_of, dropped_of, place_of, shortfalls_of

if TYPE_CHECKING:
    from ..barrier import CheckpointBarrier, Cut
    from ..store.directory import DirectoryReader
    from ..trainer.trainer_state import TrainerState

_log = logging.getLogger("cleancut.checkpointer")


@dataclass(frozen=True, slots=True)
class TrainerPlan:
    """A trainer's state ready to be taken up. `cursor` is where the dispatch cursor was at the save."""

    restored: Restored
    anchor: str
    run: str | None
    fence: int
    counters: Counters
    cursor: int | None
    trainer: DirectoryReader | None
    accepted: tuple[AcceptedDataset, ...]

    def put_into_place(
        self, barrier: CheckpointBarrier, parts: Participants, cut: Cut, trainer: TrainerState | None
    ) -> None:
        """Take the trainer up; see `put_trainer_into_place`."""
        put_trainer_into_place(barrier, parts, cut, self, trainer)


def read_trainer_plan(
    store: CheckpointStore, expected: Expected, step: int | None, *, with_trainer: bool | None
) -> TrainerPlan | None:
    """Choose, read and validate; None if there is no checkpoint at all. On the writer thread; changes nothing.

    A full save and a rollout snapshot serve as well: their trainer is taken up and their prompts are left.
    """
    found = newest_readable(store, step, lambda reader: _plan(store, reader, expected, with_trainer))
    if found is None:
        return None
    plan, skipped = found
    return dataclasses.replace(plan, restored=plan.restored.beside(skipped))


def put_trainer_into_place(
    barrier: CheckpointBarrier, parts: Participants, cut: Cut, plan: TrainerPlan, trainer: TrainerState | None
) -> None:
    """Load the trainer and count its steps; the sampler goes on at the version as a new one does at version 0."""
    cut.require(barrier, exclusive=True)
    try:
        if trainer is not None and plan.trainer is not None:
            trainer.load(plan.trainer)
        version = plan.counters.version
        state = parts.sampler.state()
        if plan.cursor is not None and cursor_of(state) is not None:
            # Nothing is admitted: the next stamp is that of the next step. A sampler that never moves its cursor (-1
            # at every version) keeps it.
            parts.sampler.load_state(dataclasses.replace(state, cursor=min(plan.cursor, version - 1)))
        parts.counters.load(cut, plan.counters)
    except (CheckpointIncompatible, CheckpointCorrupt):
        raise
    except BaseException as error:
        barrier.close(f"taking up the trainer of {plan.restored.name} failed half-way: {error!r}")
        raise
    _log.warning("%s", plan.restored.notice)
    sampler_state = parts.sampler.state()
    barrier.emit(
        "restore",
        name=plan.restored.name,
        sequence=plan.restored.sequence,
        step=plan.restored.step,
        version=plan.counters.version,
        cursor=cursor_of(sampler_state),
        shortfalls=shortfalls_of(sampler_state),
        dropped=dropped_of(sampler_state),
        loader=place_of(parts.loader.state()),
        pending=[],
        ready=[],
        spares=[],
        fence=plan.fence,
    )


def _plan(
    store: CheckpointStore, reader: CheckpointReader, expected: Expected, with_trainer: bool | None
) -> TrainerPlan:
    manifest = reader.manifest
    check_identity(reader.name, manifest.identity, expected.identity, expected.accept_dataset)
    files = reader.reader()
    if manifest.kind == "trainer":
        progress = files.read_document(doc.PROGRESS, doc.ProgressDocument)
        refuse_first(reader.name, progress_is_of_a_run(manifest, progress))
        version, step, cursor = progress.version, progress.step, progress.cursor
        left = "the prompts that were in flight or buffered then were not saved and are not recoverable"
    else:
        documents = read_documents(reader)
        require_whole(Checked(documents, expected.stamped))
        require_rows(reader, documents)
        version, step = documents.trainer.version, documents.trainer.step
        cursor = cursor_of(documents.sampler.state)
        pending, buffered = len(documents.ledger.entries), len(documents.buffer.slots)
        left = f"its prompts, {pending} pending and {buffered} buffered, are not taken up (recovery=True would)"
    reader.verify()
    taken = trainer_files(store, reader, version, with_trainer)
    restored = Restored(
        name=reader.name,
        step=manifest.step,
        sequence=manifest.sequence,
        version=version,
        buffered=0,
        pending=0,
        spares=0,
        skipped=(),
        subtracted=(),
        trainer=None if with_trainer else taken,
        notice=f"{reader.name} was restored without recovery: the trainer goes on at version {version}, {left}, and "
        "the data begins anew.",
    )
    anchor = manifest.anchor or reader.name
    counters, accepted = Counters(version, step), accepted_by(manifest, expected)
    return TrainerPlan(restored, anchor, manifest.run, manifest.fence, counters, cursor, taken, accepted)
