"""No stamp beyond the dispatch cursor, on the complete cut machine, for any number of prompts, saves and crashes.

Whether each step has as many groups as it should is counting (`stamps_complete`), which is enumerated within scopes.
"""

from __future__ import annotations

from spec.language.expression import Value, implies
from spec.language.machine import Machine
from spec.machines.cut import CutScope, cut
from spec.machines.cut.state import BUFFER_READ, OUTSIDE_WINDOW, SAMPLER_READ, WRITING

from ..solver.conjuncts import Conjunct, about
from ..solver.obligations import Induction


@about("prompts", without="consecution of close_window")
def cursor_is_ahead(s: Value, p: Value) -> Value:
    """No stamp is beyond the cursor: the property itself. Needed by close_window: what was read goes to the disk."""
    return s.stamp[p] <= s.dispatch_cursor


@about(without="consecution of close_window")
def cursor_starts_before_the_first(s: Value) -> Value:
    """The cursor is never below -1. Needed wherever a stamp is taken away: having none is written as -1."""
    return s.dispatch_cursor >= -1


@about(without="consecution of close_window")
def image_of_the_sampler(s: Value) -> Value:
    """Once read, the cursor in the image is the cursor, until the window ends: commit_admission needs a slot."""
    return implies(s.window >= SAMPLER_READ, s.image_dispatch_cursor == s.dispatch_cursor)


@about("prompts", without="consecution of close_window")
def image_of_the_stamps(s: Value, p: Value) -> Value:
    """Once read, the stamps in the image are the stamps, until the window ends: whoever changes one needs a slot."""
    return implies(s.window >= BUFFER_READ, s.image_stamp[p] == s.stamp[p])


@about("prompts", without="consecution of crash_and_restore")
def image_being_written(s: Value, p: Value) -> Value:
    """While the image is written and the run goes on, its cursor covers its stamps. Needed to restore from it."""
    covered = (s.image_dispatch_cursor >= -1) & (s.image_stamp[p] <= s.image_dispatch_cursor)
    return implies(s.window == WRITING, covered)


STRENGTHENING: tuple[Conjunct, ...] = (
    cursor_is_ahead,
    cursor_starts_before_the_first,
    image_of_the_sampler,
    image_of_the_stamps,
    image_being_written,
)


@about("prompts")
def empty_run(s: Value, p: Value) -> Value:
    """The empty run: nothing admitted, nothing stamped, no save under way."""
    return (s.dispatch_cursor == -1) & (s.stamp[p] == -1) & (s.window == OUTSIDE_WINDOW)


ASSUMES = "slots are atomic (the barrier machine); a restore reads back exactly what was published"
EXCLUDES = "how many groups a step has (stamps_complete) and permits, which are enumerated within scopes only"


def induction(machine: Machine = cut) -> Induction:
    """What is proved of the stamps for any size; of a varied machine, the same obligations."""
    return Induction(
        name="stamps",
        machine=machine,
        scope_type=CutScope,
        properties=("cursor_covers_stamps",),
        strengthening=STRENGTHENING,
        initial=(empty_run,),
        assumes=ASSUMES,
        excludes=EXCLUDES,
        for_all=True,
        counts=True,
    )
