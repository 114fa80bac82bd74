"""The terms that the proofs reason about are the transition relation that the engines enumerate."""

from __future__ import annotations

import pytest
from model_states import reachable

import spec.catalogue
from proofs.evaluation import Relation
from spec.barrier import barrier
from spec.cut import cut
from spec.scopes import SMALL

REGISTERED_BY = (spec.catalogue,)
MACHINES = (barrier, cut)
WHOLE, SAMPLED = 500, 4_000
"""Up to so many states every one is looked at; of larger scopes some, and of still larger ones none."""


def looked_at(machine):
    """Each scope of the machine with the states of it that are looked at."""
    for scope, pinned in SMALL[machine.name].values():
        if pinned.states <= SAMPLED:
            states = reachable(machine.model(scope))
            yield scope, states if pinned.states <= WHOLE else states[:: 1 + pinned.states // 200]


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
