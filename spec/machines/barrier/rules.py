"""What must hold of every step of the barrier: each task moves along the picture, and what is remembered is true.

The properties of `properties` are about what must never come to be; these say what an action must do, so that one that
does less, or does it elsewhere, is noticed where it is taken and not only where it hurts.
"""

from __future__ import annotations

from ...language.expression import Value, all_of, any_of, implies, not_, where
from ...language.pictures import ANY, picture
from . import leases, sections
from .state import (
    BORN,
    CHILD_ENDED,
    CHILD_INSIDE,
    CHILD_WAITING,
    DONE,
    FENCED,
    IDLE,
    INSIDE,
    LAPSED,
    NO_CHILD,
    OPEN,
    OUTSIDE,
    QUEUED,
    SILENT,
    SOUND,
    WAITING,
    barrier,
    drained,
    shut,
)

ABOUT = (sections, leases)
"""The modules whose actions these rules are about: they are there before them."""

picture(
    barrier,
    "writers_follow_the_picture",
    "at",
    "A writer asks from outside, enters from waiting, and from inside leaves; cancelled, it is outside.",
    {
        "request_slot": (OUTSIDE, WAITING),
        "enter_slot": (WAITING, INSIDE),
        "leave_slot": (INSIDE, OUTSIDE),
        "withdraw_slot": (WAITING, OUTSIDE),
        "cancel_inside": (INSIDE, OUTSIDE),
        "fence_lease": (INSIDE, OUTSIDE),
        "child_request": ((OUTSIDE, WAITING), ANY),
    },
)
picture(
    barrier,
    "children_follow_the_picture",
    "child",
    "A child is born, waits and enters like a writer, or is refused; ended, it is so for good.",
    {
        "start_child": (NO_CHILD, BORN),
        "refuse_child": (BORN, CHILD_ENDED),
        "child_request": (BORN, CHILD_WAITING),
        "child_enter": (CHILD_WAITING, CHILD_INSIDE),
        "child_leave": (CHILD_INSIDE, CHILD_ENDED),
        "cancel_child": ((BORN, CHILD_WAITING, CHILD_INSIDE), CHILD_ENDED),
    },
)
picture(
    barrier,
    "leases_follow_the_picture",
    "lease",
    "A lease lapses after silence alone, is fenced after that, and is good again only as a new one, or in time.",
    {
        "request_slot": (SOUND, ANY),
        "leave_slot": (SOUND, ANY),
        "cancel_inside": (SOUND, ANY),
        "fall_silent": (SOUND, SILENT),
        "wake_in_time": (SILENT, SOUND),
        "expire_lease": (SILENT, LAPSED),
        "fence_lease": (LAPSED, FENCED),
        "learn_of_expiry": (FENCED, SOUND),
        "write_late": ((LAPSED, FENCED), ANY),
    },
)
picture(
    barrier,
    "checkpoints_follow_the_picture",
    "cut",
    "A checkpoint is queued, opens and is done; cancelled, given up or lost, it is done at once.",
    {
        "request_cut": (ANY, QUEUED),
        "open_cut": (QUEUED, OPEN),
        "close_cut": (OPEN, DONE),
        "cancel_in_cut": (OPEN, DONE),
        "lose_cut": (OPEN, DONE),
        "withdraw_cut": (QUEUED, DONE),
        "expire_cut": (ANY, DONE),
        "cancel_before_request": (IDLE, DONE),
    },
)


@barrier.step(
    "close_cut", "cancel_in_cut", "lose_cut", witness=lambda s: any_of(s.all_writers, lambda w: s.at[w] == WAITING)
)
def release_lets_in_who_waits(s: Value, after: Value, c: Value) -> Value:
    """The release of a cut lets in every writer and every child that waits at this moment, and moves no other."""

    def let_in(w: Value) -> Value:
        writer = after.at[w] == where(s.at[w] == WAITING, INSIDE, s.at[w])
        return writer & (after.child[w] == where(s.child[w] == CHILD_WAITING, CHILD_INSIDE, s.child[w]))

    return all_of(s.all_writers, let_in)


@barrier.step(
    "withdraw_slot",
    "cancel_inside",
    "cancel_outside",
    witness=lambda s: any_of(s.all_writers, lambda w: s.rounds_left[w] > 0),
)
def cancelled_asks_no_more(s: Value, after: Value, w: Value) -> Value:
    """A writer that is cancelled asks for no slot any more; its child that has not asked yet goes with its section."""
    child = where((s.at[w] == INSIDE) & (s.child[w] == BORN), CHILD_ENDED, s.child[w])
    return (after.rounds_left[w] == 0) & (after.child[w] == child)


@barrier.step("cancel_outside", witness=lambda s: all_of(s.all_writers, lambda w: s.rounds_left[w] <= 1))
def cancelled_between_two_slots(s: Value, after: Value, w: Value) -> Value:
    """Between two slots, a writer that would ask again is cancelled, were it only once more, and no other."""
    return (s.at[w] == OUTSIDE) & (s.rounds_left[w] > 0)


@barrier.step("start_child", "refuse_child", witness=lambda s: any_of(s.all_writers, lambda w: s.child[w] == BORN))
def a_child_is_refused_in_a_section_alone(s: Value, after: Value, w: Value) -> Value:
    """A child is born in its parent's section, and refused while that is open: after it, the child is a writer."""
    return s.at[w] == INSIDE


@barrier.step("expire_cut", witness=lambda s: any_of(s.all_checkpointers, lambda c: s.place[c] > 1))
def drained_head_is_granted(s: Value, after: Value, c: Value) -> Value:
    """Only the head of the queue gives up its drain, and only while somebody is inside: drained, it is granted."""
    return (s.place[c] == 1) & not_(drained(s))


@barrier.step("request_slot", witness=shut)
def who_asks_late_is_marked(s: Value, after: Value, w: Value) -> Value:
    """A writer that asks while a checkpoint is asked for or open is known to have asked after it."""
    return after.late[w] == where(shut(s), 1, 0)


@barrier.step("child_request", witness=shut)
def child_that_asks_late_is_marked(s: Value, after: Value, w: Value) -> Value:
    """The same of a child."""
    return after.child_late[w] == where(shut(s), 1, 0)


@barrier.step("withdraw_cut", "expire_cut", witness=lambda s: any_of(s.all_writers, lambda w: s.late[w] == 1))
def a_request_given_up_lets_nobody_overtake(s: Value, after: Value, c: Value) -> Value:
    """Whoever asked after a checkpoint that is given up is still behind those that remain in the queue."""
    return all_of(
        s.all_writers,
        lambda w: (
            (after.late[w] == where(shut(after), s.late[w], 0))
            & (after.child_late[w] == where(shut(after), s.child_late[w], 0))
        ),
    )


@barrier.step("open_cut", witness=lambda s: any_of(s.all_writers, lambda w: s.at[w] == WAITING))
def a_cut_passes_over_who_waits(s: Value, after: Value, c: Value) -> Value:
    """A cut that opens is counted by every writer that waits, and by no other."""
    return all_of(s.all_writers, lambda w: after.passed_over[w] == s.passed_over[w] + where(s.at[w] == WAITING, 1, 0))


@barrier.always(each="all_writers", witness=lambda s: any_of(s.all_writers, lambda w: s.child_late[w] == 1))
def remembered_while_it_waits(s: Value, w: Value) -> Value:
    """What is known of a wait is forgotten with it: that it began late, and how many cuts passed it over."""
    late = implies(s.late[w] == 1, s.at[w] == WAITING)
    child_late = implies(s.child_late[w] == 1, s.child[w] == CHILD_WAITING)
    return late & child_late & implies(s.passed_over[w] > 0, s.at[w] == WAITING)


@barrier.always(each="all_writers", witness=lambda s: any_of(s.all_writers, lambda w: s.lease[w] == LAPSED))
def a_silent_writer_holds_its_slot(s: Value, w: Value) -> Value:
    """A lease that has lapsed, as any may that is silent, has its slot until those who check tokens know of it."""
    return implies(s.lease[w] == LAPSED, s.at[w] == INSIDE)


@barrier.step(
    "write_late",
    witness=lambda s: (
        any_of(s.all_writers, lambda w: s.lease[w] == LAPSED) & all_of(s.all_writers, lambda w: s.lease[w] != FENCED)
    ),
)
def a_write_before_the_notice_does_no_harm(s: Value, after: Value, w: Value) -> Value:
    """A write whose lease is over and whose token is not void yet comes before any cut that its lease does not see."""
    return (s.lease[w] == FENCED) | (s.passed_by[w] == 0)


@barrier.step(
    *("withdraw_slot", "cancel_inside", "cancel_outside", "cancel_child"),
    *("withdraw_cut", "cancel_in_cut", "cancel_before_request"),
    witness=lambda s: s.cancellations_left == 1,
)
def cancellations_are_counted(s: Value, after: Value) -> Value:
    """Every cancellation that the scope has left may come, and is then one less: a scope says how many it has."""
    return after.cancellations_left == s.cancellations_left - 1


@barrier.step("expire_cut", witness=lambda s: s.expiries_left == 1)
def expiries_are_counted(s: Value, after: Value) -> Value:
    """The same of drains that give up."""
    return after.expiries_left == s.expiries_left - 1


@barrier.step("fall_silent", "lose_cut", witness=lambda s: s.silences_left == 1)
def silences_are_counted(s: Value, after: Value) -> Value:
    """The same of holders of a lease that fall silent."""
    return after.silences_left == s.silences_left - 1
