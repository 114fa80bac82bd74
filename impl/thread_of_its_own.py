"""A function in a thread that belongs to no executor.

A process forked from an executor's thread fails at its end: there that thread is the only one left, and the interpreter
waits for all threads of executors, so for itself. torchdata forks its workers in whichever thread asks for a batch.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def in_thread_of_its_own(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run `work` in a thread made for it; a future of the running loop. The thread keeps no program from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        settle: Callable[[], None]
        try:
            result = work()
        except BaseException as error:
            settle = functools.partial(future.set_exception, error)
        else:
            settle = functools.partial(future.set_result, result)
        # A loop that is closed has nobody who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if future.done() else settle())

    threading.Thread(target=run, name="cleancut-data", daemon=True).start()
    return future
