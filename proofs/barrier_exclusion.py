"""No writer inside while a cut is open, on the complete barrier machine, for any number of writers and checkpoints.

The places in the queue are what counting has to do with it: a new checkpoint stands behind as many as are queued. So
this proof states the laws of counting, at the checkpoints it speaks of.
"""

from __future__ import annotations

from spec.barrier import CHILD_INSIDE, IDLE, INSIDE, OPEN, OUTSIDE, QUEUED, BarrierScope, barrier
from spec.expression import Value, count, implies
from spec.machine import Machine

from .conjuncts import Conjunct, about
from .obligations import Induction


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


STRENGTHENING: tuple[Conjunct, ...] = (
    open_cut_is_alone,
    open_cut_heads_the_queue,
    places_differ,
    place_says_queued,
    places_are_as_many_as_queued,
)


@about("all_writers")
def nobody_inside(s: Value, w: Value) -> Value:
    """At the start every writer is outside, and none has started a child."""
    return (s.at[w] == OUTSIDE) & (s.child[w] == 0)


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
