"""The inductions: all obligations proved, every conjunct needed, every variant refuted, no premise empty."""

from __future__ import annotations

import dataclasses
import re

import pytest

import spec.catalogue
from proofs.discharging import Proved, Refuted, Unknown, discharge
from proofs.inductions import INDUCTIONS
from proofs.obligations import Obligation, Question, obligations_of
from proofs.symbols import SymbolicState
from proofs.terms import Terms
from spec.barrier import BarrierScope, barrier
from spec.expression import Symbol
from spec.scopes import SMALL

REGISTERED_BY = (spec.catalogue,)
LARGEST_ENUMERATED = 2_500
PROVED_PROPERTIES = {"one_owner_on_disk", "none_lost", "cut_excludes_writers", "cursor_covers_stamps"}

EVERY = pytest.mark.parametrize(("machine", "induction"), INDUCTIONS, ids=[i(m).name for m, i in INDUCTIONS])
CONJUNCTS = [(m, i, c) for m, i in INDUCTIONS for c in i(m).strengthening]
VARIANTS = [(m, i, v) for m, i in INDUCTIONS for v in m.variants.values() if v.breaks in i(m).properties]


def first_not_proved(induction):
    """The first verdict that is no proof, or None; the obligations after it are not asked."""
    for obligation in obligations_of(induction):
        verdict = discharge(obligation).verdict
        if not isinstance(verdict, Proved):
            return verdict
    return None


@EVERY
def test_every_obligation_is_proved(machine, induction):
    """For any size; one consecution for every action of the machine."""
    held = induction(machine)
    obligations = obligations_of(held)
    assert {f"{held.name}: consecution of {name}" for name in machine.actions} <= {o.name for o in obligations}
    assert {o.name: v for o in obligations if not isinstance(v := discharge(o).verdict, Proved)} == {}


def test_the_properties_of_the_claim_are_all_proved():
    """Ownership, exclusion and stamps; a property that is only enumerated is not among them."""
    assert {name for machine, induction in INDUCTIONS for name in induction(machine).properties} >= PROVED_PROPERTIES


@pytest.mark.parametrize(
    ("machine", "induction", "conjunct"), CONJUNCTS, ids=[f"{i(m).name}-{c.name}" for m, i, c in CONJUNCTS]
)
def test_every_conjunct_is_needed(machine, induction, conjunct):
    """A conjunct that can be dropped is a distraction: without it a state refutes an obligation."""
    held = induction(machine)
    fewer = tuple(c for c in held.strengthening if c is not conjunct)
    assert isinstance(first_not_proved(dataclasses.replace(held, strengthening=fewer)), Refuted)


@pytest.mark.parametrize(
    ("machine", "induction", "conjunct"), CONJUNCTS, ids=[f"{i(m).name}-{c.name}" for m, i, c in CONJUNCTS]
)
def test_every_conjunct_says_why_it_is_needed(machine, induction, conjunct):
    """One line a conjunct: what it says, and which obligation is lost without it."""
    assert re.search(r"[Nn]eeded|until the window ends|None is lost|none is lost", conjunct.why), conjunct.why
    assert len(conjunct.why) < 130


@pytest.mark.parametrize(
    ("machine", "induction", "variant"), VARIANTS, ids=[f"{i(m).name}-{v.name}" for m, i, v in VARIANTS]
)
def test_a_variant_that_breaks_a_proved_property_is_refuted(machine, induction, variant):
    """What the engine catches in a scope, the proof catches for any size: by a state and a step, never by giving up."""
    varied = induction(machine.varied((*variant.with_variants, variant.name)))
    verdicts = [discharge(obligation).verdict for obligation in obligations_of(varied)]
    assert any(isinstance(verdict, Refuted) for verdict in verdicts)
    assert not any(isinstance(verdict, Unknown) for verdict in verdicts)


@EVERY
def test_the_strengthening_holds_in_every_reachable_state_and_every_action_occurs(machine, induction):
    """The premises of every obligation are met by real states, so none is proved of nothing."""
    strengthening = induction(machine).strengthening
    taken = dict.fromkeys(machine.actions, 0)
    for scope, pinned in SMALL[machine.name].values():
        if pinned.states > LARGEST_ENUMERATED:
            continue
        model = machine.model(scope)
        frontier, seen = [model.initial], {model.initial}
        while frontier:
            state = frontier.pop()
            for conjunct in strengthening:
                assert holds_everywhere(conjunct, model, state), (conjunct.name, state)
            for step in model.steps(state):
                taken[step.action.name] += 1
                if step.state not in seen:
                    seen.add(step.state)
                    frontier.append(step.state)
    assert min(taken.values()) > 0


def holds_everywhere(conjunct, model, state, *indexes):
    """Whether a conjunct holds at all members of its domains."""
    if len(indexes) == len(conjunct.indexes):
        return conjunct(state, *indexes)
    _, domain = conjunct.indexes[len(indexes)]
    return all(holds_everywhere(conjunct, model, state, *indexes, i) for i in model.domains[domain])


def test_a_refutation_names_state_step_and_what_breaks():
    """A counterexample to induction is a whole small state, the action, what it changes, and the broken conjunct."""
    induction = INDUCTIONS[1][1]
    verdicts = [discharge(o).verdict for o in obligations_of(induction(INDUCTIONS[1][0].varied(["cursor_ahead"])))]
    (refuted,) = [verdict for verdict in verdicts if not isinstance(verdict, Proved)]
    assert isinstance(refuted, Refuted)
    assert "ownership: consecution of read_ledger, over 1 of each\n  state\n" in refuted.counterexample
    assert "ledger[0] = RESERVED" in refuted.counterexample or "ledger[0] = ADMITTED" in refuted.counterexample
    assert "  step read_ledger\n" in refuted.counterexample
    assert "    window = ledger read\n" in refuted.counterexample
    assert "  breaks image_of_the_ledger at p = 0" in refuted.counterexample


def obligation_asking(premise, goal):
    """An obligation about numbers, which says nothing of a machine."""

    def ask(terms: Terms) -> Question:
        return Question([premise], [("goal", goal)], SymbolicState(barrier, BarrierScope), None, {})

    return Obligation("numbers", barrier, ask, "", "")


def test_an_unknown_is_not_a_pass():
    """A solver that gives up yields Unknown with its reason."""
    import z3

    x, y, z = z3.Ints("x y z")
    hard = obligation_asking(z3.And(x > 1, y > 1, z > 1), x * x * x + y * y * y != z * z * z)
    verdict = discharge(hard, timeout=50).verdict
    assert isinstance(verdict, Unknown)
    assert "gave up" in verdict.reason


def test_a_premise_that_no_state_meets_proves_nothing():
    """What follows from a contradiction is not proved."""
    import z3

    x = z3.Int("x")
    verdict = discharge(obligation_asking(z3.And(x > 1, x < 1), x == 5)).verdict
    assert isinstance(verdict, Unknown)
    assert "meets the premises" in verdict.reason


def test_a_false_goal_is_refuted_and_a_true_one_proved():
    """The two ends of the scale."""
    import z3

    x = z3.Int("x")
    assert isinstance(discharge(obligation_asking(x > 1, x > 0)).verdict, Proved)
    assert isinstance(discharge(obligation_asking(x > 1, x > 2)).verdict, Refuted)


def test_a_conjunct_is_not_assumed_beyond_its_indexes():
    """Over any size the premises speak of the named indexes alone, unless the induction asks for all."""
    terms = Terms()
    state = SymbolicState(barrier, BarrierScope)
    from proofs.barrier_exclusion import open_cut_heads_the_queue
    from proofs.obligations import assumed

    text = str(assumed([open_cut_heads_the_queue], state, {"c": "all_checkpointers"}, terms, for_all=False))
    assert "ForAll" not in text
    assert str(terms.term(open_cut_heads_the_queue(state, Symbol("constant", "c")))) in text
