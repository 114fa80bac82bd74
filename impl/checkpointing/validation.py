"""Decides whether the documents of a checkpoint fit together and fit this run. Values in, values or an error out.

CheckpointCorrupt: the checkpoint contradicts itself. CheckpointIncompatible: it is sound and belongs to another run,
set-up or version. Neither lets a restore fall back to an older checkpoint: all bytes are as they were written, so what
is wrong is not the disk, and somebody has to look.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from ..accounts import AccountsSnapshot
from ..dataset_identity import same_dataset
from ..errors import CheckpointCorrupt, CheckpointIncompatible
from ..in_words import counted
from ..keys import GroupId, Key
from ..ledger import Phase
from ..loader import LoaderState
from ..store.manifest import Identity, Manifest
from . import documents as doc
from .believable import check_believable

_OF_A_PROMPT_LOADER = {field.name for field in dataclasses.fields(LoaderState)}


@dataclasses.dataclass(frozen=True, slots=True)
class Documents:
    """The JSON files of one checkpoint, each of the right form."""

    name: str
    manifest: Manifest
    sampler: doc.SamplerDocument
    loader: doc.LoaderDocument
    spares: doc.SparesDocument
    buffer: doc.BufferDocument
    ledger: doc.LedgerDocument
    trainer: doc.TrainerDocument


def identity_as_here(saved: Identity, here: Identity, accept_dataset: bool) -> Identity:
    """The identity of a checkpoint with the digest of this run's dataset, if that is the same or is to be accepted.

    Accepted is a dataset of as many rows: how many there are decides the order of an epoch, so with another number the
    place in it would mean nothing.
    """
    accepted = accept_dataset and saved.dataset_length == here.dataset_length
    if accepted or same_dataset(saved.dataset_digest, here.dataset_digest):
        return msgspec.structs.replace(saved, dataset_digest=here.dataset_digest)
    return saved


def check_identity(name: str, saved: Identity, here: Identity, accept_dataset: bool = False) -> None:
    """Refuse a checkpoint of another run, naming what differs with both values."""
    saved = identity_as_here(saved, here, accept_dataset)
    differing = [
        f"{field}: {mine!r} in the checkpoint, {theirs!r} here"
        for field in saved.__struct_fields__
        if (mine := getattr(saved, field)) != (theirs := getattr(here, field))
    ]
    if differing:
        raise CheckpointIncompatible(
            f"{name} was written by another run. {'; '.join(differing)}. Resume with the same dataset, seed, batch "
            "size and sampler, or begin a new run in another directory. For a dataset of as many rows that was changed "
            "on purpose, say accept_dataset=True."
        )


def rebuilt_state(saved: dict[str, Any], example: object, where: str) -> Any:
    """The state of a participant as the kind of record its `state()` returns."""
    if isinstance(example, msgspec.Struct):
        fields = set(example.__struct_fields__)
    elif dataclasses.is_dataclass(example):
        fields = {field.name for field in dataclasses.fields(example)}
    else:
        return saved
    if saved.keys() != fields:
        odd = ", ".join(sorted(saved.keys() ^ fields))
        raise CheckpointIncompatible(
            f"{where} was saved with other fields than this version has: {odd}. It was written by another version of "
            "that part; use the version that wrote it."
        )
    try:
        return msgspec.convert(saved, type(example), strict=True)
    except msgspec.ValidationError as error:
        raise CheckpointCorrupt(f"{where} is not of its form: {error}. It was edited; restore another one.") from error


def check_documents(documents: Documents, *, has_pool: bool) -> None:
    """Refuse documents that contradict each other, or hold what this version or this run has no place for."""
    if documents.spares.spares and not has_pool:
        raise CheckpointIncompatible(
            f"{documents.name} holds {counted(len(documents.spares.spares), 'spare prompt')}, which would be lost: "
            "this run has no spare pool. Give it one, attach(pool=SparePool(ledger)); a Controller always has one."
        )
    check_believable(documents)
    _check_stamps(documents)
    _check_phases(documents)
    _check_owners(documents)


def check_cursor(documents: Documents, state: object) -> None:
    """Refuse a dispatch cursor behind a stamp: cursor and groups were read at different instants."""
    cursor = cursor_of(state)
    stamps = [entry.step for entry in documents.ledger.entries if entry.step is not None]
    stamps += [slot.step for slot in documents.buffer.slots if slot.step is not None]
    if cursor is None or not stamps or cursor >= max(stamps):
        return
    highest = max(stamps)
    raise CheckpointCorrupt(
        f"{documents.name}: the dispatch cursor is {cursor}, but "
        f"{counted(stamps.count(highest), 'group is', 'groups are')} stamped with step {highest}. The parts were read "
        "at different instants, and the cursor would hand that step out again. Nothing was discarded; restore an "
        "earlier checkpoint."
    )


def cursor_of(sampler_state: object) -> int | None:
    """The dispatch cursor in a sampler's state; None where a custom sampler has none."""
    cursor = _part(sampler_state, "cursor")
    return cursor if type(cursor) is int else None


def shortfalls_of(sampler_state: object) -> list[tuple[int, int]] | None:
    """The shortfalls in a sampler's state; None where a custom sampler has none."""
    shortfalls = _part(sampler_state, "shortfalls")
    return None if shortfalls is None else [(step, missing) for step, missing in shortfalls]


def dropped_of(sampler_state: object) -> int | None:
    """The drop count in a sampler's state; None where a custom sampler has none."""
    dropped: int | None = _part(sampler_state, "dropped")
    return dropped


def place_of(loader_state: object) -> tuple[int, int, bool] | None:
    """Epoch, prompts of it handed out, and exhausted bit; None for a loader that counts otherwise."""
    place = tuple(_part(loader_state, name) for name in ("epoch", "position", "exhausted"))
    return None if None in place else place


def _part(state: object, name: str) -> Any:
    return state.get(name) if isinstance(state, dict) else getattr(state, name, None)


def without_buffered(documents: Documents) -> tuple[list[doc.EntryDocument], tuple[GroupId, ...]]:
    """The pending prompts without those that are in the buffer too, and the groups taken out: its copy wins."""
    buffered = {slot.group for slot in documents.buffer.slots}
    kept = [entry for entry in documents.ledger.entries if entry.group not in buffered]
    return kept, tuple(entry.group for entry in documents.ledger.entries if entry.group in buffered)


def as_pending(
    slots: Iterable[doc.SlotDocument], entries: list[doc.EntryDocument], next_admission: int
) -> tuple[list[doc.EntryDocument], int]:
    """The finished groups as ADMITTED ones with the same stamp, beside the pending ones, in order of their ids.

    A group joins the admission of its step if part of that is still pending; else the groups of one stamp (of one
    weight, where none is stamped) form an admission with a new id.
    """
    by_step = {entry.step: entry.admission for entry in entries if entry.step is not None}
    made: dict[tuple[int | None, int], int] = {}
    pending = list(entries)
    for slot in slots:
        if slot.step in by_step:
            admission = by_step[slot.step]
        else:
            place = (slot.step, slot.weight if slot.step is None else 0)
            if place not in made:
                made[place] = next_admission
                next_admission += 1
            admission = made[place]
        pending.append(
            doc.EntryDocument(
                group=slot.group,
                epoch=slot.epoch,
                index=slot.index,
                phase=Phase.ADMITTED.value,
                admission=admission,
                step=slot.step,
                attempt=0,
                payload=doc.PayloadDocument("dataset", None),
            )
        )
    return sorted(pending, key=lambda entry: entry.group), next_admission


def _check_stamps(documents: Documents) -> None:
    stamp = documents.buffer.rows
    found = (len(documents.buffer.slots), len(documents.ledger.entries))
    ledger_digest = documents.manifest.files[doc.LEDGER].sha256
    if (stamp.groups, stamp.ledger_entries) != found or stamp.ledger_sha256 != ledger_digest:
        raise _corrupt(
            documents,
            f"the rows were captured with {counted(stamp.groups, 'group')} and "
            f"{counted(stamp.ledger_entries, 'ledger entry', 'ledger entries')}; the index has {found[0]}, the ledger "
            f"{found[1]}, or the ledger is another one. The parts are of two saves",
        )
    if documents.trainer.permits.held != found[0]:
        held = counted(documents.trainer.permits.held, "permit is", "permits are")
        raise _corrupt(documents, f"{held} held for {counted(found[0], 'group')}")


def _check_phases(documents: Documents) -> None:
    known = {phase.value for phase in Phase}
    for entry in documents.ledger.entries:
        if entry.phase not in known:
            raise CheckpointIncompatible(
                f"{documents.name}: group {entry.group} is in the phase {entry.phase!r}, which this version does not "
                f"know (it knows {', '.join(sorted(known))}). Use the version that wrote it."
            )
    payloads = [(f"group {entry.group}", entry.payload) for entry in documents.ledger.entries]
    payloads += [(f"the spare {spare.epoch, spare.index}", spare.payload) for spare in documents.spares.spares]
    for owner, payload in payloads:
        if payload.kind not in ("dataset", "value"):
            raise CheckpointIncompatible(
                f"{documents.name}: the payload of {owner} is of the kind {payload.kind!r}, which this version does "
                "not know. Use the version that wrote it."
            )


def _check_owners(documents: Documents) -> None:
    """One owner for each group and each key. A group in ledger and buffer is no fault: the buffer's copy wins."""
    _require_distinct(documents, "the ledger", documents.ledger.entries)
    _require_distinct(documents, "the buffer", documents.buffer.slots)
    keys = {Key(entry.epoch, entry.index): entry.group for entry in documents.ledger.entries}
    for slot in documents.buffer.slots:
        other = keys.setdefault(Key(slot.epoch, slot.index), slot.group)
        if other != slot.group:
            raise _corrupt(documents, f"the prompt {slot.epoch, slot.index} belongs to groups {other} and {slot.group}")
        if slot.group >= documents.trainer.next_group:
            raise _corrupt(
                documents,
                f"group {slot.group} exists, and the next group would get the id {documents.trainer.next_group}",
            )
    spare_keys: set[Key] = set()
    for spare in documents.spares.spares:
        key = Key(spare.epoch, spare.index)
        if key in spare_keys:
            raise _corrupt(documents, f"the spare pool holds the prompt {tuple(key)} twice")
        if key in keys:
            raise _corrupt(documents, f"the prompt {tuple(key)} is a spare and belongs to group {keys[key]}")
        spare_keys.add(key)


def check_settled(documents: Documents, accounts: AccountsSnapshot) -> None:
    """Refuse a buffered group or a spare whose prompt is trained or dropped already; the ledger checks its own."""
    owners = [(f"group {slot.group} is buffered", Key(slot.epoch, slot.index)) for slot in documents.buffer.slots]
    owners += [("a prompt is in the spare pool", Key(spare.epoch, spare.index)) for spare in documents.spares.spares]
    for owner, key in owners:
        if accounts.is_trained(key) or key in accounts.dropped:
            fate = "trained" if accounts.is_trained(key) else f"dropped ({accounts.dropped[key]!r})"
            raise _corrupt(documents, f"{owner}, and its prompt {tuple(key)} was {fate}")


def check_every_owner(documents: Documents, entries: Collection[doc.EntryDocument], accounts: AccountsSnapshot) -> None:
    """Refuse a checkpoint in which fewer or more prompts have an owner than were handed out.

    `entries` are the pending ones that no buffered group has. A loader whose state is no `PromptLoader`'s counts in its
    own way, and is not checked.
    """
    place = prompt_loader_place(documents.loader.state)
    if place is None:
        return
    length, _, epoch, position = place
    handed_out = epoch * length + position
    groups = len(entries) + len(documents.buffer.slots)
    owned = groups + len(documents.spares.spares) + accounts.trained_count + len(accounts.dropped)
    if handed_out == owned:
        return
    raise CheckpointCorrupt(
        f"{documents.name}: the loader has handed out {counted(handed_out, 'prompt')}, and "
        f"{counted(owned, 'has', 'have')} an owner. A resume would "
        f"{'never draw the others again' if owned < handed_out else 'train some twice'}. The parts were read at "
        "different instants, or one was edited; `python -m impl fsck` names the prompts. Restore an earlier checkpoint."
    )


def is_of_a_prompt_loader(loader_state: object) -> bool:
    """Whether a saved state has the fields of a `PromptLoader`'s, all of them and no other."""
    return isinstance(loader_state, dict) and loader_state.keys() == _OF_A_PROMPT_LOADER


def prompt_loader_place(loader_state: object) -> tuple[int, int, int, int] | None:
    """Dataset length, seed, epoch and position of a `PromptLoader`; None for the state of another loader.

    Told by its fields, all of them: a position may count anything in the state of a loader that has others.
    """
    if not is_of_a_prompt_loader(loader_state):
        return None
    length, seed, epoch, position = (_part(loader_state, n) for n in ("dataset_length", "seed", "epoch", "position"))
    return (length, seed, epoch, position) if {*map(type, (length, seed, epoch, position))} == {int} else None


def _require_distinct(
    documents: Documents, where: str, owners: Iterable[doc.EntryDocument] | Iterable[doc.SlotDocument]
) -> None:
    groups: set[int] = set()
    keys: set[tuple[int, int]] = set()
    for owner in owners:
        key = (owner.epoch, owner.index)
        if owner.group in groups or key in keys:
            raise _corrupt(documents, f"{where} holds group {owner.group} or the prompt {key} twice")
        groups.add(owner.group)
        keys.add(key)


def _corrupt(documents: Documents, reason: str) -> CheckpointCorrupt:
    return CheckpointCorrupt(
        f"{documents.name} contradicts itself: {reason}. It was put together from two checkpoints, edited, or written "
        "by a faulty version. Nothing was changed; restore an earlier checkpoint."
    )
