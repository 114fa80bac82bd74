"""Every induction there is: what is proved of which machine."""

from __future__ import annotations

from collections.abc import Callable

from spec.barrier import barrier
from spec.cut import cut
from spec.machine import Machine

from . import barrier_exclusion, cut_ownership, cut_stamps
from .obligations import Induction

INDUCTIONS: tuple[tuple[Machine, Callable[[Machine], Induction]], ...] = (
    (barrier, barrier_exclusion.induction),
    (cut, cut_ownership.induction),
    (cut, cut_stamps.induction),
)
"""Each with its machine; given a varied one, it says the same of that."""
