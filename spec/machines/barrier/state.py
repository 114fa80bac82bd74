"""The variables of the barrier machine, and the questions that its actions ask of them."""

from __future__ import annotations

from dataclasses import dataclass

from ...language.expression import Value, all_of, any_of, each, where
from ...language.machine import Machine

OUTSIDE, WAITING, INSIDE = 0, 1, 2
NESTED = 3  # only in the variant nested_slot: waits for a second slot while it holds the first
IDLE, QUEUED, OPEN, DONE = 0, 1, 2, 3
# Where a task stands that a writer started inside its slot.
NO_CHILD, BORN, CHILD_WAITING, CHILD_INSIDE, CHILD_ENDED = 0, 1, 2, 3, 4
# The lease of a writer in another process. SILENT: its heartbeats stopped, the lease is still good. LAPSED: its time is
# up, and the parts that check tokens have not been told. FENCED: they have, its slot is given back, its token refused.
SOUND, SILENT, LAPSED, FENCED = 0, 1, 2, 3
CHILD_STANDS = ("none", "born", "waiting", "inside", "ended")
WRITER_STANDS = ("outside", "waiting", "inside", "waiting for a second slot")
CHECKPOINT_STANDS = ("idle", "queued", "open", "done")
LEASE_STANDS = ("sound", "silent", "lapsed", "fenced")


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
    leases: int = 0
    """Writers are in other processes and hold their slots as leases: how many may fall silent in all. 0: no leases."""


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
barrier.variable("lease", SOUND, FENCED, "each writer's lease", over="all_writers", names=LEASE_STANDS)
barrier.variable("passed_by", 0, 1, "1: a cut has opened since this writer's lease was over", over="all_writers")
barrier.variable("late_write", 0, 1, "1: a write took effect of a lease that a cut has passed by", over="all_writers")
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
barrier.variable(
    "silences_left",
    0,
    lambda scope: int(scope.leases),
    "holders of a lease that may still fall silent",
    initial=lambda scope: int(scope.leases),
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
