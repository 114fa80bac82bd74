"""Variants of the barrier that do one thing less than the picture says, or elsewhere: each breaks a rule of steps."""

from __future__ import annotations

from ...language.expression import Value, each, put
from ...language.machine import Effects, Machine, changed
from . import BORN, CHILD_ENDED, CHILD_WAITING, INSIDE, LAPSED, OUTSIDE, QUEUED, SILENT, SOUND, barrier
from .sections import cancel_inside, cancel_outside, expire_cut


@barrier.variant(breaks="writers_follow_the_picture", scope="one_cancellation", length=2)
def withdrawn_waits_on(machine: Machine) -> None:
    """A writer that is cancelled while it waits is forgotten where it stands, and let in with the next batch."""
    changed(machine, "withdraw_slot", lambda s, w: {"at": s.at})


@barrier.variant(breaks="children_follow_the_picture", scope="children", length=4)
def refused_child_waits(machine: Machine) -> None:
    """A child that asks under its parent's section is not refused: it waits, and its parent may wait for it."""
    changed(machine, "refuse_child", lambda s, w: {"child": put(s.child, w, CHILD_WAITING)})


@barrier.variant(breaks="leases_follow_the_picture", scope="leases", length=5)
def late_beat_is_heard(machine: Machine) -> None:
    """A heartbeat that comes after the lease has lapsed makes it good again, before those who check tokens are told."""

    def wake_in_time(s: Value, w: Value) -> Effects:
        """In time or not."""
        return (s.lease[w] == SILENT) | (s.lease[w] == LAPSED), {"lease": put(s.lease, w, SOUND)}

    machine.replace("wake_in_time", wake_in_time)


@barrier.variant(breaks="checkpoints_follow_the_picture", scope="one_cancellation", length=2)
def withdrawn_cut_stays_queued(machine: Machine) -> None:
    """A checkpoint that is cancelled while it waits leaves the queue, and still believes that it is in it."""
    changed(machine, "withdraw_cut", lambda s, c: {"cut": put(s.cut, c, QUEUED)})


@barrier.variant(breaks="checkpoints_follow_the_picture", scope="one_cancellation", length=3)
def cancelled_cut_stays_open(machine: Machine) -> None:
    """A checkpoint that is cancelled inside its cut lets everybody in, and still believes that it is alone."""
    changed(machine, "cancel_in_cut", lambda s, c: {"cut": s.cut})


@barrier.variant(breaks="a_child_is_refused_in_a_section_alone", scope="children", length=5)
def child_refused_for_good(machine: Machine) -> None:
    """A child is refused for having been born in a section, although that has ended."""

    def refuse(s: Value, w: Value) -> Effects:
        """Whether the section is open or not."""
        return s.child[w] == BORN, {"child": put(s.child, w, CHILD_ENDED)}

    machine.replace("refuse_child", refuse)


@barrier.variant(breaks="release_lets_in_who_waits", scope="children", length=8)
def children_wait_on(machine: Machine) -> None:
    """The release of a cut lets in the writers that wait, and not the children."""
    changed(machine, "close_cut", lambda s, c: {"child": s.child})


@barrier.variant(breaks="cancelled_asks_no_more", scope="two_rounds", length=3)
def cancelled_comes_back(machine: Machine) -> None:
    """A writer that is cancelled inside gives its slot back and goes on with its next round."""
    changed(machine, "cancel_inside", lambda s, w: {"rounds_left": s.rounds_left})


@barrier.variant(breaks="cancelled_between_two_slots", scope="one_cancellation", length=4)
def cancelled_at_the_end(machine: Machine) -> None:
    """A writer that has had all its slots is cancelled."""

    def cancel(s: Value, w: Value) -> Effects:
        """Whatever it has still to ask for."""
        guard, effects = cancel_outside(s, w)
        return guard | ((s.at[w] == OUTSIDE) & (s.rounds_left[w] == 0) & (s.cancellations_left > 0)), effects

    machine.replace("cancel_outside", cancel)


@barrier.variant(breaks="drained_head_is_granted", scope="two_rounds", length=2)
def expires_although_drained(machine: Machine) -> None:
    """The drain limit is looked at before the slots: a checkpoint whose drain is over gives up all the same."""

    def expire(s: Value, c: Value) -> Effects:
        """As soon as the limit is over."""
        _, effects = expire_cut(s, c)
        return (s.cut[c] == QUEUED) & (s.place[c] == 1) & (s.expiries_left > 0), effects

    machine.replace("expire_cut", expire)


@barrier.variant(breaks="who_asks_late_is_marked", scope="one_round", length=2)
def nobody_is_late(machine: Machine) -> None:
    """Nobody remembers that a writer asked after the checkpoint."""
    changed(machine, "request_slot", lambda s, w: {"late": s.late})


@barrier.variant(breaks="child_that_asks_late_is_marked", scope="children", length=6)
def no_child_is_late(machine: Machine) -> None:
    """Nobody remembers that a child asked after the checkpoint."""
    changed(machine, "child_request", lambda s, w: {"child_late": s.child_late})


@barrier.variant(breaks="a_request_given_up_lets_nobody_overtake", scope="three_writers", length=4)
def given_up_for_all(machine: Machine) -> None:
    """A checkpoint that gives up lets those behind it be overtaken, too: who asked late counts as early."""
    changed(machine, "withdraw_cut", lambda s, c: {"late": each(s.all_writers, lambda w: 0)})


@barrier.variant(breaks="a_request_given_up_lets_nobody_overtake", scope="three_writers", length=6)
def expired_for_all(machine: Machine) -> None:
    """The same of one whose drain limit is over."""
    changed(machine, "expire_cut", lambda s, c: {"late": each(s.all_writers, lambda w: 0)})


@barrier.variant(breaks="a_write_before_the_notice_does_no_harm", scope="leases", length=7)
def free_before_the_notice(machine: Machine) -> None:
    """The slot of a silent writer is given back at once, and its token stays good until its lease is over."""
    changed(machine, "fall_silent", lambda s, w: {"at": put(s.at, w, OUTSIDE)})


@barrier.variant(breaks="a_cut_passes_over_who_waits", scope="one_round", length=2)
def every_cut_counts(machine: Machine) -> None:
    """A cut that opens is counted by everybody, whether it waits or not."""
    changed(machine, "open_cut", lambda s, c: {"passed_over": each(s.all_writers, lambda w: s.passed_over[w] + 1)})


@barrier.variant(breaks="remembered_while_it_waits", scope="one_round", length=4)
def passed_over_for_ever(machine: Machine) -> None:
    """A writer that was let in still counts the cuts of its last wait: the next wait begins with them."""
    changed(machine, "close_cut", lambda s, c: {"passed_over": s.passed_over})


@barrier.variant(breaks="a_silent_writer_holds_its_slot", scope="second_lease", length=5)
def cancelled_in_silence(machine: Machine) -> None:
    """A writer is cancelled although it is not heard of: its slot is free before its token is void."""

    def cancel(s: Value, w: Value) -> Effects:
        """Heard of or not."""
        guard, effects = cancel_inside(s, w)
        return guard | ((s.at[w] == INSIDE) & (s.lease[w] != SOUND) & (s.cancellations_left > 0)), effects

    machine.replace("cancel_inside", cancel)


@barrier.variant(breaks="cancellations_are_counted", scope="one_cancellation", length=2)
def cancelled_for_nothing(machine: Machine) -> None:
    """A writer that is cancelled while it waits is not counted among the cancellations."""
    changed(machine, "withdraw_slot", lambda s, w: {"cancellations_left": s.cancellations_left})


@barrier.variant(breaks="expiries_are_counted", scope="two_rounds", length=4)
def expires_for_nothing(machine: Machine) -> None:
    """A drain that gives up is not counted."""
    changed(machine, "expire_cut", lambda s, c: {"expiries_left": s.expiries_left})


@barrier.variant(breaks="silences_are_counted", scope="leases", length=3)
def silent_for_nothing(machine: Machine) -> None:
    """A writer that falls silent is not counted."""
    changed(machine, "fall_silent", lambda s, w: {"silences_left": s.silences_left})
