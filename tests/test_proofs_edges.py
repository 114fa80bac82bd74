"""The terms that the proofs reason about are the transition relation that the engines enumerate."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
from model_states import reachable

import spec.machines.catalogue
from proofs.claims import ARGUMENTS
from proofs.solver import NUMBERS, Relation, Statement
from spec.machines import SMALL
from spec.machines.barrier import barrier
from spec.machines.cut import cut

REGISTERED_BY = (spec.machines.catalogue,)
MACHINES = (barrier, cut)
WHOLE, SAMPLED = 500, 4_000
"""Up to so many states every one is looked at; of larger scopes some, and of still larger ones none."""


@cache
def looked_at(machine):
    """Each scope of the machine with the states of it that are looked at."""
    scopes = [(scope, pinned.states) for scope, pinned in SMALL[machine.name].values() if pinned.states <= SAMPLED]
    found = [(scope, reachable(machine.model(scope)), number) for scope, number in scopes]
    return [(scope, states if number <= WHOLE else states[:: 1 + number // 200]) for scope, states, number in found]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_explored_edge_satisfies_the_terms_and_nothing_else_does(machine):
    """Each action at each index, in every state: enabled exactly where the engine takes it, and to that state alone."""
    edges = refused = elsewhere = 0
    taken = set()
    for scope, states in looked_at(machine):
        model = machine.model(scope)
        actions = [a for a in machine.actions.values() if a.when is None or a.when(scope)]
        relations = {action.name: Relation(machine, type(scope), action) for action in actions}
        for state in states:
            steps = {(step.action.name, step.index): step.state for step in model.steps(state)}
            for action in actions:
                for index in [None] if action.each is None else list(getattr(state, action.each)):
                    relation, after = relations[action.name], steps.get((action.name, index))
                    assert relation.enabled(state, index) is (after is not None), (action.name, index, state)
                    if after is None:
                        refused += 1
                        continue
                    assert relation.holds(state, index, after), (action.name, index, state)
                    edges += 1
                    taken.add(action.name)
                    for other in {state, model.initial, *steps.values()} - {after}:
                        assert not relation.holds(state, index, other), (action.name, index, state, other)
                        elsewhere += 1
    assert taken == set(machine.actions)
    assert edges > 1_000
    assert refused > edges
    assert elsewhere > edges


def statements_of(machine):
    """Everything that an obligation says of a state but guards and effects: its name, its domains, and the claim."""
    for known in machine.properties.values():
        for number, claim in enumerate(known.claims):
            yield f"{known.name} {number}", [known.each] if known.each else [], claim.function
    progress = machine.progress
    yield from [("finished", [], progress.finished), ("rank", [], progress.rank)]
    for argument in ARGUMENTS:
        if argument.machine is machine:
            held = argument.induction(machine)
            for claim in (*held.strengthening, *held.initial, *held.supposes, *held.lemmas):
                yield f"{held.name}: {claim.name}", [domain for _, domain in claim.indexes], claim


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_what_is_said_of_a_state_means_on_terms_what_it_means_to_the_engines(machine):
    """Claims, the rank and every conjunct: an obligation about something else than the property would prove nothing."""
    compared, scope_type = set(), type(next(iter(SMALL[machine.name].values()))[0])
    said = [
        (name, domains, claim, Statement(machine, scope_type, claim, len(domains)))
        for name, domains, claim in statements_of(machine)
    ]
    for _, states in looked_at(machine):
        for state in states[:: 1 + len(states) // 8]:
            for name, domains, claim, statement in said:
                members = [range(-1, 4) if d == NUMBERS else getattr(state, d) for d in domains]
                for indexes in itertools.product(*members):
                    assert statement.at(state, *indexes) == claim(state, *indexes), (name, indexes, state)
                    compared.add((name, claim(state, *indexes)))
    names = {name for name, _, _ in statements_of(machine)}
    assert {name for name, _ in compared} == names
    # What holds in every state is true in all; the start and the end are told from the rest.
    assert {("finished", True), ("finished", False)} <= compared
    assert len({value for name, value in compared if name == "rank"}) > 10


def test_a_variant_does_not_satisfy_the_terms_of_the_protocol():
    """A relation that accepts every edge would pass the test above only if it refused nothing: it does refuse."""
    varied = cut.varied(["no_subtraction"])
    scope, _ = SMALL["cut"]["one_batch"]
    model = varied.model(scope)
    relation = Relation(cut, type(scope), cut.actions["read_ledger"])
    edges = [(s, step.state) for s in reachable(model) for step in model.steps(s) if step.action.name == "read_ledger"]
    accepted = [relation.holds(before, None, after) for before, after in edges]
    assert any(accepted)
    assert not all(accepted)
