"""Symmetry loses nothing: orbits are states that can do the same, and what is found is found at the same length."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from compiled_agreement import reported
from generated_text import interpreted

from spec.command import check_machine, counterexample, main
from spec.engines import NotSymmetric, Options, Reduction, reduction_of, symmetry
from spec.engines import reference as reference_engine
from spec.engines.compiled import engine
from spec.language import Machine, Model, ModelFault, Symmetry, Variant, narrowed
from spec.language.scalar_form import scalar_form
from spec.machines import MACHINES, SMALL, all_variants, scopes_named
from spec.machines.cut import CutScope

# Scopes in which some indexes really change places; in the others a search by orbits is the search itself.
PAIRED = [
    ("barrier", "two_checkpoints"),
    ("barrier", "two_rounds"),
    ("barrier", "two_children"),
    ("cut", "one_pair"),
    ("cut", "two_pairs"),
    ("cut", "two_pairs_ahead"),
    ("cut", "short_batch"),
    ("cut", "short_dropped"),
    ("cut", "epochs"),
]
# A failure, a snapshot and rows written in the background, of two prompts.
TROUBLED = CutScope(
    batches=1, batch_size=2, lookahead=0, saves=1, crashes=1, failures=1, snapshots=1, background=1, write_back=1
)
SMALL_AND_TROUBLED = [*[(m, SMALL[m][name][0]) for m, name in PAIRED], ("cut", TROUBLED)]


def reachable(model: Model) -> list[Any]:
    """All states of a model."""
    seen, waiting = {model.initial}, [model.initial]
    while waiting:
        for step in model.steps(waiting.pop()):
            if step.state not in seen:
                seen.add(step.state)
                waiting.append(step.state)
    return list(seen)


def exchanged(reduction: Reduction, state: Any) -> list[Any]:
    """The state with two neighbours of a block changed, each pair once: these generate all permutations."""
    found = []
    for block in reduction.blocks:
        for one, other in itertools.pairwise(block.indexes):
            order = {one: other, other: one}
            vectors = {v: getattr(state, v) for v in block.vectors}
            found.append(
                state._replace(**{v: type(x)(x[order.get(i, i)] for i in range(len(x))) for v, x in vectors.items()})
            )
    return found


def can_do(model: Model, reduction: Reduction, state: Any) -> set[tuple[Any, ...]]:
    """What a state can do, up to its orbit: actions with the orbits they lead to, and whether each raises the rank."""
    progress = model.machine.progress
    found: set[tuple[Any, ...]] = set()
    for step in model.steps(state):
        rises = progress is None or progress.rank(step.state) > progress.rank(state)
        found.add((step.action.name, reduction.canonical(step.state), rises))
    return found


def broken(model: Model, state: Any) -> set[tuple[str, str | None]]:
    """Which claims a state breaks."""
    return {
        (known.name, claim.at)
        for known in model.machine.properties.values()
        for claim in known.claims
        if model.violated_indexes(known.each, claim, state)
    }


def unlike(model: Model, reduction: Reduction) -> Iterator[Any]:
    """States of a model that differ in what they can do, or in what they break, from a state of their orbit."""
    for state in reachable(model):
        for other in exchanged(reduction, state):
            same = can_do(model, reduction, other) == can_do(model, reduction, state)
            if not (same and broken(model, other) == broken(model, state)):
                yield state


@pytest.mark.parametrize(("name", "scope"), SMALL_AND_TROUBLED)
def test_states_of_an_orbit_can_do_the_same(name, scope):
    """On every reachable state: a permutation maps transitions to transitions, and properties do not tell."""
    model = MACHINES[name].model(scope)
    reduction = reduction_of(model.machine, scope)
    assert reduction.blocks
    assert list(unlike(model, reduction)) == []


@pytest.mark.parametrize(("name", "scope"), SMALL_AND_TROUBLED)
def test_it_is_the_orbits_that_are_counted(name, scope):
    """The states of the whole search, each replaced by the one that stands for it; fewer than states."""
    machine = MACHINES[name]
    whole = reference_engine.search(machine.model(scope))
    found = symmetry.search(machine, scope)
    model = machine.model(scope)
    reduction = reduction_of(machine, scope)
    assert found.states == len({reduction.canonical(state) for state in reachable(model)}) < whole.states
    assert (found.verdict, found.depth, found.unwitnessed) == (whole.verdict, whole.depth, whole.unwitnessed)


# Every variant in its own scope, and where its machine allows it in one whose indexes really change places.
LARGER: dict[str, Any] = {"barrier": SMALL["barrier"]["two_children"][0], "cut": TROUBLED}
# An image that keeps what these leave behind tells two parked prompts apart. Refused, never searched unsoundly.
UNLIKE_IN_TROUBLE = ("lingering_entry", "loader_from_version")
QUICK = ("lingering_entry", "cursor_ahead", "permit_leak_on_failure", "skewed_cut", "gate_in_slot")
VARIANTS = [
    (machine, known, scope)
    for machine, known in all_variants()
    for scope in [
        next(iter(scopes_named(machine, known.scope).values()))[0],
        *[scope for name, scope in LARGER.items() if name == machine.name],
    ]
    if symmetry.declared(machine, scope)
]


def marks_of(known: Variant, scope: object) -> list[pytest.MarkDecorator]:
    """In the scope of troubles a search takes a second; most are left to the slow tests."""
    return [pytest.mark.slow] if scope == TROUBLED and known.name not in QUICK else []


@pytest.mark.parametrize(
    ("machine", "known", "scope"),
    [
        pytest.param(m, known, s, marks=marks_of(known, s), id=f"{known.name}-{i}")
        for i, (m, known, s) in enumerate(VARIANTS)
    ],
)
def test_a_variant_is_caught_by_orbits_as_it_is_whole(machine, known, scope):
    """The same verdict and shortest length, by a path of the machine itself, with both engines."""
    names = (*known.with_variants, known.name)
    model = machine.model(scope, names)
    whole = reference_engine.search(model, properties=[known.breaks])
    if scope == TROUBLED and known.name in UNLIKE_IN_TROUBLE:
        with pytest.raises(NotSymmetric, match="takes the first of several indexes that are not alike"):
            symmetry.search(machine, scope, names, [known.breaks])
        return
    found = symmetry.search(machine, scope, names, [known.breaks])
    assert found.verdict == whole.verdict
    if whole.violation is None:
        return
    assert found.violation is not None
    assert (found.violation.property, found.violation.length) == (whole.violation.property, whole.violation.length)
    assert counterexample.replay(model, list(found.violation.steps)) == list(found.violation.states)
    assert found.violation.indexes
    assert found.states <= whole.states


def test_variants_are_searched_in_scopes_whose_indexes_change_places():
    """Or the test above would compare a search with itself."""
    paired = [(m, s) for m, known, s in VARIANTS if reduction_of(m, s).blocks]
    assert len(paired) > 30
    assert len(VARIANTS) > 60


@pytest.mark.parametrize(
    ("name", "scope", "variant"),
    [
        ("barrier", SMALL["barrier"]["two_children"][0], None),
        ("barrier", SMALL["barrier"]["two_children"][0], "leak_on_cancel"),
        ("cut", TROUBLED, None),
        ("cut", TROUBLED, "lingering_entry"),
        ("cut", TROUBLED, "permit_leak_on_failure"),
    ],
)
def test_the_compiled_engine_searches_the_same_orbits(name, scope, variant):
    """All that is reported, the path included."""
    machine = MACHINES[name]
    names = (variant,) if variant else ()
    judging = symmetry.with_ties(machine, scope)
    found = engine.search(
        machine, scope, names, symmetry=True, functions=interpreted(engine.prepared(judging, scope, names))
    )
    assert reported(found) == reported(symmetry.search(machine, scope, names))


# ----------------------------------------------------------------------------------------------- What is refused


def declared_everywhere(**changes: Any) -> Machine:
    """The cut machine with its symmetry declared for every scope, and otherwise as said."""
    machine = copy.copy(MACHINES["cut"])
    (own,) = machine.symmetries
    known: dict[str, Any] = {"domain": "prompts", "blocks": "batch_of", "ties": own.ties, "alike": own.alike, **changes}
    machine.symmetries = [Symmetry(when=None, **known)]
    return machine


@pytest.mark.parametrize("member", ["weight_fifo_pairs", "windowed_pairs", "remainder"])
def test_an_order_of_prompts_that_decides_is_refused(member):
    """The samplers that take the first of several; the pool, of which the first spare is taken."""
    with pytest.raises(NotSymmetric, match=r"the action (claim|drain_pool|substitute)"):
        symmetry.search(declared_everywhere(), SMALL["cut"][member][0])


def test_prompts_of_different_batches_are_refused():
    """The loader tells them apart."""
    with pytest.raises(NotSymmetric, match="the action reserve_batch"):
        symmetry.search(declared_everywhere(blocks=None), SMALL["cut"]["two_pairs"][0])


def test_an_action_that_takes_the_first_is_refused_unless_it_is_named():
    """`dispatch` does; without its tie declared it is not the same permuted."""
    with pytest.raises(NotSymmetric, match="the action dispatch"):
        symmetry.search(declared_everywhere(ties=()), SMALL["cut"]["one_pair"][0])


RETRIED = CutScope(batches=1, batch_size=2, lookahead=0, saves=1, crashes=1, failures=1, retries=1)


def test_a_tie_between_unlike_prompts_is_found_and_refused():
    """With retries one of two parked prompts may have failed before: it matters which is dispatched first."""
    with pytest.raises(NotSymmetric, match="takes the first of several indexes that are not alike"):
        symmetry.search(declared_everywhere(), RETRIED)


def test_what_is_refused_would_be_wrong():
    """The control of the test of orbits: in refused scopes it finds states that differ from their orbit."""
    for scope in (RETRIED, SMALL["cut"]["windowed_pairs"][0]):
        machine = declared_everywhere()
        assert next(unlike(machine.model(scope), reduction_of(machine, scope)), None) is not None


def test_a_property_that_tells_indexes_apart_is_refused():
    """A claim about one writer by its number."""
    machine = copy.copy(MACHINES["barrier"])
    machine.properties = dict(machine.properties)
    machine.symmetries = list(machine.symmetries)

    @machine.always(witness=lambda s: True)
    def the_first_writer_waits(s):
        """Writer 0 is never inside."""
        return s.at[0] != 2

    scope = SMALL["barrier"]["two_rounds"][0]
    form = narrowed(scalar_form(machine, scope))
    with pytest.raises(NotSymmetric, match="the property the_first_writer_waits"):
        symmetry.require_symmetric(form, reduction_of(machine, scope))
    with pytest.raises(ModelFault):
        machine.model(scope, ["unheard_of"])


def test_the_command_line_counts_orbits_and_says_so(tmp_path, capsys):
    """Pinned counts are those of states and do not apply; a scope without symmetry is searched whole."""
    assert main(["check", "--machine", "barrier", "--symmetry", "--output", str(tmp_path)]) == 0
    assert "by orbits" in capsys.readouterr().out
    # The whole family: in one scope alone the premise of some property never occurs, which is no pass.
    result = check_machine(MACHINES["store"], "small", (), tmp_path, Options(symmetry=True))
    assert (result.verdict, {s.orbits for s in result.scopes}) == ("holds", {False})
    arguments = ["check", "--machine", "barrier", "--scope", "one_round", "--symmetry", "--engine", "torch"]
    assert main([*arguments, "--output", str(tmp_path)]) == 2
    assert "--symmetry is for the reference and the compiled engine" in capsys.readouterr().err


@pytest.mark.slow
def test_medium_and_large_scopes_hold_by_orbits():
    """With the compiled engine, and at the depth of the whole search."""
    for name, scope_name in [("barrier", "medium/four_writers"), ("cut", "medium/epochs"), ("combined", "two_pairs")]:
        ((_, (scope, pinned)),) = scopes_named(MACHINES[name], scope_name).items()
        found = engine.search(MACHINES[name], scope, symmetry=True)
        assert (found.verdict, found.depth) == ("holds", pinned.depth)
        assert found.states < 0.8 * pinned.states
