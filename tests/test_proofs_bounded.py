"""Bounded model checking by the solver finds the engines' shortest traces, and believes none that does not replay."""

from __future__ import annotations

import pytest

import spec.machines.catalogue
from proofs.solver import GaveUp, NoTrace, Trace, TraceDoesNotReplay, require_violation, shortest_trace
from spec.machines import SMALL, all_variants, scopes_named
from spec.machines.barrier import barrier
from spec.machines.cut import cut

REGISTERED_BY = (spec.machines.catalogue,)
LONGEST_HERE = 6
"""Longer ones are searched by `make prove` and, from 9 steps on, by bench/solver.py."""

SHORT = [(machine, variant) for machine, variant in all_variants() if variant.length <= LONGEST_HERE]


@pytest.mark.parametrize(("machine", "variant"), SHORT, ids=[variant.name for _, variant in SHORT])
def test_the_shortest_trace_of_a_variant_has_the_length_of_the_engines(machine, variant):
    """Two searches of one text, one by enumeration and one by the solver, agree on the shortest length."""
    ((scope, _),) = scopes_named(machine, variant.scope).values()
    found = shortest_trace(machine, scope, (*variant.with_variants, variant.name), variant.breaks, variant.length)
    assert isinstance(found, Trace)
    assert found.length == variant.length


@pytest.mark.parametrize("name", [*barrier.properties, "no_deadlock"])
def test_the_barrier_itself_has_no_trace_within_the_bound(name):
    """Every length up to the depth of the scope is asked for, and no trace is made up."""
    scope, pinned = SMALL["barrier"]["one_round"]
    assert isinstance(shortest_trace(barrier, scope, (), name, pinned.depth), NoTrace)


def test_no_trace_below_the_shortest_length_is_said_with_its_bound():
    """A bounded search that finds nothing says how far it looked."""
    found = shortest_trace(cut, SMALL["cut"]["one_batch"][0], ("phase_apart",), "stamps_complete", 2)
    assert isinstance(found, NoTrace)
    assert found.bound == 2


def test_a_solver_that_gives_up_concludes_nothing():
    """Neither a trace nor its absence."""
    scope = SMALL["cut"]["failures"][0]
    assert isinstance(shortest_trace(cut, scope, (), "permits_balance", 30, timeout=1), GaveUp)


@pytest.mark.parametrize(
    "steps", [[("request_cut", 0), ("open_cut", 0)], [("open_cut", 0)]], ids=["breaks_nothing", "not_enabled"]
)
def test_a_trace_that_does_not_replay_is_a_fault_of_ours(steps):
    """A wrong encoding would show here and not as a wrong verdict."""
    with pytest.raises(TraceDoesNotReplay):
        require_violation(barrier.model(SMALL["barrier"]["one_round"][0]), "cut_excludes_writers", steps)
