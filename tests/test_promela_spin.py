"""Spin, which knows nothing of our engines, counts the same states and finds the same shortest counterexamples."""

from __future__ import annotations

from pathlib import Path

import pytest
from spin_runs import BREADTH_FIRST, OPTIMIZED, SpinRun, run_spin

from spec.engines import search
from spec.exports.promela import export_promela
from spec.language import Variant
from spec.machines import MACHINES, MEDIUM, SMALL, Pinned, Scope, all_variants, scopes_named

pytestmark = pytest.mark.needs("spin")

EVERY_SMALL_SCOPE, EVERY_MEDIUM_SCOPE = (
    [
        pytest.param(machine, scope, pinned, id=f"{machine}-{name}")
        for machine, family in families.items()
        for name, (scope, pinned) in family.items()
    ]
    for families in (SMALL, MEDIUM)
)
EVERY_VARIANT = [pytest.param(machine.name, variant, id=variant.name) for machine, variant in all_variants()]


def counts(run: SpinRun) -> Pinned:
    return Pinned(run.states, run.transitions, run.depth)


@pytest.mark.parametrize(("machine", "scope", "pinned"), EVERY_SMALL_SCOPE)
def test_spin_counts_what_is_pinned(machine: str, scope: Scope, pinned: Pinned, tmp_path: Path) -> None:
    """Distinct states, transitions and depth are those of our engines, and Spin sees no property broken.

    No constant is subtracted: the text has one control location, and whatever is beside the machine never differs.
    """
    run = run_spin(export_promela(MACHINES[machine], scope), tmp_path, *BREADTH_FIRST)
    assert (run.violated, counts(run)) == (None, pinned)


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "scope", "pinned"), EVERY_MEDIUM_SCOPE)
def test_spin_counts_what_is_pinned_of_a_million_states(
    machine: str, scope: Scope, pinned: Pinned, tmp_path: Path
) -> None:
    """What is pinned here came from the compiled engine, which the reference engine cannot follow in a test."""
    text = export_promela(MACHINES[machine], scope)
    run = run_spin(text, tmp_path, *BREADTH_FIRST, *OPTIMIZED, table_bits=21)
    assert (run.violated, counts(run)) == (None, pinned)


@pytest.mark.parametrize(
    ("machine", "scope"),
    [("barrier", "three_writers"), ("cut", "failures"), ("store", "two_writers"), ("combined", "two_batches")],
)
def test_spin_depth_first_counts_what_is_pinned(machine: str, scope: str, tmp_path: Path) -> None:
    """Another order of search, the same states and transitions: the text leaves nothing to the order."""
    bounds, pinned = SMALL[machine][scope]
    run = run_spin(export_promela(MACHINES[machine], bounds), tmp_path)
    assert (run.violated, run.states, run.transitions) == (None, pinned.states, pinned.transitions)


@pytest.mark.parametrize(("machine", "variant"), EVERY_VARIANT)
def test_spin_catches_the_variant_with_the_same_property_after_as_many_steps(
    machine: str, variant: Variant, tmp_path: Path
) -> None:
    """The property meant for a variant breaks for Spin too, and its shortest counterexample is as long as pinned."""
    ((_, (scope, _)),) = scopes_named(MACHINES[machine], variant.scope).items()
    names = (*variant.with_variants, variant.name)
    text = export_promela(MACHINES[machine], scope, names, properties=[variant.breaks])
    run = run_spin(text, tmp_path, *BREADTH_FIRST)
    assert (run.violated, run.depth) == (variant.breaks, variant.length)


@pytest.mark.parametrize("name", ["gate_in_slot", "cursor_ahead", "nobody_stands_down", "queue_is_ignored"])
def test_spin_with_every_property_finds_the_shortest_of_all(name: str, tmp_path: Path) -> None:
    """States, actions and ranks are reported at one distance, so no kind of property hides a shorter one of another."""
    machine, variant = next((m, v) for m, v in all_variants() if v.name == name)
    ((_, (scope, _)),) = scopes_named(machine, variant.scope).items()
    names = (*variant.with_variants, variant.name)
    expected = search(machine.model(scope, names)).violation
    assert expected is not None
    run = run_spin(export_promela(machine, scope, names), tmp_path, *BREADTH_FIRST)
    assert run.violated is not None
    assert run.depth == expected.length
