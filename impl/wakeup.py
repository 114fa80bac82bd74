"""A broadcast for asyncio: whoever waits now runs again, nobody is handed anything.

Every wait of the library for "something changed" goes through this one class. A waiter looks at the state itself after
each wake-up, so a wake-up spent on a waiter that is being cancelled costs nothing: the state it announced is still
there for the next one to see. `asyncio.Condition` gives a notification to one waiter and loses it when that waiter is
cancelled in the same turn (CPython 3.11 and 3.12), and `asyncio.Event` has to be cleared by somebody.
"""

from __future__ import annotations

import asyncio


class Wakeup:
    """Waiters that all run again at the next `wake`.

    No state is kept between calls: a `wake` that meets no waiter is forgotten. That is safe for the pattern

        while not condition():
            await wakeup.wait()

    because nothing else runs between the look at the condition and the registration of the waiter.
    """

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def waiting(self) -> int:
        """How many waiters no wake-up and no cancellation has reached yet."""
        return sum(not waiter.done() for waiter in self._waiters)

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            # A wake-up has taken the whole list away; only a cancelled waiter still stands in it.
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def wake(self) -> None:
        """Let every present waiter run again; synchronous, so it may be called inside a slot."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
