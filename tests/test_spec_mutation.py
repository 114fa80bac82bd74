"""Who checks the checks: the mutants of the machines, what notices them, and that the judge itself can tell."""

import ast
import dataclasses

import pytest

from spec.machines import MACHINES
from spec.mutation.command_line import EQUIVALENT, KEPT, POLICY, chosen, reasons, survives, tallies
from spec.mutation.edits import edits_of
from spec.mutation.judging import ALIKE, NOTICED, SURVIVES, Judge
from spec.mutation.mutants import PROPERTY, SYSTEM, Mutant, mutants_of
from spec.mutation.resting import Resting
from spec.mutation.running import judged

SAMPLE, SEED = 20, 1
JUDGED = ("barrier", "combined")
"""The machines of which every mutant was judged; of the cut and the store `rests.json` has nothing yet."""


def named(machine: str, function: str, what: str) -> Mutant:
    """The first mutant of a function that is described so."""
    return next(m for m in mutants_of(machine) if m.function == function and what in m.key)


def texts_of(source: str) -> set[str]:
    """What each edit of a function makes of its last line."""
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    return {ast.unparse(edit.function).splitlines()[-1].strip() for edit in edits_of(function, {"READY": 2})}


@pytest.mark.parametrize(
    ("line", "edited"),
    [
        ("(s.a > 0) & (s.b < 2), {}", "(s.b < 2, {})"),
        ("(s.a > 0) & (s.b < 2), {}", "((s.a > 0) & (s.b <= 2), {})"),
        ("(s.a > 0) & (s.b < 2), {}", "((s.a > 0) & (s.b < 1), {})"),
        ("s.a == READY, {}", "(s.a == READY + 1, {})"),
        ("s.a == READY, {}", "(True, {})"),
        ("True, {'a': s.a + 1, 'b': 0}", "(True, {'b': 0})"),
        ("True, {'a': s.a + 1, 'b': 0}", "(True, {'a': s.a, 'b': 0})"),
        ("True, {'a': s.a + 1, 'b': 0}", "(True, {'a': s.a + 1, 'b': 1})"),
        ("True, {'a': where(s.b, READY, 0)}", "(True, {'a': READY})"),
        ("True, {'a': put(s.a, p, READY)}", "(True, {'a': put(s.a, p, 1)})"),
        ("implies(s.a, s.b)", "s.b"),
        ("s.a.at(s.k)", "s.a.at(s.k + 1)"),
    ],
)
def test_every_kind_of_edit_is_made(line: str, edited: str) -> None:
    """Conjunct, comparison, effect, branch, index, value and premise: each operator of the issue makes its mutant."""
    found = texts_of(f"def action(s: Value, p: Value):\n    return {line}\n")
    assert f"return {edited}" in found


def test_every_function_about_states_is_edited() -> None:
    """What compares the image of one state with the memory of another has no parameter `s`, and is edited as well."""
    assert [m for m in mutants_of("cut") if m.function == "image_is"]
    assert [m for m in mutants_of("store") if m.function == "in_cache"]


@pytest.mark.parametrize("machine", MACHINES)
def test_mutants_have_names_of_their_own(machine: str) -> None:
    """A survivor is known by function and text: no two share a name, and none has a line number in it."""
    keys = [m.key for m in mutants_of(machine)]
    assert len(keys) == len({*keys})
    moved = [dataclasses.replace(m, line=m.line + 7).key for m in mutants_of(machine)]
    assert keys == moved


def test_a_mutant_is_in_place_for_a_while_alone() -> None:
    """Afterwards every function has its own code again, whatever happened meanwhile."""
    mutant = named("barrier", "enter_slot", "left out: not_(shut(s))")
    function = MACHINES["barrier"].actions["enter_slot"].function
    right = function.__code__
    changed = []

    def fails() -> None:
        with mutant.applied():
            changed.append(function.__code__ is not right)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert changed == [True]
    assert function.__code__ is right


def test_moved_counts_are_no_notice() -> None:
    """With its rule gone, a mutant of which the transitions differ survives; with it, the rule notices it."""
    mutant = named("barrier", "start_child", "left out: s.at[w] == INSIDE")
    judge = Judge("barrier")
    found = judge.judge(mutant)
    assert (found.verdict, found.by) == (NOTICED, "a_child_is_refused_in_a_section_alone")
    properties = MACHINES["barrier"].properties
    rule = properties.pop("a_child_is_refused_in_a_section_alone")
    try:
        assert Judge("barrier").judge(mutant).verdict == SURVIVES
    finally:
        properties[rule.name] = rule


def test_what_is_remembered_for_a_property_alone_is_part_of_it() -> None:
    """A history variable that is never set moves no step of the right machine; the variants it is for tell it."""
    mutant = named("barrier", "written_late", "effect left out: 'late_write'")
    judge = Judge("barrier")
    assert judge.judge(mutant).verdict == ALIKE
    noticed = Resting(judge).remembers(mutant)
    assert noticed is not None
    assert noticed.rests.startswith("variant ")


def test_a_conjunct_that_nothing_rests_on_survives() -> None:
    """Without the variant that needs the end of an arrow, nobody misses it."""
    mutant = named("barrier", "checkpoints_follow_the_picture", "left out: where it ends at cancel_in_cut")
    judge = Judge("barrier")
    found = Resting(judge).judge(mutant)
    assert (found.verdict, found.rests) == (NOTICED, "variant cancelled_cut_stays_open (small/one_cancellation)")
    variants = MACHINES["barrier"].variants
    needed = variants.pop("cancelled_cut_stays_open")
    try:
        assert Resting(judge).judge(mutant).verdict == SURVIVES
    finally:
        variants[needed.name] = needed


def test_a_sample_of_all_mutants_is_noticed_or_accounted_for() -> None:
    """Whoever changes a guard, an effect or a property keeps a property, a variant, or a reason for each edit."""
    documents = judged(chosen(JUDGED, SAMPLE, SEED), kept=None)
    known = reasons()
    assert [d["mutant"] for d in documents if survives(d) and d["mutant"] not in known] == []
    assert len(documents) == SAMPLE
    assert [tally.kind for tally in tallies(documents)] == [SYSTEM, PROPERTY]


def test_the_table_of_survivors_names_mutants_that_there_are() -> None:
    """Each has a reason of a known kind; a key that no text has any more is to be taken out."""
    keys = {m.key for machine in MACHINES for m in mutants_of(machine)}
    assert [key for key in reasons() if key not in keys] == []
    assert {kind for kind, _ in reasons().values()} <= {EQUIVALENT, POLICY, KEPT}
    assert all(why.endswith(".") for _, why in reasons().values())
