"""A checkpoint that is asked for opens once the open slots end; and no run of the barrier is stuck. For any size.

Fairness: each task inside a slot leaves it at some time (the work inside ends, which is the user's part), the lease of
one that has fallen silent ends at some time and those who check tokens are told, an open cut is closed at some time,
and a checkpoint whose drain is over is let in. Nothing is asked of those who wait, nor of the environment: it may
cancel whom it likes.
"""

from __future__ import annotations

from collections.abc import Iterator

from spec.language.expression import Symbol, Value, any_of, count, implies, not_, where
from spec.language.machine import Machine
from spec.machines.barrier import (
    CHILD_ENDED,
    CHILD_INSIDE,
    DONE,
    FENCED,
    INSIDE,
    NO_CHILD,
    OPEN,
    OUTSIDE,
    QUEUED,
    SILENT,
    SOUND,
    WAITING,
    BarrierScope,
    barrier,
    finished,
)

from ..solver.conjuncts import Conjunct, about
from ..solver.obligations import Definition, Induction, Obligation
from ..solver.ranking import (
    Height,
    Measure,
    Rising,
    Waiting,
    obligation_of_height,
    obligations_of_rising,
    obligations_of_waiting,
)
from ..solver.terms import NUMBERS
from . import barrier_exclusion


@about(NUMBERS, without="somebody can always help")
def every_place_is_taken(s: Value, k: Value) -> Value:
    """From the first place to the last each is somebody's. Needed to go on: a queue has a head.

    It follows from `places_differ` and `places_are_as_many_as_queued` by the pigeonhole principle, which the solver
    does not have.
    """
    queued = count(s.all_checkpointers, lambda c: s.place[c] > 0)
    return implies((k >= 1) & (k <= queued), any_of(s.all_checkpointers, lambda c: s.place[c] == k))


@about("all_writers", without="somebody can always help")
def writer_stands_somewhere(s: Value, w: Value) -> Value:
    """A writer is outside, waiting or inside, his child somewhere on its way. Needed to go on: each has a next step."""
    writer = (s.at[w] == OUTSIDE) | (s.at[w] == WAITING) | (s.at[w] == INSIDE)
    return writer & (s.child[w] >= NO_CHILD) & (s.child[w] <= CHILD_ENDED) & (s.rounds_left[w] >= 0)


@about("all_checkpointers", without="every unfinished state goes on")
def checkpoint_stands_somewhere(s: Value, c: Value) -> Value:
    """A checkpoint is idle, queued, open or done. Needed to go on: each has a next step."""
    return (s.cut[c] >= 0) & (s.cut[c] <= 3)


@about("all_writers", without="every unfinished state goes on")
def fenced_is_outside(s: Value, w: Value) -> Value:
    """Whose lease is over holds no slot and waits for none. Needed to go on: nobody waits for him."""
    return implies(s.lease[w] == FENCED, s.at[w] == OUTSIDE)


@about("all_writers", without="every unfinished state goes on")
def no_child_where_there_are_none(s: Value, w: Value) -> Value:
    """In a scope without children no writer has one. Needed to go on: nobody waits for a step that nobody can take."""
    return implies(s.children == 0, s.child[w] == NO_CHILD)


@about("all_writers", without="somebody can always help")
def leases_are_sound_where_there_are_none(s: Value, w: Value) -> Value:
    """In a scope without leases none is over. Needed to go on: nothing there would give such a slot back."""
    return implies(s.leases == 0, s.lease[w] == SOUND)


@about(without="the measure is never below nothing")
def silences_are_numbered(s: Value) -> Value:
    """No more holders fall silent than the scope allows. Needed for the measure: waking up again comes to an end."""
    return s.silences_left >= 0


STRENGTHENING: tuple[Conjunct, ...] = (
    every_place_is_taken,
    writer_stands_somewhere,
    checkpoint_stands_somewhere,
    fenced_is_outside,
    silences_are_numbered,
    no_child_where_there_are_none,
    leases_are_sound_where_there_are_none,
)


@about("all_writers")
def rounds_to_come(s: Value, w: Value) -> Value:
    """At the start each writer has some slots to ask for, or none; and some may fall silent, or none."""
    return (s.rounds_left[w] == s.rounds) & (s.rounds >= 0) & (s.silences_left == s.leases) & (s.leases >= 0)


ASSUMES = (
    "weak fairness: whoever is inside a slot leaves it at some time or, silent, loses its lease, an open cut is "
    "closed, and a checkpoint whose drain is over is let in; a holder falls silent and wakes again finitely often"
)
EXCLUDES = "how long any of that takes; a checkpoint that is cancelled or gives up its drain waits no longer either"


def induction(machine: Machine = barrier) -> Induction:
    """What holds of the queue at all times."""
    return Induction(
        name="queue",
        machine=machine,
        scope_type=BarrierScope,
        properties=(),
        strengthening=STRENGTHENING,
        rests_on=barrier_exclusion.STRENGTHENING,
        initial=(barrier_exclusion.nobody_inside, barrier_exclusion.nobody_queued, rounds_to_come),
        assumes=ASSUMES,
        excludes=EXCLUDES,
        for_all=True,
        counts=True,
        definitions=(Definition("next", NUMBERS, lambda: Symbol("constant", "k") + 1),),
    )


@about("all_checkpointers")
def is_asked_for(s: Value, c: Value) -> Value:
    """The checkpoint waits for its cut."""
    return s.cut[c] == QUEUED


def what_is_before(s: Value, c: Value) -> Measure:
    """The place in the queue; whether the cut at its head is still to be opened; who is inside; whose lease ends."""
    to_be_opened = where(any_of(s.all_checkpointers, lambda other: s.cut[other] == OPEN), 0, 1)
    inside = count(s.all_writers, lambda w: s.at[w] == INSIDE)
    children_inside = count(s.all_writers, lambda w: s.child[w] == CHILD_INSIDE)
    silent = count(s.all_writers, lambda w: s.lease[w] == SILENT)
    # Falling silent leaves one silence less; waking up and lapsing leave one silent writer less.
    return (s.place[c], to_be_opened, inside + children_inside, 2 * s.silences_left + silent)


def waiting(held: Induction) -> Waiting:
    """A requested checkpoint opens once the open slots end."""
    return Waiting(
        name="a requested checkpoint opens",
        induction=held,
        waits=is_asked_for,
        measure=what_is_before,
        helpers=("leave_slot", "child_leave", "expire_lease", "fence_lease", "open_cut", "close_cut"),
        shut_out=("enter_slot", "child_enter"),
    )


def rising(held: Induction) -> Rising:
    """No run of the barrier is stuck before it is finished."""
    return Rising("no_deadlock", held, lambda s: not_(finished(s)), "every unfinished state")


def obligations_of_progress(held: Induction) -> Iterator[Obligation]:
    """Both arguments, over the same strengthening, and that a run comes to its end."""
    yield from obligations_of_waiting(waiting(held))
    yield from obligations_of_rising(rising(held))
    most = CHILD_ENDED + FENCED
    height = Height(members={"all_writers": most, "all_checkpointers": DONE}, each=(most, DONE), besides=lambda s: 0)
    yield obligation_of_height("no_deadlock", held, height)
