"""The one way to wait for what must not be left alone: a training thread, a job of the writer, the end of a run."""

import asyncio
import gc
from typing import Any

import pytest
from controller_runs import Record, each_once, new_controller, settled_keys
from loop_turns import turns

from impl.controller import UserFunction
from impl.waiting import wait_shielded

Outcomes = list[asyncio.CancelledError | None]


async def waiting_for(future: asyncio.Future[Any], outcomes: Outcomes) -> None:
    outcomes.append(await wait_shielded(future))


@pytest.mark.parametrize("end", ["result", "error", "cancelled"])
@pytest.mark.parametrize("cancellations", [0, 1, 3])
async def test_the_wait_ends_with_the_future_and_tells_the_last_cancellation(end: str, cancellations: int) -> None:
    """None of them reaches the future, and the end of the future is never taken for one of them."""
    future = asyncio.get_running_loop().create_future()
    outcomes: Outcomes = []
    task = asyncio.create_task(waiting_for(future, outcomes))
    await turns(2)
    for number in range(cancellations):
        task.cancel(number)
        await turns(2)
        assert not future.done()
        assert not task.done()
    if end == "result":
        future.set_result(None)
    elif end == "error":
        future.set_exception(ArithmeticError())
        future.exception()
    else:
        future.cancel()
    await task
    told = [outcome.args for outcome in outcomes if outcome is not None]
    assert told == ([(cancellations - 1,)] if cancellations else [])
    assert task.cancelling() == cancellations


async def test_a_cancellation_in_the_turn_of_the_end_is_not_lost() -> None:
    """The wait is over by then, and whoever cancelled still has to be heard."""
    future = asyncio.get_running_loop().create_future()
    outcomes: Outcomes = []
    task = asyncio.create_task(waiting_for(future, outcomes))
    await turns(2)
    future.set_result(None)
    task.cancel()
    await task
    assert isinstance(outcomes[0], asyncio.CancelledError)


async def test_a_training_thread_that_fails_after_its_run_was_cancelled_is_not_called_unseen() -> None:
    """The cancellation passes, and the error of the function goes with it."""
    unseen: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    entered, go_on = asyncio.Event(), asyncio.Event()

    def fail(argument: object) -> None:
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)
        raise ArithmeticError

    train = UserFunction("train", fail, threads=1, see_out=True)
    task = asyncio.create_task(train(None))
    await entered.wait()
    task.cancel("enough")
    await turns(5)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await task
    train.close()
    del task
    gc.collect()
    assert unseen == []


@pytest.mark.parametrize("phase", ["end-run", "close-run"])
async def test_a_phase_that_is_cancelled_by_itself_is_no_cancellation_of_the_run(phase: str) -> None:
    """It is begun again; nobody cancelled whoever awaits the run, so that gets its report and no CancelledError."""
    controller = new_controller(None, Record(), prompts=4)
    run = asyncio.create_task(controller.run())
    cancelled = 0
    while not run.done():
        for task in asyncio.all_tasks():
            if task.get_name() == phase and cancelled < 3:
                cancelled += task.cancel()
        await turns(1)
    assert cancelled == 3
    report = await run
    assert report.trained == 4
    assert settled_keys(controller) == each_once(4)
