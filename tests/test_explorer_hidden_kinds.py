"""What a state has not read never makes a verdict complete: generated hidden things, pruned against unpruned."""

from __future__ import annotations

import pytest
from explorer_hidden_kinds import CHANGES, KINDS, PLACES, combinations, hiding

from interleavings import explore


def lost(kind: str, place: str, change: str) -> str | None:
    """Say what pruning has lost although the verdict is complete; None when nothing is lost, or it was not complete."""
    program = hiding(kind, place, change)
    pruned = explore(program, keep_going=True)
    if not pruned.complete:
        assert pruned.verdict in ("bounded", "inconclusive"), pruned.summary()
        assert pruned.why
        return None
    enumerated = explore(program, keep_going=True, prune=False)
    missing = enumerated.outcomes - pruned.outcomes
    return f"{kind}, {place}, {change}: {sorted(missing)}" if missing else None


@pytest.mark.parametrize("kind", KINDS)
def test_case_G51_what_an_object_hides_is_state(kind: str) -> None:
    """Six of the pairs of a place and a change for each kind; `slow` has all of them."""
    assert [found for of, *where in combinations(6) if of == kind and (found := lost(of, *where))] == []


def test_there_are_kinds_places_and_changes_enough() -> None:
    """At least 400 combinations, 25 kinds, 5 places and 4 changes."""
    assert len(combinations(6)) >= 400
    assert len(KINDS) >= 25
    assert len(PLACES) >= 5
    assert len(CHANGES) >= 4
