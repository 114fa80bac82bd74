"""The compiled engine reports what the reference engine reports: of every small scope, and of every variant."""

from __future__ import annotations

import pytest
from compiled_agreement import expect_same
from generated_text import interpreted

from spec.command import check_machine
from spec.engines import COMPILED, REFERENCE, Options, chosen_engine
from spec.engines import reference as reference_engine
from spec.engines.compiled import FALLS, engine
from spec.machines import FAMILIES, MACHINES, SMALL, Pinned, all_variants, scopes_named, variant_named

# Compiling takes a second a scope, so only these are; the others run the same text interpreted.
JIT_COMPILED = [
    ("barrier", "three_writers"),
    ("cut", "failures"),
    ("cut", "weight_fifo_pairs"),
    ("store", "two_writers"),
    ("combined", "two_batches"),
]
OTHERS = [(m, name) for m, family in SMALL.items() for name in family if (m, name) not in JIT_COMPILED]


@pytest.mark.parametrize(("name", "member"), JIT_COMPILED)
def test_a_complete_search_compiled(name, member):
    """States, transitions, depth, verdicts, unmet premises and the times each action was taken."""
    machine, (scope, pinned) = MACHINES[name], SMALL[name][member]
    found = engine.search(machine, scope)
    expect_same(reference_engine.search(machine.model(scope)), found)
    assert Pinned(found.states, found.transitions, found.depth) == pinned


@pytest.mark.parametrize(("name", "member"), OTHERS)
def test_a_complete_search_interpreted(name, member):
    """The pinned counts, of every other small scope; everything else too where the reference takes no time."""
    machine, (scope, pinned) = MACHINES[name], SMALL[name][member]
    found = engine.search(machine, scope, functions=interpreted(engine.prepared(machine, scope)))
    assert (found.verdict, found.complete) == ("holds", True)
    assert Pinned(found.states, found.transitions, found.depth) == pinned
    if pinned.states < 1000:
        expect_same(reference_engine.search(machine.model(scope)), found)


@pytest.mark.parametrize("variant", [v.name for _, v in all_variants()])
def test_a_variant_is_caught_alike(variant):
    """The same property by the same shortest path, through the same states, and the same counts on the way."""
    machine, known = variant_named(variant)
    ((_, (scope, _)),) = scopes_named(machine, known.scope).items()
    names = (*known.with_variants, known.name)
    functions = interpreted(engine.prepared(machine, scope, names))
    found = engine.search(machine, scope, names, properties=[known.breaks], functions=functions)
    expect_same(reference_engine.search(machine.model(scope, names), properties=[known.breaks]), found)
    assert found.violation is not None
    assert (found.violation.property, found.violation.length) == (known.breaks, known.length)


@pytest.mark.parametrize("variant", ["cursor_ahead", "leak_on_cancel", "publish_before_data"])
def test_a_variant_compiled_for_all_properties(variant):
    """Of several properties broken in one level the first in the order of the search is reported."""
    machine, known = variant_named(variant)
    ((_, (scope, _)),) = scopes_named(machine, known.scope).items()
    expect_same(reference_engine.search(machine.model(scope, (variant,))), engine.search(machine, scope, (variant,)))


def test_the_properties_asked_for_need_no_other_code():
    """Which properties are looked at is told to the compiled code when it runs."""
    machine, (scope, _) = MACHINES["barrier"], SMALL["barrier"]["three_writers"]
    some = engine.search(machine, scope, properties=["no_overtaking"])
    assert some.properties == {"no_overtaking": "holds"}
    assert some.states == engine.search(machine, scope).states


@pytest.mark.slow
@pytest.mark.parametrize("size", ["medium", "large"])
@pytest.mark.parametrize("name", MACHINES)
def test_medium_and_large_scopes_hold_with_the_pinned_counts(name, size, tmp_path):
    """What the reference engine would take hours for: every state of each scope, with all threads there are."""
    result = check_machine(MACHINES[name], size, (), tmp_path)
    assert result.verdict == "holds"
    assert [s.drift for s in result.scopes] == [""] * len(FAMILIES[size][name])
    assert all(s.search.complete for s in result.scopes)


def test_the_engine_is_chosen_by_the_pinned_size():
    """Small scopes are not worth compiling; a user may say otherwise."""
    assert chosen_engine(Options(), Pinned(8000, 0, 0)) == REFERENCE
    assert chosen_engine(Options(), Pinned(800_000, 0, 0)) == COMPILED
    assert chosen_engine(Options(engine=REFERENCE), Pinned(800_000, 0, 0)) == REFERENCE
    assert chosen_engine(Options(engine=COMPILED), Pinned(18, 0, 0)) == COMPILED
    assert chosen_engine(Options(resume=True), Pinned(18, 0, 0)) == COMPILED
    assert chosen_engine(Options(workers=2), Pinned(18, 0, 0)) == COMPILED


def test_the_families_grow():
    """Each member of a family is larger than every member of the one before is meant to be."""
    for name in MACHINES:
        assert all(p.states <= 30_000 for _, p in FAMILIES["small"][name].values())
        assert all(100_000 < p.states < 3_000_000 for _, p in FAMILIES["medium"][name].values())
    assert max(p.states for _, p in FAMILIES["large"]["cut"].values()) >= 10_000_000


def test_instances_have_room_below_the_mark():
    """The mark for a rank that falls is above every number of an instance."""
    for name, family in FAMILIES["large"].items():
        for scope, _ in family.values():
            assert len(engine.prepared(MACHINES[name], scope).form.instances) < FALLS
