"""`generate` in threads: what works is in flight, whoever has given it up, and what never began has used no budget."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, each_once, new_controller, rows_of, settled_keys
from jumping_clock import run_in_virtual_time
from loop_turns import HANG_SECONDS, turns, until

from impl import Permit, RunStalled
from impl.controller import Controller, GenerationRequest, RunReport, UserFunction
from impl.run.samplers import WindowedSampler

#: The time limit of an attempt where one hangs and others do not: those take a thousandth of it.
LIMIT = 1.0


class Threads:
    """A synchronous `generate` whose calls wait until the test lets them go on; it counts who is in it."""

    def __init__(self, waiting: Callable[[GenerationRequest], bool]) -> None:
        self._waiting = waiting
        self._lock = threading.Lock()
        self.go_on = threading.Event()
        self.inside: list[int] = []
        self.called: list[int] = []
        self.most = 0

    def __call__(self, request: GenerationRequest) -> Any:
        with self._lock:
            self.called.append(request.group)
            self.inside.append(request.group)
            self.most = max(self.most, len(self.inside))
        if self._waiting(request):
            # A safety net: a test that fails must not keep its process from ending.
            self.go_on.wait(HANG_SECONDS)
        with self._lock:
            self.inside.remove(request.group)
        return rows_of(request)


def balanced(controller: Controller) -> bool:
    figures = controller.statistics()
    return figures["in_flight_free"] == figures["in_flight_capacity"]


@pytest.mark.parametrize("permits", [1, 2, 3])
async def test_case_G16_a_permit_is_back_when_the_work_is_over_and_not_before(permits: int) -> None:
    """Attempts time out while their threads work on: there are never more of them than `max_in_flight`."""
    threads = Threads(lambda request: request.group < permits and request.attempt == 0)
    controller = new_controller(
        None, Record(), prompts=8, batch_size=4, generate=threads, max_in_flight=permits, attempt_timeout=LIMIT
    )
    run = asyncio.create_task(controller.run())
    await until(lambda: len(controller._parts.failures) == permits)
    await turns(50)
    assert sorted(threads.inside) == list(range(permits))
    assert controller.generation.in_flight.free == 0
    assert threads.called == list(range(permits))
    threads.go_on.set()
    report = await run
    assert (report.trained, report.dropped) == (8, {})
    assert threads.most <= permits
    # The run does not wait for the threads of attempts that timed out: each gives its permit back when it ends.
    await until(lambda: balanced(controller))
    assert settled_keys(controller) == each_once(8)


async def test_case_G16_a_prompt_that_was_never_attempted_has_used_no_budget() -> None:
    """As it was reported: one permit, one thread that hangs; three prompts were dropped that were never called."""
    threads = Threads(lambda request: request.group == 0 and request.attempt == 0)
    controller = new_controller(
        None, Record(), prompts=4, batch_size=4, generate=threads, max_in_flight=1, attempt_timeout=LIMIT,
        transient_retries=1,
    )  # fmt: skip
    run = asyncio.create_task(controller.run())
    await until(lambda: len(controller._parts.failures) == 1)
    await asyncio.sleep(2 * LIMIT)  # who waits for a permit has no time limit
    assert [failure.group for failure in controller._parts.failures] == [0]
    threads.go_on.set()
    report = await run
    assert (report.trained, report.dropped) == (4, {})
    assert [failure.group for failure in report.failures] == [0]


async def test_case_G16_the_time_limit_begins_when_a_thread_has_taken_the_call() -> None:
    """A pool whose threads are busy: the wait for one is no part of the attempt."""
    ended = threading.Event()
    order: list[str] = []
    function = UserFunction(
        "generate", lambda argument: ended.wait(HANG_SECONDS) and argument, threads=1, see_out=False
    )

    def noting(name: str) -> Callable[[], None]:
        return lambda: order.append(name)

    first = asyncio.create_task(function("a", begun=noting("a begins"), over=noting("a over")))
    await until(lambda: order == ["a begins"])
    second = asyncio.create_task(function("b", begun=noting("b begins"), over=noting("b over")))
    third = asyncio.create_task(function("c", begun=noting("c begins"), over=noting("c over")))
    await turns(10)
    for task in (first, third):
        task.cancel()
    await until(lambda: "c over" in order)
    assert order == ["a begins", "c over"]
    ended.set()
    assert await second == "b"
    await until(lambda: "a over" in order)
    assert sorted(order) == ["a begins", "a over", "b begins", "b over", "c over"]
    function.close()


async def test_case_G16_what_a_function_returns_to_be_awaited_is_part_of_its_work() -> None:
    """A lambda around a coroutine function is over when the coroutine is, not when the lambda has returned."""
    order: list[str] = []
    go_on = asyncio.Event()

    async def work() -> str:
        await go_on.wait()
        return "done"

    function = UserFunction("generate", lambda _: work(), threads=1, see_out=False)
    call = asyncio.create_task(function(0, over=lambda: order.append("over")))
    await asyncio.sleep(0.05)
    assert order == []
    go_on.set()
    assert await call == "done"
    assert order == ["over"]
    function.close()


async def test_case_G16_a_group_given_up_for_its_age_keeps_its_permit_while_its_thread_works() -> None:
    """An abort ends the task, not the thread; the permit is balanced again when that has ended."""
    threads = Threads(lambda request: request.group == 0)
    controller = new_controller(
        None, Record(), prompts=12, batch_size=2, capacity=8, sampler=WindowedSampler(1), generate=threads,
        max_in_flight=3,
    )  # fmt: skip
    run = asyncio.create_task(controller.run())
    # Which others are too old as well depends on how fast the threads of this machine are.
    await until(lambda: 0 in threads.inside)
    await until(lambda: 0 not in controller.ledger.entries and 0 not in controller.generation.running)
    assert controller.generation.in_flight.capacity - controller.generation.in_flight.free >= 1
    assert "generate is at work on [0" in controller.generation.describe()
    report = await run
    assert report.dropped["stale_inflight"] >= 1
    assert 0 in threads.inside
    assert settled_keys(controller) == each_once(12)
    assert not balanced(controller)
    threads.go_on.set()
    await until(lambda: balanced(controller))


async def test_case_G16_the_end_of_a_run_says_which_threads_work_on(caplog: pytest.LogCaptureFixture) -> None:
    """It does not wait for them, since nothing could end that wait, and it is not silent about them."""
    threads = Threads(lambda request: request.group == 2)
    controller = new_controller(
        None, Record(), prompts=8, batch_size=2, generate=threads, max_steps=1, attempt_timeout=30.0
    )
    with caplog.at_level(logging.WARNING, "cleancut.controller"):
        report: RunReport = await controller.run()
    assert report.outcome == "steps_reached"
    assert any("still works in threads on group(s) [2" in entry.getMessage() for entry in caplog.records)
    threads.go_on.set()
    await until(lambda: balanced(controller))


async def test_case_G16_a_run_whose_threads_all_hang_is_a_stall_that_names_them() -> None:
    """The limit cannot free what works on, so somebody has to say why nothing moves."""
    threads = Threads(lambda request: True)
    controller = new_controller(
        None, Record(), prompts=4, batch_size=2, generate=threads, max_in_flight=2, attempt_timeout=0.05,
        stall_timeout=0.5,
    )  # fmt: skip
    with pytest.raises(RunStalled, match=r"in-flight permits: 0 of 2 free.*generate is at work on \[0, 1\]"):
        await controller.run()
    threads.go_on.set()
    await until(lambda: balanced(controller))


def test_case_G16_an_async_generate_that_ignores_its_cancellation_keeps_its_permit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It works on as a thread does; and at the end of the run the watchdog says what is waited for."""
    record = Record()
    swallowed: list[float] = []

    async def generate(request: GenerationRequest) -> Any:
        until_then = asyncio.get_running_loop().time() + 1_000.0
        while request.group == 3 and asyncio.get_running_loop().time() < until_then:
            try:
                await asyncio.sleep(until_then - asyncio.get_running_loop().time())
            except asyncio.CancelledError:
                swallowed.append(asyncio.get_running_loop().time())
                assert controller.generation.in_flight.free < controller.config.max_in_flight
        return await record.generate(request)

    controller = new_controller(
        None, record, prompts=8, batch_size=2, generate=generate, max_steps=1, attempt_timeout=50.0, stall_warning=100.0
    )
    with caplog.at_level(logging.WARNING, "cleancut.controller"):
        report = run_in_virtual_time(controller.run())
    assert report.steps == 1
    assert swallowed
    assert any("nothing has moved" in entry.getMessage() for entry in caplog.records)
    assert balanced(controller)


@pytest.mark.parametrize("answer", [ValueError("torn down"), RuntimeError("engine closed")])
def test_case_G16_an_attempt_whose_time_is_over_has_failed_for_time_whatever_it_answers(answer: Exception) -> None:
    """An engine that turns its cancellation into an error of its own is no fault of the data."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 1 and request.attempt < 3:
            try:
                await asyncio.sleep(1_000.0)
            except asyncio.CancelledError:
                raise answer from None
        return await record.generate(request)

    controller = new_controller(
        None, record, prompts=4, generate=generate, attempt_timeout=50.0, data_retries=0, transient_retries=3
    )
    report = run_in_virtual_time(controller.run())
    assert report.trained == 4
    assert [(failure.group, failure.cause) for failure in report.failures] == [(1, "transient")] * 3
    assert all("attempt_timeout, 50 s" in failure.error for failure in report.failures)


async def test_case_G16_a_cancelled_run_leaves_what_was_never_attempted_without_a_failure(tmp_path: Path) -> None:
    """And what its threads return late is in nothing: the next run generates these groups again, with a full budget."""
    threads = Threads(lambda request: True)
    controller = new_controller(
        tmp_path, Record(), prompts=4, batch_size=4, generate=threads, max_in_flight=2, attempt_timeout=60.0
    )
    run = asyncio.create_task(controller.run())
    await until(lambda: len(threads.inside) == 2)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert controller._parts.failures == []
    threads.go_on.set()
    await until(lambda: balanced(controller))
    assert sorted(threads.called) == [0, 1]


async def test_a_permit_that_comes_back_with_the_attempt_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: then more threads work than there are permits, or prompts time out that nobody has called."""
    from impl.controller import Generation

    def at_once(generation: Generation, permit: Permit, group: int) -> Callable[[], None]:
        return lambda: None

    monkeypatch.setattr(Generation, "_lend", at_once)
    threads = Threads(lambda request: request.group == 0 and request.attempt == 0)
    controller = new_controller(
        None, Record(), prompts=4, batch_size=4, generate=threads, max_in_flight=1, attempt_timeout=LIMIT
    )
    run = asyncio.create_task(controller.run())
    await until(lambda: len(controller._parts.failures) == 1)
    assert threads.inside == [0]
    assert controller.generation.in_flight.free == 1 or controller.generation.in_flight.unspent == 1
    await until(lambda: controller.generation.in_flight.unspent == 1)  # it was given to somebody while the thread works
    threads.go_on.set()
    await run
