"""The schema of a trace: the records that a line can be, and the fields of every event that the library emits.

    {"record":"header",...}   begins a segment: one process, one run in it
    {"record":"event",...}    one action, numbered from 0 in its segment
    {"record":"gap",...}      so many events are missing here, because the disk did not keep up
    {"record":"end",...}      the segment was closed; a segment without one was cut off

Whoever adds an action or changes a field changes `FIELDS`, and the version where an old reader would misread it. What a
program emits itself, under a name that is not in the table, is passed on as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

SCHEMA = "cleancut.trace"
VERSION = 1

#: Every file begins with this.
FIRST_BYTES = b'{"record":"header","schema":"%s","version":%d,' % (SCHEMA.encode(), VERSION)


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="record", tag="header"):
    """The first line of a segment.

    `run` is the identity of the run (dataset, seed, batch size, generations, sampler, capacity, recovery), None when
    nobody has told it; a run that resumes has the same. `segment` is new for each. `monotonic` and `wall` are one
    instant in seconds: the clock that never jumps, whose origin means nothing, and the time since 1970.
    """

    schema: str
    version: int
    segment: str
    run: dict[str, Any] | None
    process: int
    host: str
    monotonic: float
    wall: float


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="record", tag="event"):
    """One action. `task` is the asyncio task that it happened in, None outside of one.

    A section of the barrier names its own task among the fields: it may be let in by the task of another.
    """

    number: int
    monotonic: float
    wall: float
    action: str
    task: str | None
    fields: dict[str, Any]


class Gap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="record", tag="gap"):
    """`lost` events from `number` on were not written."""

    number: int
    lost: int


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="record", tag="end"):
    """The segment is complete, with `events` events, lost ones included."""

    events: int


class Torn(msgspec.Struct, frozen=True):
    """A line that a crash has cut short; the last of its segment. Never written, only read."""

    length: int


Record = Header | Event | Gap | End

_GROUP: Mapping[str, Any] = {"group": int}
_SECTION: Mapping[str, Any] = {"section": int, "task": str | None, "kind": str}
_KEYS = list[tuple[int, int]]
#: With a reason the keys were dropped instead, and there are no groups.
_RESERVED: Mapping[str, Any] = {"admission": int | None, "groups": list[int], "keys": _KEYS, "reason": str | None}
#: group, epoch, index, phase, admission, step
_PENDING = list[tuple[int, int, int, str, int, int | None]]
#: group, epoch, index, step, weight
_READY = list[tuple[int, int, int, int | None, int]]

#: The fields of each action and their types. All of them are there in every event.
FIELDS: Mapping[str, Mapping[str, Any]] = {
    # The barrier. `section` is unique for its barrier and the same from request to end.
    "request_slot": _SECTION,
    "enter_slot": _SECTION,
    "leave_slot": _SECTION,
    "withdraw_slot": {**_SECTION, "reason": str},
    "request_cut": _SECTION,
    "open_cut": _SECTION,
    "close_cut": _SECTION,
    "withdraw_cut": {**_SECTION, "reason": str},
    # The lease of a section of this task, in another process, is over; the section is left once everybody knows.
    "expire_lease": {"task": str, "kind": str},
    # The way of a prompt. A key is [epoch, index].
    "reserve_batch": _RESERVED,
    "divert_batch": {"keys": _KEYS},
    "drain_pool": _RESERVED,
    "end_epoch": {"epoch": int},
    "pass_gate": {"admission": int},
    "commit_admission": {"admission": int, "groups": list[int], "step": int | None},
    "dispatch": _GROUP,
    "commit_group": _GROUP,
    "remove_committed": _GROUP,
    "claim": {"groups": list[int], "step": int},
    "write_back": _GROUP,
    "finish_step": {"groups": list[int], "step": int},
    "empty_step": {"step": int},
    # Trouble. `drop` follows the action that gives a pending group up; `evict` stands alone.
    "fail_attempt": {"group": int, "attempt": int, "cause": str},
    "retry": _GROUP,
    "substitute": {"group": int, "spare": int, "key": tuple[int, int], "step": int | None},
    "borrow": {"group": int, "spare": int, "key": tuple[int, int], "lender": int, "step": int, "later": int},
    "shrink": {"group": int, "step": int | None},
    "abort_stale": _GROUP,
    "evict": {"group": int, "reason": str},
    "drop": {"group": int, "reason": str},
    # Checkpoints.
    "read_sampler": {},
    "read_loader": {},
    "read_pool": {},
    "read_buffer": {},
    "read_ledger": {},
    # The last of a window: the number that its checkpoint will have, should nobody live to say that it was published.
    "read_trainer": {"sequence": int, "fence": int},
    "skip_snapshot": {"reason": str},
    # `fence` tells the process that wrote it from every other: numbers of deleted checkpoints are taken anew.
    "publish": {"name": str, "sequence": int, "step": int, "kind": str, "fence": int},
    "fail_save": {"name": str},
    # No action: the figures of a durable save, in seconds and bytes. `slowest_holder` is who the drain waited for.
    "report_save": {
        "name": str,
        "kind": str,
        **{f"{phase}_seconds": float for phase in ("queue", "drain", "window", "stage", "persist")},
        "bytes": int,
        "artifacts": dict[str, float],
        "slowest_holder": dict[str, str | float | None] | None,
        "blocked": dict[str, int],
    },
    # The state that the run goes on with, so that a trace can be followed from here alone.
    "restore": {
        "name": str,
        "sequence": int,
        "step": int,
        "version": int,
        "cursor": int | None,
        "shortfalls": list[tuple[int, int]] | None,
        "dropped": int | None,
        "loader": tuple[int, int, bool] | None,
        "pending": _PENDING,
        "ready": _READY,
        "spares": _KEYS,
        "fence": int,
    },
}

#: Fields that traces of this version lacked at first; without them such a trace is read all the same.
LATER: Mapping[str, frozenset[str]] = {
    "read_trainer": frozenset({"sequence", "fence"}),
    "publish": frozenset({"fence"}),
    "restore": frozenset({"fence"}),
}
