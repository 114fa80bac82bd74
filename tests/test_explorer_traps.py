"""Soundness traps: places where two states look alike and are not. Each merged two states in some prototype."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from explorer_outcomes import Cell, outcomes

from interleavings import Subject, explore


def test_value_stack_is_state() -> None:
    """`s.v = s.v + await f()` keeps the old value on the stack, where no local shows it."""

    async def main() -> int:
        cell = Cell()

        async def one() -> int:
            await asyncio.sleep(0)
            return 1

        async def add() -> None:
            cell.value = cell.value + await one()

        async def reset() -> None:
            cell.value = 5
            await asyncio.sleep(0)
            cell.value = 0

        await asyncio.gather(add(), reset())
        return cell.value

    assert outcomes(main) == {"returned 0", "returned 1", "returned 6"}


def test_frame_behind_asynccontextmanager_is_state() -> None:
    """An async generator that waits in its exit is hidden behind an awaitable of C."""

    async def main() -> list[int]:
        log: list[int] = []
        cell = Cell()

        @asynccontextmanager
        async def section() -> AsyncIterator[None]:
            seen = cell.value
            try:
                yield
            finally:
                await asyncio.sleep(0)
                log.append(seen)

        async def enter() -> None:
            async with section():
                pass

        async def change() -> None:
            cell.value = 1
            await asyncio.sleep(0)
            cell.value = 2
            await asyncio.sleep(0)
            cell.value = 0

        await asyncio.gather(enter(), change())
        return log

    assert outcomes(main) == {"returned [0]", "returned [1]", "returned [2]"}


def test_pending_cancellation_is_state() -> None:
    """A task that is ready anyway and one that is ready and was cancelled differ in a flag only."""

    async def main() -> str:
        async def worker() -> str:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return "done"

        async def killer(task: asyncio.Task[str], strike: bool) -> None:
            if strike:
                task.cancel()

        task = asyncio.create_task(worker())
        await asyncio.gather(killer(task, True), task, return_exceptions=True)
        return "cancelled" if task.cancelled() else task.result()

    assert outcomes(main) == {"returned 'cancelled'", "returned 'done'"}


def test_uncancelled_task_still_counts_its_requests() -> None:
    """`cancelling()` is read by timeouts and task groups, so it is state although nothing is pending any more."""

    async def main() -> int:
        async def stubborn() -> int:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            task = asyncio.current_task()
            assert task is not None
            await asyncio.sleep(0)
            return task.cancelling()

        async def strike(task: asyncio.Task[int]) -> None:
            task.cancel()

        task = asyncio.create_task(stubborn())
        await strike_later(strike(task))
        results = await asyncio.gather(task, return_exceptions=True)
        return results[0] if isinstance(results[0], int) else -1

    async def strike_later(strike: Coroutine[Any, Any, None]) -> None:
        await asyncio.create_task(strike)

    assert outcomes(main) == {"returned -1", "returned 0", "returned 1"}


def test_iterator_position_is_state() -> None:
    """`for _ in items: await ...` stands at the same instruction with the same locals in every round."""

    async def main() -> list[int]:
        log: list[int] = []

        async def walk() -> None:
            for _ in (0, 0, 0):
                await asyncio.sleep(0)
            log.append(0)

        async def other() -> None:
            await asyncio.sleep(0)
            log.append(1)

        await asyncio.gather(walk(), other())
        return log

    result = explore(main, keep_going=True)
    enumerated = explore(main, prune=False, keep_going=True)
    assert result.outcomes == enumerated.outcomes == {"returned [0, 1]", "returned [1, 0]"}
    assert result.schedules == enumerated.schedules


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter([1, 1, 1]),
        lambda: iter((1, 1, 1)),
        lambda: iter({1: 1, 2: 1, 3: 1}),
        lambda: enumerate([1, 1, 1]),
        lambda: zip([1, 1, 1], [2, 2, 2], strict=True),
        lambda: map(str, [1, 1, 1]),
        lambda: reversed([1, 1, 1]),
        lambda: iter("aaa"),
        lambda: (item for item in (1, 1, 1)),
    ],
    ids=["list", "tuple", "dict", "enumerate", "zip", "map", "reversed", "text", "generator"],
)
def test_every_kind_of_iterator_keeps_its_position(make: Callable[[], Iterator[object]]) -> None:
    """Two runs that have taken a different number of items are different, whatever they iterate over."""

    async def main() -> int:
        taken = Cell()
        iterator = make()

        async def take() -> None:
            next(iterator, None)
            await asyncio.sleep(0)

        async def count() -> None:
            await asyncio.sleep(0)
            taken.value = len(list(iterator))

        await asyncio.gather(take(), take(), count())
        return taken.value

    assert outcomes(main) == {"returned 1", "returned 2", "returned 3"}


def test_cancellation_budget_is_state() -> None:
    """The same program state with and without a cancellation left has different futures."""

    def build() -> Subject:
        async def first() -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # cancelled here it goes on as if nothing had happened, but the budget is spent

        async def second() -> None:
            await asyncio.sleep(0)

        return Subject([first(), second()])

    assert outcomes(build, cancels=1) == {
        "returned None; returned None",
        "cancelled; returned None",
        "returned None; cancelled",
    }


def test_unset_local_is_state() -> None:
    """Which of two locals is set cannot be read off the values a frame holds."""

    async def main() -> str:
        flag = Cell()

        async def choose() -> str:
            if flag.value:
                left = 7
            else:
                right = 7
            await asyncio.sleep(0)
            return "left" if "left" in locals() else f"right {right}" if "right" in locals() else str(left)

        result, _ = await asyncio.gather(choose(), flag.pulse())
        return result

    assert outcomes(main) == {"returned 'left'", "returned 'right 7'"}


def test_closure_of_the_coroutines_own_code_is_state() -> None:
    """A frame's own function is constant; another closure of the same code, held in a local, is not."""

    async def main() -> int:
        cell = Cell()

        def make(value: int) -> Callable[[Any], Coroutine[Any, Any, int]]:
            async def body(sibling: Any) -> int:
                await asyncio.sleep(0)
                return value if sibling is None else int(await sibling(None))

            return body

        async def pick() -> int:
            return await make(-1)(make(cell.value))

        result, _ = await asyncio.gather(pick(), cell.pulse())
        return result

    assert outcomes(main) == {"returned 0", "returned 1"}


def test_handled_exception_of_a_suspended_frame_is_state() -> None:
    """A coroutine that waits inside `except` raises the handled exception again later; no local holds it."""

    async def main() -> str:
        cell = Cell()

        async def handle() -> None:
            try:
                raise ValueError(cell.value)
            except ValueError:
                await asyncio.sleep(0)
                raise

        result, _ = await asyncio.gather(handle(), cell.pulse(), return_exceptions=True)
        return str(result)

    assert outcomes(main) == {"returned '0'", "returned '1'"}


def test_code_of_a_function_is_state() -> None:
    """Two functions without closures that have the same name: what they do tells them apart."""

    async def main() -> int:
        taken: list[int] = []

        async def work() -> int:
            number: Callable[[], int] = (lambda: 1) if not taken else (lambda: 2)
            taken.append(0)
            await asyncio.sleep(0)
            return number()

        first, _ = await asyncio.gather(work(), work())
        return first

    assert outcomes(main) == {"returned 1", "returned 2"}
