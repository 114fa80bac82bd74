"""The trio front end as the suite over both needs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from math import inf
from typing import Any, TypeVar

import trio
import trio.abc
import trio.testing
from front_ends import Event, FrontEnd, Started
from loop_turns import HANG_SECONDS

from impl.trio import CheckpointBarrier

Value = TypeVar("Value")

# A test that stands still for so long hangs: seconds, of the real clock and of the jumping one.
REAL_LIMIT, VIRTUAL_LIMIT = HANG_SECONDS, 1e7


class StartedInNursery(Started[Value]):
    """A child of the test's nursery, in a scope of its own."""

    def __init__(self, program: Callable[[], Awaitable[Value]]) -> None:
        self._program = program
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._values: list[Value] = []
        self._error: BaseException | None = None

    async def work(self) -> None:
        try:
            with self._scope:
                self._values.append(await self._program())
        except Exception as error:
            self._error = error
        finally:
            self._ended.set()

    def cancel(self, message: str | None = None) -> None:
        self._scope.cancel(message)

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    @property
    def cancelled(self) -> bool:
        return self.done and not self._values and self._error is None

    @property
    def error(self) -> BaseException | None:
        return self._error

    def result(self) -> Value:
        return self._values[0]

    async def wait_done(self) -> None:
        await self._ended.wait()


class TrioFrontEnd(FrontEnd):
    name = "trio"
    cancellation = trio.Cancelled
    one_instant = 0.0
    seeds = (0, 1, 2, 3)
    way_in = "from_thread"

    _nursery: trio.Nursery

    def barrier(self, name: str = "checkpoint", **options: Any) -> CheckpointBarrier:
        return CheckpointBarrier(name, **options)

    def run_alone(self, program: Callable[..., Awaitable[Value]], *arguments: Any) -> Value:
        async def main() -> Value:
            with trio.fail_after(REAL_LIMIT):
                async with trio.open_nursery() as self._nursery:
                    value = await program(*arguments)
                    self._nursery.cancel_scope.cancel()
            return value

        return _run(main, None)

    def run_test(self, test: Callable[[], Coroutine[Any, Any, None]], virtual_time: bool, seed: int) -> None:
        async def main() -> None:
            with trio.fail_after(VIRTUAL_LIMIT if virtual_time else REAL_LIMIT):
                async with trio.open_nursery() as self._nursery:
                    await test()
                    self._nursery.cancel_scope.cancel()

        # What trio's own Hypothesis plugin does: there is no public way to choose the order of a turn.
        trio._core._run._r.seed(seed)
        clock = trio.testing.MockClock(autojump_threshold=0) if virtual_time else None
        _run(main, clock)
        self.forget_started()

    def start(
        self, program: Callable[..., Coroutine[Any, Any, Value]], *arguments: Any, name: str | None = None
    ) -> StartedInNursery[Value]:
        started = StartedInNursery(lambda: program(*arguments))
        self._nursery.start_soon(started.work, name=name)
        self.started.append(started)
        return started

    async def gathered(self, *programs: Callable[[], Coroutine[Any, Any, Value]]) -> list[Value]:
        values: dict[int, Value] = {}

        async def work(number: int) -> None:
            values[number] = await programs[number]()

        async with trio.open_nursery() as nursery:
            for number in range(len(programs)):
                nursery.start_soon(work, number)
        return [values[number] for number in range(len(programs))]

    async def turns(self, count: int = 10) -> None:
        for _ in range(count):
            await trio.lowlevel.checkpoint()

    def event(self) -> Event:
        return trio.Event()

    def running_task(self) -> object:
        return trio.lowlevel.current_task()

    async def in_callback(self, function: Callable[[], Value]) -> Value:
        # Of trio's callbacks, the one that inherits the context.
        return await trio.to_thread.run_sync(trio.from_thread.run_sync, function)

    async def in_thread(self, function: Callable[[], Value]) -> Value:
        return await trio.to_thread.run_sync(function)

    async def in_bare_thread(self, function: Callable[[], Value]) -> Value:
        return await trio.to_thread.run_sync(Context().run, function)

    def from_thread(self) -> Callable[[Callable[[], Coroutine[Any, Any, Value]]], Value]:
        token = trio.lowlevel.current_trio_token()
        return lambda program: trio.from_thread.run(program, trio_token=token)

    def message_of(self, cancellation: BaseException) -> str | None:
        assert isinstance(cancellation, trio.Cancelled)
        return cancellation.reason

    def now(self) -> float:
        return trio.current_time()

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> None:
        async def wait() -> None:
            await trio.sleep_until(when)
            callback()

        Context().run(self._nursery.start_soon, wait)

    def timers(self) -> int:
        root = trio.lowlevel.current_root_task()
        assert root is not None
        assert trio.current_effective_deadline() < inf
        tasks = [task for nursery in root.child_nurseries for task in nursery.child_tasks]
        return sum(task.name.startswith("timer of ") for task in tasks)


def _run(main: Callable[[], Awaitable[Value]], clock: trio.abc.Clock | None) -> Value:
    """`trio.run`, with an error of one task not wrapped in the groups of its nurseries."""
    try:
        return trio.run(main, clock=clock)
    except BaseExceptionGroup as group:
        only: BaseException = group
        while isinstance(only, BaseExceptionGroup) and len(only.exceptions) == 1:
            only = only.exceptions[0]
        raise only from None
