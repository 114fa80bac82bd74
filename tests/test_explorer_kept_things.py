"""Everything that may be kept from one step to a later one is state, wherever Python keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from explorer_kept_things import KEPT
from explorer_outcomes import Cell, outcomes

from interleavings import explore, iterators, walkers


def keeping(name: str) -> Callable[[], Coroutine[Any, Any, Any]]:
    """A program that makes a thing by what it sees for one turn, and shows it turns later."""
    make, show = KEPT[name]

    async def main() -> Any:
        cell = Cell()

        async def keep() -> Any:
            held = make(cell.value)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return show(held)

        shown, _ = await asyncio.gather(keep(), cell.pulse())
        return shown

    return main


@pytest.mark.parametrize("name", KEPT)
def test_case_F08_what_is_kept_is_state(name: str) -> None:
    """Both things are told apart, and every schedule is counted."""
    program = keeping(name)
    assert len(outcomes(program)) == 2
    assert explore(program).schedules == explore(program, prune=False).schedules
