"""Two ways to wait in asyncio: for the next change, and for something that must not be left alone.

Every wait of the library for "something changed" goes through `Wakeup`. A waiter looks at the state itself after each
wake-up, so a wake-up spent on a waiter that is being cancelled costs nothing: the state it announced is still there for
the next one to see. `asyncio.Condition` gives a notification to one waiter and loses it when that waiter is cancelled
in the same turn (CPython 3.11 and 3.12), and `asyncio.Event` has to be cleared by somebody.
"""

from __future__ import annotations

import asyncio
from typing import Any


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


async def wait_shielded(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until `future` is done, whoever cancels the caller meanwhile; return the last cancellation, to be raised.

    A future that failed or was cancelled raises nothing here: the caller asks it how it ended. A caller that gives the
    future up must ask too, or asyncio reports its error as never retrieved.
    """
    cancellation = None
    while not future.done():
        try:
            # `wait` and neither `await future`, which a cancellation here would reach, nor `shield`, whose
            # CancelledError may be that of the future as well as the caller's.
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancellation = error
    return cancellation
