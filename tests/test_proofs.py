"""The proofs: all obligations proved, every conjunct needed, every variant refuted, no premise empty."""

from __future__ import annotations

import dataclasses
import json

import pytest

import spec.catalogue
from proofs.command_line import main
from proofs.cut_ownership import STRENGTHENING, induction
from proofs.obligations import Obligation, Proved, Refuted, Unknown, discharge, obligations_of
from proofs.terms import Terms, Untranslatable
from spec.cut import cut
from spec.expression import Domain, Symbol, SymbolicVector, count, each, put, where
from spec.scopes import SMALL

REGISTERED_BY = (spec.catalogue,)


def not_proved(of_what):
    """The obligations that are not proved, by name."""
    return [o.obligation.name for o in map(discharge, obligations_of(of_what)) if not isinstance(o.verdict, Proved)]


def test_every_obligation_is_proved():
    """One owner and none lost, for any number of prompts, batches, saves and crashes."""
    obligations = obligations_of(induction())
    assert {f"ownership: consecution of {name}" for name in cut.actions} <= {o.name for o in obligations}
    assert not_proved(induction()) == []


@pytest.mark.parametrize("conjunct", STRENGTHENING, ids=lambda c: c.__name__)
def test_every_conjunct_is_needed(conjunct):
    """A conjunct that can be dropped is a distraction for the reader."""
    fewer = tuple(c for c in STRENGTHENING if c is not conjunct)
    assert not_proved(dataclasses.replace(induction(), strengthening=fewer)) != []


@pytest.mark.parametrize(
    "variant",
    [v for v in cut.variants.values() if v.breaks in ("one_owner_on_disk", "none_lost")],
    ids=lambda v: v.name,
)
def test_a_variant_that_breaks_a_proved_property_is_refuted(variant):
    """What the engine catches in a scope, the proof catches for any size."""
    varied = cut.varied((*variant.with_variants, variant.name))
    verdicts = [discharge(o).verdict for o in obligations_of(induction(varied))]
    assert any(isinstance(v, Refuted) for v in verdicts)
    assert not any(isinstance(v, Unknown) for v in verdicts)


def test_the_strengthening_holds_in_every_reachable_state_and_every_action_occurs():
    """The premises of every obligation are met by real states, so none is proved of nothing."""
    taken = dict.fromkeys(cut.actions, 0)
    for scope, pinned in SMALL["cut"].values():
        if pinned.states > 2_500:
            continue
        model = cut.model(scope)
        frontier, seen = [model.initial], {model.initial}
        while frontier:
            state = frontier.pop()
            for conjunct in STRENGTHENING:
                assert all(conjunct(state, p) for p in state.prompts), (conjunct.__name__, state)
            for step in model.steps(state):
                taken[step.action.name] += 1
                if step.state not in seen:
                    seen.add(step.state)
                    frontier.append(step.state)
    assert min(taken.values()) > 0


def test_a_refutation_names_state_and_step():
    """A counterexample to induction shows the values at the prompt in question."""
    varied = cut.varied(["cursor_ahead"])
    (verdict,) = [
        o.verdict for o in map(discharge, obligations_of(induction(varied))) if not isinstance(o.verdict, Proved)
    ]
    assert isinstance(verdict, Refuted)
    assert "ledger[p] = " in verdict.counterexample
    assert "window = " in verdict.counterexample


def test_an_unknown_is_not_a_pass():
    """A solver that gives up yields Unknown with its reason."""
    import z3

    x, y, z = z3.Ints("x y z")
    hard = Obligation(
        "cubes", "none", lambda terms: ([x > 1, y > 1, z > 1], x * x * x + y * y * y != z * z * z), "", ""
    )
    assert isinstance(discharge(hard, timeout=50).verdict, Unknown)


def test_vectors_are_read_through_their_construction():
    """put and each are worked out at the index read; no array theory is needed."""
    import z3

    terms = Terms()
    domain = Domain("prompts", None)
    vector = SymbolicVector("variable", domain, "v")
    i, j = Symbol("constant", "i"), Symbol("constant", "j")
    changed = put(each(domain, lambda k: vector[k] + 1), i, 9)
    goal = terms.term(where(i == j, changed[j] == 9, changed[j] == vector[j] + 1))
    solver = z3.Solver()
    solver.add(z3.Not(goal))
    assert solver.check() == z3.unsat


def test_the_same_count_is_the_same_unknown_and_another_is_not():
    """Counting one thing twice gives one number; nothing is known of two different counts."""
    import z3

    terms = Terms()
    domain = Domain("prompts", None)
    vector = SymbolicVector("variable", domain, "v")
    ones = [terms.term(count(domain, lambda k: vector[k] == 1)) for _ in range(2)]
    twos = terms.term(count(domain, lambda k: vector[k] == 2))
    assert z3.eq(ones[0], ones[1])
    assert not z3.eq(ones[0], twos)
    assert len(terms.side_conditions) == 2


def test_a_count_below_a_quantifier_is_refused():
    """One unknown for all indexes would prove that every index counts the same."""
    from spec.expression import all_of

    domain = Domain("prompts", None)
    vector = SymbolicVector("variable", domain, "v")
    claim = all_of(domain, lambda i: count(domain, lambda j: vector[j] < vector[i]) == 1)
    with pytest.raises(Untranslatable, match="a count below all_of"):
        Terms().term(claim)


def test_the_command_line_gives_one_row_an_obligation(tmp_path, capsys):
    """The JSON of the contract and one summary line; an unwritable file is wrong use."""
    assert main(["--json", str(tmp_path / "p.json")]) == 0
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["verdict"] == "holds"
    for item in document["obligations"]:
        assert item.keys() == {"obligation", "machine", "verdict", "seconds", "assumes", "excludes"}
        assert item["verdict"] == "holds"
    assert capsys.readouterr().out.splitlines()[-1].startswith("proofs: holds, 39 of 39 proved")
    assert main(["--json", "/nowhere/p.json"]) == 2
