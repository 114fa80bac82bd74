"""The JSON files of a checkpoint: their exact form, one struct a file.

    sampler.json   which sampler, its parameters, its state
    loader.json    position, epoch, the exhausted bit
    spares.json    the spare pool; an empty pool is written
    buffer.json    the index of finished groups, stamped
    ledger.json    the prompts that are pending
    trainer.json   version, permits, accounts, budgets, id counters

A save without recovery has one of its own, and none of these:

    progress.json  the trainer's version, and where the dispatch cursor was

Every field without a default is always there: absence never means anything. A later field has a default, and where it
is absent, what it would have told is unchecked. Keys are split into epoch and index; groups keep their ids.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..store.manifest import Plain

SAMPLER = "sampler.json"
LOADER = "loader.json"
SPARES = "spares.json"
BUFFER = "buffer.json"
LEDGER = "ledger.json"
TRAINER = "trainer.json"
PROGRESS = "progress.json"
#: The directory of the trainer state's own files.
TRAINER_DIRECTORY = "trainer"


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all: frozen, and nothing unknown is read over."""


class SamplerDocument(Document, frozen=True):
    name: str
    parameters: dict[str, Plain]
    state: dict[str, Any]


class LoaderDocument(Document, frozen=True):
    state: dict[str, Any]
    #: The class of the record that the state is, by which a look at a directory knows the loader. None: it is a plain
    #: dictionary, or was written before this field; then it is known by its fields.
    record: str | None = None


class SlotDocument(Document, frozen=True):
    """A finished group. `step` is its stamp, None for a sampler that does not stamp."""

    group: int
    epoch: int
    index: int
    step: int | None
    weight: int


class RowsStamp(Document, frozen=True):
    """Ties the rows and the index to the ledger of the same cut."""

    groups: int
    ledger_entries: int
    ledger_sha256: str


class BufferDocument(Document, frozen=True):
    """The slots in order of arrival, which some samplers select by."""

    capacity: int
    slots: list[SlotDocument]
    rows: RowsStamp


class PayloadDocument(Document, frozen=True):
    """`dataset`: look the prompt up under its key. `value`: the prompt itself."""

    kind: str
    value: Any


class SpareDocument(Document, frozen=True):
    """A prompt held back as a replacement; it has no group yet."""

    epoch: int
    index: int
    payload: PayloadDocument


class SparesDocument(Document, frozen=True):
    """The pool, the next one to be taken first. An empty pool is written as empty: absence never means it."""

    spares: list[SpareDocument]


class EntryDocument(Document, frozen=True):
    """A pending prompt."""

    group: int
    epoch: int
    index: int
    phase: str
    admission: int
    step: int | None
    attempt: int
    payload: PayloadDocument


class LedgerDocument(Document, frozen=True):
    entries: list[EntryDocument]


class IntervalDocument(Document, frozen=True):
    """Trained keys of one epoch, from `first` to `last`, both included."""

    epoch: int
    first: int
    last: int


class DroppedDocument(Document, frozen=True):
    epoch: int
    index: int
    reason: str


class AccountsDocument(Document, frozen=True):
    """What became of the prompts that are nobody's any more."""

    trained: list[IntervalDocument]
    dropped: list[DroppedDocument]


class PermitsDocument(Document, frozen=True):
    """Buffer permits that the saved groups hold; the others are free after a restore."""

    capacity: int
    held: int


class TrainerDocument(Document, frozen=True):
    version: int
    step: int
    permits: PermitsDocument
    accounts: AccountsDocument
    budgets: dict[str, int]
    next_group: int
    next_admission: int
    #: Whose the names of the budgets are: "controller", or None for a counters part of somebody's own, or where it was
    #: written before this field.
    budgets_of: str | None = None


class ProgressDocument(Document, frozen=True):
    """All that a save without recovery knows of the run. `cursor` is None for a sampler that has none."""

    version: int
    step: int
    cursor: int | None
