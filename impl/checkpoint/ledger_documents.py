"""The ledger, its accounts and its id counters, and the spare pool as documents, in both directions.

Payloads of pending prompts: None means that the prompt is the dataset's row of its key, and nothing is stored; any
other payload must be a strict JSON value and is stored itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from ..errors import CheckpointCorrupt
from ..keys import Key
from ..run.accounts import AccountsSnapshot
from ..run.ledger import LedgerSnapshot
from ..run.pending_groups import LedgerEntry, Phase
from ..run.spare_pool import Spare
from ..store import strict_json
from . import documents as doc


def ledger_document(snapshot: LedgerSnapshot) -> doc.LedgerDocument:
    """The pending prompts, in the order of the ledger; UsageError names a payload that cannot be saved."""
    return doc.LedgerDocument([_entry_document(entry) for entry in snapshot.entries.values()])


def accounts_document(accounts: AccountsSnapshot) -> doc.AccountsDocument:
    """Trained keys as intervals, dropped keys with their reasons."""
    return doc.AccountsDocument(
        trained=[doc.IntervalDocument(*interval) for interval in accounts.trained],
        dropped=[doc.DroppedDocument(key.epoch, key.index, reason) for key, reason in accounts.dropped.items()],
    )


def spares_document(spares: Iterable[Spare]) -> doc.SparesDocument:
    """The pool in its order; UsageError names a payload that cannot be saved."""
    return doc.SparesDocument([
        doc.SpareDocument(
            spare.key.epoch, spare.key.index, _payload_document(spare.payload, f"the payload of the spare {spare.key}")
        )
        for spare in spares
    ])  # fmt: skip


def spares_of(document: doc.SparesDocument) -> tuple[Spare, ...]:
    """What `SparePool.load` takes; prompts are read from the dataset when they are needed."""
    return tuple(Spare(Key(each.epoch, each.index), _payload(each.payload)) for each in document.spares)


def ledger_snapshot(
    entries: Iterable[doc.EntryDocument], trainer: doc.TrainerDocument, next_admission: int
) -> LedgerSnapshot:
    """What `Ledger.load` takes, checked: one owner for each key, admissions that agree, fresh id counters."""
    snapshot = LedgerSnapshot(
        entries=MappingProxyType({entry.group: _entry(entry) for entry in entries}),
        next_group=trainer.next_group,
        next_admission=next_admission,
        accounts=accounts_snapshot(trainer.accounts),
    )
    snapshot.require_consistent()
    return snapshot


def _payload_document(payload: object, where: str) -> doc.PayloadDocument:
    if payload is None:
        return doc.PayloadDocument("dataset", None)
    return doc.PayloadDocument("value", strict_json.checked(payload, where))


def _payload(document: doc.PayloadDocument) -> object:
    return document.value if document.kind == "value" else None


def _entry_document(entry: LedgerEntry) -> doc.EntryDocument:
    return doc.EntryDocument(
        group=entry.group,
        epoch=entry.key.epoch,
        index=entry.key.index,
        phase=entry.phase.value,
        admission=entry.admission,
        step=entry.step,
        attempt=entry.attempt,
        payload=_payload_document(entry.payload, f"the payload of group {entry.group}"),
    )


def _entry(document: doc.EntryDocument) -> LedgerEntry:
    return LedgerEntry(
        group=document.group,
        key=Key(document.epoch, document.index),
        phase=Phase(document.phase),
        admission=document.admission,
        step=document.step,
        payload=_payload(document.payload),
        attempt=document.attempt,
    )


def accounts_snapshot(document: doc.AccountsDocument) -> AccountsSnapshot:
    """The accounts; CheckpointCorrupt where a prompt was settled twice."""
    dropped: dict[Key, str] = {}
    for each in document.dropped:
        key = Key(each.epoch, each.index)
        if key in dropped:
            raise CheckpointCorrupt(
                f"the accounts count {key} as dropped twice ({dropped[key]!r} and {each.reason!r}). The file was "
                "edited; restore an older checkpoint."
            )
        dropped[key] = each.reason
    intervals = [(each.epoch, each.first, each.last) for each in document.trained]
    return AccountsSnapshot.from_intervals(intervals, dropped)
