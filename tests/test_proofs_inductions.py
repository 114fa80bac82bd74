"""The inductions: all obligations proved, every conjunct needed, every variant refuted, no premise empty."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import z3
from model_states import reachable
from proof_outcomes import outcomes_of

import spec.machines.catalogue
from proofs.claims import (
    ARGUMENTS,
    barrier_exclusion,
    barrier_progress,
    cut_bounds,
    foundations,
    open_cut_heads_the_queue,
)
from proofs.solver import (
    NUMBERS,
    Definition,
    Height,
    Obligation,
    Proved,
    Question,
    Refuted,
    SymbolicState,
    Terms,
    Unknown,
    about,
    allowed_by_the_laws,
    assumed,
    discharge,
    enabled_somewhere,
    laws,
    obligation_of_height,
    obligations_of,
)
from spec.language import Symbol
from spec.machines import LARGE, MEDIUM, SMALL
from spec.machines.barrier import BarrierScope, barrier

REGISTERED_BY = (spec.machines.catalogue,)
LARGEST_ENUMERATED = 2_500
SOON, AT_LAST = 1_500, 600_000
"""Milliseconds for the solver: where nothing is found and none is wanted, and where a state that refutes is found in
some, so that more than that is a limit for hangs."""
PROVED_PROPERTIES = {"one_owner_on_disk", "none_lost", "cut_excludes_writers", "cursor_covers_stamps"}
ALSO_PROVED = {"one_cut_at_a_time", "no_deadlock", "loader_agrees"}

# Follows from two others by the pigeonhole principle, so no true count refutes; one that the laws allow does.
BY_PIGEONHOLE = {"every_place_is_taken"}


def name_of(argument):
    return argument.induction(argument.machine).name


EVERY = pytest.mark.parametrize("argument", ARGUMENTS, ids=name_of)
CONJUNCTS = [(a, c) for a in ARGUMENTS for c in a.induction(a.machine).strengthening]
EVERY_CONJUNCT = pytest.mark.parametrize(
    ("argument", "conjunct"), CONJUNCTS, ids=[f"{name_of(a)}-{c.name}" for a, c in CONJUNCTS]
)
SUPPOSED = [(a, c) for a in ARGUMENTS for c in a.induction(a.machine).supposes]
LEMMAS = [(a, c) for a in ARGUMENTS for c in a.induction(a.machine).lemmas]
VARIANTS = [(a, v) for a in ARGUMENTS for v in a.machine.variants.values() if v.breaks in a.shows]


def lost_without(argument, claim, *fields):
    """The obligation that the claim says is lost without it, asked with the claim left out."""
    held = argument.induction(argument.machine)
    fewer = {field: tuple(c for c in getattr(held, field) if c is not claim) for field in fields}
    found = argument.obligations(dataclasses.replace(held, **fewer))
    exactly = [o for o in found if o.name in (claim.without, f"{held.name}: {claim.without}")]
    (lost,) = exactly or [o for o in found if o.name.endswith(claim.without)]
    return lost


@EVERY
def test_every_obligation_is_proved(argument):
    """For any size; one consecution for every action of the machine."""
    outcomes = outcomes_of(argument)
    consecutions = {f"{name_of(argument)}: consecution of {name}" for name in argument.machine.actions}
    assert consecutions <= {outcome.obligation.name for outcome in outcomes}
    assert {o.obligation.name: o.verdict for o in outcomes if not isinstance(o.verdict, Proved)} == {}


def test_the_properties_of_the_claim_are_all_proved():
    """Ownership, exclusion and stamps; a property that is only enumerated is not among them."""
    assert {name for argument in ARGUMENTS for name in argument.shows} == PROVED_PROPERTIES | ALSO_PROVED


@EVERY_CONJUNCT
def test_every_conjunct_is_needed(argument, conjunct):
    """A conjunct that can be dropped is a distraction: without it a state refutes the obligation that it names."""
    lost = lost_without(argument, conjunct, "strengthening")
    if conjunct.name in BY_PIGEONHOLE:
        assert not isinstance(discharge(lost, timeout=SOON).verdict, Proved)
        # Two places are in the queue by this count, of which one is taken: not the first.
        assert "breaks somebody can help" in (allowed_by_the_laws(lost) or "")
    else:
        assert isinstance(discharge(lost, timeout=AT_LAST).verdict, Refuted)


def test_a_count_that_no_set_has_refutes_nothing():
    """What the laws allow is looked at only where a conjunct is left out; an obligation as it is allows none."""
    (argument,) = [a for a in ARGUMENTS if name_of(a) == "queue"]
    (helped,) = [o for o in argument.obligations() if o.name.endswith("somebody can always help")]
    assert allowed_by_the_laws(helped) is None


def test_what_an_argument_rests_on_is_proved_by_another():
    """Nothing is assumed of every state but what holds in every state."""
    proved = {(a.machine.name, c.name) for a in ARGUMENTS for c in a.induction(a.machine).strengthening}
    resting = {(a.machine.name, c.name) for a in ARGUMENTS for c in a.induction(a.machine).rests_on}
    assert resting
    assert resting - proved == {("cut", "next_batch_has_a_prompt")}
    for argument in ARGUMENTS:
        held = argument.induction(argument.machine)
        assert not set(held.rests_on) & set(held.strengthening)
        others = [other for other in foundations(held) if other.machine is held.machine]
        whole = {c for other in others for c in (*other.strengthening, *other.follows)}
        assert set(held.rests_on) <= whole


@pytest.mark.parametrize(("argument", "claim"), SUPPOSED, ids=[c.name for _, c in SUPPOSED])
def test_everything_supposed_is_needed(argument, claim):
    """An assumption that nothing rests on would only weaken the statement: a state refutes what is lost without it."""
    assert isinstance(discharge(lost_without(argument, claim, "supposes"), timeout=AT_LAST).verdict, Refuted)


class AnyOrder(Terms):
    """Small states in which the order of indexes is any relation, so that a set need have no first member."""

    comes_before = z3.Function("comes before", z3.IntSort(), z3.IntSort(), z3.BoolSort())

    def _translate(self, value, bound):
        indexes = [a for a in value.arguments if isinstance(a, Symbol) and a.operator == "index"]
        if value.operator not in ("<", ">=") or len(indexes) != 2:
            return super()._translate(value, bound)
        before = self.comes_before(*(self.term(index, bound) for index in indexes))
        return before if value.operator == "<" else z3.Not(before)


def is_broken_in_any_order(obligation):
    """Whether a state of three members breaks it if the order of indexes may go round in a circle."""
    question = obligation.ask(AnyOrder(dict.fromkeys(obligation.machine.domains, 3)))
    solver = z3.Solver()
    solver.add(*question.premises, z3.Not(z3.And([goal for _, goal in question.goals])))
    return solver.check() == z3.sat


@pytest.mark.parametrize(("argument", "claim"), LEMMAS, ids=[c.name for _, c in LEMMAS])
def test_every_lemma_is_needed(argument, claim):
    """A lemma is true of every finite set, so no state refutes; but without it, nothing says that order is order."""
    lost = lost_without(argument, claim, "lemmas")
    assert not isinstance(discharge(lost, timeout=SOON).verdict, Proved)
    assert is_broken_in_any_order(lost)
    (kept,) = [o for o in argument.obligations() if o.name == lost.name]
    assert not is_broken_in_any_order(kept)


@pytest.mark.parametrize("size", [1, 2, 3])
@EVERY
def test_every_lemma_holds_over_a_finite_domain(argument, size):
    """No state of a small size, whatever its values, breaks one: they say nothing of the machine."""
    held = argument.induction(argument.machine)
    terms = Terms(dict.fromkeys(argument.machine.domains, size))
    state = SymbolicState(argument.machine, held.scope_type)
    for lemma in held.lemmas:
        solver = z3.Solver()
        solver.add(z3.Not(terms.term(lemma(state))))
        assert solver.check() == z3.unsat, lemma.name


def contradicted(argument, effort):
    """The obligations whose premises, laws included, the solver finds contradictory with so much effort."""
    found = []
    for obligation in argument.obligations():
        solver = z3.Solver()
        solver.set("rlimit", effort)
        solver.add(*obligation.ask(Terms()).premises)
        if solver.check() == z3.unsat:
            found.append(obligation.name)
    return found


@EVERY
def test_the_premises_for_any_size_do_not_contradict_each_other(argument):
    """A false law of counting would prove anything."""
    assert contradicted(argument, 100_000) == []


@pytest.mark.slow
@EVERY
def test_with_more_effort_the_premises_are_not_contradictory_either(argument):
    """Four times as much."""
    assert contradicted(argument, 400_000) == []


def test_a_false_law_of_counting_is_found(monkeypatch):
    """The search above finds contradictions where there are some: here, that nothing is ever counted as nothing."""

    def none_is_nothing(terms, members):
        return [*laws(terms, members), *(t.unknown >= 1 for t in terms.tallies.values() if not t.outer)]

    monkeypatch.setattr("proofs.solver.obligations.laws", none_is_nothing)
    (argument,) = [a for a in ARGUMENTS if name_of(a) == "exclusion"]
    assert contradicted(argument, 100_000)


@pytest.mark.parametrize(("argument", "variant"), VARIANTS, ids=[f"{name_of(a)}-{v.name}" for a, v in VARIANTS])
def test_a_variant_that_breaks_a_proved_property_is_refuted(argument, variant):
    """What the engine catches in a scope, the proof catches for any size: by a state and a step, never by giving up."""
    varied = argument.induction(argument.machine.varied((*variant.with_variants, variant.name)))
    for obligation in argument.obligations(varied):
        verdict = discharge(obligation).verdict
        if isinstance(verdict, Refuted):
            break
        # An action that the variant adds may be possible only in states that the strengthening excludes.
        assert isinstance(verdict, Proved) or "meets the premises" in verdict.reason
    assert isinstance(verdict, Refuted)


@EVERY
def test_the_strengthening_holds_in_every_reachable_state_and_every_action_occurs(argument):
    """The premises of every obligation are met by real states, so none is proved of nothing."""
    held = argument.induction(argument.machine)
    claims = (*held.strengthening, *held.follows, *held.supposes, *held.lemmas)
    scopes, taken = explored(argument.machine)
    for model, states in scopes:
        assert all(holds_everywhere(claim, model, model.initial) for claim in held.initial)
        for state in states:
            for claim in claims:
                assert holds_everywhere(claim, model, state), (claim.name, state)
    assert taken == set(argument.machine.actions)


@EVERY
def test_the_start_that_is_assumed_is_that_of_every_scope(argument):
    """Of the large ones too, whose states are not enumerated here: initiation would else be of another machine."""
    scopes = [scope for family in (SMALL, MEDIUM, LARGE) for scope, _ in family[argument.machine.name].values()]
    for model in map(argument.machine.model, scopes):
        for claim in argument.induction(argument.machine).initial:
            assert holds_everywhere(claim, model, model.initial), (claim.name, model.scope)


@cache
def explored(machine):
    """The reachable states of the smaller scopes, with their models, and the actions that were taken in any."""
    scopes = [scope for scope, pinned in SMALL[machine.name].values() if pinned.states <= LARGEST_ENUMERATED]
    found = [(model, reachable(model)) for model in map(machine.model, scopes)]
    taken = set()
    for model, states in found:
        # Enough of a scope to see its actions; all of it was taken to find the states.
        taken |= {step.action.name for state in states[::3] for step in model.steps(state)}
    return found, taken


def holds_everywhere(conjunct, model, state, *indexes):
    """Whether a conjunct holds at all members of its domains."""
    if len(indexes) == len(conjunct.indexes):
        return conjunct(state, *indexes)
    _, domain = conjunct.indexes[len(indexes)]
    members = range(-1, 9) if domain == NUMBERS else model.domains[domain]
    return all(holds_everywhere(conjunct, model, state, *indexes, i) for i in members)


@pytest.mark.parametrize(
    ("module", "height"),
    [
        (barrier_progress, Height({"all_writers": 6, "all_checkpointers": 3}, (7, 3), lambda s: 0)),
        (cut_bounds, Height({"prompts": 20}, (10, 3), cut_bounds.of_the_scope)),
        (cut_bounds, Height({"prompts": 25}, (10, 3), lambda s: s.epochs)),
    ],
    ids=["writers", "prompts", "saves"],
)
def test_a_height_that_is_too_low_is_refuted(module, height):
    """By a state that is higher: the bound of the rank is none that anything is below."""
    assert isinstance(discharge(obligation_of_height("too low", module.induction(), height)).verdict, Refuted)


def test_a_height_with_a_variable_in_it_is_refused():
    """It would rise with the rank."""
    rising = Height({}, (), lambda s: 1000 * (s.version + 1))
    with pytest.raises(ValueError, match="'version'"):
        obligation_of_height("rising", cut_bounds.induction(), rising).ask(Terms())


def test_a_refutation_names_state_step_and_what_breaks():
    """A counterexample to induction is a whole small state, the action, what it changes, and the broken conjunct."""
    (argument,) = [a for a in ARGUMENTS if name_of(a) == "ownership"]
    varied = argument.induction(argument.machine.varied(["cursor_ahead"]))
    verdicts = [discharge(o).verdict for o in argument.obligations(varied)]
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
    x, y, z = z3.Ints("x y z")
    hard = obligation_asking(z3.And(x > 1, y > 1, z > 1), x * x * x + y * y * y != z * z * z)
    verdict = discharge(hard, timeout=50).verdict
    assert isinstance(verdict, Unknown)
    assert "gave up" in verdict.reason


def test_a_premise_that_no_state_meets_proves_nothing():
    """What follows from a contradiction is not proved."""
    x = z3.Int("x")
    verdict = discharge(obligation_asking(z3.And(x > 1, x < 1), x == 5)).verdict
    assert isinstance(verdict, Unknown)
    assert "meets the premises" in verdict.reason


def test_a_false_goal_is_refuted_and_a_true_one_proved():
    """The two ends of the scale."""
    x = z3.Int("x")
    assert isinstance(discharge(obligation_asking(x > 1, x > 0)).verdict, Proved)
    assert isinstance(discharge(obligation_asking(x > 1, x > 2)).verdict, Refuted)


@about("all_checkpointers")
def of_another_domain(s, w):
    """Speaks of a checkpoint by the name that another conjunct has for a writer."""
    return s.cut[w] == s.cut[w]


@about("all_writers")
def of_a_variable(s, cut):
    """Speaks of a writer by the name of a variable."""
    return s.at[cut] == s.at[cut]


@pytest.mark.parametrize("odd", [of_another_domain, of_a_variable], ids=lambda odd: odd.name)
def test_an_index_that_could_be_taken_for_another_is_refused(odd):
    """Shown for the members of the wrong domain, or for one value, a conjunct would not be shown at all."""
    held = barrier_exclusion.induction()
    odd_one = dataclasses.replace(held, strengthening=(*held.strengthening, odd))
    with pytest.raises(ValueError, match=r"the index '(w|cut)'"):
        obligations_of(odd_one)[0].ask(Terms())


def test_an_index_that_is_worked_out_is_not_spoken_of_as_any():
    """A goal at it would be shown at that one place only."""
    held = barrier_progress.induction()
    again = Definition("w", "all_writers", lambda: Symbol("constant", "k") + 1)
    with pytest.raises(ValueError, match="'w' is worked out"):
        obligations_of(dataclasses.replace(held, definitions=(again,)))[0].ask(Terms())


@pytest.mark.parametrize(
    ("argument", "conjunct"),
    [(a, c) for a, c in CONJUNCTS if c.name.endswith("where_there_are_none")],
    ids=lambda each: getattr(each, "name", ""),
)
def test_an_action_of_a_feature_that_is_switched_off_helps_nobody(argument, conjunct):
    """Its guard says so: else a run would be said to go on by steps that its scope does not have."""
    flag = "children" if "child" in conjunct.name else "leases"
    state, terms = SymbolicState(argument.machine, argument.induction(argument.machine).scope_type), Terms()
    for action in argument.machine.actions.values():
        if action.when is None or str(action.when(state).arguments[0]) != flag:
            continue
        solver = z3.Solver()
        solver.add(z3.Int(flag) == 0, terms.term(enabled_somewhere(argument.machine, action, state)))
        assert solver.check() == z3.unsat, action.name


def test_a_conjunct_is_not_assumed_beyond_its_indexes():
    """Over any size the premises speak of the named indexes alone, unless the induction asks for all."""
    terms = Terms()
    state = SymbolicState(barrier, BarrierScope)
    text = str(assumed([open_cut_heads_the_queue], state, {"c": "all_checkpointers"}, terms, for_all=False))
    assert "ForAll" not in text
    assert str(terms.term(open_cut_heads_the_queue(state, Symbol("constant", "c")))) in text
