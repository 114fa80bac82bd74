"""How many schedules and states there are: exact figures, which a wrong idea of a choice or a state would change."""

import math

import pytest
from explorer_programs import barrier_subject, steppers

from interleavings import explore


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
def test_two_independent_tasks_have_binomially_many_schedules(steps: int) -> None:
    """Two tasks of k steps interleave in exactly (2k choose k) ways: nothing is left out, nothing counted twice."""
    result = explore(steppers(2, steps))
    assert result.verdict == "holds"
    assert result.schedules == math.comb(2 * steps, steps)


def test_three_independent_tasks_have_multinomially_many_schedules() -> None:
    """The same for three tasks of two steps: 6! / (2! 2! 2!)."""
    assert explore(steppers(3, 2)).schedules == math.factorial(6) // 2**3


@pytest.mark.parametrize(("declared", "states"), [(False, 689), (True, 571)])
def test_condition_barrier_has_exactly_71352_schedules(declared: bool, states: int) -> None:
    """Three mutators of three writes and a checkpointer: the count agrees with independent enumerations.

    Without a declared state there are more states than with one, because locals that can no longer matter (the first
    read of the snapshot) are compared too; the schedules are the same.
    """
    result = explore(barrier_subject(3, 3, declared=declared))
    assert result.verdict == "holds"
    assert result.complete
    assert result.schedules == 71_352
    assert result.states == states
    assert result.summary() == f"holds (complete: {states} states, 71,352 schedules)"


def test_larger_barrier_has_exactly_75560160_schedules() -> None:
    """Four mutators of three writes: far beyond enumeration, still counted exactly."""
    result = explore(barrier_subject(4, 3, declared=True))
    assert result.schedules == 75_560_160
    assert result.states == 4_019


def test_condition_barrier_deadlocks_with_one_cancellation_after_eight_steps() -> None:
    """Its release awaits: cancelled there, it stays shut for ever. Eight steps is the shortest way."""
    result = explore(barrier_subject(3, 3), cancels=1)
    assert result.verdict == "fails"
    assert result.failure is not None
    assert result.failure.kind == "deadlock"
    assert result.counterexample is not None
    assert len(result.counterexample.steps) == 8
    assert [step.kind for step in result.counterexample.steps].count("cancel") == 1


def test_path_count_equals_enumeration() -> None:
    """The number of paths in the state graph is the number of runs that an enumeration needs."""
    program = barrier_subject(2, 2)
    pruned, enumerated = explore(program), explore(program, prune=False)
    assert pruned.schedules == enumerated.schedules == enumerated.runs
    assert enumerated.states is None
    assert enumerated.summary() == f"holds (complete: {enumerated.schedules:,} schedules, not pruned)"


def test_depth_first_order_visits_the_same_states() -> None:
    """The order of the search changes which trace comes first, never what is covered."""
    program = barrier_subject(2, 2)
    breadth, depth = explore(program), explore(program, order="depth")
    assert (breadth.states, breadth.transitions, breadth.schedules) == (
        depth.states,
        depth.transitions,
        depth.schedules,
    )
