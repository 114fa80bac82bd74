"""Bringing a run back: choose a checkpoint, read and validate all of it, then replace every part in one section.

Choosing and reading run on the writer thread and change nothing. A checkpoint whose bytes are damaged is passed over
for the one before, with a notice; one that is whole and does not fit is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from cleancut_leaf.words import none_valid

from ..errors import CheckpointCorrupt, CheckpointDamaged, CheckpointIncompatible, CheckpointNotFound
from ..keys import Key
from ..loaders.dataset_identity import same_dataset
from ..rows.index import ROWS_INDEX, rows_index
from ..run.slots import Slot
from ..run.spare_pool import Spare
from ..store.catalogue import Candidate, Catalogue, Skipped
from ..store.checkpoint_store import CheckpointStore
from ..store.manifest import AcceptedDataset, Identity, Manifest
from ..store.reader import CheckpointReader, MemberReader
from . import documents as doc
from .checks import Checked, refuse_first, require_whole
from .file_checks import anchor_has_the_trainer, rows_are_indexed
from .ledger_documents import ledger_snapshot, spares_of
from .participants import Counters, NoPool, Participants
from .pending import CheckpointInfo
from .refusals import require_no_late_results
from .validation import (
    Documents,
    as_pending,
    check_identity,
    cursor_of,
    dropped_of,
    place_of,
    rebuilt_state,
    require_place_for_spares,
    shortfalls_of,
    without_buffered,
)

if TYPE_CHECKING:
    from ..barrier import CheckpointBarrier, Cut
    from ..rows.plane import DataPlane
    from ..run.ledger import LedgerSnapshot
    from ..store.directory import DirectoryReader
    from ..trainer.trainer_state import TrainerState

_log = logging.getLogger("cleancut.checkpointer")

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore brought back.

    `skipped` names what was not taken, with the reason: damaged newer checkpoints, leftovers, foreign files. Of these
    `passed_over` are newer than what was restored: damaged, or something else under the name of a checkpoint.
    `subtracted` are groups that ledger and buffer both held. `trainer` reads the trainer's files when the checkpoint
    has any and `restore` was not given a trainer to load them into. `notice` says what was not restored, in a run
    without recovery.
    """

    name: str
    step: int
    sequence: int
    version: int
    buffered: int
    pending: int
    spares: int
    skipped: tuple[Skipped, ...]
    subtracted: tuple[int, ...]
    trainer: DirectoryReader | None
    notice: str = ""
    passed_over: tuple[Skipped, ...] = ()

    def beside(self, skipped: tuple[Skipped, ...]) -> Restored:
        """The same, with what was not taken."""
        newer = tuple(entry for entry in skipped if entry.sequence is not None and entry.sequence > self.sequence)
        return replace(self, skipped=skipped, passed_over=newer)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a checkpoint is measured against, taken on the loop before anything is read."""

    identity: Identity
    sampler_state: Any
    stamped: bool | None
    loader_state: Any
    check_loader: Callable[[Any], None]
    check_sampler: Callable[[Any], None]
    check_counters: Callable[[Counters], None]
    check_fits: Callable[[int], None]
    has_pool: bool
    plane: DataPlane
    accept_dataset: bool

    @classmethod
    def of(cls, parts: Participants, identity: Identity) -> Expected:
        """The run as it is."""
        return cls(
            identity=identity,
            sampler_state=parts.sampler.state(),
            stamped=getattr(parts.sampler, "stamped", None),
            loader_state=parts.loader.state(),
            check_loader=getattr(parts.loader, "check_state", _not_checked),
            check_sampler=getattr(parts.sampler, "check_state", _not_checked),
            check_counters=getattr(parts.counters, "check_counters", _not_checked),
            check_fits=parts.buffer.check_fits,
            has_pool=not isinstance(parts.pool, NoPool),
            plane=parts.buffer.plane,
            accept_dataset=parts.accept_dataset,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A validated checkpoint, ready to be put into place."""

    restored: Restored
    anchor: str
    run: str | None
    fence: int
    counters: Counters
    sampler_state: Any
    loader_state: Any
    spares: tuple[Spare, ...]
    slots: tuple[Slot, ...]
    rows: Any
    ledger: LedgerSnapshot
    trainer: DirectoryReader | None
    accepted: tuple[AcceptedDataset, ...]

    def put_into_place(
        self, barrier: CheckpointBarrier, parts: Participants, cut: Cut, trainer: TrainerState | None
    ) -> None:
        """Replace every part; see the function of this name."""
        put_into_place(barrier, parts, cut, self, trainer)


def read_plan(
    store: CheckpointStore, expected: Expected, step: int | None, load_buffer: bool, *, with_trainer: bool | None
) -> Plan | None:
    """Choose, read and validate; None if there is no checkpoint at all. On the writer thread; changes nothing."""
    found = newest_readable(store, step, lambda reader: _plan(store, reader, expected, load_buffer, with_trainer))
    if found is None:
        return None
    plan, skipped = found
    return replace(plan, restored=plan.restored.beside(skipped))


def newest_readable(
    store: CheckpointStore, step: int | None, read: Callable[[CheckpointReader], Read]
) -> tuple[Read, tuple[Skipped, ...]] | None:
    """What `read` makes of the newest checkpoint that is not damaged, or of that of `step`, and what was passed over.

    None if there is no checkpoint at all.
    """
    catalogue = store.catalogue()
    _require_some(catalogue, store.root)
    if not catalogue.candidates:
        return None
    damaged: list[Skipped] = []
    for candidate in _asked_for(catalogue, step, store.root):
        try:
            result = read(store.reader(candidate.name))
        except CheckpointDamaged as error:
            if step is not None:
                raise
            _log.warning("%s is passed over for the checkpoint before: %s", candidate.name, error)
            damaged.append(Skipped(candidate.name, str(error), candidate.sequence, candidate.step))
        else:
            for entry in catalogue.ignored_above(candidate.sequence, step):
                _log.warning("%s is passed over for %s: it is %s", entry.name, candidate.name, entry.reason)
            return result, (*damaged, *catalogue.ignored)
    damaged += catalogue.ignored_above(0)
    raise _none_valid(store.root, damaged)


def newest_valid(store: CheckpointStore) -> CheckpointInfo | None:
    """The newest checkpoint that looks whole; see `Checkpointer.latest`."""
    damaged: list[Skipped] = []
    catalogue = store.catalogue()
    _require_some(catalogue, store.root)
    for candidate in catalogue.candidates:
        try:
            reader = store.reader(candidate.name)
            reader.check_lengths()
        except CheckpointDamaged as error:
            damaged.append(Skipped(candidate.name, str(error)))
        else:
            manifest = reader.manifest
            size = sum(record.length for record in manifest.files.values())
            return CheckpointInfo(candidate.name, manifest.step, manifest.sequence, manifest.kind, size)
    if damaged:
        raise _none_valid(store.root, damaged)
    return None


def accepted_by(manifest: Manifest, expected: Expected) -> tuple[AcceptedDataset, ...]:
    """The changes of the dataset in the lineage of a checkpoint, with the one that this restore accepts, if it does."""
    saved, here = manifest.identity.dataset_digest, expected.identity.dataset_digest
    if same_dataset(saved, here):
        return manifest.accepted
    _log.warning(
        "%s was saved with another dataset of as many rows, which is accepted: what is trained from here on comes from "
        "this one, and finished rows in the buffer from that one. Later manifests name the change in `accepted`.",
        manifest.name,
    )
    return (*manifest.accepted, AcceptedDataset(manifest.name, saved))


def put_into_place(
    barrier: CheckpointBarrier, parts: Participants, cut: Cut, plan: Plan, trainer: TrainerState | None
) -> None:
    """Replace every part, in one exclusive section and one stretch.

    The trainer comes first: it is the one part that may still refuse, and it refuses before it changes anything. After
    any other error the run is half replaced, so the barrier is closed and admits nobody any more.
    """
    cut.require(barrier, exclusive=True)
    require_no_late_results(parts.buffer, plan.restored.name, plan.ledger)
    try:
        if trainer is not None and plan.trainer is not None:
            trainer.load(plan.trainer)
    except (CheckpointIncompatible, CheckpointCorrupt):
        raise
    except BaseException as error:
        barrier.close(f"restoring {plan.restored.name} failed while the trainer was loaded: {error!r}")
        raise
    try:
        parts.loader.load_state(plan.loader_state)
        parts.sampler.load_state(plan.sampler_state)
        parts.pool.load(cut, plan.spares)
        parts.ledger.load(cut, plan.ledger)
        parts.buffer.load(cut, plan.slots)
        parts.buffer.plane.load(cut, plan.rows)
        parts.counters.load(cut, plan.counters)
    except BaseException as error:
        barrier.close(f"restoring {plan.restored.name} failed half-way: {error!r}")
        raise
    barrier.emit(
        "restore",
        name=plan.restored.name,
        sequence=plan.restored.sequence,
        step=plan.restored.step,
        version=plan.counters.version,
        cursor=cursor_of(plan.sampler_state),
        shortfalls=shortfalls_of(plan.sampler_state),
        dropped=dropped_of(plan.sampler_state),
        loader=place_of(plan.loader_state),
        pending=[
            (entry.group, *entry.key, entry.phase.value, entry.admission, entry.step)
            for entry in plan.ledger.entries.values()
        ],
        ready=[(slot.group, *slot.key, slot.step, slot.weight) for slot in plan.slots],
        spares=[tuple(spare.key) for spare in plan.spares],
        fence=plan.fence,
    )


def _asked_for(catalogue: Catalogue, step: int | None, root: str) -> tuple[Candidate, ...]:
    """The candidates to try, in order: all of them, or the one with this step that was saved last."""
    if step is None:
        return catalogue.candidates
    for candidate in catalogue.candidates:
        if candidate.step == step:
            return (candidate,)
    for entry in catalogue.ignored_above(0, step):
        raise CheckpointDamaged(
            f"{root}/{entry.name} is {entry.reason}. Somebody moved the checkpoint away or put this there. Bring the "
            "directory itself back under its name, or name another step."
        )
    there = ", ".join(str(candidate.step) for candidate in catalogue.candidates)
    raise CheckpointNotFound(
        f"{root} has no checkpoint of step {step}; it has the steps {there}, the newest first. It was never saved, or "
        "retention has removed it. Name one of these, or None for the newest valid one."
    )


def _plan(
    store: CheckpointStore, reader: CheckpointReader, expected: Expected, load_buffer: bool, with_trainer: bool | None
) -> Plan:
    manifest = reader.manifest
    check_identity(reader.name, manifest.identity, expected.identity, expected.accept_dataset)
    if manifest.kind == "trainer":
        raise CheckpointIncompatible(
            f"{reader.name} was saved by a run without recovery and holds the trainer's state alone: the prompts in "
            "flight, the buffer and the place in the data were not saved and are not recoverable. Resume with "
            "recovery=False to take up the trainer and begin the data anew, or restore an earlier full save."
        )
    if manifest.identity.groups_per_step is None and expected.identity.groups_per_step is not None:
        _log.info("%s does not say how many groups made a step, so that is not compared with this run's", reader.name)
    documents = read_documents(reader)
    if not expected.has_pool:
        require_place_for_spares(documents)
    require_whole(Checked(documents, expected.stamped))
    require_rows(reader, documents)
    sampler_state = rebuilt_state(documents.sampler.state, expected.sampler_state, f"{reader.name}/{doc.SAMPLER}")
    # What names the data is in the state of the loader as well, and was looked at in the manifest.
    saved_loader = {**documents.loader.state}
    if "dataset_digest" in saved_loader:
        saved_loader["dataset_digest"] = expected.identity.dataset_digest
    loader_state = rebuilt_state(saved_loader, expected.loader_state, f"{reader.name}/{doc.LOADER}")
    expected.check_sampler(sampler_state)
    expected.check_loader(loader_state)
    counters = Counters(documents.trainer.version, documents.trainer.step, dict(documents.trainer.budgets))
    expected.check_counters(counters)
    entries, subtracted = without_buffered(documents)
    slots: tuple[Slot, ...] = ()
    next_admission = documents.trainer.next_admission
    if load_buffer:
        slots = tuple(_slot(slot) for slot in documents.buffer.slots)
        expected.check_fits(len(slots))
    else:
        entries, next_admission = as_pending(documents.buffer.slots, entries, next_admission)
    ledger = ledger_snapshot(entries, documents.trainer, next_admission)
    rows = expected.plane.read(reader.reader(), tuple(slot.group for slot in slots))
    reader.verify()
    trainer = trainer_files(store, reader, documents.trainer.version, with_trainer)
    restored = Restored(
        name=reader.name,
        step=manifest.step,
        sequence=manifest.sequence,
        version=documents.trainer.version,
        buffered=len(slots),
        pending=len(entries),
        spares=len(documents.spares.spares),
        skipped=(),
        subtracted=subtracted,
        trainer=None if with_trainer else trainer,
    )
    return Plan(
        restored=restored,
        anchor=manifest.anchor or reader.name,
        run=manifest.run,
        fence=manifest.fence,
        counters=counters,
        sampler_state=sampler_state,
        loader_state=loader_state,
        spares=spares_of(documents.spares),
        slots=slots,
        rows=rows,
        ledger=ledger,
        trainer=trainer,
        accepted=accepted_by(manifest, expected),
    )


def read_documents(reader: CheckpointReader, trainer: doc.TrainerDocument | None = None) -> Documents:
    """The JSON files of a checkpoint, each of the form that this version writes; nothing else is checked yet.

    `trainer` is one of them, where it was read before.
    """
    files = reader.reader()
    return Documents(
        name=reader.name,
        manifest=reader.manifest,
        sampler=files.read_document(doc.SAMPLER, doc.SamplerDocument),
        loader=files.read_document(doc.LOADER, doc.LoaderDocument),
        spares=files.read_document(doc.SPARES, doc.SparesDocument),
        buffer=files.read_document(doc.BUFFER, doc.BufferDocument),
        ledger=files.read_document(doc.LEDGER, doc.LedgerDocument),
        trainer=trainer or files.read_document(doc.TRAINER, doc.TrainerDocument),
    )


def require_rows(reader: CheckpointReader, documents: Documents) -> None:
    """Refuse a checkpoint whose rows are not those of its buffered groups, if the plane is one of this library."""
    listed = ROWS_INDEX in reader.manifest.files
    index = rows_index(reader.reader().read_json(ROWS_INDEX)) if listed else None
    refuse_first(reader.name, rows_are_indexed(reader.manifest, documents.buffer.slots, index))


def require_anchor(
    manifest: Manifest, version: int, full: Manifest, trainer_of_full: Callable[[], doc.TrainerDocument]
) -> None:
    """Refuse a rollout snapshot that is anchored on anything but the full save which holds its trainer.

    `version` is that of the snapshot; what reads the trainer's document is asked of a full save alone.
    """
    theirs = trainer_of_full().version if full.kind == "full" else None
    refuse_first(manifest.name, anchor_has_the_trainer(manifest, version, full, theirs))


def anchor_lost(name: str, anchor: str, error: CheckpointDamaged) -> CheckpointDamaged:
    """The error for a snapshot whose full save is damaged or gone: it is worth nothing without."""
    return CheckpointDamaged(f"{name}/manifest.json: anchor: the full save {anchor} cannot be used: {error}")


def _not_checked(state: object) -> None:
    """For a part that cannot be asked: what it refuses shows only when it is loaded."""


def _slot(slot: doc.SlotDocument) -> Slot:
    return Slot(slot.group, Key(slot.epoch, slot.index), slot.step, slot.weight, ready=True)


def trainer_files(
    store: CheckpointStore, reader: CheckpointReader, version: int, wanted: bool | None
) -> MemberReader | None:
    """The trainer's files: of this checkpoint, or of the full save that a rollout snapshot of `version` is anchored on.

    `wanted`: True, there must be some, to load into a trainer; False, there must be none; None, somebody takes what
    there is.
    """
    owner = reader
    if reader.manifest.anchor is not None:
        try:
            owner = store.reader(reader.manifest.anchor)
            trainer_of_full = partial(owner.reader().read_document, doc.TRAINER, doc.TrainerDocument)
            require_anchor(reader.manifest, version, owner.manifest, trainer_of_full)
            owner.verify(f"{doc.TRAINER_DIRECTORY}/")
        except CheckpointDamaged as error:
            raise anchor_lost(reader.name, reader.manifest.anchor, error) from error
    if any(member.startswith(f"{doc.TRAINER_DIRECTORY}/") for member in owner.manifest.files):
        if wanted is False:
            raise CheckpointIncompatible(
                f"{owner.name} holds a trainer's state, and no trainer was given to load it into. The run would go on "
                f"at step {reader.manifest.step} with a model that has not seen the steps before. Give trainer=, or "
                "restore with checkpointer.restore() and load `Restored.trainer` by hand. Nothing was changed."
            )
        return owner.reader(doc.TRAINER_DIRECTORY)
    if wanted:
        raise CheckpointIncompatible(
            f"{owner.name} holds no trainer state, and a trainer was given to load it into. It was saved without one "
            "(begin_save(trainer=...)); restore without a trainer if that is meant."
        )
    return None


def _require_some(catalogue: Catalogue, root: str) -> None:
    """Refuse a directory in which every name of a checkpoint stands for something else: there was a run."""
    if not catalogue.candidates and (ignored := catalogue.ignored_above(0)):
        raise _none_valid(root, ignored)


def _none_valid(root: str, damaged: Sequence[Skipped]) -> CheckpointCorrupt:
    reasons = " ".join(
        entry.reason if entry.name in entry.reason else f"{entry.name} is {entry.reason}." for entry in damaged
    )
    return CheckpointCorrupt(
        f"{root}: {none_valid(len(damaged))}. {reasons} To begin anew here would bury the run: look at "
        f"the disk with `python -m impl fsck {root}`, bring a copy back, or use another directory."
    )
