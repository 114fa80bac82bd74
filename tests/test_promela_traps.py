"""Small machines made of what a Promela text gets wrong easily, counted by Spin and by the reference engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from spin_runs import BREADTH_FIRST, run_spin

from spec.engines import search
from spec.exports.promela import export_promela
from spec.language import Machine, Progress, Value, all_of, each, not_, put, total, where

pytestmark = pytest.mark.needs("spin")

Effects = tuple[Value, dict[str, Value]]


@dataclass(frozen=True)
class Size:
    """How many places a small machine has."""

    places: int = 3


def machine_of_places(name: str = "small") -> Machine:
    """A machine with a vector of numbers below zero and above, and nothing it does yet."""
    machine = Machine(name)
    machine.domain("places", lambda scope: int(scope.places))
    machine.variable("value", -2, 2, "a number", initial=-1, over="places", names=("no more", "some"))
    return machine


def expect_same_counts(machine: Machine, directory: Path) -> None:
    """Spin and the reference engine enumerate the same number of states and transitions, to the same depth."""
    found = search(machine.model(Size()))
    run = run_spin(export_promela(machine, Size()), directory, *BREADTH_FIRST)
    assert found.verdict == "holds"
    assert found.states > 3
    assert (run.violated, run.states, run.transitions, run.depth) == (
        None,
        found.states,
        found.transitions,
        found.depth,
    )


def test_places_that_exchange_their_values_read_the_old_ones(tmp_path: Path) -> None:
    """No order of single assignments turns a vector round: a new value is kept aside, and that adds no state."""
    machine = machine_of_places()

    @machine.system(who="turner")
    def turn(s: Value) -> Effects:
        """All at once."""
        return s.value[0] >= -1, {"value": each(s.places, lambda p: s.value.at((p == 0) * 2 + (p == 2) * 1))}

    @machine.system(who="turner", each="places")
    def count_up(s: Value, p: Value) -> Effects:
        """One place."""
        return s.value[p] < 2, {"value": put(s.value, p, s.value[p] + 1)}

    expect_same_counts(machine, tmp_path)


def test_a_variable_that_nothing_reads_tells_states_apart(tmp_path: Path) -> None:
    """Spin forgets such a variable by itself; here it is a part of the state like any other."""
    machine = machine_of_places()
    machine.variable("mark", -1, 1, "written only")

    @machine.system(who="writer", each="places")
    def rise(s: Value, p: Value) -> Effects:
        """And leave a mark that depends on which place it was."""
        return s.value[p] < 1, {"value": put(s.value, p, s.value[p] + 1), "mark": where(s.value[0] > 0, 1, p - 1)}

    expect_same_counts(machine, tmp_path)


def test_names_that_are_words_of_promela_are_still_names(tmp_path: Path) -> None:
    """A machine need not know the words of another tool, nor those the text itself needs."""
    machine = machine_of_places("full")
    for name in ("len", "state", "end", "rank", "violated", "now", "byte"):
        machine.variable(name, 0, 1, "a */ comment that ends early", names=("if", "1 or more"))

    @machine.system(who="writer")
    def run(s: Value) -> Effects:
        """A long sentence */ that ends the comment too early."""
        return s.len == 0, {"len": 1, "end": s.state, "byte": 1}

    @machine.system(who="writer")
    def skip(s: Value) -> Effects:
        """The other way."""
        return (s.len == 1) & (s.rank == 0), {"state": 1, "rank": 1, "now": s.len, "violated": 1, "len": 0}

    @machine.always(witness=lambda s: s.len == 1)
    def timeout(s: Value) -> Value:
        """A property with such a name."""
        return (s.len <= 1) & not_((s.state == 1) & (s.rank == 0))

    expect_same_counts(machine, tmp_path)


def test_an_action_without_effects_is_a_transition_and_no_state(tmp_path: Path) -> None:
    """Such an option would be an empty one in Promela, which is no option."""
    machine = machine_of_places()

    @machine.system(who="nobody", each="places")
    def look(s: Value, p: Value) -> Effects:
        """Changes nothing."""
        return s.value[p] == 0, {"value": s.value}

    @machine.system(who="writer", each="places")
    def rise(s: Value, p: Value) -> Effects:
        """One place."""
        return s.value[p] < 1, {"value": put(s.value, p, s.value[p] + 1)}

    expect_same_counts(machine, tmp_path)


def test_a_guard_that_is_negated_is_negated_as_a_whole(tmp_path: Path) -> None:
    """`!a < 1` is another claim than `!(a < 1)`, and `!!a` is an operator of channels: a stall negates every guard."""
    machine = machine_of_places()

    @machine.system(who="writer")
    def rise(s: Value) -> Effects:
        """A sum, which stands in parentheses before the comparison."""
        return s.value[0] + s.value[1] < 1, {"value": put(s.value, 0, s.value[0] + 1)}

    @machine.system(who="writer")
    def fall(s: Value) -> Effects:
        """A negation."""
        falls = (s.value[0] + s.value[1] >= 1) & (s.value[2] > -2)
        return not_(not_(falls) | (s.value[1] > s.value[0])), {"value": put(s.value, 2, s.value[2] - 1)}

    @machine.system(who="writer")
    def hold(s: Value) -> Effects:
        """A negation of all of several."""
        held = all_of(s.places, lambda p: s.value[p] < 1)
        return not_(held), {"value": put(s.value, 1, where(s.value[1] < 2, s.value[1] + 1, 2))}

    def rank(s: Value) -> Value:
        return s.value[0] + s.value[1] - s.value[2] + where(s.value[1] == 2, s.value[1], 0)

    machine.actions["hold"] = replace(machine.actions["hold"], progress=False)

    def finished(s: Value) -> Value:
        return (s.value[0] + s.value[1] >= 1) | (s.value[2] == -2)

    machine.progress = Progress("goes_on", finished, rank, "It goes on.")
    expect_same_counts(machine, tmp_path)


def broken_machine(kind: str) -> Machine:
    """A machine that counts one place up and breaks one kind of claim after three steps, or at once."""
    machine = machine_of_places()

    @machine.system(who="writer")
    def rise(s: Value) -> Effects:
        """One step."""
        return s.value[0] < 2, {"value": put(s.value, 0, s.value[0] + 1)}

    if kind == "in a state":
        machine.always(witness=lambda s: s.value[0] > 1)(stays_below(2))
    elif kind == "in the initial state":
        machine.always(witness=lambda s: s.value[0] > 1)(stays_below(-1))
    elif kind == "at an action":
        machine.always(at="rise", witness=lambda s: s.value[0] > 1)(stays_below(1))
    elif kind == "no progress":
        machine.progress = Progress("goes_on", lambda s: s.value[1] == 2, lambda s: s.value[0], "It goes on.")
    else:
        machine.progress = Progress("goes_on", lambda s: s.value[0] == 2, rank_that_falls, "It goes on.")
    return machine


def stays_below(bound: int) -> Callable[[Value], Value]:
    """The claim that the first place stays below a number."""

    def stays_below(s: Value) -> Value:
        """The first place stays below it."""
        return s.value[0] < bound

    return stays_below


def rank_that_falls(s: Value) -> Value:
    """Rises with each step but the last."""
    return where(s.value[0] == 2, 0, s.value[0])


@pytest.mark.parametrize(
    ("kind", "length"),
    [
        ("in a state", 3),
        ("in the initial state", 0),
        ("at an action", 3),
        ("no progress", 3),
        ("a rank that falls", 3),
    ],
)
def test_every_kind_of_violation_is_reported_after_as_many_steps(kind: str, length: int, tmp_path: Path) -> None:
    """A broken state, a forbidden action, a stall and a rank that falls: the length means the same for each."""
    machine = broken_machine(kind)
    found = search(machine.model(Size()))
    assert found.violation is not None
    run = run_spin(export_promela(machine, Size()), tmp_path, *BREADTH_FIRST)
    assert found.violation.length == length
    assert run.depth == length
    assert run.violated == ("goes_on" if machine.progress else "stays_below")


def test_a_sum_over_many_places_keeps_its_value_over_several_lines(tmp_path: Path) -> None:
    """Spin ends a statement at the end of a line if it can; a long sum would lose its second half."""
    machine = machine_of_places()
    machine.variable("sum_of_everything_there_is_to_be_counted", -99, 99, "the sum")

    @machine.system(who="writer", each="places")
    def rise(s: Value, p: Value) -> Effects:
        """One place up, and the sum of all anew."""
        weighted = total(s.places, lambda q: where(s.value[q] > 0, 3, where(s.value[q] == p, 2, 1)) * s.value[q])
        name = "sum_of_everything_there_is_to_be_counted"
        return s.value[p] < 2, {"value": put(s.value, p, s.value[p] + 1), name: weighted - 7 + p}

    @machine.always(witness=lambda s: s.value[0] > 0)
    def in_range(s: Value) -> Value:
        """What the range says."""
        return all_of(s.places, lambda p: s.value[p] <= 2)

    expect_same_counts(machine, tmp_path)
