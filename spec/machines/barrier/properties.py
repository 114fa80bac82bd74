"""What must hold of the barrier: a cut is alone, nobody is overtaken or starved, and everybody comes to an end."""

from __future__ import annotations

from ...language.expression import Value, all_of, any_of, implies, not_, total, where
from ...language.machine import Progress
from .state import (
    CHECKPOINT_STANDS,
    CHILD_ENDED,
    CHILD_INSIDE,
    CHILD_STANDS,
    DONE,
    FENCED,
    INSIDE,
    LEASE_STANDS,
    NO_CHILD,
    OPEN,
    OUTSIDE,
    QUEUED,
    WAITING,
    WRITER_STANDS,
    barrier,
)


def some_cut_open(s: Value) -> Value:
    """A cut is open."""
    return any_of(s.all_checkpointers, lambda c: s.cut[c] == OPEN)


@barrier.always(each="all_writers", witness=some_cut_open)
def cut_excludes_writers(s: Value, w: Value) -> Value:
    """While a cut is open nobody is inside a slot, and no write of a lease that was over before it takes effect.

    Nobody: neither a writer nor a child. The write not inside the cut, and not after it.
    """
    alone = implies(some_cut_open(s), (s.at[w] < INSIDE) & (s.child[w] != CHILD_INSIDE))
    return alone & (s.late_write[w] == 0)


@barrier.also(
    "cut_excludes_writers",
    at="write_late",
    witness=lambda s: any_of(s.all_writers, lambda w: (s.lease[w] == FENCED) & (s.passed_by[w] == 1)),
)
def passed_by_is_fenced(s: Value, w: Value) -> Value:
    """Where a write comes late, the token of whoever a cut has passed by is refused."""
    return implies(s.passed_by[w] == 1, s.lease[w] == FENCED)


@barrier.always(
    each="all_checkpointers",
    witness=lambda s: some_cut_open(s) & any_of(s.all_checkpointers, lambda c: s.cut[c] == QUEUED),
)
def one_cut_at_a_time(s: Value, c: Value) -> Value:
    """While one cut is open no other is, and the open one heads the queue."""
    return implies(s.cut[c] == OPEN, s.place[c] == 1)


@barrier.always(
    each="all_writers",
    witness=lambda s: any_of(s.all_writers, lambda w: (s.at[w] == WAITING) & (s.late[w] == 1)),
)
def no_overtaking(s: Value, w: Value) -> Value:
    """Whoever asked after the checkpoint at the head of the queue is not inside a slot before that cut."""
    writer_overtook = (s.at[w] == INSIDE) & (s.late[w] == 1)
    child_overtook = (s.child[w] == CHILD_INSIDE) & (s.child_late[w] == 1)
    return not_(writer_overtook | child_overtook)


@barrier.always(each="all_writers", witness=lambda s: any_of(s.all_writers, lambda w: s.passed_over[w] == 1))
def writers_not_starved(s: Value, w: Value) -> Value:
    """A waiting writer sees at most one cut open before it is let in."""
    return s.passed_over[w] <= 1


def finished(s: Value) -> Value:
    """Every writer has had its slots, every child has ended, and every checkpoint has had its cut.

    A writer whose lease is over may be dead: nothing waits for it, so it counts as ended.
    """

    def writer_ended(w: Value) -> Value:
        child_ended = (s.child[w] == NO_CHILD) | (s.child[w] == CHILD_ENDED)
        no_more_to_come = (s.rounds_left[w] == 0) | (s.lease[w] == FENCED)
        return (s.at[w] == OUTSIDE) & no_more_to_come & child_ended

    return all_of(s.all_writers, writer_ended) & all_of(s.all_checkpointers, lambda c: s.cut[c] == DONE)


def rank(s: Value) -> Value:
    """Rises with every action of ours: slots asked for, entered, left; leases over; checkpoints queued, open, done."""

    def stage(w: Value) -> Value:
        slot = where(s.at[w] == WAITING, -2, where(s.at[w] == OUTSIDE, 0, -1))
        return slot - 3 * s.rounds_left[w] + s.child[w] + s.lease[w]

    standing = total(s.all_writers, stage)
    return standing + total(s.all_checkpointers, lambda c: s.cut[c])


barrier.progress = Progress(
    "no_deadlock",
    finished,
    rank,
    "Every state that is not finished lets a task go on, and every step of ours brings the run nearer to its end.",
)


def describe(s: Value, domain: str | None, index: int) -> str:
    """One line about a writer or a checkpoint, for a counterexample."""
    if domain == "all_writers":
        late = ", asked late" if s.late[index] else ""
        child = f", its child {CHILD_STANDS[s.child[index]]}" if s.child[index] else ""
        lease = f", its lease {LEASE_STANDS[s.lease[index]]}" if s.lease[index] else ""
        return f"writer {index} is {WRITER_STANDS[s.at[index]]}{late}{lease}{child}"
    place = f", place {s.place[index]} in the queue" if s.place[index] else ""
    return f"checkpoint {index} is {CHECKPOINT_STANDS[s.cut[index]]}{place}"


barrier.describe = describe
