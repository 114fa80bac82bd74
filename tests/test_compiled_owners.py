"""Owners of states find together what one engine finds, whoever of them dies; here they are all in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from compiled_agreement import expect_same
from owners_here import OwnersHere

from spec.engines import Search
from spec.engines import reference as reference_engine
from spec.engines.compiled import LevelsLost, Owner, Plan, engine, owner, ownership
from spec.machines import MACHINES, SMALL, scopes_named, variant_named

SCOPES = [("barrier", "three_writers"), ("cut", "failures"), ("store", "two_writers")]
Dies = Callable[[str, int], bool]


def never(call: str, times: int) -> bool:
    return False


def owned(name: str, member: str, owners: int = 3, a_round: int = 200, dies: Dies = never, **options: Any) -> Search:
    scope, _ = SMALL[name][member]
    return ownership.search(MACHINES[name], scope, (), lambda plan: OwnersHere(plan, a_round, dies), owners, **options)


@pytest.mark.parametrize(("owners", "a_round"), [(1, 64), (2, 100), (5, 1 << 15)])
@pytest.mark.parametrize(("name", "member"), SCOPES)
def test_a_complete_search_by_owners(name: str, member: str, owners: int, a_round: int) -> None:
    """Counts, verdicts, premises and how often each action was taken; rounds that end in mid-level change nothing."""
    machine, (scope, pinned) = MACHINES[name], SMALL[name][member]
    found = owned(name, member, owners, a_round)
    assert (found.states, found.transitions, found.depth) == (pinned.states, pinned.transitions, pinned.depth)
    expect_same(engine.search(machine, scope, workers=1), found)


@pytest.mark.parametrize("only", [True, False], ids=["its property", "every property"])
@pytest.mark.parametrize("variant", ["cursor_ahead", "gate_in_slot", "permit_at_claim", "leak_on_cancel"])
def test_a_violation_found_by_owners_is_a_shortest_one(variant: str, only: bool) -> None:
    """Of states, of actions, of progress; the path is one of the reference model, which confirms its end."""
    machine, known = variant_named(variant)
    ((scope, _),) = scopes_named(machine, known.scope).values()
    names, wanted = (*known.with_variants, known.name), [known.breaks] if only else None
    expected = reference_engine.search(machine.model(scope, names), properties=wanted)
    for owners in (1, 3):
        found = ownership.search(machine, scope, names, lambda p: OwnersHere(p, 64), owners, properties=wanted)
        assert found.verdict == expected.verdict == "fails"
        assert found.violation is not None
        assert expected.violation is not None
        assert found.violation.length == expected.violation.length
        assert len(found.violation.states) == found.violation.length + 1
        if only:
            assert found.violation.length == known.length
            assert found.properties == expected.properties


def test_orbits_are_searched_by_owners() -> None:
    """The state that stands for its orbit has one owner."""
    name, member = "barrier", "three_writers"
    scope, _ = SMALL[name][member]
    found = owned(name, member, symmetry=True)
    expect_same(engine.search(MACHINES[name], scope, symmetry=True), found)


@pytest.mark.parametrize("call", ["begin", "expand", "insert", "settle"])
def test_what_an_owner_had_who_died_is_taken_over(call: str) -> None:
    """In mid-search, at any step, when others have done it and others have not."""
    made: list[OwnersHere] = []

    def hire(plan: Plan) -> OwnersHere:
        made.append(OwnersHere(plan, 64, lambda named, times: named == call and times in (2, 50, 71)))
        return made[0]

    scope, _ = SMALL["cut"]["failures"]
    found = ownership.search(MACHINES["cut"], scope, (), hire, 3)
    expect_same(engine.search(MACHINES["cut"], scope, workers=1), found)
    assert made[0].replaced == (1 if call == "begin" else 3)


def test_an_owner_who_takes_nothing_over_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: without the states of the one who died, or without going back, the counts are others."""
    pinned = SMALL["cut"]["failures"][1]
    for step in ("take_over", "roll_back"):
        with monkeypatch.context() as patch:
            patch.setattr(Owner, step, lambda self, *ignored: None)
            found = owned("cut", "failures", a_round=64, dies=lambda call, times: call == "insert" and times == 71)
        assert (found.states, found.transitions, found.depth) != (pinned.states, pinned.transitions, pinned.depth), step


def test_owners_that_die_again_and_again_end_the_search() -> None:
    """It is no verdict, the likely cause is named, and what was seen is counted."""
    found = owned("cut", "failures", dies=lambda call, times: call == "settle" and times > 30)
    assert found.verdict == "bounded"
    assert "memory" in found.why
    assert 0 < found.states < SMALL["cut"]["failures"][1].states


def test_levels_that_are_lost_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of the cluster has gone with what it kept."""

    def gone(self: OwnersHere, settled: Any) -> None:
        raise LevelsLost

    monkeypatch.setattr(OwnersHere, "replace_the_lost", gone)
    found = owned("cut", "failures", dies=lambda call, times: call == "expand" and times == 60)
    assert found.verdict == "bounded"
    assert "lost" in found.why


def test_search_by_owners_ends_at_its_bounds() -> None:
    """States, memory, and somebody who presses Ctrl-C: bounded, and it says by what."""

    def press(progress: Any) -> None:
        raise KeyboardInterrupt

    whole = SMALL["cut"]["failures"][1].states
    for options, why in (
        ({"max_states": 1_000}, "1000 states"),
        ({"memory_limit": 250_000}, "memory limit"),
        ({"on_progress": press}, "interrupted"),
    ):
        found = owned("cut", "failures", **options)
        assert (found.verdict, found.complete) == ("bounded", False)
        assert why in found.why
        assert 0 < found.states < whole


def test_every_state_has_one_owner_and_none_has_them_all() -> None:
    """The hash spreads them; each is kept once."""
    made: list[OwnersHere] = []

    def hire(plan: Plan) -> OwnersHere:
        made.append(OwnersHere(plan, owner.STATES_A_ROUND))
        return made[0]

    scope, pinned = SMALL["store"]["two_writers"]
    ownership.search(MACHINES["store"], scope, (), hire, 4)
    kept = [{tuple(o.storage.states[row].tolist()) for row in range(o.storage.count)} for o in made[0].owners]
    assert len(set.union(*kept)) == sum(map(len, kept)) == pinned.states
    assert min(map(len, kept)) > pinned.states / 8
