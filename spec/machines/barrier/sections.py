"""How sections are asked for, entered and left, by writers, their children and checkpoints; and what cancels them."""

from __future__ import annotations

from ...language.expression import Value, count, each, not_, put, where
from .state import (
    BORN,
    CHILD_ENDED,
    CHILD_INSIDE,
    CHILD_WAITING,
    DONE,
    IDLE,
    INSIDE,
    LAPSED,
    NO_CHILD,
    OPEN,
    OUTSIDE,
    QUEUED,
    SOUND,
    WAITING,
    barrier,
    drained,
    queue_without,
    shut,
)

# --------------------------------------------------------------------------------------------------- System


@barrier.system(who="writer", each="all_writers")
def request_slot(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` asks for a slot. Always possible from outside, but for one that does not know yet that its is gone."""
    return (s.at[w] == OUTSIDE) & (s.rounds_left[w] > 0) & (s.lease[w] == SOUND), {
        "at": put(s.at, w, WAITING),
        "rounds_left": put(s.rounds_left, w, s.rounds_left[w] - 1),
        "late": put(s.late, w, where(shut(s), 1, 0)),
    }


@barrier.system(who="writer", each="all_writers")
def enter_slot(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` enters its slot. Shut from the moment a checkpoint is asked for: this guard is the barrier."""
    return (s.at[w] == WAITING) & not_(shut(s)), {"at": put(s.at, w, INSIDE)}


@barrier.system(who="writer", each="all_writers")
def leave_slot(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` gives its slot back. Always possible, and never waits: no cancellation can leak a slot.

    It may wait inside for the child it started: that one is refused at once, so it ends. In another process it may be
    dead or stalled instead: then its lease ends (`leases`).
    """
    return (s.at[w] == INSIDE) & (s.lease[w] == SOUND), {"at": put(s.at, w, OUTSIDE), "late": put(s.late, w, 0)}


@barrier.system(who="writer", each="all_writers", when=lambda scope: scope.children)
def start_child(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w`, inside its slot, starts a task, which inherits the section."""
    return (s.at[w] == INSIDE) & (s.child[w] == NO_CHILD), {"child": put(s.child, w, BORN)}


@barrier.system(who="child", each="all_writers", when=lambda scope: scope.children)
def refuse_child(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The child of writer `w` asks for a slot while the section it inherited is open: refused, nothing else changes.

    A writer that asks for a second slot itself is refused in the same way, which changes nothing at all.
    """
    return (s.child[w] == BORN) & (s.at[w] == INSIDE), {"child": put(s.child, w, CHILD_ENDED)}


@barrier.system(who="child", each="all_writers", when=lambda scope: scope.children)
def child_request(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The child of writer `w` asks for a slot once the section it inherited has ended: a request like any other."""
    return (s.child[w] == BORN) & (s.at[w] != INSIDE), {
        "child": put(s.child, w, CHILD_WAITING),
        "child_late": put(s.child_late, w, where(shut(s), 1, 0)),
    }


@barrier.system(who="child", each="all_writers", when=lambda scope: scope.children)
def child_enter(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The child of writer `w` enters its slot."""
    return (s.child[w] == CHILD_WAITING) & not_(shut(s)), {"child": put(s.child, w, CHILD_INSIDE)}


@barrier.system(who="child", each="all_writers", when=lambda scope: scope.children)
def child_leave(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The child of writer `w` gives its slot back."""
    return s.child[w] == CHILD_INSIDE, {
        "child": put(s.child, w, CHILD_ENDED),
        "child_late": put(s.child_late, w, 0),
    }


@barrier.system(who="checkpoint", each="all_checkpointers")
def request_cut(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
    """Checkpoint `c` is asked for and joins the queue; from here on new slots wait."""
    return s.cut[c] == IDLE, {
        "cut": put(s.cut, c, QUEUED),
        "place": put(s.place, c, 1 + count(s.all_checkpointers, lambda other: s.place[other] > 0)),
    }


@barrier.system(who="checkpoint", each="all_checkpointers")
def open_cut(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
    """The drain of the head of the queue is over: from here on it reads alone."""
    return (s.cut[c] == QUEUED) & (s.place[c] == 1) & drained(s), {
        "cut": put(s.cut, c, OPEN),
        "passed_over": each(s.all_writers, lambda w: where(s.at[w] == WAITING, s.passed_over[w] + 1, s.passed_over[w])),
        "passed_by": each(s.all_writers, lambda w: where(s.lease[w] >= LAPSED, 1, s.passed_by[w])),
    }


def released(s: Value, c: Value) -> dict[str, Value]:
    """What the release of checkpoint `c` moves: all who wait now are counted in as one batch, in the same instant."""
    return {
        "cut": put(s.cut, c, DONE),
        "place": queue_without(s, c),
        "at": each(s.all_writers, lambda w: where(s.at[w] == WAITING, INSIDE, s.at[w])),
        "child": each(s.all_writers, lambda w: where(s.child[w] == CHILD_WAITING, CHILD_INSIDE, s.child[w])),
        "late": each(s.all_writers, lambda w: 0),
        "child_late": each(s.all_writers, lambda w: 0),
        "passed_over": each(s.all_writers, lambda w: 0),
    }


@barrier.system(who="checkpoint", each="all_checkpointers")
def close_cut(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
    """Checkpoint `c` gives the barrier back and lets in, as one batch, every writer that waits at this moment."""
    return s.cut[c] == OPEN, released(s, c)


# ---------------------------------------------------------------------------------------------- Environment


@barrier.environment(each="all_writers")
def withdraw_slot(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` is cancelled while it waits; it will ask no more."""
    return (s.at[w] == WAITING) & (s.cancellations_left > 0), {
        "at": put(s.at, w, OUTSIDE),
        "rounds_left": put(s.rounds_left, w, 0),
        "late": put(s.late, w, 0),
        "passed_over": put(s.passed_over, w, 0),
        "cancellations_left": s.cancellations_left - 1,
    }


@barrier.environment(each="all_writers")
def cancel_inside(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` is cancelled inside its slot and gives it back all the same; it will ask no more.

    A child that has not asked for its slot yet goes with it.
    """
    return (s.at[w] == INSIDE) & (s.lease[w] == SOUND) & (s.cancellations_left > 0), {
        "child": put(s.child, w, where(s.child[w] == BORN, CHILD_ENDED, s.child[w])),
        "at": put(s.at, w, OUTSIDE),
        "rounds_left": put(s.rounds_left, w, 0),
        "late": put(s.late, w, 0),
        "cancellations_left": s.cancellations_left - 1,
    }


@barrier.environment(each="all_writers")
def cancel_outside(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` is cancelled between two slots; it will ask no more."""
    return (s.at[w] == OUTSIDE) & (s.rounds_left[w] > 0) & (s.cancellations_left > 0), {
        "rounds_left": put(s.rounds_left, w, 0),
        "cancellations_left": s.cancellations_left - 1,
    }


@barrier.environment(each="all_writers", when=lambda scope: scope.children)
def cancel_child(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """The child of writer `w` is cancelled, wherever it is: what it waits for or holds is given back."""
    alive = (s.child[w] != NO_CHILD) & (s.child[w] != CHILD_ENDED)
    return alive & (s.cancellations_left > 0), {
        "child": put(s.child, w, CHILD_ENDED),
        "child_late": put(s.child_late, w, 0),
        "cancellations_left": s.cancellations_left - 1,
    }


def withdrawn(s: Value, c: Value) -> dict[str, Value]:
    """What a request given up moves. Only when it was the last one in the queue may writers enter again."""
    last = count(s.all_checkpointers, lambda other: s.place[other] > 0) == 1
    return {
        "cut": put(s.cut, c, DONE),
        "place": queue_without(s, c),
        "late": each(s.all_writers, lambda w: where(last, 0, s.late[w])),
        "child_late": each(s.all_writers, lambda w: where(last, 0, s.child_late[w])),
    }


@barrier.environment(each="all_checkpointers")
def withdraw_cut(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
    """Checkpoint `c` is cancelled while it waits, at the head of the queue or behind it."""
    return (s.cut[c] == QUEUED) & (s.cancellations_left > 0), {
        **withdrawn(s, c),
        "cancellations_left": s.cancellations_left - 1,
    }


@barrier.environment(each="all_checkpointers")
def expire_cut(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
    """The drain limit of the head of the queue runs out while a slot is held. A drained head is granted instead."""
    return (s.cut[c] == QUEUED) & (s.place[c] == 1) & not_(drained(s)) & (s.expiries_left > 0), {
        **withdrawn(s, c),
        "expiries_left": s.expiries_left - 1,
    }


@barrier.environment(each="all_checkpointers")
def cancel_in_cut(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
    """Checkpoint `c` is cancelled inside its cut; the release is the same as ever."""
    return (s.cut[c] == OPEN) & (s.cancellations_left > 0), {
        **released(s, c),
        "cancellations_left": s.cancellations_left - 1,
    }


@barrier.environment(each="all_checkpointers")
def cancel_before_request(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
    """Checkpoint `c` is cancelled before it asked."""
    return (s.cut[c] == IDLE) & (s.cancellations_left > 0), {
        "cut": put(s.cut, c, DONE),
        "cancellations_left": s.cancellations_left - 1,
    }
