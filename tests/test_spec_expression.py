"""One text, two readings: plain integers and symbols. What a symbol refuses, and that the graph means the same."""

from __future__ import annotations

from typing import Any

import pytest
from model_states import reachable

from proofs.solver import SymbolicState, symbolic_step
from spec.engines import search
from spec.language import (
    Domain,
    Symbol,
    SymbolicVector,
    SymbolRefused,
    Vector,
    all_of,
    any_of,
    count,
    each,
    implies,
    not_,
    put,
    total,
    where,
)
from spec.machines import MACHINES, SMALL

FIVE = Domain("five", 5)
SQUARES = Vector([0, 1, 4, 9, 16])


def test_the_words_on_plain_numbers():
    """Each combinator on integers gives what its name says."""
    assert each(FIVE, lambda i: i * i).vector() == SQUARES
    assert each(FIVE, lambda i: i * i)[3] == 9
    assert put(SQUARES, 2, 7) == (0, 1, 7, 9, 16)
    assert SQUARES.at(3) == 9
    assert all_of(FIVE, lambda i: SQUARES[i] >= i) is True
    assert any_of(FIVE, lambda i: SQUARES[i] == 5) is False
    assert count(FIVE, lambda i: SQUARES[i] > 3) == 3
    assert total(FIVE, lambda i: SQUARES[i]) == 30
    assert (where(True, 1, 2), where(False, 1, 2)) == (1, 2)
    assert [implies(a, b) for a in (False, True) for b in (False, True)] == [True, True, False, True]
    assert not_(True) is False


def test_an_empty_domain_has_no_counterexample():
    """Over no index a claim holds and nothing is found, as in logic."""
    nothing = Domain("nothing", 0)
    assert all_of(nothing, lambda i: False) is True
    assert any_of(nothing, lambda i: True) is False


@pytest.mark.parametrize("index", [-1, 5])
def test_a_computed_index_out_of_range_is_refused(index):
    """A negative index would silently read from the end."""
    with pytest.raises(IndexError, match=f"index {index} outside"):
        SQUARES.at(index)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: bool(x),
        lambda x: 1 if x == 1 else 2,
        lambda x: 0 < x < 3,
        lambda x: x == 1 and x == 2,
        lambda x: not x,
        lambda x: ~(x == 1),
        lambda x: [10, 20][x],
        lambda x: list(x),
        lambda x: x in (1, 2),
    ],
    ids=["bool", "if", "chained", "and", "not", "invert", "index", "iterate", "in"],
)
def test_a_symbol_refuses_what_would_lose_a_case(use):
    """Python control flow on a symbol would take one branch and forget the other."""
    with pytest.raises(SymbolRefused):
        use(Symbol("variable", "x"))


def evaluate(value, state, indexes):
    """Work an expression graph out on a plain state: the meaning of the graph, written once more for the test."""
    if not isinstance(value, Symbol):
        return value

    def go(item, more=()):
        return evaluate(item, state, {**indexes, **dict(more)})

    name = value.operator
    arguments: Any = value.arguments
    if name in ("variable", "constant"):
        return indexes[arguments[0]] if arguments[0] in indexes else getattr(state, arguments[0])
    if name == "index":
        return indexes[id(value)]
    if name == "element":
        return element(arguments[0], go(arguments[1]), state, indexes)
    if name in ("all_of", "any_of", "count", "total"):
        domain, index, body = arguments
        values = [go(body, [(id(index), i)]) for i in getattr(state, domain.name)]
        return {"all_of": all, "any_of": any, "count": lambda v: v.count(True), "total": sum}[name](values)
    if name == "where":
        return go(arguments[1]) if go(arguments[0]) else go(arguments[2])
    left, *rest = [go(argument) for argument in arguments]
    operations: dict[str, Any] = {
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "&": lambda a, b: a and b,
        "|": lambda a, b: a or b,
        "implies": lambda a, b: not a or b,
        "not": lambda a: not a,
    }
    return operations[name](left, *rest)


def element(vector, index, state, indexes):
    """One element of a symbolic vector on a plain state."""
    if vector.operator in ("variable", "constant"):
        return getattr(state, vector.arguments[0])[index]
    if vector.operator == "each":
        own, body = vector.arguments
        return evaluate(body, state, {**indexes, id(own): index})
    if vector.operator == "put":
        base, place, value = vector.arguments
        if evaluate(place, state, indexes) == index:
            return evaluate(value, state, indexes)
        return element(base, index, state, indexes)
    condition, then, otherwise = vector.arguments
    return element(then if evaluate(condition, state, indexes) else otherwise, index, state, indexes)


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("barrier", "two_children"),
        ("store", "two_saves"),
        ("combined", "one_batch"),
        *(("cut", member) for member in ("two_batches", "one_pair", "one_failure", "windowed_tight", "short_dropped")),
    ],
)
def test_the_graph_of_every_action_means_what_the_action_does(name, member):
    """Guard and effects of the graph equal the plain call, for every action in every reachable state of a scope."""
    assert compare(name, member, every=1) == search(MACHINES[name].model(SMALL[name][member][0])).transitions


@pytest.mark.parametrize("member", ["spares", "borrow", "windowed", "snapshots", "background", "remainder", "epochs"])
def test_the_graph_means_what_the_action_does_with_every_feature(member):
    """The same in every 17th state of the scopes with one feature each."""
    assert compare("cut", member, every=17) >= 40


def compare(name, member, every):
    """Compare graph and call in every n-th reachable state; how many steps were taken."""
    machine, scope = MACHINES[name], SMALL[name][member][0]
    model = machine.model(scope)
    states = reachable(model)[::every]
    taken = 0
    for action in machine.actions.values():
        graph = symbolic_step(machine, SymbolicState(machine, type(scope)), action)
        if action.when is not None and not action.when(scope):
            continue
        for state in states:
            for index in [None] if action.each is None else list(getattr(state, action.each)):
                indexes = {} if index is None else {f"index of {action.name}": index}
                step = model.step_named(state, action.name, index)
                assert evaluate(graph.guard, state, indexes) is (step is not None)
                if step is None:
                    continue
                taken += 1
                for variable in machine.variables:
                    after, plain = getattr(graph.after, variable), getattr(step.state, variable)
                    if isinstance(after, SymbolicVector):
                        assert [element(after, i, state, indexes) for i in range(len(plain))] == list(plain)
                    else:
                        assert evaluate(after, state, indexes) == plain, (action.name, variable)
    return taken


def test_every_action_and_claim_of_every_machine_and_variant_can_be_read_on_symbols():
    """No text uses Python control flow on a state variable: it would serve one engine only."""
    scope_types = {name: type(next(iter(family.values()))[0]) for name, family in SMALL.items()}
    read = 0
    for name, machine in MACHINES.items():
        for variants in [(), *((*v.with_variants, v.name) for v in machine.variants.values())]:
            varied = machine.varied(variants)
            for action in varied.actions.values():
                step = symbolic_step(varied, SymbolicState(varied, scope_types[name]), action)
                for known in varied.properties.values():
                    for claim in known.claims:
                        index = () if known.each is None else (Symbol("constant", "p"),)
                        assert isinstance(claim.function(step.before, *index), Symbol)
                        read += 1
    assert read > 1000
