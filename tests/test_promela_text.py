"""The exported Promela text as a reader meets it: the machine's names, its sentences, and nothing lost on the way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec.command import main
from spec.exports.promela import WIDTH, Group, Piece, ValueNames, export_promela, flat, lines, one_by_one
from spec.language import ModelFault, Variable
from spec.machines import MACHINES, SMALL, Scope, all_variants, scopes_named

EVERY_SMALL_SCOPE = [
    pytest.param(machine, scope, id=f"{machine}-{name}")
    for machine, family in SMALL.items()
    for name, (scope, _) in family.items()
]


@pytest.mark.parametrize(("machine", "scope"), EVERY_SMALL_SCOPE)
def test_every_variable_action_and_property_goes_by_its_own_name(machine: str, scope: Scope) -> None:
    """Whoever knows the machine finds each action with its sentence, and each property with its own."""
    known = MACHINES[machine]
    text = export_promela(known, scope)
    in_one_line = " ".join(text.split())
    assert text == export_promela(known, scope), "two exports of one scope differ"
    assert max(map(len, text.splitlines())) <= 120
    for action in known.actions.values():
        offered = action.when is None or bool(action.when(scope))
        sentence = " ".join(action.meaning.split("\n\n")[0].split())
        described = f"/* {action.name} ({action.who}): {sentence} */" in in_one_line
        option = re.search(rf"^  :: d_step {{ can_{action.name}(_\d+)? ->$", text, re.MULTILINE)
        assert described == (option is not None)
        assert offered or not described
    for name, claimed in known.properties.items():
        assert f"/* {name}: {claimed.sentence} */" in in_one_line
        assert f"assert(violated != {name})" in text
    declared = re.findall(r"^(?:bit|byte|short|int) (\w+)", text, re.MULTILINE)
    assert {*declared} <= {*known.variables, "rank_before", "aside"}
    assert len(declared) == len({*declared})


def test_values_go_by_the_names_that_people_call_them() -> None:
    """`window == DRAINING` says more than a number; a name of two different values says whose it is."""
    text = export_promela(MACHINES["barrier"], SMALL["barrier"]["three_writers"][0])
    assert "#define QUEUED 1\n" in text
    assert "(cut[0] == QUEUED && place[0] == 1 &&" in " ".join(text.replace("\\\n", "").split())
    assert "at[2] = AT_WAITING;" in text
    assert "child[1] == CHILD_INSIDE" not in text, "no child in this scope"
    values = re.findall(r"^#define ([A-Z_]+) (\d+)$", text, re.MULTILINE)
    assert len({name for name, _ in values}) == len(values)


def test_a_name_of_two_values_never_becomes_one_symbol() -> None:
    """A text that calls 1 and 2 alike would be another machine."""
    one = Variable("gate", 0, 2, 0, None, "", {0: "open", 1: "shut"})
    other = Variable("door", 0, 2, 0, None, "", {1: "open", 2: "gate shut", 0: "!"})
    names = ValueNames([one, other])
    assert [names.called("gate", value) for value in range(3)] == ["GATE_OPEN", "SHUT", "2"]
    assert [names.called("door", value) for value in range(3)] == ["0", "DOOR_OPEN", "GATE_SHUT"]
    assert names.called(None, 1) == "1"
    assert names.definitions() == [
        "#define GATE_OPEN 0", "#define SHUT 1", "#define DOOR_OPEN 1", "#define GATE_SHUT 2"
    ]  # fmt: skip


def test_only_the_properties_asked_for_are_in_the_text() -> None:
    """A variant is searched for its property alone; another one may break sooner."""
    scope = SMALL["cut"]["one_pair"][0]
    text = export_promela(MACHINES["cut"], scope, properties=["none_lost"])
    assert set(re.findall(r"assert\(violated != (\w+)\)", text)) == {"none_lost"}
    assert "rank" not in text
    unchecked = export_promela(MACHINES["cut"], scope, properties=[])
    assert "assert(" not in unchecked
    assert "mtype" not in unchecked
    with pytest.raises(ModelFault, match="has no property 'all_lost'; it has one_owner_on_disk, none_lost"):
        export_promela(MACHINES["cut"], scope, properties=["all_lost"])


@pytest.mark.parametrize(("machine", "variant"), [(m.name, v.name) for m, v in all_variants()])
def test_a_variant_changes_the_text(machine: str, variant: str) -> None:
    """A variant whose text is that of the machine would be caught nowhere."""
    known = MACHINES[machine].variants[variant]
    ((_, (scope, _)),) = scopes_named(MACHINES[machine], known.scope).items()
    options = [
        export_promela(MACHINES[machine], scope, names).split("*/", 1)[1]
        for names in (known.with_variants, (*known.with_variants, variant))
    ]
    assert options[0] != options[1]


@given(st.dictionaries(st.integers(0, 5), st.frozensets(st.integers(0, 7)), max_size=6))
def test_one_assignment_after_the_other_does_what_all_at_once_do(reads: dict[int, frozenset[int]]) -> None:
    """Whatever the new values depend on; and nothing is kept aside where an order exists."""
    before = {place: 10**place for place in range(8)}
    at_once = {**before, **{t: sum(before[r] for r in read) + 1 for t, read in reads.items()}}
    aside, in_place = one_by_one(reads)
    state = dict(before)
    kept = {t: sum(state[r] for r in reads[t]) + 1 for t in aside}
    for target in in_place:
        state[target] = sum(state[r] for r in reads[target]) + 1
    state.update(kept)
    assert state == at_once
    assert sorted([*aside, *in_place]) == sorted(reads)
    if all(read <= {t} | {r for r in read if r not in reads} for t, read in reads.items()):
        assert aside == []


def pieces() -> st.SearchStrategy[Piece]:
    """Words, and operands in parentheses to some depth."""
    return st.recursive(
        st.sampled_from(["a", "window", "image_dispatch_cursor"]),
        lambda inner: st.lists(inner, min_size=1, max_size=6).map(
            lambda parts: Group("!(", [("&& " if n else "", part) for n, part in enumerate(parts)], ")")
        ),
        max_leaves=40,
    )


@given(pieces())
def test_a_text_over_several_lines_is_the_text_of_one_line(piece: Piece) -> None:
    """Only the space between words differs, and what fits stays on one line."""
    whole = flat(piece)
    broken = lines(piece, 40)
    assert re.sub(r"\s", "", "".join(broken)) == re.sub(r"\s", "", whole)
    assert (len(broken) == 1) == (len(whole) <= 40 or isinstance(piece, str) or len(lines(piece, 40)) == 1)
    assert lines(piece, max(WIDTH, len(whole))) == [whole]


def test_export_writes_what_it_would_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To a file or to standard output, and without --scope the one in which the variant is caught."""
    assert main(["export", "promela", "--variant", "cursor_ahead", "-o", str(tmp_path / "cut.pml")]) == 0
    assert capsys.readouterr().out == ""
    scope = f"small/{MACHINES['cut'].variants['cursor_ahead'].scope}"
    assert main(["export", "promela", "--machine", "cut", "--scope", scope, "--variant", "cursor_ahead"]) == 0
    text = (tmp_path / "cut.pml").read_text(encoding="utf-8")
    assert capsys.readouterr().out == text
    assert text.startswith(f"/*\n * The machine cut with cursor_ahead, scope {scope}: CutScope(")


def test_export_of_a_machine_alone_is_its_first_small_scope(capsys: pytest.CaptureFixture[str]) -> None:
    """A reader who wants to see what such a text looks like needs to know no scope."""
    assert main(["export", "promela", "--machine", "store", "--property", "published_is_whole"]) == 0
    text = capsys.readouterr().out
    assert "The machine store, scope small/one_save: StoreScope(attempts=1" in text
    assert "mtype = { nothing, published_is_whole };" in text
