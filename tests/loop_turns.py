"""Lets the event loop run a given number of turns: the tests' only way to let others go first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def turns(count: int = 10) -> None:
    """Let everything that is ready run, `count` times over."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool], at_most: float = 30.0) -> None:
    """Turn the loop until `condition` holds; a run in which it does not within `at_most` seconds fails, it never hangs.

    The limit is real time, not turns: work on executor threads waits for a disk, and a slow fsync outlasts any count.
    """
    deadline = time.monotonic() + at_most
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition} did not hold within {at_most} seconds")
        await asyncio.sleep(0)
