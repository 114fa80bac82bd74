"""The checkpoint barrier: writers share it, a checkpoint has it alone.

    a writer      OUTSIDE --request_slot--> WAITING --enter_slot--> INSIDE --leave_slot--> OUTSIDE
    a checkpoint  IDLE --request_cut--> QUEUED --open_cut--> OPEN --close_cut--> DONE

Slots never block each other. From the moment a checkpoint heads the queue new slots wait and open ones drain; then its
cut opens. When it closes, every writer waiting at that moment is let in as one batch, before the next drain starts: a
tight loop of checkpoints cannot starve the writers, nor they it. Any task may be cancelled at any wait and inside, and
the checkpoint at the head of the queue may give up its drain; each leaves everything as before.

A context that already holds a section and asks for another is refused before anything changes, so a base writer never
holds one slot while it waits for a second; the variant `nested_slot` shows why.
"""

from __future__ import annotations

from dataclasses import dataclass

from .expression import Value, all_of, any_of, count, each, implies, not_, put, total, where
from .machine import Machine, Progress

OUTSIDE, WAITING, INSIDE = 0, 1, 2
NESTED = 3  # only in the variant nested_slot: waits for a second slot while it holds the first
IDLE, QUEUED, OPEN, DONE = 0, 1, 2, 3
# Where a task stands that a writer started inside its slot.
NO_CHILD, BORN, CHILD_WAITING, CHILD_INSIDE, CHILD_ENDED = 0, 1, 2, 3, 4
CHILD_STANDS = ("none", "born", "waiting", "inside", "ended")
WRITER_STANDS = ("outside", "waiting", "inside", "waiting for a second slot")
CHECKPOINT_STANDS = ("idle", "queued", "open", "done")


@dataclass(frozen=True)
class BarrierScope:
    """The size of one enumeration: how many writers and checkpoints, and how often the environment may interfere."""

    writers: int
    """Tasks that take mutation slots."""
    rounds: int
    """Slots each writer takes, one after the other."""
    checkpointers: int
    """Tasks that take one checkpoint each."""
    cancellations: int = 0
    """How many tasks may be cancelled in all."""
    expiries: int = 0
    """How many drains may give up in all."""
    children: int = 0
    """1: a writer may start one task inside its slot, which asks for a slot of its own."""


barrier = Machine("barrier")
barrier.domain("all_writers", lambda scope: int(scope.writers))
barrier.domain("all_checkpointers", lambda scope: int(scope.checkpointers))
barrier.symmetric("all_writers")
barrier.symmetric("all_checkpointers")
barrier.variable("at", OUTSIDE, NESTED, "where each writer stands", over="all_writers", names=WRITER_STANDS)
barrier.variable(
    "rounds_left",
    0,
    lambda scope: int(scope.rounds),
    "slots each writer has still to ask for",
    initial=lambda scope: int(scope.rounds),
    over="all_writers",
)
barrier.variable("late", 0, 1, "1: asked while a checkpoint was asked for or open", over="all_writers")
barrier.variable("passed_over", 0, 2, "cuts that opened while this writer waited", over="all_writers")
barrier.variable("child", NO_CHILD, CHILD_ENDED, "each writer's child", over="all_writers", names=CHILD_STANDS)
barrier.variable("child_late", 0, 1, "1: its child asked while a checkpoint was asked for or open", over="all_writers")
barrier.variable("cut", IDLE, DONE, "where each checkpoint stands", over="all_checkpointers", names=CHECKPOINT_STANDS)
barrier.variable(
    "place",
    0,
    lambda scope: int(scope.checkpointers),
    "place in the queue, 1 is its head; 0 is not in it",
    over="all_checkpointers",
)
barrier.variable(
    "cancellations_left",
    0,
    lambda scope: int(scope.cancellations),
    "cancellations still to come",
    initial=lambda scope: int(scope.cancellations),
)
barrier.variable(
    "expiries_left",
    0,
    lambda scope: int(scope.expiries),
    "drains that may still give up",
    initial=lambda scope: int(scope.expiries),
)


def shut(s: Value) -> Value:
    """A checkpoint heads the queue or is open: new slots wait."""
    return any_of(s.all_checkpointers, lambda c: s.place[c] > 0)


def drained(s: Value) -> Value:
    """Nobody holds a slot, neither a writer nor a child."""
    return all_of(s.all_writers, lambda w: (s.at[w] < INSIDE) & (s.child[w] != CHILD_INSIDE))


def queue_without(s: Value, c: Value) -> Value:
    """The queue once checkpoint `c` has left it: those behind it move up."""
    return each(
        s.all_checkpointers,
        lambda other: where(other == c, 0, where(s.place[other] > s.place[c], s.place[other] - 1, s.place[other])),
    )


# --------------------------------------------------------------------------------------------------- System


@barrier.system(who="writer", each="all_writers")
def request_slot(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` asks for a slot. Always possible from outside."""
    return (s.at[w] == OUTSIDE) & (s.rounds_left[w] > 0), {
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

    It may wait inside for the child it started: that one is refused at once, so it ends.
    """
    return s.at[w] == INSIDE, {"at": put(s.at, w, OUTSIDE), "late": put(s.late, w, 0)}


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
    return (s.at[w] == INSIDE) & (s.cancellations_left > 0), {
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


# ----------------------------------------------------------------------------------------------- Properties


def some_cut_open(s: Value) -> Value:
    """A cut is open."""
    return any_of(s.all_checkpointers, lambda c: s.cut[c] == OPEN)


@barrier.always(each="all_writers", witness=some_cut_open)
def cut_excludes_writers(s: Value, w: Value) -> Value:
    """While a cut is open nobody is inside a slot, neither a writer nor a child."""
    return implies(some_cut_open(s), (s.at[w] < INSIDE) & (s.child[w] != CHILD_INSIDE))


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
    head_waits = any_of(s.all_checkpointers, lambda c: (s.place[c] == 1) & (s.cut[c] == QUEUED))
    writer_overtook = (s.at[w] == INSIDE) & (s.late[w] == 1)
    child_overtook = (s.child[w] == CHILD_INSIDE) & (s.child_late[w] == 1)
    return not_((writer_overtook | child_overtook) & head_waits)


@barrier.always(each="all_writers", witness=lambda s: any_of(s.all_writers, lambda w: s.passed_over[w] == 1))
def writers_not_starved(s: Value, w: Value) -> Value:
    """A waiting writer sees at most one cut open before it is let in."""
    return s.passed_over[w] <= 1


def finished(s: Value) -> Value:
    """Every writer has had its slots, every child has ended, and every checkpoint has had its cut."""

    def writer_ended(w: Value) -> Value:
        child_ended = (s.child[w] == NO_CHILD) | (s.child[w] == CHILD_ENDED)
        return (s.at[w] == OUTSIDE) & (s.rounds_left[w] == 0) & child_ended

    return all_of(s.all_writers, writer_ended) & all_of(s.all_checkpointers, lambda c: s.cut[c] == DONE)


def rank(s: Value) -> Value:
    """Rises with every action of ours: slots asked for, entered and left; checkpoints queued, open and done."""
    standing = total(
        s.all_writers,
        lambda w: where(s.at[w] == WAITING, -2, where(s.at[w] == OUTSIDE, 0, -1)) - 3 * s.rounds_left[w] + s.child[w],
    )
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
        return f"writer {index} is {WRITER_STANDS[s.at[index]]}{late}{child}"
    place = f", place {s.place[index]} in the queue" if s.place[index] else ""
    return f"checkpoint {index} is {CHECKPOINT_STANDS[s.cut[index]]}{place}"


barrier.describe = describe
