"""No writer inside while a cut is open, on the complete barrier machine, for any number of writers and checkpoints.

Of writers in other processes: no write of a lease that is over takes effect in a cut or after it, whatever clocks do.

The places in the queue are what counting has to do with it: a new checkpoint stands behind as many as are queued. So
this proof states the laws of counting, at the checkpoints it speaks of.
"""

from __future__ import annotations

from spec.language.expression import Value, count, implies
from spec.language.machine import Machine
from spec.machines.barrier import (
    CHILD_INSIDE,
    FENCED,
    IDLE,
    INSIDE,
    LAPSED,
    OPEN,
    OUTSIDE,
    QUEUED,
    SILENT,
    SOUND,
    BarrierScope,
    barrier,
)

from ..solver.conjuncts import Conjunct, about
from ..solver.obligations import Induction


@about("all_checkpointers", "all_writers", without="cut_excludes_writers: safety in every state")
def open_cut_is_alone(s: Value, c: Value, w: Value) -> Value:
    """While a cut is open no writer and no child is inside: the property itself. Needed by its own safety."""
    return implies(s.cut[c] == OPEN, (s.at[w] < INSIDE) & (s.child[w] != CHILD_INSIDE))


@about("all_checkpointers", without="consecution of close_cut")
def open_cut_heads_the_queue(s: Value, c: Value) -> Value:
    """An open cut has the first place. Needed by close_cut and cancel_in_cut: no second is open as they let all in."""
    return implies(s.cut[c] == OPEN, s.place[c] == 1)


@about("all_checkpointers", "all_checkpointers", without="consecution of close_cut")
def places_differ(s: Value, c: Value, other: Value) -> Value:
    """No two checkpoints have one place in the queue. Needed by close_cut, cancel_in_cut and withdraw_cut."""
    return implies((s.place[c] == s.place[other]) & (s.place[c] > 0), c == other)


@about("all_checkpointers", without="consecution of request_cut")
def place_says_queued(s: Value, c: Value) -> Value:
    """Who is queued or open has a place, and nobody else. Needed by withdraw_cut: who leaves is not before the head."""
    in_queue = (s.cut[c] == QUEUED) | (s.cut[c] == OPEN)
    return (s.place[c] >= 0) & implies(in_queue, s.place[c] > 0) & implies(s.place[c] > 0, in_queue)


@about("all_checkpointers", without="consecution of request_cut")
def places_are_as_many_as_queued(s: Value, c: Value) -> Value:
    """No place is beyond the number of the queued. Needed by request_cut: the new place is a free one."""
    return s.place[c] <= count(s.all_checkpointers, lambda queued: s.place[queued] > 0)


@about("all_writers", without="cut_excludes_writers: safety in every state")
def no_write_was_late(s: Value, w: Value) -> Value:
    """No write took effect of a lease that a cut has passed by: the property itself, for writers in other processes."""
    return s.late_write[w] == 0


@about("all_writers", without="consecution of write_late")
def passed_by_is_fenced(s: Value, w: Value) -> Value:
    """Whom a cut has passed by has a void token. Needed by write_late: what comes from him is refused."""
    return implies(s.passed_by[w] != 0, s.lease[w] == FENCED)


@about("all_writers", without="consecution of open_cut")
def lease_not_over_is_inside(s: Value, w: Value) -> Value:
    """A token still taken, of a silent or lapsed writer, is of a slot still held. Needed by open_cut: it waits."""
    declared = (s.lease[w] >= SOUND) & (s.lease[w] <= FENCED)
    return declared & implies((s.lease[w] == SILENT) | (s.lease[w] == LAPSED), s.at[w] == INSIDE)


STRENGTHENING: tuple[Conjunct, ...] = (
    open_cut_is_alone,
    open_cut_heads_the_queue,
    places_differ,
    place_says_queued,
    places_are_as_many_as_queued,
    no_write_was_late,
    passed_by_is_fenced,
    lease_not_over_is_inside,
)


@about("all_writers")
def nobody_inside(s: Value, w: Value) -> Value:
    """At the start every writer is outside, none has started a child, and no lease is over."""
    no_lease_over = (s.lease[w] == SOUND) & (s.passed_by[w] == 0) & (s.late_write[w] == 0)
    return (s.at[w] == OUTSIDE) & (s.child[w] == 0) & no_lease_over


@about("all_checkpointers")
def nobody_queued(s: Value, c: Value) -> Value:
    """At the start no checkpoint has been asked for."""
    return (s.cut[c] == IDLE) & (s.place[c] == 0)


ASSUMES = "an action of the barrier is one instant: its core has no await, which the explorer checks of the library"
EXCLUDES = "that waiting ends (see progress), and how often a writer is passed over, which is enumerated"


def induction(machine: Machine = barrier) -> Induction:
    """What is proved of the barrier for any size; of a varied machine, the same obligations."""
    return Induction(
        name="exclusion",
        machine=machine,
        scope_type=BarrierScope,
        properties=("cut_excludes_writers", "one_cut_at_a_time"),
        strengthening=STRENGTHENING,
        initial=(nobody_inside, nobody_queued),
        assumes=ASSUMES,
        excludes=EXCLUDES,
        for_all=True,
        counts=True,
    )
