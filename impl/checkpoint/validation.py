"""Decides whether the documents of a checkpoint fit together and fit this run. Values in, values or an error out.

CheckpointCorrupt: the checkpoint contradicts itself. CheckpointIncompatible: it is sound and belongs to another run,
set-up or version. Neither lets a restore fall back to an older checkpoint: all bytes are as they were written, so what
is wrong is not the disk, and somebody has to look.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import msgspec

from cleancut_leaf.words import counted

from ..errors import CheckpointCorrupt, CheckpointIncompatible
from ..keys import GroupId
from ..loaders.dataset_identity import same_dataset
from ..loaders.prompt_loader import LoaderState
from ..run.pending_groups import Phase
from ..store.manifest import Identity, Manifest
from . import documents as doc

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
    if saved.groups_per_step is None or here.groups_per_step is None:
        # Format 1 had no such field at first, and a sampler of somebody's own need not tell: then it is not compared.
        saved = msgspec.structs.replace(saved, groups_per_step=here.groups_per_step)
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


def require_place_for_spares(documents: Documents) -> None:
    """Refuse a checkpoint with spares for a run that has no pool to put them in."""
    if documents.spares.spares:
        raise CheckpointIncompatible(
            f"{documents.name} holds {counted(len(documents.spares.spares), 'spare prompt')}, which would be lost: "
            "this run has no spare pool. Give it one, attach(pool=SparePool(ledger)); a Controller always has one."
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
