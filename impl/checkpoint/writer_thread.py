"""Runs blocking jobs off the event loop, one at a time and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar

from ..barrier import Unset
from ..waiting import wait_shielded

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
        return await self._run(job, _wait)

    async def see_out(self, job: Callable[[], T]) -> T:
        """Run `job`, and wait for its end through every cancellation; none of them passes out."""
        return await self._run(job, wait_shielded)

    async def _run(self, job: Callable[[], T], wait: Callable[[asyncio.Future[Any]], Awaitable[object]]) -> T:
        while self._running is not None and not self._running.done():
            await wait(self._running)
        future = asyncio.get_running_loop().run_in_executor(self._pool(), job)
        self._running = future
        await wait(future)
        if self._running is future:
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


async def _wait(job: asyncio.Future[Any]) -> None:
    # `wait` and not `await job`: a cancellation here must not reach the job.
    await asyncio.wait((job,))
