"""Contracts on the pure functions of the library, for CrossHair: each asserts what must hold for every input.

The asserts at the beginning of a contract say which inputs it is about; CrossHair looks for one that breaks a later
assert. Inputs are small on purpose: it follows paths, and a path through three moves is already long. Each names what
it is about once and by a global name, so that a wrong version can be put in its place (`wrong_versions`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from types import SimpleNamespace
from typing import Any, TypeVar

from impl.barrier import Cut
from impl.barrier.admission import AdmissionCore, ExclusiveTicket, Standing, Ticket
from impl.checkpoint.validation import as_pending, without_buffered
from impl.errors import CheckpointCorrupt, CheckpointIncompatible, TraceUnreadable
from impl.keys import Key
from impl.run.ledger import Ledger
from impl.store import strict_json
from impl.store.manifest import (
    Count,
    FileRecord,
    Identity,
    Manifest,
    SamplerIdentity,
    _digest_line,
    decode_manifest,
    encode_manifest,
)
from impl.store.names import checkpoint_name, is_listed_name, parse_checkpoint_name
from impl.store.retention import Known, removable
from impl.store.strict_json import _without_duplicates
from impl.tracing.reader import _checked, _Order
from impl.tracing.schema import SCHEMA, VERSION, End, Event, Gap, Header, Record, Torn

MOVES, ENTRIES = 4, 3
T = TypeVar("T")


def plainly(call: Callable[[], T]) -> T:
    """What the call returns, out of CrossHair's sight, which does not reach into C. Give it plain values."""
    from crosshair.tracers import NoTracing, is_tracing

    if not is_tracing():  # type: ignore[no-untyped-call]
        return call()
    with NoTracing():  # type: ignore[no-untyped-call]
        return call()


def plain(number: int, below: int) -> int:
    """The number as a plain one: each is a path of its own."""
    return next(k for k in range(below) if k == number)


def _ticket(kind: type[Ticket]) -> Ticket:
    ticket = kind()
    ticket.kind, ticket.standing = "any", Standing.NEW
    return ticket


def cut_excludes_writers(moves: Sequence[int]) -> None:
    """Whatever is asked for and given back in any order, an open cut is alone, and nobody waits without a cause."""
    assert len(moves) <= MOVES
    assert all(0 <= move < 4 for move in moves)
    core = AdmissionCore()
    asked: list[Ticket] = []
    for move in moves:
        if move < 2:
            ticket = _ticket(ExclusiveTicket if move else Ticket)
            asked.append(ticket)
            core.request_cut(ticket) if move else core.request_slot(ticket)
        elif move == 2:
            live = [ticket for ticket in asked if ticket.live]
            if live:
                core.leave(live[0])
        else:
            waiting = [ticket for ticket in asked if ticket.standing is Standing.WAITING]
            if waiting:
                core.withdraw(waiting[-1])
        live = [ticket for ticket in asked if ticket.live]
        assert not any(ticket.exclusive for ticket in live) or len(live) == 1
        if any(ticket.standing is Standing.WAITING for ticket in asked):
            assert live
            assert not core.gate_open


class _Always(Cut):
    """Stands for a barrier and for its live exclusive cut: what the ledger does with its table is looked at."""

    name = "always"

    def __init__(self) -> None:
        self.barrier: Any = self

    def require(self, barrier: object, exclusive: bool = False) -> None:
        """Every cut is live here."""

    def emit(self, event: str, **fields: object) -> None:
        """Nobody listens."""

    def mutation(self, kind: str = "") -> Any:
        """Nobody waits."""


def subtraction_leaves_one_owner(reserved: int, elsewhere: Sequence[int]) -> None:
    """What goes to disk is the ledger without what others own: nothing more is missing, nothing is there twice."""
    assert 1 <= reserved <= ENTRIES
    assert len(elsewhere) <= ENTRIES
    assert all(0 <= group < ENTRIES for group in elsewhere)
    everywhere: Any = _Always()
    ledger = Ledger(everywhere)
    ledger.reserve(everywhere, [Key(0, index) for index in range(reserved)])
    snapshot = ledger.snapshot(everywhere, list(elsewhere))
    for group in range(reserved):
        assert (group in snapshot.entries) == (group not in elsewhere)
    assert len(snapshot.entries) <= reserved
    assert snapshot.next_group == reserved


def merge_lets_the_buffer_win(ledger: Sequence[int], buffer: Sequence[int]) -> None:
    """After a restore a group that both held is the buffer's alone, and every other entry is kept, in its order."""
    assert len(ledger) <= ENTRIES
    assert len(buffer) <= ENTRIES
    assert all(0 <= group < ENTRIES for group in [*ledger, *buffer])
    documents: Any = SimpleNamespace(
        ledger=SimpleNamespace(entries=[SimpleNamespace(group=group) for group in ledger]),
        buffer=SimpleNamespace(slots=[SimpleNamespace(group=group) for group in buffer]),
    )
    kept, taken_out = without_buffered(documents)
    assert [entry.group for entry in kept] == [group for group in ledger if group not in buffer]
    assert list(taken_out) == [group for group in ledger if group in buffer]


def merge_without_buffer_keeps_stamps(finished: Sequence[int], pending: Sequence[int]) -> None:
    """Left out of the buffer, its groups are pending again: each once, with its stamp, in one admission a step."""
    assert len(finished) <= ENTRIES
    assert len(pending) <= 2
    assert all(0 <= step < 3 for step in [*finished, *pending])
    # The step of each group; 0 is none.
    in_buffer, in_ledger = ([plain(step, 3) or None for step in steps] for steps in (finished, pending))
    steps = in_buffer + in_ledger
    slots: Any = [SimpleNamespace(group=g, epoch=0, index=g, step=s, weight=0) for g, s in enumerate(in_buffer)]
    entries: Any = [SimpleNamespace(group=g, step=s, admission=s or 3) for g, s in enumerate(in_ledger, len(in_buffer))]
    merged, next_admission = plainly(lambda: as_pending(slots, entries, 4))
    assert [entry.group for entry in merged] == list(range(len(steps)))
    assert [entry.step for entry in merged] == steps
    for one in merged:
        assert one.admission < next_admission
        assert all((one.step == other.step) <= (one.admission == other.admission) for other in merged if one.step)
        assert all((one.admission == other.admission) <= (one.step == other.step) for other in merged)


IDENTITY = Identity(1, "", 0, 1, None, SamplerIdentity("in_order", {}))
KINDS: Sequence[Any] = ("full", "rollout", "trainer")


def retention_spares_what_is_needed(kinds: Sequence[int], keep: int) -> None:
    """The newest full saves stay, and the anchor of every snapshot that does; of a kind the oldest goes first.

    A snapshot goes before the full saves, of which one may be its anchor, and none goes twice.
    """
    assert len(kinds) <= MOVES
    assert all(0 <= kind < len(KINDS) for kind in kinds)
    assert 1 <= keep <= 2
    known = []
    newest_full: str | None = None
    for sequence, number in enumerate(kinds, 1):
        kind = KINDS[number]
        name = checkpoint_name(sequence, sequence)
        anchor = newest_full if kind == "rollout" else None
        known.append(Known(name, sequence, sequence, kind, anchor, 1, IDENTITY))
        newest_full = name if kind == "full" else newest_full
    removed = removable(known, keep)
    assert len(set(removed)) == len(removed)
    gone = [entry for entry in known if entry.name in removed]
    snapshots_first = [e for e in gone if e.anchor is not None] + [e for e in gone if e.anchor is None]
    assert [entry.name for entry in snapshots_first] == list(removed)
    assert newest_full not in removed
    kept = [entry for entry in known if entry.name not in removed]
    for entry in kept:
        assert entry.anchor not in removed
    full = [entry for entry in known if entry.kind == "full"]
    assert all(entry in kept for entry in full[-keep:])


def checkpoint_name_is_read_back(step: int, sequence: int) -> None:
    """The name that a manifest is published under gives its step and sequence back."""
    assert 0 <= step < 10**18
    assert 0 <= sequence < 10**18
    assert parse_checkpoint_name(checkpoint_name(step, sequence)) == (step, sequence)


def member_stays_inside(name: str) -> None:
    """No name that a manifest may list leads out of its directory."""
    assert len(name) <= 6
    if is_listed_name(name):
        assert not name.startswith("/")
        assert ".." not in name.split("/")
        assert "" not in name.split("/")


def duplicate_keys_are_refused(keys: Sequence[str]) -> None:
    """An object of a manifest is read with all its keys, and not at all when one stands there twice."""
    assert len(keys) <= ENTRIES
    assert all(len(key) <= 2 for key in keys)
    try:
        found = _without_duplicates([(key, None) for key in keys])
    except ValueError:
        assert any(keys[i] == keys[j] for i in range(len(keys)) for j in range(i))
        return
    assert len(found) == len(keys)


WRITTEN = Manifest(
    schema=1,
    step=3,
    sequence=7,
    kind="full",
    parent=None,
    anchor=None,
    fence=1,
    identity=IDENTITY,
    counts={"groups": Count(2, "groups")},
    files={"ledger.json": FileRecord(10, "0" * 64, None)},
)
PUBLISHED, DIGEST = encode_manifest(WRITTEN)
#: One thing in a manifest changed: nothing at first, then to another manifest, then to what is none.
EDITS = (
    (b"", b""),
    (b'"fence":1', b'"fence":2'),
    (b'"step":3', b'"step":4'),
    (b'"schema":1', b'"schema":2'),
    (b'"schema":1', b'"schema":true'),
    (b'"schema":1', b'"schema":1.0'),
    (b'"fence":1', b'"fence":"1"'),
    (b'"fence":1', b'"fence":NaN'),
    (b'"fence":1', b'"fence":1,"fence":2'),
    (b'"fence":1', b'"fence":1,"of_a_later_version":2'),
    (b'"fence":1,', b""),
    (b"ledger.json", b"../ledger.json"),
    (b"ledger.json", b"manifest.json"),
)
WELL_FORMED = 3
EDITED = tuple(PUBLISHED.replace(before, after, 1) if before else PUBLISHED for before, after in EDITS)
DIGESTS = tuple(_digest_line(data) for data in EDITED)
NAMES = tuple(checkpoint_name(step, sequence) for step in (3, 4) for sequence in (6, 7))


def manifest_is_read_as_it_was_published(edit: int, has_its_digest: bool, name: int) -> None:
    """A manifest is read with the bytes of its digest, the name of its directory, and nothing that it cannot mean."""
    assert 0 <= edit < len(EDITED)
    assert 0 <= name < len(NAMES)
    number, called = plain(edit, len(EDITED)), NAMES[plain(name, len(NAMES))]
    digest = DIGESTS[number] if has_its_digest else DIGEST
    try:
        found = plainly(lambda: decode_manifest(EDITED[number], digest, called))
    except (CheckpointCorrupt, CheckpointIncompatible):
        return
    assert number < WELL_FORMED
    assert has_its_digest or number == 0
    assert plainly(lambda: found.name) == called
    assert plainly(lambda: encode_manifest(found)[0]) == EDITED[number]


HEADER = Header(SCHEMA, VERSION, "segment", None, 1, "host", 0.0, 0.0)
# Made beforehand: what is made while CrossHair looks on it makes itself, and a msgspec record it cannot.
RECORDS: Sequence[Sequence[Record]] = tuple(
    (Event(number, 0.0, 0.0, "of_a_user", None, {}), Gap(number, 2), End(number)) for number in range(6)
)


def trace_numbers_have_no_hole(choices: Sequence[int]) -> None:
    """Records that are read without a fault are numbered without a hole or a repetition, lost events included."""
    assert len(choices) <= ENTRIES
    assert all(0 <= choice < 3 * len(RECORDS) for choice in choices)
    order = _Order("trace")
    order.next(1, HEADER)
    expected, ended = 0, False
    for line, choice in enumerate(choices, 2):
        number, kind = divmod(plain(choice, 3 * len(RECORDS)), 3)
        try:
            order.next(line, RECORDS[number][kind])
        except TraceUnreadable:
            return
        assert not ended
        assert number == expected
        expected, ended = expected + kind + 1, kind == 2


IS_HEADER, IS_END, IS_TORN, IS_WRONG = 0, 4, 5, 6
HEADER_LINE = strict_json.encode(HEADER, "a header")
#: A header, an event, an event of ours, a gap, an end, a line cut short; then what is no line of a trace.
LINES = (
    HEADER_LINE,
    strict_json.encode(Event(0, 0.0, 0.0, "of_a_user", None, {}), "an event"),
    strict_json.encode(Event(0, 0.0, 0.0, "dispatch", None, {"group": 1}), "an event"),
    strict_json.encode(Gap(0, 1), "a gap"),
    strict_json.encode(End(1), "an end"),
    HEADER_LINE[:-9] + b"\n",
    strict_json.encode(Event(0, 0.0, 0.0, "dispatch", None, {"group": "1"}), "an event of other fields"),
    strict_json.encode(Gap(0, 0), "a gap of nothing"),
    HEADER_LINE.replace(b'"version":1', b'"version":2'),
    b'{"record":"another"}\n',
)


def trace_is_read_up_to_a_fault(choices: Sequence[int], ends_in_a_line: bool) -> None:
    """Every line of a trace is one, but for the last of a segment, which a crash may have cut short."""
    assert len(choices) <= ENTRIES
    assert all(0 <= choice < len(LINES) for choice in choices)
    lines = [plain(choice, len(LINES)) for choice in choices]
    end = None if ends_in_a_line else -1

    def records() -> list[Record | Torn]:
        file = BytesIO(b"".join([LINES[line] for line in lines])[:end])
        return [line.record for line in _checked("trace", file)]

    try:
        read = plainly(records)
    except TraceUnreadable:
        return
    assert len(read) == len(lines) > 0
    for place, line in enumerate(lines):
        following = lines[place + 1] if place + 1 < len(lines) else None
        assert line < IS_WRONG
        assert isinstance(read[place], Torn) == (line == IS_TORN)
        if line == IS_TORN:
            assert following == IS_HEADER or (following is None and not ends_in_a_line)
        if line == IS_END:
            assert following in (IS_HEADER, IS_TORN, None)


CONTRACTS: tuple[Callable[..., None], ...] = (
    cut_excludes_writers,
    subtraction_leaves_one_owner,
    merge_lets_the_buffer_win,
    merge_without_buffer_keeps_stamps,
    retention_spares_what_is_needed,
    checkpoint_name_is_read_back,
    member_stays_inside,
    duplicate_keys_are_refused,
    manifest_is_read_as_it_was_published,
    trace_numbers_have_no_hole,
    trace_is_read_up_to_a_fault,
)
