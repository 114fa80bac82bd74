"""What counts as a failure, how it is reported, and what must not be reported."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from explorer_programs import barrier_subject, callback_order, lost_update_checked, safe_update_checked

from interleavings import ExplorerUsageError, Failure, Subject, Violation, explore, replay


def failure_of(program: Callable[[], Any], **options: Any) -> Failure:
    """Explore a program that is expected to fail and return its failure."""
    result = explore(program, **options)
    assert result.verdict == "fails", result.summary()
    assert result.failure is not None
    return result.failure


def test_lost_update_is_found_with_a_shortest_trace() -> None:
    """Both tasks read before one writes. Seven steps: main, two reads, two writes, and main's two wake-ups."""
    result = explore(lost_update_checked)
    assert result.verdict == "fails"
    assert result.failure is not None
    assert (result.failure.kind, result.failure.property) == ("exception", "AssertionError")
    assert "lost update: 1" in result.failure.message
    assert result.counterexample is not None
    enumerated = explore(lost_update_checked, prune=False)
    assert enumerated.counterexample is not None
    assert len(result.counterexample.steps) <= len(enumerated.counterexample.steps)
    names = [step.task for step in result.counterexample.steps if step.kind == "task-step"]
    assert names[:5] == ["main", "increment-1", "increment-2", "increment-1", "increment-2"]
    with pytest.raises(AssertionError, match="lost update"):
        result.assert_holds()


def test_repaired_update_holds() -> None:
    """The same program with a lock passes every schedule."""
    explore(safe_update_checked).assert_holds()


def test_callbacks_are_choices() -> None:
    """Stock asyncio lets the task run before the callback; running callbacks at once would miss that outcome."""
    stock = f"returned {asyncio.run(callback_order())!r}"
    everything = explore(callback_order)
    at_once = explore(callback_order, atomic_callbacks=True)
    assert stock in everything.outcomes
    assert stock not in at_once.outcomes
    assert everything.outcomes == {"returned 'seen'", "returned 'not yet'"}


def test_atomic_callbacks_are_never_called_complete() -> None:
    """The option leaves schedules out, so its verdict is bounded."""
    result = explore(callback_order, atomic_callbacks=True)
    assert (result.verdict, result.complete) == ("bounded", False)
    assert result.summary().startswith("holds (bounded: callbacks ran at once")


async def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "kind", "expected"),
    [
        (AssertionError("wrong"), "unseen-exception", "AssertionError"),
        (asyncio.CancelledError(), "unseen-exception", "CancelledError"),
        (KeyboardInterrupt(), "exception", "KeyboardInterrupt"),
        (StopIteration(), "unseen-exception", "RuntimeError"),
    ],
    ids=["assertion", "own-cancellation", "interrupt", "stop-iteration"],
)
def test_case_F15_exception_in_a_background_task_fails_the_schedule(
    error: BaseException, kind: str, expected: str
) -> None:
    """Nobody awaits the child and main returns normally: its error is the schedule's failure all the same."""

    async def main() -> None:
        async def child() -> None:
            await _raise(error)

        task = asyncio.create_task(child(), name="child")
        while not task.done():
            await asyncio.sleep(0)

    failure = failure_of(main)
    assert (failure.kind, failure.property) == (kind, expected)


def test_case_F15_awaited_and_ignored_exceptions_are_seen() -> None:
    """Whoever awaits the child has seen its error; the schedule is not failed a second time."""

    async def main() -> None:
        async def child() -> None:
            raise ValueError("expected")

        task = asyncio.create_task(child())
        await asyncio.gather(task, return_exceptions=True)

    explore(main).assert_holds()


def test_case_F15_a_strict_search_fails_for_what_was_awaited_and_ignored() -> None:
    """Set so, an error that somebody took and let go is the schedule's failure; its trace says so and replays."""

    async def main() -> None:
        async def child() -> None:
            raise ValueError("let go")

        await asyncio.gather(asyncio.create_task(child(), name="child"), return_exceptions=True)

    result = explore(main, strict=True)
    assert result.verdict == "fails"
    assert result.failure is not None
    assert (result.failure.kind, result.failure.property) == ("unseen-exception", "ValueError")
    assert "let go (in child, which was awaited and ignored; the search is strict)" in result.failure.message
    assert result.counterexample is not None
    assert replay(main, result.counterexample).outcome == "reproduced"
    explore(main, strict=False).assert_holds()


def test_cancelled_child_that_was_asked_to_is_no_failure() -> None:
    """Cancelling a task and not looking at it again is ordinary."""

    async def main() -> None:
        task = asyncio.create_task(asyncio.sleep(1))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    explore(main).assert_holds()


def test_leaked_task_is_a_failure() -> None:
    """asyncio.run would cancel it in silence, and its work would be lost."""

    async def main() -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(1), name="forgotten"))

    tasks: list[asyncio.Task[None]] = []
    failure = failure_of(main)
    assert failure.kind == "leaked-task"
    assert "forgotten is still pending" in failure.message


def test_error_in_a_callback_is_a_failure() -> None:
    """asyncio only logs it."""

    async def main() -> None:
        def broken() -> None:
            raise ValueError("in a callback")

        asyncio.get_running_loop().call_soon(broken)
        await asyncio.sleep(0)

    failure = failure_of(main)
    assert (failure.kind, failure.property) == ("unhandled-exception", "ValueError")


def test_exception_group_names_its_leaves() -> None:
    """A TaskGroup's error is a group; the message shows what is inside."""

    async def main() -> None:
        async def child() -> None:
            raise ValueError("inner cause")

        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    failure = failure_of(main)
    assert failure.property == "ValueError"
    assert "inner cause" in failure.message
    assert "in child" in failure.details["raised_at"]


def test_invariant_is_asked_in_every_state() -> None:
    """A state that is wrong for one step only is found."""

    def build() -> Subject:
        inside = 0

        async def enter() -> None:
            nonlocal inside
            inside += 1
            await asyncio.sleep(0)
            inside -= 1

        def at_most_one() -> str | None:
            return f"{inside} inside" if inside > 1 else None

        return Subject([enter(), enter()], invariant=at_most_one)

    result = explore(build)
    assert result.failure == Failure("invariant", "at_most_one", "2 inside", {})
    assert result.counterexample is not None
    assert len(result.counterexample.steps) == 2


@pytest.mark.parametrize("answer", [False, "a sentence", AssertionError("raised")], ids=["false", "text", "raise"])
def test_invariant_may_raise_or_say_it(answer: object) -> None:
    """False, a sentence and an exception all mean: violated."""

    def wrong() -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main() -> None:
        await asyncio.sleep(0)

    failure = failure_of(main, invariant=wrong)
    assert (failure.kind, failure.property) == ("invariant", "wrong")


def test_observer_follows_every_step_and_its_answer_is_state() -> None:
    """What `observe` returns tells states apart, and what it raises is the violation with its details."""

    def build() -> Subject:
        order: list[str] = []

        async def act(name: str) -> None:
            order.append(name)

        def observe() -> tuple[str, ...]:
            if order == ["b", "a"]:
                raise Violation("a_before_b", "b went first", {"order": list(order)})
            return tuple(order)

        return Subject([act("a"), act("b")], observe=observe, state=lambda: None)

    failure = failure_of(build)
    assert failure == Failure("violation", "a_before_b", "b went first", {"order": ["b", "a"]})


def test_observer_must_return_something_hashable() -> None:
    """A list could change after it was compared."""

    async def main() -> None:
        await asyncio.sleep(0)

    answer: Any = []
    with pytest.raises(ExplorerUsageError, match="observe\\(\\) returned list"):
        explore(lambda: Subject(main(), observe=lambda: answer))


def test_cancelled_main_after_an_injected_cancellation_is_no_failure() -> None:
    """Passing a cancellation on is what a program should do."""

    def build() -> Subject:
        async def work() -> None:
            await asyncio.sleep(0)

        return Subject([work(), work()])

    explore(build, cancels=1).assert_holds()


def test_stock_label_tells_what_fifo_order_can_show() -> None:
    """The lost update happens in stock order; the torn snapshot needs an order stock asyncio cannot produce."""
    lost = explore(lost_update_checked).counterexample
    torn = explore(barrier_subject(3, 3, seeded="waits once")).counterexample
    assert lost is not None
    assert torn is not None
    assert lost.stock == "yes"
    assert torn.stock == "no"


def test_stock_label_is_true_for_what_asyncio_run_shows() -> None:
    """The label's `yes` is checked against asyncio itself."""
    with pytest.raises(AssertionError, match="lost update"):
        asyncio.run(lost_update_checked())


def test_run_that_is_broken_off_does_not_warn_of_what_it_would_have_awaited() -> None:
    """Most runs of a search end early; a coroutine that waits for its turn in a variable is no fault of the program."""

    async def later() -> int:
        return 1

    async def beside() -> None:
        for _ in range(2):
            await asyncio.sleep(0)

    async def main() -> int:
        task = asyncio.create_task(beside())
        kept = later()
        await asyncio.sleep(0)
        result = await kept
        await task
        return result

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        assert explore(main).verdict == "holds"
    assert given == []
