"""The protocol machines: pinned sizes, every property shown and broken, every variant caught as pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from spec.command import check_machine, check_variant, main, table
from spec.engines import search
from spec.language import Machine
from spec.machines import MACHINES, SMALL, Pinned, all_variants
from spec.machines.cut import CutScope, cut

NAMED_BY_THE_DESIGN = {
    "cursor_ahead": "one_owner_on_disk",
    "skewed_cut": "cursor_covers_stamps",
    "gate_in_slot": "no_stall",
    "no_subtraction": "one_owner_on_disk",
    "no_restore_subtraction": "one_owner_in_memory",
    "pool_not_saved": "one_owner_on_disk",
    "spare_outside_slot": "one_owner_on_disk",
    "drop_outside_slot": "stamps_complete",
    "commit_outside_slot": "one_owner_on_disk",
    "reserve_apart": "one_owner_on_disk",
    "phase_apart": "stamps_complete",
    "reserved_first": "no_stall",
    "evict_unready": "permits_balance",
    "exhausted_bit_missing": "none_lost",
    "publish_before_data": "published_is_whole",
    "cursor_from_version": "step_free_at_admission",
    "silent_duplicate_guard": "none_lost",
    "flag_after_drain": "cut_excludes_writers",
    "writers_overtake": "no_overtaking",
    "leak_on_cancel": "no_deadlock",
    "nested_slot": "no_deadlock",
    "permit_leak_on_failure": "permits_balance",
    "permit_at_claim": "permits_balance",
    "permit_in_slot": "no_stall",
    "claimed_forgotten": "one_owner_on_disk",
    "lingering_entry": "one_owner_on_disk",
    "snapshot_past_anchor": "trained_matches_trainer",
    "gate_ignores_drops": "no_stall",
    "write_back_in_place": "image_equals_cut",
    "delete_before_publish": "a_valid_checkpoint_exists",
}


@pytest.mark.parametrize("name", MACHINES)
def test_scope_small_holds_completely_with_the_pinned_counts(name, tmp_path):
    """Every property holds in every state of the family, and nobody changed the machine without noticing."""
    result = check_machine(MACHINES[name], "small", (), tmp_path)
    assert result.why == ""
    assert result.verdict == "holds"
    for scope in result.scopes:
        found = scope.search
        assert scope.pinned == Pinned(found.states, found.transitions, found.depth), scope.scope
        assert found.states <= 30_000


@pytest.mark.parametrize("name", ["barrier", "cut", "store"])
def test_every_property_has_a_variant_that_breaks_it(name):
    """A property that nothing can break says nothing."""
    machine = MACHINES[name]
    assert machine.progress is not None
    claimed = {*machine.properties, machine.progress.name}
    assert {variant.breaks for variant in machine.variants.values()} == claimed


@pytest.mark.parametrize("name", MACHINES)
def test_every_premise_and_every_action_occurs_in_the_family(name):
    """A property whose premise never occurs, or an action that is never taken, has not been looked at."""
    machine = MACHINES[name]
    searches = [search(machine.model(bounds)) for bounds, _ in SMALL[name].values()]
    assert set.intersection(*(set(found.unwitnessed) for found in searches)) == set()
    # The tiny machine that takes slots step by step leaves every other feature off.
    features_on = {n for n, a in machine.actions.items() if name != "combined" or a.when is None}
    taken = {action for found in searches for action, times in found.taken.items() if times}
    assert features_on - taken <= ({"empty_step"} if name == "combined" else set())


def test_the_machine_with_slots_step_by_step_checks_what_the_cut_claims():
    """It takes its properties from the cut and drops only those about features that its scopes leave off."""
    left_out = {"staleness_bound", "loader_agrees", "restore_is_a_fixed_point", "windowed_moves_no_cursor"}
    claims = {name: known.claims[0] for name, known in cut.properties.items()}
    # Of the rules of steps it takes those about saves and restarts, of which it has actions of its own; the others are
    # about one action each, which is the same there. What its actors do it claims itself.
    of_states = {
        n for n, c in claims.items() if not c.of_step and c.function.__module__ == "spec.machines.cut.properties"
    }
    rules = {
        "saves_follow_the_picture",
        "a_full_save_is_between_steps",
        "full_saves_are_counted",
        "a_restart_brings_back_the_image",
    }
    own = {"actors_follow_the_picture", "one_act_a_slot", "a_full_save_is_asked_for_outside"}
    assert set(MACHINES["combined"].properties) == (of_states - left_out) | rules | own


@pytest.mark.parametrize(("machine", "variant"), all_variants(), ids=lambda v: v.name)
def test_a_variant_is_caught_by_its_property_at_the_pinned_length(machine, variant, tmp_path):
    """Each small change of the protocol is caught, in the smallest scope, by a counterexample of known length."""
    result = check_variant(machine, variant, tmp_path)
    assert result.search.violation is not None
    assert result.search.violation.property == variant.breaks
    assert result.length == variant.length
    assert result.counterexample is not None
    assert result.counterexample.exists()


@pytest.mark.parametrize(("machine", "variant"), all_variants(), ids=lambda v: v.name)
def test_a_length_that_differs_from_the_table_says_why(machine, variant):
    """A finer model may be longer; it must say in what it is finer."""
    differs = variant.table_length is not None and variant.table_length != variant.length
    assert bool(variant.why_length_differs) is differs


@pytest.mark.parametrize(("machine", "variant"), all_variants(), ids=lambda v: v.name)
def test_a_variant_is_caught_in_no_smaller_scope_of_the_family(machine, variant):
    """The scope named for a variant is the first of the family that shows it."""
    for member, (bounds, _) in SMALL[machine.name].items():
        found = search(machine.model(bounds, (*variant.with_variants, variant.name)), properties=[variant.breaks])
        if member == variant.scope:
            assert found.verdict == "fails"
            return
        assert found.verdict == "holds", member
    pytest.fail(f"{variant.scope} is not in the family")


def test_the_variants_of_the_design_are_named_exactly():
    """Name and property are a contract with the design."""
    known = {variant.name: variant.breaks for _, variant in all_variants()}
    assert {name: known.get(name) for name in NAMED_BY_THE_DESIGN} == NAMED_BY_THE_DESIGN


def test_case_A01_a_cursor_ahead_breaks_ownership_and_nothing_else():
    """As in the field: prompts are lost without corruption, duplication, unbalanced permits or a stall.

    Shown without stamps, as the run in question had it; with stamps the trainer would wait for the lost groups.
    """
    ownership = {"one_owner_on_disk", "none_lost", "image_equals_cut"}
    others = {*cut.properties, "no_stall"} - ownership
    model = cut.model(SMALL["cut"]["windowed_tight"][0], ["cursor_ahead"])
    result = search(model, properties=others)
    assert (result.verdict, result.complete) == ("holds", True)
    assert set(result.properties) == others
    for name in ownership:
        assert search(model, properties=[name]).verdict == "fails"


def test_a_neutralised_variant_is_not_caught(tmp_path):
    """The check of variants can fail: a variant that changes nothing is reported as not caught."""
    neutral = cut.varied([])
    neutral.variants = dict(cut.variants)
    variant = neutral.variants["cursor_ahead"]

    def changes_nothing(machine: Machine) -> None:
        """Leaves the machine as it is."""

    from dataclasses import replace

    neutral.variants["cursor_ahead"] = replace(variant, apply=changes_nothing)
    result = check_variant(neutral, neutral.variants["cursor_ahead"], tmp_path)
    assert result.length is None
    assert result.as_pinned is False


def test_a_drift_of_the_counts_is_not_a_pass(tmp_path, monkeypatch):
    """A complete search with other counts than pinned is inconclusive and says by how much."""
    bounds, pinned = SMALL["cut"]["one_batch"]
    drifted = {**SMALL["cut"], "one_batch": (bounds, Pinned(pinned.states + 1, pinned.transitions, pinned.depth))}
    monkeypatch.setitem(SMALL, "cut", drifted)
    result = check_machine(cut, "small/one_batch", (), tmp_path)
    assert result.verdict == "inconclusive"
    rest = f"{pinned.transitions}, {pinned.depth})"
    assert f"counted Pinned({pinned.states}, {rest}, pinned Pinned({pinned.states + 1}, {rest}" in result.why


def test_a_drift_of_the_counts_says_what_to_do(tmp_path, monkeypatch, capsys):
    """The command calls it a drift, not a search that was cut short, and names the file in which to pin."""
    bounds, pinned = SMALL["cut"]["one_batch"]
    drifted = {**SMALL["cut"], "one_batch": (bounds, Pinned(pinned.states + 1, pinned.transitions, pinned.depth))}
    monkeypatch.setitem(SMALL, "cut", drifted)
    assert main(["check", "--machine", "cut", "--scope", "small/one_batch", "--output", str(tmp_path)]) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert "inconclusive: counts drift in small/one_batch: counted Pinned(" in shown
    assert "pin the new counts in spec/machines/scopes.py" in shown
    assert "not complete" not in shown


def test_a_premise_that_never_occurs_is_not_a_pass(tmp_path):
    """One batch never reaches a free step beyond a stamp; on its own that scope is inconclusive about it."""
    result = check_machine(cut, "small/one_batch", (), tmp_path)
    assert result.verdict == "inconclusive"
    assert result.properties["step_free_at_admission"] == "inconclusive"
    assert "step_free_at_admission" in result.why


def test_skewed_cut_alone_loses_nothing_in_memory_before_a_crash():
    """The skew shows on disk; what is lost is lost by the guard that hides it, only after a restore."""
    model = cut.model(SMALL["cut"]["two_batches_ahead"][0], ["skewed_cut"])
    assert search(model, properties=["none_lost"]).verdict == "holds"


def test_case_A02_the_whole_cut_is_taken_with_admission_shut():
    """From the request to the publication no slot is entered: no admission falls between two reads."""
    model = cut.model(CutScope(batches=2, batch_size=1, lookahead=1, saves=1, crashes=0))
    inside = 0
    frontier, seen = [model.initial], {model.initial}
    while frontier:
        state = frontier.pop()
        for step in model.steps(state):
            if state.window > 1:
                assert step.action.name not in {
                    "reserve_batch",
                    "commit_admission",
                    "dispatch",
                    "commit_group",
                    "claim",
                }
                inside += 1
            if step.state not in seen:
                seen.add(step.state)
                frontier.append(step.state)
    assert inside > 100


def backwards_from_finished(model):
    """The reachable states from which the run can be finished without any fault, and all reachable states."""
    before: dict[object, set[object]] = {}
    frontier, seen = [model.initial], {model.initial}
    while frontier:
        state = frontier.pop()
        for step in model.steps(state):
            if step.action.progress:
                before.setdefault(step.state, set()).add(state)
            if step.state not in seen:
                seen.add(step.state)
                frontier.append(step.state)
    can_finish = {state for state in seen if model.finished(state)}
    frontier = list(can_finish)
    while frontier:
        for state in before.get(frontier.pop(), ()):
            if state not in can_finish:
                can_finish.add(state)
                frontier.append(state)
    return can_finish, seen


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("barrier", "two_children"),
        ("store", "two_writers_crash"),
        *(("cut", member) for member in ("two_batches_ahead", "spares", "windowed", "weight_fifo", "epochs")),
    ],
)
def test_every_state_can_be_finished_without_faults(name, member):
    """What the rank says step by step, checked backwards from the end: no state is without a way out."""
    can_finish, seen = backwards_from_finished(MACHINES[name].model(SMALL[name][member][0]))
    assert can_finish == seen


def test_the_backward_check_sees_the_stall_of_a_gate_in_a_slot():
    """The backward check can fail: with the gate inside the slot some state has no way out."""
    can_finish, seen = backwards_from_finished(cut.model(SMALL["cut"]["two_batches"][0], ["gate_in_slot"]))
    assert can_finish < seen


def test_the_table_of_the_readme_is_the_one_the_machines_give():
    """Property, premise, variants, scopes and lengths stand in the README as they are."""
    text = (Path(__file__).parent.parent / "spec" / "README.md").read_text(encoding="utf-8")
    stands = text.split("<!-- python -m spec.command.property_table -->\n")[1].split("\n<!-- end -->")[0]
    assert stands == table()
