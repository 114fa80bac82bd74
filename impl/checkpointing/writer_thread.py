"""Runs blocking jobs off the event loop, one at a time and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar

from ..barrier import Unset

T = TypeVar("T")


class WriterThread:
    """One job after the other, whatever the executor: UNSET makes a thread of its own, None takes the loop's default.

    Cancelling a wait for a job does not stop the job; the next one still comes after it.
    """

    def __init__(self, executor: Executor | Unset | None) -> None:
        self._executor = executor
        self._own: ThreadPoolExecutor | None = None
        self._running: asyncio.Future[Any] | None = None

    async def run(self, job: Callable[[], T]) -> T:
        """Run `job` after those before it; return or raise what it does."""
        while self._running is not None and not self._running.done():
            await asyncio.wait((self._running,))
        future = asyncio.get_running_loop().run_in_executor(self._pool(), job)
        self._running = future
        # `wait` and not `await future`: a cancellation here must not reach the job.
        await asyncio.wait((future,))
        self._running = None
        return future.result()

    def shut_down(self) -> None:
        """Let the thread of its own end, after what it still has to do."""
        own, self._own = self._own, None
        if own is not None:
            own.shutdown(wait=False)

    def _pool(self) -> Executor | None:
        if not isinstance(self._executor, Unset):
            return self._executor
        if self._own is None:
            self._own = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cleancut-writer")
        return self._own
