"""Lets the event loop run a given number of turns: the tests' only way to let others go first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

#: How long what a test waits for may take before it is a hang: far more than anything takes on a machine that does ten
#: other things. No limit that is smaller may decide a test.
HANG_SECONDS = 600.0


async def turns(count: int = 10) -> None:
    """Let everything that is ready run, `count` times over."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool], at_most: float = HANG_SECONDS) -> None:
    """Turn the loop until `condition` holds; a run in which it does not within `at_most` seconds fails, it never hangs.

    The limit is real time, not turns: work on executor threads waits for a disk, and a slow fsync outlasts any count.
    """
    deadline = time.monotonic() + at_most
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition} did not hold within {at_most} seconds")
        await asyncio.sleep(0)
