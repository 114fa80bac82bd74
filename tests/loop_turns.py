"""Lets the event loop run a given number of turns: the tests' only way to let others go first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def turns(count: int = 10) -> None:
    """Let everything that is ready run, `count` times over."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool], at_most: int = 20_000) -> None:
    """Turn the loop until `condition` holds; a run that cannot reach it fails instead of hanging.

    Work on executor threads takes real time, so the turns are many; each is cheap.
    """
    for _ in range(at_most):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{condition} did not hold within {at_most} turns of the loop")
