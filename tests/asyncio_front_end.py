"""The asyncio front end as the suite over both needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any, TypeVar

from front_ends import Event, FrontEnd, Started
from jumping_clock import run_in_virtual_time

from impl import CheckpointBarrier

Value = TypeVar("Value")


class StartedTask(Started[Value]):
    def __init__(self, task: asyncio.Task[Value]) -> None:
        self.task = task

    def cancel(self, message: str | None = None) -> None:
        self.task.cancel(message)

    @property
    def done(self) -> bool:
        return self.task.done()

    @property
    def cancelled(self) -> bool:
        return self.task.cancelled()

    @property
    def error(self) -> BaseException | None:
        return self.task.exception() if self.task.done() and not self.task.cancelled() else None

    def result(self) -> Value:
        return self.task.result()

    async def wait_done(self) -> None:
        await asyncio.wait([self.task])


class AsyncioFrontEnd(FrontEnd):
    name = "asyncio"
    cancellation = asyncio.CancelledError
    one_instant = 1e-10
    way_in = "threadsafe"

    def barrier(self, name: str = "checkpoint", **options: Any) -> CheckpointBarrier:
        return CheckpointBarrier(name, **options)

    def run_alone(self, program: Callable[..., Awaitable[Value]], *arguments: Any) -> Value:
        async def main() -> Value:
            return await program(*arguments)

        return asyncio.run(main())

    def run_test(self, test: Callable[[], Coroutine[Any, Any, None]], virtual_time: bool, seed: int) -> None:
        (run_in_virtual_time if virtual_time else asyncio.run)(test())
        self.forget_started()

    def start(
        self, program: Callable[..., Coroutine[Any, Any, Value]], *arguments: Any, name: str | None = None
    ) -> StartedTask[Value]:
        started = StartedTask(asyncio.create_task(program(*arguments), name=name))
        self.started.append(started)
        return started

    async def gathered(self, *programs: Callable[[], Coroutine[Any, Any, Value]]) -> list[Value]:
        return list(await asyncio.gather(*(program() for program in programs)))

    async def turns(self, count: int = 10) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    def event(self) -> Event:
        return asyncio.Event()

    def running_task(self) -> object:
        return asyncio.current_task()

    async def in_callback(self, function: Callable[[], Value]) -> Value:
        answer: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: answer.set_result(function()))
        return await answer

    async def in_thread(self, function: Callable[[], Value]) -> Value:
        return await asyncio.to_thread(function)

    async def in_bare_thread(self, function: Callable[[], Value]) -> Value:
        with ThreadPoolExecutor(1) as pool:
            return await asyncio.get_running_loop().run_in_executor(pool, function)

    def from_thread(self) -> Callable[[Callable[[], Coroutine[Any, Any, Value]]], Value]:
        loop = asyncio.get_running_loop()
        return lambda program: asyncio.run_coroutine_threadsafe(program(), loop).result()

    def message_of(self, cancellation: BaseException) -> str | None:
        return cancellation.args[0] if cancellation.args else None

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_at(when, callback, context=Context())

    def timers(self) -> int:
        return len(asyncio.get_running_loop()._scheduled)  # type: ignore[attr-defined]
