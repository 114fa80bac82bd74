"""Contracts on the pure functions of the library, for CrossHair: each asserts what must hold for every input.

The asserts at the beginning of a contract say which inputs it is about; CrossHair looks for one that breaks a later
assert. Inputs are small on purpose: it follows paths, and a path through three moves is already long. Each names what
it is about once and by a global name, so that a wrong version can be put in its place (`wrong_versions`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from impl.barrier import Cut
from impl.barrier.admission import AdmissionCore, ExclusiveTicket, Standing, Ticket
from impl.checkpointing.validation import without_buffered
from impl.errors import TraceUnreadable
from impl.keys import Key
from impl.ledger import Ledger
from impl.store.manifest import Identity, SamplerIdentity
from impl.store.names import checkpoint_name, is_member_name, parse_checkpoint_name
from impl.store.retention import Known, removable
from impl.store.strict_json import _without_duplicates
from impl.tracing.reader import _Order
from impl.tracing.schema import SCHEMA, VERSION, End, Event, Gap, Header, Record

MOVES, ENTRIES = 4, 3


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


IDENTITY = Identity(1, "", 0, 1, None, SamplerIdentity("in_order", {}))
KINDS: Sequence[Any] = ("full", "rollout", "trainer")


def retention_spares_what_is_needed(kinds: Sequence[int], keep: int) -> None:
    """The newest full saves stay, and the anchor of every snapshot that does; the oldest goes first, and none twice."""
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
    assert [entry.name for entry in known if entry.name in removed] == list(removed)
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
    if is_member_name(name):
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
        # A number that is looked for is a plain one, and each of them a path of its own.
        number, kind = next((n, k) for n in range(len(RECORDS)) for k in range(3) if 3 * n + k == choice)
        try:
            order.next(line, RECORDS[number][kind])
        except TraceUnreadable:
            return
        assert not ended
        assert number == expected
        expected, ended = expected + kind + 1, kind == 2


CONTRACTS: tuple[Callable[..., None], ...] = (
    cut_excludes_writers,
    subtraction_leaves_one_owner,
    merge_lets_the_buffer_win,
    retention_spares_what_is_needed,
    checkpoint_name_is_read_back,
    member_stays_inside,
    duplicate_keys_are_refused,
    trace_numbers_have_no_hole,
)
