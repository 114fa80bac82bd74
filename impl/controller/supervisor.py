"""Owns the tasks of a run: a strong reference to each, and an eye on how it ends.

The loop keeps only weak references to tasks, so a task nobody holds may be collected before it is done; and an
exception nobody asks for is a log line at best. Both are settled here, in one place. `asyncio.wait` and `gather` are
not used: they iterate over sets of tasks, in an order that differs from run to run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ..waiting import Wakeup

logger = logging.getLogger("cleancut.controller")

RunTask = asyncio.Task[Any]


class Supervisor:
    """Starts tasks, remembers the first failure, and waits for tasks to end."""

    def __init__(self) -> None:
        # Dictionaries for their order: the same run cancels and waits in the same order.
        self._tasks: dict[RunTask, Callable[[], None] | None] = {}
        self._cancelled_here: dict[RunTask, None] = {}
        self._error: BaseException | None = None
        self._ended = Wakeup()

    @property
    def error(self) -> BaseException | None:
        """The first failure of a task; the ones after it are logged."""
        return self._error

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str, ended: Callable[[], None] | None = None) -> RunTask:
        """Start a task; `ended` is called when it has ended, however, before anybody who waits for that runs.

        Never inside a slot: a task would inherit the section of its starter.
        """
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = ended
        task.add_done_callback(self._done)
        return task

    def cancel(self, task: RunTask) -> None:
        """Cancel a task on purpose: its end is then no failure."""
        if not task.done():
            self._cancelled_here[task] = None
            task.cancel()

    def told_to_end(self) -> bool:
        """Whether the running task was cancelled here.

        For whoever calls a function of the user: it may have swallowed the cancellation, or turned it into an error.
        """
        return asyncio.current_task() in self._cancelled_here

    async def wait_ended(self, *tasks: RunTask) -> None:
        """Wait until these tasks have ended, however; raises nothing of theirs."""
        for task in tasks:
            while task in self._tasks:
                await self._ended.wait()

    async def wait_done_or_failed(self, task: RunTask) -> None:
        """Wait until `task` has ended or any task has failed."""
        while task in self._tasks and self._error is None:
            await self._ended.wait()

    def _done(self, task: RunTask) -> None:
        ended = self._tasks.pop(task)
        if ended is not None:
            ended()
        expected = self._cancelled_here.pop(task, self) is None
        if task.cancelled():
            if not expected:
                self._failed(asyncio.CancelledError(f"task {task.get_name()!r} was cancelled from outside"), task)
        elif (error := task.exception()) is not None:
            self._failed(error, task)
        self._ended.wake()

    def _failed(self, error: BaseException, task: RunTask) -> None:
        if self._error is None:
            self._error = error
        else:
            logger.error("Task %s failed while the run was ending: %r", task.get_name(), error)
