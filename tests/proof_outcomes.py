"""The outcome of every obligation, worked out once in a run of the tests."""

from __future__ import annotations

from functools import cache

from proofs.claims import Argument
from proofs.solver import Outcome, discharge


@cache
def outcomes_of(argument: Argument) -> tuple[Outcome, ...]:
    """The outcomes of one argument, as `python -m proofs` finds them."""
    return tuple(discharge(obligation) for obligation in argument.obligations())
