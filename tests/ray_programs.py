"""Programs for searches on Ray: its workers import them by name from here."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from explorer_programs import barrier_subject

from interleavings import Subject

IN_A_WORKER = sys.argv[0].endswith("default_worker.py")


def barrier() -> Subject:
    """571 states, 71,352 schedules."""
    return barrier_subject(3, 3, declared=True)()


def deadlocking_barrier() -> Subject:
    return barrier_subject(2, 2, seeded="waits once")()


def larger_barrier() -> Subject:
    return barrier_subject(4, 4)()


async def ends_its_process() -> None:
    """Only where a worker of Ray runs it."""
    await asyncio.sleep(0)
    if IN_A_WORKER:
        os.kill(os.getpid(), signal.SIGKILL)


shared: list[int] = []


def declared() -> tuple[int, ...]:
    """The state of `counting`, by a name of this module."""
    return tuple(shared)


def never_three() -> str | None:
    """The invariant of `counting`, which does not hold."""
    return "three of them" if len(shared) == 3 else None


def counting() -> Coroutine[Any, Any, None]:
    shared.clear()

    async def count(number: int) -> None:
        await asyncio.sleep(0)
        shared.append(number)

    async def all_three() -> None:
        await asyncio.gather(count(1), count(2), count(3))

    return all_three()
