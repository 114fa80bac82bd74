"""Calls the user's functions, and says by name what is wrong with what they return.

A coroutine function is awaited. Anything else runs in a thread, with the caller's context; if what it returns is
awaitable (a lambda around a coroutine function) that is awaited here. No thread is made unless a synchronous function
was given.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from cleancut_leaf.words import counted

from ..errors import UsageError
from ..rows.plane import Rows
from ..waiting import wait_shielded


def _nothing() -> None:
    """For whoever does not want to be told."""


class UserFunction:
    """`generate` or `train`, called in one way whether it is a coroutine function or not.

    A synchronous function has threads of its own, so that blocked generations cannot keep a train step waiting; they
    are made at the first call. A thread cannot be interrupted. With `see_out` a cancelled call waits for the end of the
    function before it lets the cancellation pass, as what changes a model has to; without, the thread is left to itself
    and its late result is discarded. `over` says when that thread has ended.
    """

    def __init__(self, name: str, function: Callable[[Any], Any], *, threads: int, see_out: bool) -> None:
        if not callable(function):
            raise UsageError(
                f"{name} is a {type(function).__name__} and cannot be called. Give a function, async or not, of one "
                "argument."
            )
        self._name = name
        self._function = function
        self._threads = threads
        self._see_out = see_out
        self._executor: ThreadPoolExecutor | None = None

    async def __call__(
        self, argument: object, *, begun: Callable[[], None] = _nothing, over: Callable[[], None] = _nothing
    ) -> Any:
        """Call the function and return its result.

        `begun` is called on the loop when the function begins, and not at all when the call is cancelled while it waits
        for a thread. `over` is called on the loop once for every call: when both this and the thread have ended, which
        is long after a cancellation where the thread works on.
        """
        if not is_asynchronous(self._function):
            return await self._call_in_thread(argument, begun, over)
        try:
            begun()
            return await self._function(argument)
        finally:
            over()

    async def _call_in_thread(self, argument: object, begun: Callable[[], None], over: Callable[[], None]) -> Any:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix=f"cleancut-{self._name}")
        context, loop = contextvars.copy_context(), asyncio.get_running_loop()
        going_on = 2  # this call, and the thread

        def one_has_ended() -> None:
            nonlocal going_on
            going_on -= 1
            if not going_on:
                over()

        def on_loop(function: Callable[[], None]) -> None:
            # A loop that is closed has nobody who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(function)

        def in_thread() -> Any:
            on_loop(begun)
            try:
                return context.run(self._function, argument)
            except StopIteration as error:
                # A future cannot carry it: the waiter would never be woken.
                raise RuntimeError(f"{self._name} raised StopIteration") from error

        try:
            work = self._executor.submit(in_thread)
        except BaseException:
            over()
            raise
        # Also called for work that is cancelled before a thread takes it, which then never begins.
        work.add_done_callback(lambda _: on_loop(one_has_ended))
        try:
            running = asyncio.wrap_future(work)
            if self._see_out and (cancellation := await wait_shielded(running)) is not None:
                if not running.cancelled():
                    # Whatever it ended with, the caller is on its way out; asking keeps it from being called unseen.
                    running.exception()
                raise cancellation
            result = await running
            return await result if inspect.isawaitable(result) else result
        finally:
            one_has_ended()

    def close(self) -> None:
        """Start no further call; threads that are in one end with it."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def is_asynchronous(function: object) -> bool:
    """Whether calling `function` gives a coroutine: a coroutine function, a partial of one, or an object like that."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def check_rows(rows: object, generations: int | None) -> Rows:
    """Return what `generate` returned if it can be a group's rows, else raise UsageError saying what is wrong."""
    if not isinstance(rows, Mapping) or not rows:
        raise UsageError(
            f"generate returned {_described(rows)}. It must return one group's rows: a mapping of at least one field "
            "name to a tensor whose first dimension is the generations."
        )
    if generations is not None:
        for field, value in rows.items():
            shape = getattr(value, "shape", None)
            if not isinstance(shape, tuple):
                shape = ()
            if not shape or shape[0] != generations:
                found = counted(shape[0], "generation") if shape else f"{_described(value)} without a first dimension"
                raise UsageError(
                    f"generate returned {found} in field {field!r}, and ControllerConfig.generations is {generations}. "
                    "Each field holds all generations of the group in its first dimension; set generations=None for "
                    "rows of another shape."
                )
    return rows


def _described(value: object) -> str:
    if isinstance(value, Mapping):
        return "an empty mapping"
    return "None" if value is None else f"a {type(value).__name__}"
