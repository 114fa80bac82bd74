"""Refuses what no run can have written: numbers below zero, rows beyond the dataset, parts that name another run.

The digests of such a checkpoint fit, and as many prompts may have an owner as were handed out; without this a restore
would put it into place and fail later, when the prompt is read, or never. Values in, CheckpointCorrupt out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import CheckpointCorrupt
from ..samplers import SamplerState
from . import documents as doc
from .artifacts import OF_THE_DATA

if TYPE_CHECKING:
    from .validation import Documents

#: More prompts than any dataset has; what counts so many is no account of a run, and counting them would never end.
MOST_PROMPTS = 1 << 32
#: The fields of a sampler's state, if it is one of this library's.
_OF_A_SAMPLER = {field.name for field in dataclasses.fields(SamplerState)}


def check_believable(documents: Documents) -> None:
    """Refuse documents with values that no run has, naming the first."""
    for where, problem in _unbelievable(documents):
        raise CheckpointCorrupt(
            f"{documents.name}/{where}: {problem}. It was edited, or written by a faulty version. Nothing was changed; "
            "restore an earlier checkpoint."
        )


def check_progress(name: str, progress: doc.ProgressDocument) -> None:
    """Refuse the progress of a save without recovery that no trainer has made."""
    if progress.version < 0 or progress.step < 0 or (progress.cursor is not None and progress.cursor < -1):
        raise CheckpointCorrupt(
            f"{name}/{doc.PROGRESS}: version {progress.version}, step {progress.step} and dispatch cursor "
            f"{progress.cursor} are no progress of a run. It was edited; restore an earlier checkpoint."
        )


def check_counts(documents: Documents, trained: int) -> None:
    """Refuse a manifest that counts other owners than there are; `trained` is the number of trained prompts."""
    found = {
        "buffered": len(documents.buffer.slots),
        "pending": len(documents.ledger.entries),
        "spares": len(documents.spares.spares),
        "trained": trained,
        "dropped": len(documents.trainer.accounts.dropped),
    }
    for name, count in found.items():
        said = documents.manifest.counts.get(name)
        if said is None or said.value != count:
            raise CheckpointCorrupt(
                f"{documents.name}: its manifest counts {'no' if said is None else said.value} {name}, and its files "
                f"hold {count}. It was edited, or put together from two checkpoints; restore an earlier one."
            )


def _unbelievable(documents: Documents) -> Iterator[tuple[str, str]]:
    """The file and what is wrong in it, one after the other."""
    identity = documents.manifest.identity
    length = identity.dataset_length
    if not 0 < length <= MOST_PROMPTS:
        yield "manifest.json", f"there is no dataset of {length} prompts"
    if (documents.sampler.name, documents.sampler.parameters) != (identity.sampler.name, identity.sampler.parameters):
        yield doc.SAMPLER, f"the sampler is {documents.sampler.name!r}, and the manifest's {identity.sampler.name!r}"
    state = documents.sampler.state
    if state.keys() == _OF_A_SAMPLER and state["name"] != documents.sampler.name:
        yield (
            doc.SAMPLER,
            f"the state is of the sampler {state['name']!r}, which is {documents.sampler.name!r} elsewhere",
        )
    for name in OF_THE_DATA:
        theirs = getattr(identity, name)
        mine = documents.loader.state.get(name, theirs)
        if mine != theirs:
            yield doc.LOADER, f"the loader has the {name} {mine!r}, and the manifest {theirs!r}"
    for slot in documents.buffer.slots:
        yield from _key(doc.BUFFER, f"group {slot.group}", slot.epoch, slot.index, length)
        yield from _count(doc.BUFFER, f"a group of {slot.epoch, slot.index}", group=slot.group, weight=slot.weight)
        yield from _count(doc.BUFFER, f"group {slot.group}", step=slot.step or 0)
    for entry in documents.ledger.entries:
        yield from _key(doc.LEDGER, f"group {entry.group}", entry.epoch, entry.index, length)
        yield from _count(doc.LEDGER, f"group {entry.group}", attempt=entry.attempt, step=entry.step or 0)
    for spare in documents.spares.spares:
        yield from _key(doc.SPARES, "a spare", spare.epoch, spare.index, length)
    yield from _of_the_trainer(documents.trainer, length)
    capacity, permits = documents.buffer.capacity, documents.trainer.permits.capacity
    if capacity != permits or capacity < len(documents.buffer.slots):
        slots = len(documents.buffer.slots)
        yield doc.BUFFER, f"it has a capacity of {capacity} with {slots} groups, and there were {permits} permits"


def _of_the_trainer(trainer: doc.TrainerDocument, length: int) -> Iterator[tuple[str, str]]:
    yield from _count(doc.TRAINER, "the trainer", version=trainer.version, step=trainer.step)
    yield from _count(doc.TRAINER, "the budget", **trainer.budgets)
    for interval in trainer.accounts.trained:
        if interval.epoch < 0 or not 0 <= interval.first <= interval.last < length:
            yield (
                doc.TRAINER,
                f"the rows {interval.first} to {interval.last} of epoch {interval.epoch} were trained, and there are "
                f"no such rows among {length}",
            )
    for dropped in trainer.accounts.dropped:
        yield from _key(doc.TRAINER, "a dropped one", dropped.epoch, dropped.index, length)


def _key(where: str, who: str, epoch: int, index: int, length: int) -> Iterator[tuple[str, str]]:
    if epoch < 0 or not 0 <= index < length:
        yield where, f"{who} is the prompt {epoch, index}, which no epoch has: there are {length} rows"


def _count(where: str, who: str, **numbers: int) -> Iterator[tuple[str, str]]:
    for name, number in numbers.items():
        if number < 0:
            yield where, f"{who} has the {name} {number}, which is below 0"
