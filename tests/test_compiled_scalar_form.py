"""The scalar form of a machine says what its text says: steps, claims, premises, the end of the run and the rank."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from model_states import reachable

from spec.language import Machine, Model, ModelFault, Nodes, Progress, ScalarModel, all_of, evaluate, put
from spec.language.scalar_form import scalar_form
from spec.machines import MACHINES, SMALL, variant_named


def expect_equal(form: ScalarModel, model: Model, state: Any) -> int:
    """Compare everything that form and model say of one state; how many steps there were."""
    flat = form.flat(state)
    steps = {(step.action.name, step.index): form.flat(step.state) for step in model.steps(state)}
    guards = [i.guard for i in form.instances]
    claims = [c.holds for c in form.claims]
    witnesses = [w.occurs for w in form.witnesses]
    assigned = [node for i in form.instances for node in i.assignments.values()]
    ends = [node for node in (form.finished, form.rank) if node is not None]
    values = iter(evaluate([*guards, *claims, *witnesses, *assigned, *ends], flat))
    enabled = [bool(next(values)) for _ in guards]
    assert [i for i, on in zip(form.instances, enabled, strict=True) if on] == [
        i for i in form.instances if (i.action, i.index) in steps
    ]
    for claim in form.claims:
        text = next(c for c in model.machine.properties[claim.property].claims if c.at == claim.at)
        plain = text.function(state) if claim.index is None else text.function(state, claim.index)
        assert bool(next(values)) == plain, claim
    for witness in form.witnesses:
        text = next(c for c in model.machine.properties[witness.property].claims if c.at == witness.at)
        assert bool(next(values)) == text.witness(state), witness
    for instance, on in zip(form.instances, enabled, strict=True):
        after = list(flat)
        for position in instance.assignments:
            after[position] = next(values)
        if on:
            assert tuple(after) == steps[instance.action, instance.index], instance.label
    if model.machine.progress is not None:
        assert bool(next(values)) == model.finished(state)
        assert next(values) == model.machine.progress.rank(state)
    assert evaluate([form.misread], flat) == [0]
    return len(steps)


SCOPES = [
    ("barrier", "one_cancellation"),
    ("barrier", "children"),
    ("barrier", "two_rounds"),
    ("cut", "one_pair"),
    ("cut", "one_failure"),
    ("cut", "two_batches"),
    ("cut", "windowed_tight"),
    ("cut", "short_dropped"),
    ("store", "one_save"),
    ("combined", "one_batch"),
]


@pytest.mark.parametrize(("name", "member"), SCOPES)
def test_every_reachable_state_of_a_scope(name, member):
    """The same steps, in every state; the transitions add up to the pinned number."""
    scope, pinned = SMALL[name][member]
    model, form = MACHINES[name].model(scope), scalar_form(MACHINES[name], scope)
    assert sum(expect_equal(form, model, state) for state in reachable(model)) == pinned.transitions


@pytest.mark.parametrize(
    ("name", "member"),
    [
        *(("cut", m) for m in ("spares", "borrow", "windowed", "snapshots", "background", "remainder", "epochs")),
        *(("cut", m) for m in ("weight_fifo", "ready_first", "replay_free", "retries", "failed_saves")),
        ("store", "rewind"),
        ("store", "two_writers_crash"),
    ],
)
def test_a_sample_of_the_states_with_every_feature(name, member):
    """A hundred states of each scope with one feature, chosen once and for all."""
    scope, _ = SMALL[name][member]
    model, form = MACHINES[name].model(scope), scalar_form(MACHINES[name], scope)
    states = random.Random(3).sample(reachable(model), 100)
    assert sum(expect_equal(form, model, state) for state in states) >= 50


@pytest.mark.parametrize(
    "names",
    [
        ("flag_after_drain",),
        ("leak_on_cancel",),
        ("skewed_cut", "silent_duplicate_guard"),
        ("cursor_ahead",),
        ("publish_before_data",),
        ("cut_does_not_drain",),
    ],
    ids="+".join,
)
def test_variants_are_written_out_as_well(names):
    """A variant may add variables and replace actions; states beyond the violation count too."""
    machine, variant = variant_named(names[-1])
    scope, _ = SMALL[machine.name][variant.scope]
    model, form = machine.model(scope, names), scalar_form(machine, scope, names)
    states = [model.initial]
    for state in states:
        states += [step.state for step in model.steps(state) if step.state not in states and len(states) < 150]
    assert sum(expect_equal(form, model, state) for state in states) >= len(states) - 1


def test_every_variant_can_be_written_out():
    """No variant uses what cannot be unrolled."""
    written = 0
    for machine in MACHINES.values():
        for variant in machine.variants.values():
            scope, _ = SMALL[machine.name][variant.scope]
            form = scalar_form(machine, scope, (*variant.with_variants, variant.name))
            assert {c.property for c in form.claims} | {"no_stall", "no_deadlock"} > {variant.breaks}
            written += 1
    assert written >= 40


def test_an_action_off_by_its_scope_is_left_out():
    """A scope without crashes pays nothing for them."""
    scope, _ = SMALL["cut"]["weight_fifo_pairs"]
    assert "crash_and_restore" not in {i.action for i in scalar_form(MACHINES["cut"], scope).instances}


@dataclass(frozen=True)
class Size:
    """How many places there are."""

    places: int


def walker() -> Machine:
    """A token that walks over places and counts its visits; the place is an index computed from the state."""
    machine = Machine("walker")
    machine.domain("places", lambda scope: scope.places)
    machine.variable("at", 0, 9, "where it is")
    machine.variable("visits", 0, 3, "how often it was there", over="places")

    @machine.system(who="walker")
    def walk(s):
        """On to the next place."""
        return s.at < s.places_in_all - 1, {"at": s.at + 1, "visits": put(s.visits, s.at, s.visits.at(s.at) + 1)}

    return machine


@dataclass(frozen=True)
class Places(Size):
    """The number again, under a name that is no domain."""

    places_in_all: int = 0


def test_a_computed_index_becomes_a_choice_within_the_bounds():
    """`visits.at(at)` reads each place it may be, and an `at` beyond the last is a fault where the step is taken."""
    form = scalar_form(walker(), Places(3, 3))
    (walk,) = form.instances
    assert evaluate([walk.guard, *walk.assignments.values()], [1, 1, 2, 0]) == [1, 2, 1, 3, 0]
    assert evaluate([walk.misread], [2, 0, 0, 0]) == [0]
    assert evaluate([walk.misread], [3, 0, 0, 0]) == [1]


def test_a_guard_that_is_a_number_is_refused():
    """The reference engine refuses it too, but only in the states where it meets it."""
    machine = walker()
    machine.replace("walk", lambda s: (s.at + 1, {}))
    with pytest.raises(ModelFault, match="truth value"):
        scalar_form(machine, Places(3, 3))


def test_an_unknown_variable_is_refused():
    """A misspelt effect would change nothing."""
    machine = walker()
    machine.replace("walk", lambda s: (s.at == 0, {"att": 1}))
    with pytest.raises(ModelFault, match="att"):
        scalar_form(machine, Places(3, 3))


def test_constants_of_the_scope_are_folded():
    """Equal expressions are one node, and what can come out one way only is a constant."""
    nodes = Nodes([(0, 3), (2, 2), (-1, 5)])
    a, fixed, c = (nodes.element(i) for i in range(3))
    assert nodes.compare("<", a, nodes.constant(4)) is nodes.true
    assert fixed is nodes.constant(2)
    assert nodes.compare("==", a, c) is nodes.compare("==", c, a)
    assert nodes.all_of([nodes.compare("==", a, c), nodes.compare("!=", a, c)]) is nodes.false
    assert nodes.compare("==", nodes.number(nodes.compare("<", a, c)), nodes.constant(1)) is nodes.compare("<", a, c)
    assert nodes.arithmetic("-", nodes.arithmetic("+", a, nodes.constant(0)), a) is nodes.constant(0)
    assert (nodes.arithmetic("-", a, c).low, nodes.arithmetic("-", a, c).high) == (-5, 4)


def test_a_rank_is_a_number_and_quantifiers_over_nothing_hold():
    """An empty domain unrolls to the neutral element."""
    machine = Machine("nothing")
    machine.domain("none", lambda scope: 0)
    machine.variable("x", 0, 1, "x")
    machine.progress = Progress("goes_on", lambda s: all_of(s.none, lambda i: False), lambda s: s.x == 1, "It ends.")
    form = scalar_form(machine, Size(0))
    assert form.finished is form.nodes.true
    assert form.rank is not None
    assert evaluate([form.rank], [1]) == [1]
    assert not form.rank.truth
