"""Whether the two engines report the same of one search: everything but the time it took."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from spec.engines import Search

REPORTED = [f.name for f in fields(Search) if f.name not in ("model", "seconds")]


def reported(found: Search) -> dict[str, Any]:
    """All that a search reports."""
    return {name: getattr(found, name) for name in REPORTED}


def expect_same(reference: Search, compiled: Search) -> None:
    """Counts, verdicts, premises, actions taken, and the violation with its path and its states."""
    assert reported(compiled) == reported(reference)
