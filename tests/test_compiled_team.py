"""Several threads report what one reports, in everything: numbers of states, order, findings, faults, bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from compiled_agreement import expect_same, reported
from generated_text import interpreted

from spec.engines import reference as reference_engine
from spec.engines.compiled import PARTS, Storage, engine, expansion, level_files, storage, team
from spec.language import Machine, ModelFault, put
from spec.machines import MACHINES, SMALL, scopes_named, variant_named


@pytest.fixture
def rounds(monkeypatch, tmp_path):
    """Small searches become large ones: blocks of few states, a shared table from the start. Gives the rounds done."""
    monkeypatch.setattr(expansion, "BLOCK", 8)
    monkeypatch.setattr(engine, "BLOCK", 8)
    monkeypatch.setattr(team, "BLOCK", 8)
    monkeypatch.setattr(team, "FEWEST_BLOCKS", 1)
    monkeypatch.setattr(team, "ROWS_A_ROUND", 256)
    monkeypatch.setattr(storage, "FEWEST_IN_PARTS", 1 << 14)
    monkeypatch.setattr(storage, "FIRST_SLOTS", 1 << 14)
    monkeypatch.setattr(level_files, "place_of", lambda key: tmp_path / "searches" / key)
    done: list[Any] = []
    expand = team.Team.expand

    def counted(self: team.Team, first: int, end: int, depth: int) -> Any:
        done.append(expand(self, first, end, depth))
        return done[-1]

    monkeypatch.setattr(team.Team, "expand", counted)
    return done


SCOPES = [("barrier", "three_writers"), ("cut", "failures"), ("cut", "weight_fifo_pairs"), ("store", "two_writers")]


@pytest.mark.parametrize("workers", [2, 3, 7])
@pytest.mark.parametrize(("name", "member"), SCOPES)
def test_a_complete_search_by_several_threads(rounds, name, member, workers):
    """Also where the threads do not divide the parts of the table evenly."""
    machine, (scope, pinned) = MACHINES[name], SMALL[name][member]
    found = engine.search(machine, scope, workers=workers)
    assert (found.states, found.transitions, found.depth) == (pinned.states, pinned.transitions, pinned.depth)
    expect_same(engine.search(machine, scope, workers=1), found)
    assert len(rounds) > 10
    assert sum(r.transitions for r in rounds) > pinned.transitions / 2


@pytest.mark.parametrize("variant", ["cursor_ahead", "gate_in_slot", "permit_at_claim", "leak_on_cancel"])
def test_a_violation_found_by_several_threads_is_the_first(rounds, variant, monkeypatch):
    """The same shortest path as the reference engine's, not just one of that length; stalls too."""
    for module in (expansion, engine, team):  # the levels up to a violation are small
        monkeypatch.setattr(module, "BLOCK", 1)
    machine, known = variant_named(variant)
    ((_, (scope, _)),) = scopes_named(machine, known.scope).items()
    names = (*known.with_variants, variant)
    functions = interpreted(engine.prepared(machine, scope, names))
    found = engine.search(machine, scope, names, functions=functions, workers=3)
    expect_same(reference_engine.search(machine.model(scope, names)), found)
    assert rounds


@dataclass(frozen=True)
class Size:
    """How far the counters count."""

    top: int


def counters(limit: int | None = None) -> Machine:
    """Three counters that each count to the top; with a limit, their sum must stay below it."""
    machine = Machine("counters")
    machine.domain("counters", lambda scope: 3)
    machine.variable("value", 0, lambda scope: scope.top, "the counters", over="counters")

    @machine.system(who="counter", each="counters")
    def increment(s, c):
        """Counter `c` counts on, past the top when the others are far."""
        far = s.value[0] + s.value[1] + s.value[2] == (limit if limit is not None else -1)
        return (s.value[c] < s.top) | far, {"value": put(s.value, c, s.value[c] + 1)}

    return machine


def searched(machine: Machine, top: int, **options: Any) -> Any:
    functions = interpreted(engine.prepared(machine, Size(top)))
    return engine.search(machine, Size(top), functions=functions, **options)


def test_the_shared_table_grows(rounds):
    """In a round that needs a larger table every state has another place there."""
    found = searched(counters(), 29, workers=3)
    assert found.states == 30**3 > (1 << 14) * storage.FULLEST
    assert (found.transitions, found.depth) == (3 * 29 * 30**2, 87)
    assert rounds


def test_a_fault_of_the_text_is_reported_from_a_thread(rounds):
    """As by the reference engine: which action left which range."""
    machine = counters(limit=16)
    with pytest.raises(ModelFault) as alone:
        searched(machine, 8, workers=1)
    with pytest.raises(ModelFault) as together:
        searched(machine, 8, workers=3)
    assert str(together.value) == str(alone.value)
    assert rounds


def test_near_the_limit_of_memory_one_thread_goes_on(rounds):
    """What a round would need at most is not needed in the end; and what stopped can be resumed."""
    limit = 120_000
    found = searched(counters(), 19, workers=3, memory_limit=limit)
    assert found.verdict == "bounded"
    assert "memory limit" in found.why
    assert None in rounds
    resumed = searched(counters(), 19, workers=3, resume=True)
    assert reported(resumed) == reported(searched(counters(), 19, workers=1))


def test_an_error_in_a_thread_is_raised(rounds, monkeypatch):
    """An index outside an array, for instance; not a search that ends early and looks complete."""

    def broken(*_: Any) -> None:
        raise IndexError("outside")

    monkeypatch.setattr(team, "settle", broken)
    with pytest.raises(IndexError, match="outside"):
        searched(counters(), 19, workers=2)


def test_a_small_table_is_one_part():
    """Parts must be so large that none is ever full while the table is not."""
    kept = Storage(1, 1 << 30)
    assert kept.reach == kept.table.shape[0] - 1
    kept.make_room(1 << 20)
    slots = kept.table.shape[0]
    assert kept.reach == slots // PARTS - 1 >= 10_000


def test_a_search_with_a_limit_on_states_ends_where_one_thread_ends():
    """A round would overshoot by as much as there are threads."""
    machine, (scope, _) = MACHINES["cut"], SMALL["cut"]["failures"]
    found = [engine.search(machine, scope, max_states=1000, workers=workers) for workers in (1, 4)]
    assert reported(found[0]) == reported(found[1])
