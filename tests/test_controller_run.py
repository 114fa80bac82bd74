"""Whole runs: everything is trained once, in the order the sampler promises, and the end of the data is an end."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from controller_runs import GENERATIONS, Record, each_once, new_controller, rows_of, settled_keys
from jumping_clock import run_in_virtual_time
from loop_turns import HANG_SECONDS

from impl import Key, UsageError
from impl.controller import GenerationRequest, TrainBatch
from impl.run.samplers import InOrderSampler, ReadyFirstSampler, WeightFifoSampler, WindowedSampler


@pytest.mark.parametrize("sampler", [InOrderSampler(0), InOrderSampler(2), WindowedSampler(1)])
@pytest.mark.parametrize(("prompts", "batch_size", "epochs"), [(8, 2, 1), (7, 3, 2), (1, 4, 1)])
def test_every_prompt_is_trained_exactly_once(sampler: Any, prompts: int, batch_size: int, epochs: int) -> None:
    """Without faults nothing is dropped, and the accounts say what was trained."""
    record = Record()
    fresh = type(sampler)(*sampler.parameters().values())
    controller = new_controller(None, record, prompts=prompts, batch_size=batch_size, epochs=epochs, sampler=fresh)
    report = run_in_virtual_time(controller.run())
    assert record.trained_keys == settled_keys(controller) == each_once(prompts, epochs)
    assert report.outcome == "exhausted"
    assert (report.trained, report.dropped, report.saves) == (prompts * epochs, {}, 0)
    assert controller.buffer.permits == controller.buffer.capacity


def test_in_order_trains_batches_in_the_order_they_were_read() -> None:
    """Each step takes exactly the groups of its batch, whichever were ready first."""
    record = Record()

    async def slow_first(request: GenerationRequest) -> Any:
        await asyncio.sleep(10 - request.key.index)
        return rows_of(request)

    controller = new_controller(None, record, prompts=8, batch_size=2, generate=slow_first)
    report = run_in_virtual_time(controller.run())
    handed_out = [fields["keys"] for fields in record.named("reserve_batch")]
    assert [step for step, _ in record.trained] == [0, 1, 2, 3]
    assert [set(keys) for _, keys in record.trained] == [set(keys) for keys in handed_out]
    assert report.steps == 4


def test_generation_runs_ahead_by_the_lookahead_and_no_further() -> None:
    """With lookahead 1 the next step is generated while one trains, and the one after that is not."""
    ahead: list[int] = []
    record = Record()

    async def train(batch: TrainBatch) -> None:
        await asyncio.sleep(100)
        ahead.append(max(fields["step"] for fields in record.named("commit_admission")) - batch.step)

    run_in_virtual_time(new_controller(None, record, prompts=8, train=train).run())
    assert ahead == [1, 1, 1, 0]


def test_no_more_generations_run_at_once_than_allowed() -> None:
    """The in-flight permit is held from dispatch until the generation ends."""
    running = highest = 0

    async def generate(request: GenerationRequest) -> Any:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await asyncio.sleep(1)
        running -= 1
        return rows_of(request)

    controller = new_controller(None, Record(), prompts=12, batch_size=4, generate=generate, max_in_flight=3)
    run_in_virtual_time(controller.run())
    assert highest == 3
    assert controller.generation.in_flight.free == 3


@pytest.mark.parametrize("remainder", ["train", "drop"])
@pytest.mark.parametrize(
    "sampler",
    [InOrderSampler(0), InOrderSampler(1), WeightFifoSampler(0), WeightFifoSampler(1), ReadyFirstSampler(1),
     WindowedSampler(1)],
)  # fmt: skip
def test_case_A35_a_run_that_wants_more_steps_than_there_is_data_ends(sampler: Any, remainder: str) -> None:
    """5 prompts, 4 a step, 3 steps wanted: the last is trained short or dropped, as configured; nobody waits."""
    record = Record()
    fresh = type(sampler)(*sampler.parameters().values())
    controller = new_controller(None, record, prompts=5, batch_size=4, sampler=fresh, max_steps=3, remainder=remainder)
    report = run_in_virtual_time(controller.run())
    assert report.outcome == "exhausted"
    if remainder == "train":
        assert ([len(keys) for _, keys in record.trained], report.dropped) == ([4, 1], {})
    else:
        assert ([len(keys) for _, keys in record.trained], report.dropped) == ([4], {"remainder": 1})
    assert settled_keys(controller) == each_once(5)


def test_a_run_ends_at_the_wanted_step_with_the_rest_pending() -> None:
    """What was generated ahead stays owned, so that a later run can go on."""
    record = Record()
    controller = new_controller(None, record, prompts=8, max_steps=2)
    report = run_in_virtual_time(controller.run())
    assert (report.outcome, report.steps, report.trained) == ("steps_reached", 2, 4)
    handed_out = {key for fields in record.named("reserve_batch") for key in fields["keys"]}
    owned = {entry.key for entry in controller.ledger.entries.values()}
    owned |= {slot.key for slot in controller.buffer.slots.values()}
    assert handed_out == owned | set(settled_keys(controller))


def test_case_A29_equal_texts_are_separate_groups() -> None:
    """Three equal rows in two epochs, one attempt repeated: six groups, each with its own generations."""
    record = Record()
    failed: list[int] = []

    async def generate(request: GenerationRequest) -> Any:
        if not failed:
            failed.append(request.group)
            raise ConnectionError("the first attempt is lost")
        return await record.generate(request)

    controller = new_controller(None, record, prompts=["same"] * 3, batch_size=3, epochs=2, generate=generate)
    report = run_in_virtual_time(controller.run())
    assert report.trained == 6
    assert record.trained_keys == each_once(3, epochs=2)
    assert len({request.group for request in record.requests}) == 6
    assert [fields["group"] for fields in record.named("commit_group")].count(failed[0]) == 1


def test_actions_come_in_the_order_of_the_protocol() -> None:
    """One batch, one group: the whole way of a prompt, with the names the state machines use."""
    record = Record()
    run_in_virtual_time(new_controller(None, record, prompts=1, batch_size=1).run())
    actions = [action for action, _ in record.events if not action.endswith("_slot")]
    assert actions == [
        "reserve_batch", "end_epoch", "pass_gate", "commit_admission", "dispatch", "commit_group",
        "remove_committed", "claim", "finish_step",
    ]  # fmt: skip
    assert record.named("claim") == [{"groups": (0,), "step": 0}]
    assert record.named("commit_admission") == [{"admission": 0, "groups": (0,), "step": 0}]


def test_synchronous_callables_run_in_a_thread() -> None:
    """A blocking train step must not stop the generations."""
    threads: set[int] = set()

    def generate(request: GenerationRequest) -> Any:
        threads.add(threading.get_ident())
        return rows_of(request)

    def train(batch: TrainBatch) -> None:
        threads.add(threading.get_ident())
        assert all(len(group.rows["tokens"]) == GENERATIONS for group in batch)

    controller = new_controller(None, Record(), prompts=4, generate=generate, train=train)
    report = asyncio.run(controller.run())
    assert report.trained == 4
    assert threading.get_ident() not in threads


def test_blocked_generations_do_not_keep_a_train_step_waiting() -> None:
    """Each function has threads of its own: 20 generations that wait for the first step would fill a shared pool."""
    first_step_done = threading.Event()

    def generate(request: GenerationRequest) -> Any:
        if request.step == 1:
            assert first_step_done.wait(HANG_SECONDS)
        return rows_of(request)

    def train(batch: TrainBatch) -> None:
        first_step_done.set()

    controller = new_controller(None, Record(), prompts=40, batch_size=20, generate=generate, train=train)
    assert asyncio.run(controller.run()).trained == 40


def test_a_stop_iteration_out_of_a_synchronous_callable_is_an_error_and_no_hang() -> None:
    """A future cannot carry it: without a translation the waiter would never be woken."""

    def train(batch: TrainBatch) -> None:
        next(iter(()))

    controller = new_controller(None, Record(), prompts=2, train=train)
    with pytest.raises(RuntimeError, match="train raised StopIteration"):
        asyncio.run(controller.run())


def test_a_lambda_around_a_coroutine_function_is_awaited() -> None:
    """What a synchronous callable returns may be awaitable."""
    record = Record()
    controller = new_controller(None, Record(), prompts=2, generate=lambda request: record.generate(request))
    assert asyncio.run(controller.run()).trained == 2


def test_derived_columns_reach_the_rest_of_the_train_step() -> None:
    """`write_back` opens its own section; the columns end with the step."""
    import torch

    seen: list[set[str]] = []

    async def train(batch: TrainBatch) -> None:
        for group in batch:
            await batch.write_back(group.group, {"advantage": torch.zeros(GENERATIONS)})
            seen.append(set(group.rows))

    run_in_virtual_time(new_controller(None, Record(), prompts=2, train=train).run())
    assert seen == [{"tokens", "advantage"}] * 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "generate returned None"),
        ([1, 2], "generate returned a list"),
        ({}, "generate returned an empty mapping"),
        ({"tokens": [1, 2]}, "generate returned a list without a first dimension in field 'tokens'"),
        ("three", r"generate returned 3 generations in field 'tokens', and ControllerConfig.generations is 2"),
    ],
)
def test_a_generate_that_returns_the_wrong_thing_is_named(rows: Any, message: str) -> None:
    """It is a fault of the program, not of the prompt: the run ends and says what was wrong."""
    import torch

    if rows == "three":
        rows = {"tokens": torch.zeros(3, 5)}

    async def generate(request: GenerationRequest) -> Any:
        return rows

    controller = new_controller(None, Record(), generate=generate)
    with pytest.raises(UsageError, match=message):
        run_in_virtual_time(controller.run())


@pytest.mark.parametrize("name", ["generate", "train"])
def test_a_callable_that_cannot_be_called_is_refused_at_once(name: str) -> None:
    """Named before anything runs."""
    with pytest.raises(UsageError, match=f"{name} is a str"):
        new_controller(None, Record(), **{name: "not a function"})  # type: ignore[arg-type]


def test_wrong_parts_are_refused_with_their_name(tmp_path: Path) -> None:
    """Sampler, capacity and checkpointer are checked when the controller is made."""
    with pytest.raises(UsageError, match="sampler is a object"):
        new_controller(None, Record(), sampler=object(), capacity=4)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"capacity: the replay buffer has 3 slots, and the in_order sampler needs 4"):
        new_controller(None, Record(), capacity=3)


def test_a_controller_runs_once() -> None:
    """Its parts are used up; a second run would start in the middle."""
    controller = new_controller(None, Record(), prompts=2)

    async def twice() -> None:
        await controller.run()
        with pytest.raises(UsageError, match="second time"):
            await controller.run()

    run_in_virtual_time(twice())


def test_keys_of_a_request_name_the_prompt() -> None:
    """`generate` is told everything that the group is known by."""
    record = Record()
    run_in_virtual_time(new_controller(None, record, prompts=["a", "b", "c"], batch_size=3).run())
    assert {request.key: request.prompt for request in record.requests} == {
        Key(0, 0): "a", Key(0, 1): "b", Key(0, 2): "c",
    }  # fmt: skip
    assert {(request.step, request.version, request.attempt, request.generations) for request in record.requests} == {
        (0, 0, 0, GENERATIONS)
    }
