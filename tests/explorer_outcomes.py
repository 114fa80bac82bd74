"""What the soundness tests of the explorer share: all outcomes of a program, and a cell of shared state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from interleavings import explore


def outcomes(program: Callable[[], Any], **options: Any) -> frozenset[str]:
    """Explore to the end; check the pruned outcomes against those of every schedule, and return them."""
    pruned = explore(program, keep_going=True, **options)
    enumerated = explore(program, keep_going=True, prune=False, **options)
    assert pruned.outcomes == enumerated.outcomes
    assert pruned.complete
    return pruned.outcomes


class Cell:
    """A value that tasks share."""

    def __init__(self) -> None:
        self.value = 0

    async def pulse(self) -> None:
        """1 for one turn of the loop, then 0 again: whoever looked in between must have kept what it saw."""
        self.value = 1
        await asyncio.sleep(0)
        self.value = 0
