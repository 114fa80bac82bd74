"""What is proved of `no_stall` for any size: every action of progress raises the rank, and a save under way goes on.

The rank is bounded (`cut_bounds`), so no run without faults is endless; and none ends inside a save. That an unfinished
run outside a save can go on rests on permits, stamps and capacities, which is counting: it is enumerated within scopes.
"""

from __future__ import annotations

from collections.abc import Iterator

from spec.language.expression import Value, all_of, any_of, implies, not_
from spec.language.machine import Machine
from spec.machines.cut import CutScope, cut
from spec.machines.cut.state import (
    ADMITTED,
    CAPTURED,
    CLAIMED,
    DRAINING,
    FULL,
    GENERATING,
    GIVEN_UP,
    NO_ENTRY,
    NO_LEASE,
    NO_SLOT,
    OUTSIDE_WINDOW,
    RESERVED,
    SNAPSHOT,
    WRITING,
    any_reserved,
    any_spare,
)
from spec.machines.cut.training import before, eligible

from ..solver.conjuncts import Conjunct, about
from ..solver.obligations import Induction, Obligation
from ..solver.ranking import Rising, obligations_of_rising
from . import cut_loader, cut_ownership


@about("prompts", without="consecution of read_ledger")
def values_are_declared(s: Value, p: Value) -> Value:
    """Every prompt stands somewhere. Needed to rise: how far it has come is a number of its standing."""
    ledger = (s.ledger[p] >= NO_ENTRY) & (s.ledger[p] <= ADMITTED)
    slot = (s.slot[p] >= NO_SLOT) & (s.slot[p] <= CLAIMED)
    return ledger & slot & (s.trouble[p] >= GENERATING) & (s.trouble[p] <= GIVEN_UP)


@about("prompts", without="consecution of crash_and_restore")
def image_values_are_declared(s: Value, p: Value) -> Value:
    """What the image says of a ledger entry is one. Needed to restore from it."""
    return (s.image_ledger[p] >= NO_ENTRY) & (s.image_ledger[p] <= ADMITTED)


@about("prompts", without="remove_committed raises the rank")
def lingering_is_admitted(s: Value, p: Value) -> Value:
    """What lingers in the ledger was admitted. Needed by remove_committed: the group comes further by it."""
    return implies(s.lingering[p] == 1, s.ledger[p] == ADMITTED)


@about("prompts", without="consecution of claim")
def buffered_was_admitted(s: Value, p: Value) -> Value:
    """What has a slot is not RESERVED. Needed by claim: the admission that has passed the gate stays."""
    return implies(s.slot[p] != NO_SLOT, s.ledger[p] != RESERVED)


@about(without="commit_admission raises the rank")
def passed_gate_has_an_admission(s: Value) -> Value:
    """Whoever has passed the gate has something to admit. Needed by commit_admission: some prompt comes further."""
    return implies(s.gate_passed == 1, any_reserved(s))


@about(without="finish_step raises the rank")
def bits_are_bits(s: Value) -> Value:
    """Gate and columns are 0 or 1. Needed by commit_admission and finish_step, which reset them: little is lost."""
    return (s.gate_passed >= 0) & (s.gate_passed <= 1) & (s.columns >= 0) & (s.columns <= 1)


@about(without="a save under way goes on")
def save_is_at_a_stage(s: Value) -> Value:
    """A save is at one of its stages. Needed to go on: each has a next one."""
    return (s.window == OUTSIDE_WINDOW) | (s.window == WRITING) | ((s.window >= DRAINING) & (s.window <= CAPTURED))


@about(without="a save under way goes on")
def written_in_the_background(s: Value) -> Value:
    """Only a save in the background goes on after its window. Needed to go on: it is then published."""
    return implies(s.window == WRITING, s.background == 1)


@about(without="a save under way goes on")
def snapshots_are_of_the_scope(s: Value) -> Value:
    """A save is a full one, or a snapshot where the scope has them. Needed to go on: elsewhere none is skipped."""
    return (s.kind == FULL) | ((s.kind == SNAPSHOT) & (s.snapshots != 0))


@about("prompts", without="a save under way goes on")
def no_lease_where_there_are_none(s: Value, p: Value) -> Value:
    """In a scope without leases no writer has one. Needed to go on: there none would end, and the drain would wait."""
    return implies(s.leases == 0, s.lease[p] == NO_LEASE)


STRENGTHENING: tuple[Conjunct, ...] = (
    values_are_declared,
    image_values_are_declared,
    lingering_is_admitted,
    buffered_was_admitted,
    passed_gate_has_an_admission,
    bits_are_bits,
    save_is_at_a_stage,
    written_in_the_background,
    snapshots_are_of_the_scope,
    no_lease_where_there_are_none,
)


@about("prompts")
def untouched_run(s: Value, p: Value) -> Value:
    """At the start nothing is in trouble, no gate passed, and no snapshot under way."""
    empty_image = s.image_ledger[p] == NO_ENTRY
    at_rest = (s.gate_passed == 0) & (s.columns == 0) & (s.kind == FULL)
    return (s.trouble[p] == GENERATING) & at_rest & empty_image


@about(without="drain_pool raises the rank")
def steps_take_something(s: Value) -> Value:
    """The scope: a train step has one group at least."""
    return s.batch_size >= 1


@about(without="drain_pool raises the rank")
def some_spare_is_the_first(s: Value) -> Value:
    """A pool that is not empty has a first spare."""

    def first(p: Value) -> Value:
        return (s.spare[p] == 1) & all_of(s.prompts, lambda q: (q >= p) | (s.spare[q] != 1))

    return implies(any_spare(s), any_of(s.prompts, first))


@about(without="claim raises the rank")
def some_eligible_is_the_first(s: Value) -> Value:
    """If some group may be taken, there is one that none other comes before: the order is a strict one."""

    def first(p: Value) -> Value:
        return eligible(s, p) & all_of(s.prompts, lambda q: not_(eligible(s, q) & before(s, q, p)))

    return implies(any_of(s.prompts, lambda p: eligible(s, p)), any_of(s.prompts, first))


ASSUMES = "what `ownership` and `loader` assume; a train step takes one group at least"
EXCLUDES = (
    "that an unfinished run outside a save can go on, which is enumerated only. It needs two counts over steps that "
    "the laws stated here do not give: that the next step has its groups or a shortfall (stamps_complete), and that "
    "the permits are not all with later steps, where the groups of each step are summed over the steps from version "
    "to cursor and held against a capacity that is a product, step size times lookahead + 1"
)


def induction(machine: Machine = cut) -> Induction:
    """What holds of the run at all times."""
    return Induction(
        name="run",
        machine=machine,
        scope_type=CutScope,
        properties=(),
        strengthening=STRENGTHENING,
        rests_on=(*cut_ownership.STRENGTHENING, cut_loader.next_batch_has_a_prompt),
        initial=(cut_ownership.empty_run, untouched_run),
        assumes=ASSUMES,
        excludes=EXCLUDES,
        supposes=(steps_take_something,),
        lemmas=(some_spare_is_the_first, some_eligible_is_the_first),
        for_all=True,
        counts=True,
    )


def rising(held: Induction) -> Rising:
    """No run without faults is endless, and none ends inside a save."""
    return Rising("no_stall in part", held, lambda s: s.window != OUTSIDE_WINDOW, "a save under way")


def obligations_of_progress(held: Induction) -> Iterator[Obligation]:
    """The argument over this strengthening."""
    yield from obligations_of_rising(rising(held))
