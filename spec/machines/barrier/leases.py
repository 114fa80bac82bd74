"""Slots of writers in other processes: a slot is a lease, which ends although its holder is dead or stalled.

    SOUND --fall_silent--> SILENT --expire_lease--> LAPSED --fence_lease--> FENCED --learn_of_expiry--> SOUND
                           SILENT --wake_in_time--> SOUND

A heartbeat keeps a lease. When none has come for its time the lease lapses; ledger, buffer and data plane are told, and
refuse its token from then on; only then is its slot given back, so that a drain ends. The holder may be dead, paused or
cut off: nobody can know, so what it sends may arrive at any time later, and is then refused. No clock is in this: a
lease may lapse at any moment after its holder fell silent, and what is safe does not depend on when.
"""

from __future__ import annotations

from ...language.expression import Value, put, where
from .sections import released
from .state import FENCED, INSIDE, LAPSED, OPEN, OUTSIDE, SILENT, SOUND, barrier


@barrier.system(who="barrier", each="all_writers", when=lambda scope: scope.leases)
def expire_lease(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """No heartbeat of writer `w` has come for the time of its lease: it is over, whatever the writer may think."""
    return s.lease[w] == SILENT, {"lease": put(s.lease, w, LAPSED)}


@barrier.system(who="barrier", each="all_writers", when=lambda scope: scope.leases)
def fence_lease(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Whoever checks tokens has been told that the one of writer `w` is void; its slot is given back for it."""
    return s.lease[w] == LAPSED, {
        "lease": put(s.lease, w, FENCED),
        "at": put(s.at, w, OUTSIDE),
        "late": put(s.late, w, 0),
    }


@barrier.system(who="writer", each="all_writers", progress=False, when=lambda scope: scope.leases)
def learn_of_expiry(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` lives and learns that its lease is over. Nothing waits for that: it may be dead.

    It may ask for another lease, which has a token of its own; the old one stays void.
    """
    return s.lease[w] == FENCED, {"lease": put(s.lease, w, SOUND), "passed_by": put(s.passed_by, w, 0)}


@barrier.environment(each="all_writers", when=lambda scope: scope.leases)
def fall_silent(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The heartbeats of writer `w`, inside its slot, stop: it died, is paused, or is cut off."""
    return (s.at[w] == INSIDE) & (s.lease[w] == SOUND) & (s.silences_left > 0), {
        "lease": put(s.lease, w, SILENT),
        "silences_left": s.silences_left - 1,
    }


@barrier.environment(each="all_writers", when=lambda scope: scope.leases)
def wake_in_time(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` is heard of again before its lease is over: nothing has happened."""
    return s.lease[w] == SILENT, {"lease": put(s.lease, w, SOUND)}


def written_late(s: Value, w: Value, token_is_taken: Value) -> dict[str, Value]:
    """What a write of a lease that is over moves. Before the next cut opens it does no harm, afterwards it does."""
    return {"late_write": put(s.late_write, w, where(token_is_taken & (s.passed_by[w] == 1), 1, s.late_write[w]))}


@barrier.environment(each="all_writers", when=lambda scope: scope.leases)
def write_late(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` wakes and writes, or what it sent long ago arrives: taken until its token is void, then refused."""
    return s.lease[w] >= LAPSED, written_late(s, w, s.lease[w] == LAPSED)


@barrier.environment(each="all_checkpointers", when=lambda scope: scope.leases)
def lose_cut(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
    """The holder of open cut `c` falls silent until its lease is over: its cut is closed for it, as if it had left.

    What it still asks to read is refused, so nothing that it read is published as one instant.
    """
    return (s.cut[c] == OPEN) & (s.silences_left > 0), {**released(s, c), "silences_left": s.silences_left - 1}
