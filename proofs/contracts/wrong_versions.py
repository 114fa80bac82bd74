"""Wrong versions of the functions that the contracts are about: each must be refuted, or the contract sees nothing.

A wrong version is the contract itself, read with one name meaning something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, BinaryIO, cast

from impl.barrier.admission import AdmissionCore, Ticket
from impl.checkpoint.validation import as_pending
from impl.run.ledger import Ledger, LedgerSnapshot
from impl.store.manifest import Manifest, _digest_line, decode_manifest
from impl.store.retention import Known, removable
from impl.tracing.reader import TraceLine, _checked, _Order
from impl.tracing.schema import Event, Gap, Record, Torn

from . import functions as contracts


class GateStaysOpen(AdmissionCore):
    """Lets a writer in while a cut is open."""

    __slots__ = ()

    def request_cut(self, ticket: Ticket) -> bool:
        """As ever, but the gate is not shut."""
        granted = super().request_cut(ticket)
        self.gate_open = True
        return granted


class NobodyIsWoken(AdmissionCore):
    """Opens the gate at the end of a cut, and forgets who waits."""

    __slots__ = ()

    def _let_waiting_mutations_in(self) -> Sequence[Ticket]:
        return ()


class NothingSubtracted(Ledger):
    """Writes what the buffer owns as well."""

    def snapshot(self, cut: Any, owned_elsewhere: Container[int]) -> LedgerSnapshot:
        """The whole ledger."""
        return super().snapshot(cut, ())


def ledger_wins(documents: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Keeps the entries that the buffer holds too."""
    return list(documents.ledger.entries), ()


def admissions_of_their_own(slots: Any, entries: Any, next_admission: int) -> tuple[list[Any], int]:
    """Puts the groups of the buffer into new admissions, though part of theirs is pending still."""
    merged, following = as_pending(slots, [], next_admission)
    return sorted([*entries, *merged], key=lambda entry: entry.group), following


def anchors_forgotten(known: Sequence[Known], keep: int) -> tuple[str, ...]:
    """Keeps the newest, whatever they are of."""
    return tuple(entry.name for entry in known[:-keep])


def one_too_many(known: Sequence[Known], keep: int) -> tuple[str, ...]:
    """Removes as if one less were to be kept."""
    return removable(known, keep - 1) if keep > 1 else removable(known, keep)


def parts_swapped(name: str) -> tuple[int, int]:
    """Reads the sequence as the step."""
    step, _, sequence = name.removeprefix("step_").partition("-")
    return int(sequence), int(step)


def anything_goes(name: str) -> bool:
    """Refuses absolute names and doubled strokes only."""
    return not name.startswith("/") and "//" not in name and not name.endswith("/") and name != ""


SHORT_GAPS = tuple(Gap(number, 1) for number in range(len(contracts.RECORDS)))


class GapsCountOne(_Order):
    """Takes a gap for one event, however many were lost."""

    def next(self, number: int, record: Record) -> TraceLine:
        """As ever, with the gap made shorter."""
        return super().next(number, SHORT_GAPS[record.number] if isinstance(record, Gap) else record)


def last_one_wins(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Reads an object in which a key stands twice."""
    return dict(pairs)


def reading_with(function: Callable[..., Any], **names: object) -> Any:
    """The function with some of the names that it reads meaning something else."""
    assert isinstance(function, FunctionType)
    others = {**function.__globals__, **names}
    return FunctionType(function.__code__, others, function.__name__, function.__defaults__)


def digest_ignored(data: bytes, digest_line: bytes, name: str) -> Manifest:
    """Reads a manifest that was changed after it was published."""
    return decode_manifest(data, _digest_line(data), name)


def directory_ignored(data: bytes, digest_line: bytes, name: str) -> Manifest:
    """Reads a manifest in whatever directory it lies."""
    found = re.search(rb'"step":([0-9]+),"sequence":([0-9]+)', data)
    return decode_manifest(data, digest_line, name if found is None else f"step_{int(found[1])}-{int(found[2])}")


def members_unchecked(data: bytes, digest_line: bytes, name: str) -> Manifest:
    """Reads a manifest that lists files outside of its directory, or itself."""
    read = reading_with(decode_manifest, manifest_problems=lambda manifest: iter(()), _digest_line=_digest_line)
    return cast(Manifest, read(data, digest_line, name))


def schema_compared_loosely(data: bytes, digest_line: bytes, name: str) -> Manifest:
    """Takes true and 1.0 for 1."""
    loose = data.replace(b'"schema":true', b'"schema":1').replace(b'"schema":1.0', b'"schema":1')
    return decode_manifest(loose, _digest_line(loose) if digest_line == _digest_line(data) else digest_line, name)


class FieldsUnchecked(_Order):
    """Takes an event of ours with whatever fields."""

    def _check_fields(self, number: int, event: Event) -> None:
        pass


def torn_anywhere(name: str, file: BinaryIO) -> Iterator[TraceLine]:
    """Takes a last line that cannot be read for one cut short, though a line break ends it."""
    return cast("Iterator[TraceLine]", reading_with(_checked, _cut_short=lambda file: True)(name, file))


def fields_unchecked(name: str, file: BinaryIO) -> Iterator[TraceLine]:
    """Reads events of ours with whatever fields."""
    return cast("Iterator[TraceLine]", reading_with(_checked, _Order=FieldsUnchecked)(name, file))


def torn_lines_left_out(name: str, file: BinaryIO) -> Iterator[TraceLine]:
    """Passes over a line that was cut short, and says nothing of it."""
    return (line for line in _checked(name, file) if not isinstance(line.record, Torn))


@dataclass(frozen=True)
class Wrong:
    """A wrong version: the contract that must refute it, and what one of its names means instead."""

    contract: Callable[..., None]
    name: str
    version: object

    @property
    def called(self) -> str:
        """The name of the contract about it, in this module."""
        return f"{self.contract.__name__}_with_{getattr(self.version, '__name__', self.name)}"


WRONG_VERSIONS = (
    Wrong(contracts.cut_excludes_writers, "AdmissionCore", GateStaysOpen),
    Wrong(contracts.cut_excludes_writers, "AdmissionCore", NobodyIsWoken),
    Wrong(contracts.subtraction_leaves_one_owner, "Ledger", NothingSubtracted),
    Wrong(contracts.merge_lets_the_buffer_win, "without_buffered", ledger_wins),
    Wrong(contracts.merge_without_buffer_keeps_stamps, "as_pending", admissions_of_their_own),
    Wrong(contracts.retention_spares_what_is_needed, "removable", anchors_forgotten),
    Wrong(contracts.retention_spares_what_is_needed, "removable", one_too_many),
    Wrong(contracts.checkpoint_name_is_read_back, "parse_checkpoint_name", parts_swapped),
    Wrong(contracts.member_stays_inside, "is_listed_name", anything_goes),
    Wrong(contracts.duplicate_keys_are_refused, "_without_duplicates", last_one_wins),
    Wrong(contracts.manifest_is_read_as_it_was_published, "decode_manifest", digest_ignored),
    Wrong(contracts.manifest_is_read_as_it_was_published, "decode_manifest", directory_ignored),
    Wrong(contracts.manifest_is_read_as_it_was_published, "decode_manifest", members_unchecked),
    Wrong(contracts.manifest_is_read_as_it_was_published, "decode_manifest", schema_compared_loosely),
    Wrong(contracts.trace_numbers_have_no_hole, "_Order", GapsCountOne),
    Wrong(contracts.trace_is_read_up_to_a_fault, "_checked", torn_anywhere),
    Wrong(contracts.trace_is_read_up_to_a_fault, "_checked", fields_unchecked),
    Wrong(contracts.trace_is_read_up_to_a_fault, "_checked", torn_lines_left_out),
)


def _put_in_place(wrong: Wrong) -> FunctionType:
    contract = wrong.contract
    assert isinstance(contract, FunctionType)
    meaning = {**contract.__globals__, wrong.name: wrong.version}
    # CrossHair finds the frame of a contract by the name of its code.
    code = contract.__code__.replace(co_name=wrong.called, co_qualname=wrong.called)
    made = FunctionType(code, meaning, wrong.called, contract.__defaults__, contract.__closure__)
    made.__annotations__, made.__module__, made.__doc__ = contract.__annotations__, __name__, contract.__doc__
    return made


globals().update({wrong.called: _put_in_place(wrong) for wrong in WRONG_VERSIONS})
