"""The reference engine on small machines whose answers are known by heart."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from spec.engines import search
from spec.language import Machine, ModelFault, Progress, put


@dataclass(frozen=True)
class Size:
    """How far the counters count."""

    top: int


def two_counters() -> Machine:
    """Two counters that each count to the top: (top + 1)² states on a grid."""
    machine = Machine("counters")
    machine.domain("counters", lambda scope: 2)
    machine.variable("value", 0, lambda scope: scope.top, "the counters", over="counters")

    @machine.system(who="counter", each="counters")
    def increment(s, c):
        """Counter `c` counts on."""
        return s.value[c] < s.top, {"value": put(s.value, c, s.value[c] + 1)}

    machine.progress = Progress(
        "no_stall", lambda s: (s.value[0] == s.top) & (s.value[1] == s.top), lambda s: sum(s.value), "It goes on."
    )
    return machine


def test_a_complete_search_counts_the_grid():
    """States, transitions and depth of a grid are known in closed form."""
    result = search(two_counters().model(Size(4)))
    assert (result.verdict, result.complete) == ("holds", True)
    assert (result.states, result.transitions, result.depth) == (25, 2 * 4 * 5, 8)


def test_the_first_violation_is_a_shortest_one():
    """A state reachable by many paths is reported with the shortest."""
    machine = two_counters()

    @machine.always(witness=lambda s: s.value[0] > 0)
    def never_both_at_two(s):
        """The counters are not both at two."""
        return (s.value[0] != 2) | (s.value[1] != 2)

    violation = search(machine.model(Size(4))).violation
    assert violation is not None
    assert violation.length == 4
    assert violation.states[0].value == (0, 0)
    assert violation.states[-1].value == (2, 2)


def test_a_claim_about_an_action_is_broken_by_taking_it():
    """The action that a claim forbids is the last step of the counterexample."""
    machine = two_counters()

    @machine.always(at="increment", witness=lambda s: s.value[0] > 0)
    def stops_at_three(s):
        """Nothing counts on once the first counter is at three."""
        return s.value[0] < 3

    violation = search(machine.model(Size(4))).violation
    assert violation is not None
    assert (violation.length, violation.at) == (4, "increment")


def test_a_stall_of_the_same_level_wins_over_a_longer_violation():
    """A state that stalls at depth d is a shorter counterexample than a broken state at d + 1, whatever their order."""
    machine = Machine("fork")
    machine.variable("place", 0, 3, "where it is")

    @machine.system(who="walker")
    def walk(s):
        """From 0 to 1, and from 1 to the broken place 3."""
        return (s.place == 0) | (s.place == 1), {"place": 3 if s.place == 1 else 1}

    @machine.system(who="walker")
    def fall(s):
        """From 0 into the dead end 2."""
        return s.place == 0, {"place": 2}

    @machine.always(witness=lambda s: s.place == 1)
    def not_three(s):
        """It never comes to three."""
        return s.place != 3

    machine.progress = Progress("no_stall", lambda s: False, lambda s: s.place, "It goes on.")
    violation = search(machine.model(Size(1))).violation
    assert violation is not None
    assert (violation.property, violation.length) == ("no_stall", 1)


def test_an_action_that_lowers_the_rank_is_no_progress():
    """An endless loop of enabled actions is caught by its rank, not by enabledness."""
    machine = Machine("loop")
    machine.variable("place", 0, 1, "where it is")

    @machine.system(who="walker")
    def turn(s):
        """There and back for ever."""
        return True, {"place": 1 - s.place}

    machine.progress = Progress("no_stall", lambda s: False, lambda s: s.place, "It goes on.")
    violation = search(machine.model(Size(1))).violation
    assert violation is not None
    assert (violation.property, violation.length) == ("no_stall", 2)


@pytest.mark.parametrize(("limit", "verdict", "complete"), [(24, "bounded", False), (25, "holds", True)])
def test_case_F13_a_search_cut_short_is_bounded_and_says_so(limit, verdict, complete):
    """One state fewer than there are is bounded, exactly as many is complete; never the one called the other."""
    result = search(two_counters().model(Size(4)), max_states=limit)
    assert (result.verdict, result.complete) == (verdict, complete)
    assert bool(result.why) is not complete
    assert set(result.properties.values()) == {verdict}


def test_an_interrupted_search_says_what_it_covered():
    """Ctrl-C ends with a bounded verdict and the depth that was seen."""

    def interrupt(depth: int, states: int) -> None:
        if depth == 3:
            raise KeyboardInterrupt

    result = search(two_counters().model(Size(4)), on_level=interrupt)
    assert (result.verdict, result.complete) == ("bounded", False)
    assert "interrupted, all of depth 3" in result.why


def test_two_searches_of_one_model_give_the_same_path():
    """The order of actions is fixed, so a counterexample is the same every time."""
    machine = two_counters()

    @machine.always(witness=lambda s: s.value[0] > 0)
    def sum_stays_small(s):
        """The counters stay small together."""
        return s.value[0] + s.value[1] < 5

    first, second = (search(machine.model(Size(4))).violation for _ in range(2))
    assert first is not None
    assert first == second


def test_a_value_outside_its_range_is_a_fault_of_the_text():
    """A variable that overflows its declared range is an error of the model, not a state."""
    machine = Machine("overflow")
    machine.variable("value", 0, 1, "a bit")

    @machine.system(who="counter")
    def increment(s):
        """Counts without looking."""
        return True, {"value": s.value + 1}

    with pytest.raises(ModelFault, match=r"increment sets value to 2, outside \[0, 1\]"):
        search(machine.model(Size(1)))


# Since CPython 3.12 it warns, too; on 3.11 the refusal is all there is.
@pytest.mark.filterwarnings("ignore:Bitwise inversion:DeprecationWarning")
def test_a_guard_that_is_no_truth_value_is_refused():
    """`~True` is -2 in Python: a guard written with it would hold always."""
    machine = Machine("trap")
    machine.variable("value", 0, 1, "a bit")

    @machine.system(who="counter")
    def increment(s):
        """A guard with the wrong negation."""
        return ~(s.value == 0), {"value": 1}

    with pytest.raises(ModelFault, match="no truth value"):
        search(machine.model(Size(1)))


def test_an_unknown_variable_is_refused_by_name():
    """A misspelt effect must not be dropped silently."""
    machine = Machine("typo")
    machine.variable("value", 0, 1, "a bit")

    @machine.system(who="counter")
    def increment(s):
        """Sets something else."""
        return s.value == 0, {"valeu": 1}

    with pytest.raises(ModelFault, match="valeu"):
        search(machine.model(Size(1)))


def test_an_unknown_property_is_refused_and_not_called_holding():
    """A misspelt name would check nothing."""
    with pytest.raises(ModelFault, match="has no property one_owner_on_disc"):
        search(two_counters().model(Size(2)), properties=["one_owner_on_disc"])


def test_what_a_bounded_search_says_it_has_seen_it_has_seen():
    """The depth named is one of which every state is known."""
    result = search(two_counters().model(Size(4)), max_states=9)
    assert "all of depth 3 seen" in result.why
    assert result.states > 1 + 2 + 3 + 4 - 1


def test_an_unreached_premise_is_reported():
    """A property whose premise never occurs was not shown; the search says so."""
    machine = two_counters()

    @machine.always(witness=lambda s: s.value[0] > 99)
    def holds_vacuously(s):
        """Beyond ninety-nine everything is well."""
        return True

    assert search(machine.model(Size(2))).unwitnessed == ("holds_vacuously",)
