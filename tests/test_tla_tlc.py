"""TLC, which knows nothing of our engines, reads the exported modules, counts the same and finds the same traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_tla_export import WRONG_FORM, WRONG_MEANING, changed
from tlc_runs import Broken, refusal_by_sany, run_tlc

from spec.engines import reference as reference_engine
from spec.exports.tla import Export, export_tla
from spec.language import Variant
from spec.machines import MACHINES, MEDIUM, SMALL, Pinned, Scope, all_variants, scopes_named

pytestmark = pytest.mark.needs("tlc")

EVERY_SMALL_SCOPE = [
    pytest.param(machine, scope, pinned, id=f"{machine}-{name}")
    for machine, family in SMALL.items()
    for name, (scope, pinned) in family.items()
]
EVERY_VARIANT = [pytest.param(machine.name, variant, id=variant.name) for machine, variant in all_variants()]
# The smallest; bench/engines.py lets TLC count one of the cut.
MEDIUM_SCOPE = MEDIUM["barrier"]["leases"]


@pytest.mark.parametrize(("machine", "scope", "pinned"), EVERY_SMALL_SCOPE)
def test_tlc_counts_what_is_pinned(machine: str, scope: Scope, pinned: Pinned, tmp_path: Path) -> None:
    """Distinct states, transitions and depth are those of our engines, and TLC sees no property broken."""
    assert run_tlc(export_tla(MACHINES[machine], scope), machine, tmp_path) == pinned


@pytest.mark.slow
def test_tlc_counts_what_is_pinned_of_a_medium_scope(tmp_path: Path) -> None:
    """What is pinned here came from the compiled engine."""
    scope, pinned = MEDIUM_SCOPE
    assert run_tlc(export_tla(MACHINES["barrier"], scope), "barrier", tmp_path) == pinned


@pytest.mark.parametrize(("machine", "variant"), EVERY_VARIANT)
def test_tlc_catches_the_variant_with_the_same_property_after_as_many_steps(
    machine: str, variant: Variant, tmp_path: Path
) -> None:
    """The property meant for a variant breaks for TLC too, and its shortest counterexample is as long as pinned."""
    ((_, (scope, _)),) = scopes_named(MACHINES[machine], variant.scope).items()
    names = (*variant.with_variants, variant.name)
    found = reference_engine.search(MACHINES[machine].model(scope, names), properties=[variant.breaks]).violation
    assert found is not None
    # What is claimed of an action that is to be taken is in the module a claim about the state before it.
    named, steps = (variant.breaks, variant.length)
    if found.at is not None:
        first = MACHINES[machine].varied(names).properties[variant.breaks].claims[0]
        named, steps = (named if first.at == found.at else f"{named}_at_{found.at}", steps - 1)
    export = export_tla(MACHINES[machine], scope, names, properties=[variant.breaks])
    assert run_tlc(export, machine, tmp_path) == Broken(named, steps)


def a_small_export() -> Export:
    return export_tla(MACHINES["cut"], SMALL["cut"]["one_pair"][0])


@pytest.mark.parametrize(("old", "new"), WRONG_MEANING)
def test_tlc_sees_a_wrong_module_to_be_wrong(old: str, new: str, tmp_path: Path) -> None:
    """The control: each changes the meaning of one line."""
    good = a_small_export()
    found = run_tlc(Export(changed(good.module, old, new), good.configuration), "cut", tmp_path)
    assert found != SMALL["cut"]["one_pair"][1]


def test_tlc_checks_that_progress_raises_the_rank(tmp_path: Path) -> None:
    """A claim about steps is a PROPERTY of the configuration, and no invariant: turned round, it is seen broken."""
    good = a_small_export()
    turned = Export(changed(good.module, "(rank' > rank)", "(rank' < rank)"), good.configuration)
    assert run_tlc(turned, "cut", tmp_path) == Broken("no_stall_by_rank", 1)


def test_a_claim_that_the_first_state_breaks_is_a_trace_without_steps(tmp_path: Path) -> None:
    good = a_small_export()
    wrong = Export(changed(good.module, "none_lost ==", "none_lost == cursor > 0 /\\"), good.configuration)
    assert run_tlc(wrong, "cut", tmp_path) == Broken("none_lost", 0)


# Where an item stands one column to the left TLA+ reads another list; ours must stand in one column.
ALLOWED = ("  /\\ gate_passed' = 1\n", " /\\ gate_passed' = 1\n")


@pytest.mark.parametrize(("old", "new"), [wrong for wrong in WRONG_FORM if wrong != ALLOWED])
def test_tlas_own_parser_refuses_what_our_reader_refuses(old: str, new: str, tmp_path: Path) -> None:
    """A name that is not declared, a name declared twice, a parenthesis too few."""
    good = a_small_export()
    assert refusal_by_sany(Export(changed(good.module, old, new), good.configuration), "cut", tmp_path) is not None


def test_tlas_own_parser_takes_a_good_module(tmp_path: Path) -> None:
    assert refusal_by_sany(a_small_export(), "cut", tmp_path) is None
