"""Variants of the barrier: each one small change, with the property that must catch it.

The lengths of the design's table count "shut the gate" as a step of its own. Here a request shuts the gate in the same
instant, as the library does, so most counterexamples are one step shorter.
"""

from __future__ import annotations

from ...language.expression import Value, any_of, each, not_, put, where
from ...language.machine import Machine
from . import (
    BORN,
    CHILD_INSIDE,
    CHILD_WAITING,
    INSIDE,
    NESTED,
    OPEN,
    OUTSIDE,
    QUEUED,
    WAITING,
    barrier,
    drained,
    queue_without,
    released,
    shut,
)

REQUEST_SHUTS_AT_ONCE = "the request shuts the gate in the same instant; the prototype counted a step for it"


def cut_is_open(s: Value) -> Value:
    """A cut is open (asked for is not enough)."""
    return any_of(s.all_checkpointers, lambda c: s.cut[c] == OPEN)


def enter_unless_cut_open(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
    """Writer `w` enters although a checkpoint is asked for, as long as its cut is not open."""
    return (s.at[w] == WAITING) & not_(cut_is_open(s)), {"at": put(s.at, w, INSIDE)}


@barrier.variant(breaks="cut_excludes_writers", scope="one_round", length=5, table_length=5)
def flag_after_drain(machine: Machine) -> None:
    """The gate shuts only once the checkpoint has seen no writer inside: one can slip in between."""
    machine.variable("seen_empty", 0, 1, "1: this checkpoint has seen no writer inside", over="all_checkpointers")

    def see_no_writer(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
        """Checkpoint `c` looks, and sees no writer inside."""
        return (s.cut[c] == QUEUED) & (s.place[c] == 1) & (s.seen_empty[c] == 0) & drained(s), {
            "seen_empty": put(s.seen_empty, c, 1)
        }

    def open_cut(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
        """Checkpoint `c` trusts what it saw, shuts the gate and reads."""
        return (s.cut[c] == QUEUED) & (s.seen_empty[c] == 1), {"cut": put(s.cut, c, OPEN)}

    machine.system(who="checkpoint", each="all_checkpointers")(see_no_writer)
    machine.replace("open_cut", open_cut)
    machine.replace("enter_slot", enter_unless_cut_open)


@barrier.variant(
    breaks="no_overtaking", scope="one_round", length=3, table_length=4, why_length_differs=REQUEST_SHUTS_AT_ONCE
)
def writers_overtake(machine: Machine) -> None:
    """New writers may enter while a checkpoint drains: a steady stream of them keeps it waiting for ever."""
    machine.replace("enter_slot", enter_unless_cut_open)


@barrier.variant(
    breaks="no_deadlock", scope="one_cancellation", length=4, table_length=5, why_length_differs=REQUEST_SHUTS_AT_ONCE
)
def leak_on_cancel(machine: Machine) -> None:
    """A writer cancelled inside does not give its slot back: the next drain never ends."""
    machine.variable(
        "leaked", 0, lambda scope: int(scope.cancellations), "slots that nobody holds and nobody gave back"
    )

    def cancel_inside(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
        """Writer `w` is cancelled inside its slot, and the slot stays taken."""
        return (s.at[w] == INSIDE) & (s.cancellations_left > 0), {
            "at": put(s.at, w, OUTSIDE),
            "rounds_left": put(s.rounds_left, w, 0),
            "leaked": s.leaked + 1,
            "cancellations_left": s.cancellations_left - 1,
        }

    def open_cut(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
        """As ever, but a leaked slot counts as held."""
        return (s.cut[c] == QUEUED) & (s.place[c] == 1) & drained(s) & (s.leaked == 0), {"cut": put(s.cut, c, OPEN)}

    machine.replace("cancel_inside", cancel_inside)
    machine.replace("open_cut", open_cut)


@barrier.variant(
    breaks="no_deadlock", scope="one_round", length=4, table_length=5, why_length_differs=REQUEST_SHUTS_AT_ONCE
)
def nested_slot(machine: Machine) -> None:
    """A writer inside may ask for a second slot: it waits for the checkpoint, which waits for its first."""

    def nest(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
        """Writer `w`, inside, asks for another slot through a helper it calls."""
        return s.at[w] == INSIDE, {"at": put(s.at, w, NESTED)}

    def enter_nested(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
        """Writer `w` is let into its second slot, and done with both at the next leave."""
        return (s.at[w] == NESTED) & not_(shut(s)), {"at": put(s.at, w, OUTSIDE)}

    machine.system(who="writer", each="all_writers")(enter_nested)
    machine.environment(each="all_writers")(nest)


@barrier.variant(breaks="no_deadlock", scope="children", length=5)
def child_slot(machine: Machine) -> None:
    """A child may ask for a slot under its parent's: the parent waits for the child, the child for the checkpoint."""

    def child_request(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
        """Whether or not the parent is inside."""
        return s.child[w] == BORN, {"child": put(s.child, w, CHILD_WAITING)}

    leave = machine.actions["leave_slot"].function

    def leave_after_child(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
        """The parent waits for the child that asked under its section."""
        guard, effects = leave(s, w)
        return guard & (s.child[w] != CHILD_WAITING) & (s.child[w] != CHILD_INSIDE), effects

    machine.replace("child_request", child_request)
    machine.replace("leave_slot", leave_after_child)
    machine.remove("refuse_child")


@barrier.variant(breaks="no_overtaking", scope="children", length=7)
def child_overtakes(machine: Machine) -> None:
    """A child may enter while a checkpoint drains, as if its parent's slot were still its own."""

    def child_enter(s: Value, w: Value) -> tuple[Value, dict[str, Value]]:
        """As long as the cut is not open."""
        return (s.child[w] == CHILD_WAITING) & not_(cut_is_open(s)), {"child": put(s.child, w, CHILD_INSIDE)}

    machine.replace("child_enter", child_enter)


@barrier.variant(breaks="writers_not_starved", scope="two_checkpoints", length=6)
def no_batch_on_release(machine: Machine) -> None:
    """The release of a cut only reopens the gate: the next checkpoint in the queue shuts it before a waiter can run."""

    def close_cut(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
        """Checkpoint `c` gives the barrier back; who waits must find the gate open by himself."""
        effects = released(s, c)
        return s.cut[c] == OPEN, {"cut": effects["cut"], "place": queue_without(s, c)}

    machine.replace("close_cut", close_cut)


@barrier.variant(breaks="one_cut_at_a_time", scope="two_checkpoints", length=3)
def queue_is_ignored(machine: Machine) -> None:
    """A checkpoint opens its cut whenever no writer is inside, wherever it stands in the queue."""

    def open_cut(s: Value, c: Value) -> tuple[Value, dict[str, Value]]:
        """Checkpoint `c` opens its cut as soon as the slots are empty."""
        return (s.cut[c] == QUEUED) & drained(s), {
            "cut": put(s.cut, c, OPEN),
            "passed_over": each(
                s.all_writers, lambda w: where(s.at[w] == WAITING, s.passed_over[w] + 1, s.passed_over[w])
            ),
        }

    machine.replace("open_cut", open_cut)
