"""Turns what was read in the window into the files of a checkpoint; runs on the writer thread."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import UsageError
from ..store import strict_json
from ..store.manifest import Count, Identity, SamplerIdentity
from . import documents as doc
from .ledger_documents import accounts_document, ledger_document, spares_document

if TYPE_CHECKING:
    from ..store.staging import StagedDirectory
    from .capture import Captured, CapturedTrainer
    from .participants import SamplerPart, StatePart

#: What the state of every loader names: which data it reads, and how.
OF_THE_DATA = ("dataset_length", "dataset_digest", "seed", "batch_size")


def plain_state(state: object, where: str) -> dict[str, Any]:
    """A participant's state as a dictionary of strict JSON values; UsageError names what cannot be saved."""
    if dataclasses.is_dataclass(state) or isinstance(state, msgspec.Struct):
        state = msgspec.to_builtins(state)
    if not isinstance(state, dict):
        raise UsageError(
            f"{where} is a {type(state).__name__}, which cannot be saved. state() must return a frozen dataclass, a "
            "msgspec struct or a dictionary of plain values."
        )
    checked: dict[str, Any] = {}
    for name, value in state.items():
        checked[name] = strict_json.checked(_without_tuples(value), f"{where}.{name}")
    return checked


def record_of(state: object) -> str | None:
    """The class of a participant's state by name; None for a plain dictionary."""
    return None if isinstance(state, dict) else type(state).__name__


def _without_tuples(value: object) -> object:
    """Tuples as lists, on every level: the field's type tells a restore that it was a tuple."""
    if type(value) in (list, tuple):
        return [_without_tuples(item) for item in value]  # type: ignore[attr-defined]
    if type(value) is dict:
        return {name: _without_tuples(item) for name, item in value.items()}
    return value


def identity_of(loader_part: StatePart, sampler: SamplerPart, generations: int | None) -> Identity:
    """What a run has to have in common with the one that wrote a checkpoint. Reads only what never changes."""
    state = loader_part.state()
    loader: dict[str, Any] = (
        state if isinstance(state, dict) else {name: getattr(state, name, None) for name in OF_THE_DATA}
    )
    missing = [name for name in OF_THE_DATA if loader.get(name) is None]
    if missing:
        raise UsageError(
            f"the state of the loader has no {missing[0]!r}, which is part of a checkpoint's identity. A loader's "
            "state() must name dataset_length, dataset_digest, seed and batch_size."
        )
    return Identity(
        **{name: loader[name] for name in OF_THE_DATA}, generations=generations, sampler=_sampler_identity(sampler)
    )


def bind_to_loader(sampler: SamplerPart, loader: StatePart) -> None:
    """Tell a sampler that nobody has told that a step has as many groups as a batch of the loader has prompts."""
    bound, size = getattr(sampler, "bound", None), getattr(loader, "batch_size", None)
    if bound is None and hasattr(type(sampler), "bound") and type(size) is int:
        sampler.bind(size)  # type: ignore[attr-defined]


def identity_with_steps(identity: Identity, sampler: SamplerPart) -> Identity:
    """The identity with the groups that make a step, as the sampler has them now; None if it cannot be asked."""
    return msgspec.structs.replace(identity, groups_per_step=getattr(sampler, "bound", None))


def run_identity(identity: Identity, capacity: int, recovery: bool, remainder: str = "train") -> dict[str, Any]:
    """What the header of a trace says of the run in it."""
    return {**msgspec.to_builtins(identity), "capacity": capacity, "remainder": remainder, "recovery": recovery}


def name_run(tracer: object, identity: Identity, capacity: int, recovery: bool) -> None:
    """Tell a tracer that keeps segments which run it is, for a program without a `Controller`, which says so itself."""
    if (name := getattr(tracer, "name_run", None)) is not None:
        name(run_identity(identity, capacity, recovery))


def _sampler_identity(sampler: SamplerPart) -> SamplerIdentity:
    parameters = plain_state(dict(sampler.parameters()), "sampler.parameters()")
    return SamplerIdentity(sampler.name, parameters)


def check_savable(sampler: SamplerPart, loader: StatePart, plane: object) -> None:
    """Raise UsageError now, before any prompt is consumed, if a later save could not write these states."""
    plain_state(sampler.state(), "sampler.state()")
    plain_state(loader.state(), "loader.state()")
    for ability in ("capture", "persist", "release", "read", "load"):
        if not callable(getattr(plane, ability, None)):
            raise UsageError(
                f"the buffer's data plane is a {type(plane).__name__} without {ability}(), so its rows can neither be "
                "saved nor restored. Use TensorPlane, or give the plane every method of DataPlane."
            )


def write_artifacts(
    captured: Captured, identity: Identity, staged: StagedDirectory
) -> tuple[dict[str, Count], dict[str, Any]]:
    """Write every JSON file but the plane's and the trainer's own.

    Returned are the counts for the manifest, and what was written, by the fields of `Documents`.
    """
    writer = staged.writer()
    sampler = doc.SamplerDocument(
        name=identity.sampler.name,
        parameters=identity.sampler.parameters,
        state=plain_state(captured.sampler, "sampler.state()"),
    )
    writer.write_document(doc.SAMPLER, sampler)
    loader = doc.LoaderDocument(plain_state(captured.loader, "loader.state()"), record_of(captured.loader))
    writer.write_document(doc.LOADER, loader)
    spares = spares_document(captured.spares)
    writer.write_document(doc.SPARES, spares)
    ledger = ledger_document(captured.ledger)
    writer.write_document(doc.LEDGER, ledger)
    slots = _slots(captured)
    stamp = doc.RowsStamp(len(slots), len(ledger.entries), staged.records[doc.LEDGER].sha256)
    buffer = doc.BufferDocument(captured.buffer.capacity, slots, stamp)
    writer.write_document(doc.BUFFER, buffer)
    accounts = captured.ledger.accounts
    trainer = doc.TrainerDocument(
        version=captured.counters.version,
        step=captured.counters.step,
        permits=doc.PermitsDocument(captured.buffer.capacity, len(slots)),
        accounts=accounts_document(accounts),
        budgets=dict(captured.counters.budgets),
        next_group=captured.ledger.next_group,
        next_admission=captured.ledger.next_admission,
        budgets_of=captured.counters.budgets_of,
    )
    writer.write_document(doc.TRAINER, trainer)
    counts = {
        "buffered": Count(len(slots), "groups"),
        "pending": Count(len(ledger.entries), "groups"),
        "spares": Count(len(captured.spares), "prompts"),
        "trained": Count(accounts.trained_count, "prompts"),
        "dropped": Count(len(accounts.dropped), "prompts"),
    }
    written = {"sampler": sampler, "loader": loader, "spares": spares, "buffer": buffer, "ledger": ledger}
    return counts, {**written, "trainer": trainer}


def write_progress(captured: CapturedTrainer, staged: StagedDirectory) -> tuple[dict[str, Count], doc.ProgressDocument]:
    """Write what a save without recovery knows of the run; return the counts for the manifest, and what was written."""
    counters = captured.counters
    progress = doc.ProgressDocument(counters.version, counters.step, captured.cursor)
    staged.writer().write_document(doc.PROGRESS, progress)
    return {"steps": Count(counters.version, "steps")}, progress


def _slots(captured: Captured) -> list[doc.SlotDocument]:
    """The groups the buffer owns, in order of arrival; a claimed one is saved as ready, since a crash gives it back."""
    return [
        doc.SlotDocument(slot.group, slot.key.epoch, slot.key.index, slot.step, slot.weight)
        for slot in captured.buffer.slots.values()
        if slot.ready
    ]
