"""Examines one checkpoint: its bytes, what its files say of each other, and who owns each prompt.

Reads as it goes: of a file of tensors nothing but the header is kept. Needs no torch. Changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ..checkpointing import documents as doc
from ..checkpointing.ledger_documents import ledger_snapshot
from ..checkpointing.restoring import read_documents
from ..checkpointing.validation import (
    Documents,
    check_cursor,
    check_documents,
    check_every_owner,
    check_settled,
    prompt_loader_place,
    without_buffered,
)
from ..errors import CheckpointCorrupt, CheckpointDamaged, CheckpointIncompatible, CleancutError
from ..in_words import counted
from ..store import names
from ..store.catalogue import Candidate
from ..store.files import Files
from ..store.manifest import Manifest
from ..store.reader import CheckpointReader
from ..store.tensor_header import HeaderCollector, observed
from .ownership import HandedOut, Ownership, Span, balance

#: whole: a resume may take it. unbalanced: a resume takes it, since as many prompts have an owner as were handed out,
#: and still loses or doubles some. damaged: a resume passes over it. contradictory, incompatible: a resume stops at it.
#: unreadable: this process could not find out. removed: retention took it while it was being read.
State = Literal["whole", "unbalanced", "damaged", "contradictory", "incompatible", "unreadable", "removed"]

#: Where `TensorPlane` says which fields each group has.
_ROWS_INDEX = "rows.json"
#: More prompts than any dataset has: what counts so many is no account of a run, and a restore would choke on it.
_ABSURD = 1 << 40


@dataclass(slots=True)
class Examined:
    """One checkpoint. `manifest` and `ownership` are None if they could not be read; `written` is in Unix seconds."""

    candidate: Candidate
    state: State = "whole"
    problems: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    manifest: Manifest | None = None
    ownership: Ownership | None = None
    written: float | None = None
    digests_checked: bool = False

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.candidate.name

    @property
    def bytes(self) -> int | None:
        """The length of all files that the manifest lists."""
        return sum(each.length for each in self.manifest.files.values()) if self.manifest else None

    def note(self, state: State, problem: str) -> None:
        """Something is wrong; what a resume would do about it decides the state."""
        self.state = state if self.state in ("whole", "unbalanced") else self.state
        self.problems.append(problem if self.name in problem else f"{self.name}: {problem}")


def examine(files: Files, root: str, candidate: Candidate, *, digests: bool) -> Examined:
    """Everything about one checkpoint. Without `digests` the payload is not read, only its lengths are compared."""
    found = Examined(candidate, written=_written(f"{root}/{candidate.name}/{names.MANIFEST}"))
    try:
        reader = CheckpointReader(files, root, candidate.name)
        found.manifest = reader.manifest
        reader.check_lengths()
        if digests:
            _read_payload(reader)
            found.digests_checked = True
        _check_meaning(reader, found)
        if reader.manifest.anchor is not None:
            _check_anchor(files, root, reader.manifest.anchor, digests=digests)
    except CheckpointDamaged as error:
        found.note("damaged" if os.path.lexists(f"{root}/{candidate.name}") else "removed", str(error))
    except CheckpointIncompatible as error:
        found.note("incompatible", str(error))
    except CheckpointCorrupt as error:
        found.note("contradictory", str(error))
    except CleancutError as error:
        found.note("unreadable", str(error))
    return found


def _written(path: str) -> float | None:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return None


def _read_payload(reader: CheckpointReader) -> None:
    """Compare the digest of every file, and the header of every file of tensors with the manifest."""
    for member, record in reader.manifest.files.items():
        collector = HeaderCollector()
        for _ in observed(reader.verified_chunks(member), collector):
            pass
        if record.tensors is not None:
            collector.check(record.length, record.tensors, f"{reader.name}/{member}")


def _check_anchor(files: Files, root: str, anchor: str, *, digests: bool) -> None:
    """A rollout snapshot is worth nothing without the trainer's files of its full save."""
    try:
        full = CheckpointReader(files, root, anchor)
        if digests:
            full.verify(f"{doc.TRAINER_DIRECTORY}/")
    except CheckpointDamaged as error:
        raise CheckpointDamaged(f"the full save it is anchored on cannot be used: {error}") from error


def _check_meaning(reader: CheckpointReader, found: Examined) -> None:
    """Read the documents, count the owners, and ask what a restore would ask."""
    if reader.manifest.kind == "trainer":
        reader.reader().read_document(doc.PROGRESS, doc.ProgressDocument)
        found.notices.append(
            f"{reader.name} was saved without recovery: it holds the trainer alone, and no prompt has an owner in it. "
            "A run with recovery refuses it; one with recovery=False takes up the trainer and begins the data anew."
        )
        return
    if not reader.manifest.files.keys() >= {doc.SAMPLER, doc.LOADER, doc.SPARES, doc.BUFFER, doc.LEDGER, doc.TRAINER}:
        raise CheckpointCorrupt(
            f"{reader.name} lacks files that every checkpoint of a run has (it lists "
            f"{', '.join(sorted(reader.manifest.files)[:8])}). It was written by something else; a restore refuses it."
        )
    documents = read_documents(reader)
    found.ownership = _ownership(documents, found)
    _note_imbalance(found, found.ownership)
    check_documents(documents, has_pool=True)
    check_cursor(documents, documents.sampler.state)
    entries, subtracted = without_buffered(documents)
    if subtracted:
        found.notices.append(
            f"{reader.name}: {counted(len(subtracted), 'group is', 'groups are')} in ledger and buffer; a restore "
            "keeps the buffer's copy."
        )
    snapshot = ledger_snapshot(entries, documents.trainer, documents.trainer.next_admission)
    check_settled(documents, snapshot.accounts)
    check_every_owner(documents, entries, snapshot.accounts)
    _check_rows(reader, documents)


def _check_rows(reader: CheckpointReader, documents: Documents) -> None:
    """The rows of every buffered group are there, if the plane is the embedded one; others keep them their way."""
    if _ROWS_INDEX not in reader.manifest.files:
        return
    index = reader.reader().read_json(_ROWS_INDEX)
    fields = index.get("fields") if isinstance(index, dict) else None
    if not isinstance(fields, dict):
        return
    there = {key for record in reader.manifest.files.values() for key in record.tensors or ()}
    for slot in documents.buffer.slots:
        listed = fields.get(str(slot.group))
        if listed is None or not there.issuperset(f"{slot.group}/{name}" for name in listed):
            raise CheckpointCorrupt(
                f"{reader.name}: group {slot.group} is in the buffer index, and its rows are not in the files of the "
                "data plane. The checkpoint was edited or written by a faulty version; restore an earlier one."
            )


def _note_imbalance(found: Examined, ownership: Ownership) -> None:
    """Say what a resume from here would lose or do twice."""
    if ownership.ahead.count > _ABSURD:
        raise CheckpointCorrupt(
            f"{found.name} gives an owner to {counted(ownership.ahead.count, 'prompt')} that no dataset has: "
            f"{ownership.ahead}. It was edited; restore another checkpoint."
        )
    lost, doubled, ahead = ownership.lost, ownership.doubled, ownership.ahead
    for keys, what, then in (
        (lost, f"lost: {counted(lost.count, 'prompt')} handed out with no owner", "A resume never draws it again. "),
        (doubled, f"doubled: {counted(doubled.count, 'prompt')} with two owners", ""),
        (
            ahead,
            f"doubled: {counted(ahead.count, 'prompt')} with an owner, and never handed out",
            "A resume draws it. ",
        ),
    ):
        if keys.count:
            found.note("unbalanced", f"{found.name}: {what}: {keys}. {then}Restore an earlier checkpoint.")


def _ownership(documents: Documents, found: Examined) -> Ownership:
    handed_out = _handed_out(documents.loader.state)
    if handed_out is None:
        found.notices.append(
            f"{documents.name}: the loader's state does not say which prompts it handed out, so lost ones cannot be "
            "told. Only prompts with two owners were looked for."
        )
    spans = list(_spans(documents))
    for span in spans:
        if span.epoch < 0 or not 0 <= span.first <= span.last:
            raise CheckpointCorrupt(
                f"{documents.name}: there is no {span.owner} prompt {span.first} to {span.last} of epoch {span.epoch}. "
                "The file was edited; restore another checkpoint."
            )
    return balance(spans, handed_out)


def _handed_out(state: dict[str, Any]) -> HandedOut | None:
    """The cursor of a `PromptLoader`; another loader's state means what only that loader knows."""
    place = prompt_loader_place(state)
    if place is None:
        return None
    length, seed, epoch, position = place
    if not (length > 0 and epoch >= 0 and 0 <= position <= length):
        raise CheckpointCorrupt(
            f"the loader stands at place {position} of epoch {epoch} in a dataset of {counted(length, 'prompt')}, "
            "which is no place. The file was edited; restore another checkpoint."
        )
    return HandedOut(length, seed, epoch, position)


def _spans(documents: Documents) -> Iterator[Span]:
    """Every owner of every key. A group that ledger and buffer both hold is the buffer's alone, as in a restore."""
    entries, _ = without_buffered(documents)
    for entry in entries:
        yield Span(entry.epoch, entry.index, entry.index, "pending")
    for slot in documents.buffer.slots:
        yield Span(slot.epoch, slot.index, slot.index, "buffered")
    for spare in documents.spares.spares:
        yield Span(spare.epoch, spare.index, spare.index, "spare")
    for interval in documents.trainer.accounts.trained:
        yield Span(interval.epoch, interval.first, interval.last, "trained")
    for dropped in documents.trainer.accounts.dropped:
        yield Span(dropped.epoch, dropped.index, dropped.index, "dropped")
