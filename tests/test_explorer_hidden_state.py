"""State outside of frames: contexts, queues, attributes of tasks, history; and what a declared state leaves out."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from explorer_outcomes import Cell, outcomes

from interleavings import Subject, explore


def test_history_that_the_last_assertion_reads_is_state() -> None:
    """A log that nobody reads until the end decides how the run ends."""

    def build() -> Subject:
        log: list[str] = []

        async def write(name: str) -> None:
            await asyncio.sleep(0)
            log.append(name)

        return Subject(
            [write("a"), write("b"), write("c")],
            finish=lambda: "in reverse order" if log == ["c", "b", "a"] else None,
        )

    result = explore(build)
    assert result.verdict == "fails"
    assert result.failure is not None
    assert result.failure.message == "in reverse order"


def test_context_variables_are_state() -> None:
    """A value that lives in a task's context alone decides later what the task does."""
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    async def main() -> int:
        cell = Cell()

        async def remember() -> int:
            variable.set(cell.value)
            await asyncio.sleep(0)
            return variable.get()

        result, _ = await asyncio.gather(remember(), cell.pulse())
        return result

    assert outcomes(main) == {"returned 0", "returned 1"}


def test_order_of_waiters_is_state() -> None:
    """Who waits first in a lock's queue is decided by the schedule and seen much later."""

    async def main() -> str:
        lock = asyncio.Lock()
        order: list[str] = []

        async def holder() -> None:
            async with lock:
                for _ in range(3):
                    await asyncio.sleep(0)

        async def waiter(name: str) -> None:
            async with lock:
                order.append(name)

        first = asyncio.create_task(holder())
        await asyncio.sleep(0)
        await asyncio.gather(first, waiter("a"), waiter("b"))
        return "".join(order)

    assert outcomes(main) == {"returned 'ab'", "returned 'ba'"}


def test_attribute_set_on_a_task_is_state() -> None:
    """asyncio's C tasks carry attributes in a dictionary they do not show."""

    async def main() -> int:
        cell = Cell()

        async def mark() -> int:
            task: Any = asyncio.current_task()
            task.mark = cell.value
            await asyncio.sleep(0)
            return int(task.mark)

        result, _ = await asyncio.gather(mark(), cell.pulse())
        return result

    assert outcomes(main) == {"returned 0", "returned 1"}


def test_declared_state_keeps_the_value_stack() -> None:
    """With `state=` user objects are opaque, but temporaries of a suspended expression are still compared."""

    def build() -> Subject:
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

        async def main() -> int:
            await asyncio.gather(add(), reset())
            return cell.value

        return Subject(main(), state=lambda: cell.value)

    assert outcomes(build) == {"returned 0", "returned 1", "returned 6"}


def test_what_a_declared_state_leaves_out_is_not_seen() -> None:
    """The price of declaring: a state that says too little merges too much. Stated, so that nobody is surprised."""

    def build(declared: bool) -> Callable[[], Subject]:
        def make() -> Subject:
            cell = Cell()

            async def add() -> None:
                cell.value += 1

            async def triple() -> None:
                cell.value *= 3

            async def main() -> int:
                await asyncio.gather(add(), triple())
                await asyncio.sleep(0)
                return cell.value

            return Subject(main(), state=(lambda: None) if declared else None)

        return make

    assert explore(build(declared=False)).outcomes == {"returned 1", "returned 3"}
    assert len(explore(build(declared=True)).outcomes) == 1
