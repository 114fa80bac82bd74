"""A counterexample as a document: it replays on its machine, and says where it does not fit any more."""

from __future__ import annotations

import pytest

from spec.command import TraceStale, concerned, replay, to_document
from spec.engines import search
from spec.machines import SMALL
from spec.machines.cut import cut


def found(*variants):
    """The search that breaks ownership, and its steps."""
    result = search(cut.model(SMALL["cut"]["one_batch"][0], variants), properties=["one_owner_on_disk"])
    assert result.violation is not None
    return result


def test_a_counterexample_replays_to_the_same_states():
    """The path is re-executed step by step and ends where the search said."""
    result = found("cursor_ahead")
    assert tuple(replay(result.model, list(result.violation.steps))) == result.violation.states


def test_the_document_says_who_did_what_and_what_changed():
    """Each step names action, actor and the variables it moved, in words."""
    result = found("cursor_ahead")
    document = to_document(result.model, "small/one_batch", result.violation)
    first = document["steps"][0]
    assert (first["action"], first["who"]) == ("reserve_batch", "rollout pump")
    assert "ledger[0] no entry → RESERVED" in first["changed"]
    assert document["property"] == "one_owner_on_disk"
    assert document["concerned"][0].endswith("owners in the image to be published: none")


def test_a_path_that_no_longer_fits_says_at_which_step():
    """On the base machine the variant's path is possible until a step that is not enabled there."""
    base = cut.model(SMALL["cut"]["one_batch"][0])
    with pytest.raises(TraceStale, match=r"step 2: commit_admission is not enabled there; enabled: pass_gate"):
        replay(base, [("reserve_batch", None), ("commit_admission", None)])
    with pytest.raises(TraceStale, match="step 1: machine 'cut' has no action 'reserve_promised'"):
        replay(base, [("reserve_promised", None)])


def test_a_run_that_cannot_go_on_says_which_half_of_the_claim_broke():
    """Standing still and going in a circle are different faults; the sentence of the property names both."""
    scope = SMALL["cut"]["one_batch"][0]
    circle = cut.varied(())
    circle.replace("pass_gate", lambda s: (s.gate_passed == 0, {"gate_passed": s.gate_passed}))
    found = search(circle.model(scope), properties=["no_stall"])
    assert found.violation is not None
    (line,) = concerned(found.model, found.violation)
    assert line.startswith("pass_gate brings the run no nearer to its end: the rank goes from ")
    stuck = cut.varied(())
    stuck.replace("pass_gate", lambda s: (s.gate_passed > 1, {"gate_passed": 1}))
    found = search(stuck.model(scope), properties=["no_stall"])
    assert found.violation is not None
    (line,) = concerned(found.model, found.violation)
    assert line == "possible at the end: request_cut, and none of it brings the run nearer to its end"
