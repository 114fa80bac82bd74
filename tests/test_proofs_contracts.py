"""The contracts on the library's pure functions: CrossHair refutes wrong versions, and its silence is never a proof."""

from __future__ import annotations

import pytest

from proofs.checks import contracts_checked
from proofs.contracts import CONTRACTS, WRONG_VERSIONS, ContractOutcome, Wrong, is_refuted, outcome_of, understood

SOON = 3
"""Seconds of processor time for each run here; `make prove` gives more."""


@pytest.mark.parametrize("wrong", WRONG_VERSIONS, ids=lambda wrong: wrong.called)
def test_every_wrong_version_is_refuted(wrong: Wrong) -> None:
    """A contract that lets a wrong version pass sees nothing."""
    outcome = outcome_of(wrong.called, "proofs.contracts.wrong_versions", SOON)
    assert is_refuted(outcome), outcome.said


@pytest.mark.parametrize("name", ["subtraction_leaves_one_owner", "member_stays_inside"])
def test_a_contract_that_is_kept_is_bounded_and_not_proved(name: str) -> None:
    """At best every path of small inputs was followed."""
    outcome = outcome_of(name, "proofs.contracts.functions", SOON)
    assert outcome.verdict == "bounded"
    assert outcome.said.startswith("no counterexample")


def test_every_contract_has_a_wrong_version() -> None:
    """Otherwise nobody would know whether it can fail."""
    assert {wrong.contract for wrong in WRONG_VERSIONS} == set(CONTRACTS)


@pytest.mark.parametrize(
    ("output", "verdict", "said"),
    [
        ("/x.py:3: info: Confirmed over all paths.", "bounded", "no counterexample on any path"),
        ("/x.py:3: info: Not confirmed.", "bounded", "no counterexample in 9 s"),
        ("/x.py:3: error: AssertionError:  when calling f(1)", "fails", "AssertionError:  when calling f(1)"),
        ("", "inconclusive", "CrossHair checked nothing; it said: nothing"),
        ("/x.py:3: warning: Unable to meet precondition.", "inconclusive", "CrossHair checked nothing"),
        ("No module named crosshair", "inconclusive", "No module named crosshair"),
    ],
    ids=["all_paths", "no_time", "counterexample", "silence", "no_input", "not_installed"],
)
def test_only_what_crosshair_says_of_a_contract_counts(output: str, verdict: str, said: str) -> None:
    """Its exit status is 0 also where it checked nothing, so silence is inconclusive."""
    found = understood(output, 9)
    assert found[0] == verdict
    assert said in found[1]


def test_another_exception_than_that_of_the_contract_is_no_refutation() -> None:
    """A wrong version that only crashes shows nothing of the contract."""
    assert not is_refuted(ContractOutcome("f", "fails", "TypeError: no such thing", 0.0))


def test_a_wrong_version_that_is_not_refuted_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the contract that failed then."""
    kept = [ContractOutcome("f", "bounded", "no counterexample on any path", 0.1)]
    monkeypatch.setattr("proofs.contracts.runs.contracts_held", lambda **_: kept)
    monkeypatch.setattr("proofs.contracts.runs.wrong_versions_refuted", lambda **_: kept)
    assert [(o.kind, o.verdict) for o in contracts_checked()] == [("contract", "bounded"), ("wrong version", "fails")]
