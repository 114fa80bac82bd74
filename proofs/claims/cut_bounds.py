"""No run of the cut is endless, for any size: its rank, which every action of progress raises, is bounded.

What could grow without end are version and epoch. The epoch is one of the scope's (`loader`). With stamps the version
is never beyond the step behind the dispatch cursor, and the cursor counts admissions, each of which admitted some
prompt for the first time; without stamps each train step trains some prompt for the first time. So neither exceeds the
number of prompts, and a crash takes both back together: the image has them of one instant.
"""

from __future__ import annotations

from collections.abc import Iterator

from spec.language.expression import Value, count, implies, not_, where
from spec.language.machine import Machine
from spec.machines.cut import CutScope, cut
from spec.machines.cut.state import (
    ADMITTED,
    CAPTURED,
    FENCED,
    NO_ACCOUNT,
    READY,
    TRAINED,
    WRITING,
    between_steps,
    stamped,
)

from ..solver.conjuncts import Conjunct, about
from ..solver.obligations import Induction, Obligation
from ..solver.ranking import Height, obligation_of_height
from . import cut_loader, cut_ownership, cut_progress, cut_stamps


def admitted_once(s: Value) -> Value:
    """How many prompts were admitted or settled at some time."""
    return count(s.prompts, lambda p: (s.ledger[p] == ADMITTED) | (s.slot[p] >= READY) | (s.account[p] != NO_ACCOUNT))


def admitted_once_in_image(s: Value) -> Value:
    """The same of the image."""
    return count(
        s.prompts,
        lambda p: (s.image_ledger[p] == ADMITTED) | (s.image_ready[p] == 1) | (s.image_account[p] != NO_ACCOUNT),
    )


def trained(s: Value) -> Value:
    """How many prompts were trained."""
    return count(s.prompts, lambda p: s.account[p] == TRAINED)


def trained_in_image(s: Value) -> Value:
    """The same of the image."""
    return count(s.prompts, lambda p: s.image_account[p] == TRAINED)


@about(without="the rank is bounded")
def every_admission_admits(s: Value) -> Value:
    """The dispatch cursor is no further than prompts were admitted. Needed for the bound: they are not endless."""
    return s.dispatch_cursor + 1 <= admitted_once(s)


@about(without="the rank is bounded")
def every_step_trains(s: Value) -> Value:
    """The version is no further than cursor, or trained prompts. Needed for the bound: both come to an end."""
    return s.version <= where(stamped(s), s.dispatch_cursor + 1, trained(s))


@about(without="consecution of finish_step")
def open_step_was_admitted(s: Value) -> Value:
    """With stamps, an open step is not beyond the cursor. Needed by finish_step: the version stays behind it."""
    return implies(stamped(s) & not_(between_steps(s)), s.version <= s.dispatch_cursor)


@about(without="consecution of close_window")
def image_of_the_version(s: Value) -> Value:
    """Once read, the version in the image is the version, until the window ends: finish_step needs a slot."""
    return implies(s.window >= CAPTURED, s.image_version == s.version)


@about(without="consecution of crash_and_restore")
def image_being_written_is_bounded(s: Value) -> Value:
    """While the image is written and the run goes on, its cursor and version are no further either."""
    cursor = s.image_dispatch_cursor + 1
    version = s.image_version <= where(stamped(s), cursor, trained_in_image(s))
    return implies(s.window == WRITING, version & (cursor <= admitted_once_in_image(s)))


@about("prompts", without="the rank is bounded")
def lease_is_declared(s: Value, p: Value) -> Value:
    """A lease is at one of its stages. Needed for the bound, in which each counts."""
    return s.lease[p] <= FENCED


@about(without="the rank is bounded")
def saves_are_numbered(s: Value) -> Value:
    """No more saves are asked for than the scope allows. Needed for the bound, in which each counts."""
    return (s.saves_left >= 0) & (s.snapshots_left >= 0)


STRENGTHENING: tuple[Conjunct, ...] = (
    every_admission_admits,
    every_step_trains,
    open_step_was_admitted,
    image_of_the_version,
    image_being_written_is_bounded,
    lease_is_declared,
    saves_are_numbered,
)


@about()
def nothing_done(s: Value) -> Value:
    """At the start no step is done, and the scope says how many saves there may be."""
    return (s.version == 0) & (s.saves_left >= 0) & (s.snapshots_left >= 0)


OF_THE_RUN = cut_progress.STRENGTHENING
ASSUMES = (
    "what `ownership`, `stamps`, `loader` and `run` assume; that saves are asked for, and faults happen, finitely often"
)
EXCLUDES = "how soon a run ends, and that an unfinished one outside a save can go on (see `run`)"


def induction(machine: Machine = cut) -> Induction:
    """What bounds a run; of a varied machine, the same obligations."""
    return Induction(
        name="bounds",
        machine=machine,
        scope_type=CutScope,
        properties=(),
        strengthening=STRENGTHENING,
        rests_on=(*cut_ownership.STRENGTHENING, *cut_stamps.STRENGTHENING, *cut_loader.STRENGTHENING, *OF_THE_RUN),
        initial=(cut_ownership.empty_run, cut_stamps.empty_run, cut_progress.untouched_run, nothing_done),
        assumes=ASSUMES,
        excludes=EXCLUDES,
        for_all=True,
        counts=True,
    )


def of_the_scope(s: Value) -> Value:
    """What is in the rank besides the prompts: epochs, the save under way, the saves done, gate and columns."""
    return s.epochs + (CAPTURED + 2) * (s.saves + s.snapshots + 1)


def obligations_of_bounds(held: Induction) -> Iterator[Obligation]:
    """That the rank is bounded: twice how far each prompt comes, its lease, and two for a version of its own."""
    height = Height(members={"prompts": 2 * 10 + FENCED + 2}, each=(10, FENCED), besides=of_the_scope)
    yield obligation_of_height("no_stall in part", held, height)
