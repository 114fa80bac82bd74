"""One suite over both front ends of the barrier: what its tests need of a library that runs tasks, and who has it.

A test of the suite is an async function whose first argument is a `FrontEnd`:

    @on_both_front_ends
    async def test_something(front: FrontEnd) -> None:
        barrier = front.barrier()
        task = front.start(some_function, barrier)
        await front.turns()

It runs once on asyncio, and on trio once for each seed of trio's scheduler, which shuffles the tasks of a turn. So what
a test says must hold in every order of one turn. `in_virtual_time` is the same on a clock that jumps to the next timer.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

import pytest

from impl.barrier import BarrierFrontEnd

Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")
Test = Callable[Concatenate["FrontEnd", Parameters], Coroutine[Any, Any, None]]


class Event(Protocol):
    """What both libraries call an event."""

    def set(self) -> object:
        """Wake all that wait."""
        ...

    async def wait(self) -> object:
        """Wait until it is set."""
        ...


class Started(ABC, Generic[Value]):
    """A task that the test has started. An error of one that the test does not look at fails the test."""

    looked_at = False

    @abstractmethod
    def cancel(self, message: str | None = None) -> None:
        """Cancel it: asyncio's `Task.cancel`, or the scope that trio's task runs in."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """It has ended, in whichever way."""

    @property
    @abstractmethod
    def cancelled(self) -> bool:
        """It has ended by its cancellation."""

    @property
    @abstractmethod
    def error(self) -> BaseException | None:
        """What it has raised, other than a cancellation."""

    @abstractmethod
    def result(self) -> Value:
        """What it has returned; once it is done, and neither failed nor cancelled."""

    @abstractmethod
    async def wait_done(self) -> None:
        """Wait for its end, whatever that is."""

    async def value(self) -> Value:
        """Wait for its end and return its value, or raise its error; a cancelled one fails the test."""
        await self.wait_done()
        self.looked_at = True
        if self.error is not None:
            raise self.error
        assert not self.cancelled, "the task was cancelled"
        return self.result()

    async def cancel_and_wait(self) -> None:
        """Cancel it and wait for its end."""
        self.cancel()
        await self.wait_done()
        self.looked_at = True

    async def raised(self) -> BaseException | None:
        """Wait for its end; the error it ended with, None for a return or a cancellation."""
        await self.wait_done()
        self.looked_at = True
        return self.error


class FrontEnd(ABC):
    """A front end of the barrier and the library below it, for the length of one test."""

    name: ClassVar[str]
    # What a cancelled wait raises.
    cancellation: ClassVar[type[BaseException]]
    # Two timers at most this far apart, in seconds of virtual time, come in one turn.
    one_instant: ClassVar[float]
    # Orders of the tasks within one turn to run a test in.
    seeds: ClassVar[tuple[int, ...]] = (0,)
    # How the messages of WrongLoop tell other threads to come in, and a closing from outside.
    way_in: ClassVar[str]

    def __init__(self) -> None:
        self.started: list[Started[Any]] = []

    # -- the barrier and its loops

    @abstractmethod
    def barrier(self, name: str = "checkpoint", **options: Any) -> BarrierFrontEnd:
        """A barrier of this front end."""

    @abstractmethod
    def run_alone(self, program: Callable[..., Awaitable[Value]], *arguments: Any) -> Value:
        """Run a program in a loop of its own, from its start to its end."""

    @abstractmethod
    def run_test(self, test: Callable[[], Coroutine[Any, Any, None]], virtual_time: bool, seed: int) -> None:
        """Run a test that uses this object, and stop what it leaves behind."""

    # -- tasks

    @abstractmethod
    def start(
        self, program: Callable[..., Coroutine[Any, Any, Value]], *arguments: Any, name: str | None = None
    ) -> Started[Value]:
        """Start a task in a copy of the caller's context; it runs in the next turn."""

    @abstractmethod
    async def gathered(self, *programs: Callable[[], Coroutine[Any, Any, Value]]) -> list[Value]:
        """Run programs side by side as children of the caller: `asyncio.gather`, or a nursery; their values."""

    @abstractmethod
    async def turns(self, count: int = 10) -> None:
        """Let everything that is ready run, `count` times over."""

    @abstractmethod
    def event(self) -> Event:
        """A new event of the library."""

    @abstractmethod
    def running_task(self) -> object:
        """The task of the caller, as the library has it."""

    @abstractmethod
    async def in_callback(self, function: Callable[[], Value]) -> Value:
        """Have the loop call a function in a copy of the caller's context, outside the caller's task."""

    @abstractmethod
    async def in_thread(self, function: Callable[[], Value]) -> Value:
        """Call a function in a worker thread, in a copy of the caller's context."""

    @abstractmethod
    async def in_bare_thread(self, function: Callable[[], Value]) -> Value:
        """Call a function in a worker thread that knows nothing of the caller's context."""

    @abstractmethod
    def from_thread(self) -> Callable[[Callable[[], Coroutine[Any, Any, Value]]], Value]:
        """For use in a thread: what runs an async function in the caller's loop, as the errors recommend."""

    @abstractmethod
    def message_of(self, cancellation: BaseException) -> str | None:
        """What `Started.cancel` was given, as the cancelled task sees it."""

    # -- time

    @abstractmethod
    def now(self) -> float:
        """The clock of the loop, in seconds."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Sleep."""

    @abstractmethod
    def call_at(self, when: float, callback: Callable[[], object]) -> None:
        """Have a function called at a time of the loop's clock, outside any section."""

    @abstractmethod
    def timers(self) -> int:
        """How many timers are set by somebody else than this object."""

    def forget_started(self) -> None:
        """Fail for an error that the test has not looked at."""
        unseen = [each.error for each in self.started if each.done and not each.looked_at and each.error is not None]
        assert not unseen, f"a task failed and the test did not look at it: {unseen}"


def both_front_ends() -> list[type[FrontEnd]]:
    from asyncio_front_end import AsyncioFrontEnd
    from trio_front_end import TrioFrontEnd

    return [AsyncioFrontEnd, TrioFrontEnd]


def run_test_over(
    kinds: Sequence[type[FrontEnd]], test: Test[Parameters], virtual_time: bool = False, orders: int | None = None
) -> Callable[..., None]:
    """Make a plain test of an async one, that runs it on each of these front ends; in all orders, or so many."""

    @pytest.mark.parametrize("front", kinds, ids=lambda kind: kind.name)
    @functools.wraps(test)
    def run(front: type[FrontEnd], *arguments: Parameters.args, **keywords: Parameters.kwargs) -> None:
        for seed in front.seeds[:orders]:
            here = front()
            here.run_test(lambda here=here: test(here, *arguments, **keywords), virtual_time, seed)  # type: ignore[misc]

    return run


def on_both_front_ends(test: Test[Parameters]) -> Callable[..., None]:
    """Run an async test on asyncio and on trio."""
    return run_test_over(both_front_ends(), test)


def in_virtual_time(test: Test[Parameters]) -> Callable[..., None]:
    """Run an async test on asyncio and on trio; their clocks jump to the next timer. No threads may be awaited."""
    return run_test_over(both_front_ends(), test, virtual_time=True)


def outside_any_loop(test: Callable[Concatenate[FrontEnd, Parameters], None]) -> Callable[..., None]:
    """Run a plain test once for each front end; it runs its loops by itself, with `run_alone`."""

    @pytest.mark.parametrize("front", both_front_ends(), ids=lambda kind: kind.name)
    @functools.wraps(test)
    def run(front: type[FrontEnd], *arguments: Parameters.args, **keywords: Parameters.kwargs) -> None:
        test(front(), *arguments, **keywords)

    return cast("Callable[..., None]", run)
