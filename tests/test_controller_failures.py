"""Failing generations: permits come back, budgets end, the step goes on, and somebody is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, each_once, new_controller, rows_of, settled_keys
from jumping_clock import run_in_virtual_time

from impl import UsageError
from impl.controller import Controller, ControllerConfig, GenerationRequest
from impl.run.samplers import InOrderSampler, ReadyFirstSampler, WeightFifoSampler, WindowedSampler

SAMPLERS: list[Callable[[], Any]] = [
    lambda: InOrderSampler(0),
    lambda: InOrderSampler(1),
    # Not 0: a step that waits for what failed would leave its ready groups too old, and they would be evicted.
    lambda: WeightFifoSampler(1),
    lambda: ReadyFirstSampler(0),
    lambda: ReadyFirstSampler(1),
    lambda: WindowedSampler(2),
]


def assert_nothing_is_held(controller: Controller) -> None:
    """All permits back, nobody pending, every group settled."""
    statistics = controller.buffer.statistics()
    assert statistics["free"] == statistics["capacity"]
    assert controller.generation.in_flight.free == controller.config.max_in_flight
    assert dict(controller.ledger.entries) == {}
    assert controller.generation.running == ()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_case_A30_failures_beyond_the_budget_leak_no_permit_and_stall_nobody(sampler: Callable[[], Any]) -> None:
    """Capacity 4; the first five prompts fail for good: they are dropped as failed, the rest is trained."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.group < 5:
            raise ValueError(f"group {request.group} cannot be generated")
        return await record.generate(request)

    controller = new_controller(
        None, record, prompts=12, batch_size=2, sampler=sampler(), capacity=4, generate=generate, max_in_flight=3
    )
    report = run_in_virtual_time(controller.run())
    assert (report.trained, report.dropped) == (7, {"failed": 5})
    assert settled_keys(controller) == each_once(12)
    assert_nothing_is_held(controller)
    final = [failure for failure in report.failures if failure.final]
    assert sorted(failure.group for failure in final) == [0, 1, 2, 3, 4]
    assert all("cannot be generated" in failure.error for failure in final)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_case_A30_a_generation_that_hangs_is_given_up_by_its_time_limit(sampler: Callable[[], Any]) -> None:
    """Without the limit it would keep its permits for ever."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 1:
            await asyncio.get_running_loop().create_future()
        return await record.generate(request)

    controller = new_controller(
        None, record, prompts=4, sampler=sampler(), generate=generate, attempt_timeout=5.0, transient_retries=2
    )
    report = run_in_virtual_time(controller.run())
    assert (report.trained, report.dropped) == (3, {"failed": 1})
    assert [(failure.cause, failure.final) for failure in report.failures] == [
        ("transient", False), ("transient", False), ("transient", True),
    ]  # fmt: skip
    assert_nothing_is_held(controller)


def test_case_A30_a_generate_that_raises_a_cancellation_of_its_own_has_failed() -> None:
    """Nobody cancelled the task, so it is an error like another; the group must not vanish with it."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 0 and request.attempt == 0:
            raise asyncio.CancelledError
        return await record.generate(request)

    controller = new_controller(None, record, prompts=4, generate=generate)
    report = run_in_virtual_time(controller.run())
    assert report.trained == 4
    assert [failure.group for failure in report.failures] == [0]
    assert_nothing_is_held(controller)


@pytest.mark.parametrize("fault", ["raises", "hangs"])
@pytest.mark.parametrize("recovers", [True, False])
def test_case_A31_a_group_with_a_failing_sibling_ends_in_exactly_one_way(fault: str, recovers: bool) -> None:
    """Sibling 3 of 4 raises or hangs: the group is completed by a retry, or dropped and reported; its slot is free."""
    record = Record()

    async def sibling(request: GenerationRequest, number: int) -> int:
        if request.group == 0 and number == 3 and not (recovers and request.attempt):
            if fault == "raises":
                raise ConnectionError("sibling 3 is gone")
            await asyncio.get_running_loop().create_future()
        return number

    async def generate(request: GenerationRequest) -> Any:
        await asyncio.gather(*(sibling(request, number) for number in range(4)))
        return await record.generate(request)

    controller = new_controller(None, record, prompts=4, generate=generate, attempt_timeout=60.0, transient_retries=1)
    report = run_in_virtual_time(controller.run())
    assert (report.trained, report.dropped) == ((4, {}) if recovers else (3, {"failed": 1}))
    assert settled_keys(controller) == each_once(4)
    assert_nothing_is_held(controller)


def test_transient_and_data_failures_have_budgets_of_their_own() -> None:
    """A flaky network must not use up the single retry of a prompt that is suspected itself."""
    record = Record()
    errors: dict[int, list[type[Exception]]] = {0: [OSError, OSError, ValueError, OSError], 1: [ValueError, ValueError]}

    async def generate(request: GenerationRequest) -> Any:
        if errors.get(request.group):
            raise errors[request.group].pop(0)("again")
        return await record.generate(request)

    controller = new_controller(None, record, prompts=2, generate=generate, transient_retries=3, data_retries=1)
    report = run_in_virtual_time(controller.run())
    assert (report.trained, report.dropped) == (1, {"failed": 1})
    assert [(f.group, f.cause, f.final) for f in report.failures if f.group == 0] == [
        (0, "transient", False), (0, "transient", False), (0, "data", False), (0, "transient", False),
    ]  # fmt: skip
    assert [(f.cause, f.final) for f in report.failures if f.group == 1] == [("data", False), ("data", True)]
    assert [fields["attempt"] for fields in record.named("fail_attempt") if fields["group"] == 0] == [0, 1, 2, 3]
    assert len(record.named("retry")) == 5


def test_a_backoff_holds_no_in_flight_permit() -> None:
    """One permit in all: while a group waits for its retry the others are generated."""
    order: list[int] = []

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 0 and request.attempt == 0:
            raise OSError("busy")
        order.append(request.group)
        return rows_of(request)

    controller = new_controller(
        None, Record(), prompts=4, batch_size=4, generate=generate, max_in_flight=1, backoff=100.0, backoff_limit=1e4
    )
    assert run_in_virtual_time(controller.run()).trained == 4
    assert order == [1, 2, 3, 0]


def test_the_backoff_doubles_up_to_its_limit() -> None:
    """The delays are a rule, not an accident of the loop."""
    config = ControllerConfig(backoff=1.5, backoff_limit=10.0)
    assert [config.delay_before(failures) for failures in (1, 2, 3, 4, 5, 4000)] == [1.5, 3.0, 6.0, 10.0, 10.0, 10.0]


def test_a_step_whose_groups_all_failed_passes_empty() -> None:
    """Otherwise the steps behind it would never be reached."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.step == 1:
            raise ValueError("nothing of this step works")
        return await record.generate(request)

    controller = new_controller(None, record, prompts=6, generate=generate, data_retries=0)
    report = run_in_virtual_time(controller.run())
    assert [step for step, _ in record.trained] == [0, 2]
    assert (report.steps, report.trained, report.dropped) == (3, 4, {"failed": 2})
    assert record.named("empty_step") == [{"step": 1}]
    assert_nothing_is_held(controller)


def test_a_run_in_which_everything_fails_ends() -> None:
    """Every step is empty; the run still reaches the end of the data."""

    async def generate(request: GenerationRequest) -> Any:
        raise ValueError("no")

    for sampler in SAMPLERS:
        controller = new_controller(None, Record(), prompts=5, sampler=sampler(), generate=generate)
        report = run_in_virtual_time(controller.run())
        assert (report.outcome, report.trained, report.dropped) == ("exhausted", 0, {"failed": 5})
        assert_nothing_is_held(controller)


def test_shrink_moves_slot_entry_and_target_in_one_section() -> None:
    """The events of a group that is given up: all in one slot, target one smaller."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 0:
            raise ValueError("no")
        return await record.generate(request)

    controller = new_controller(None, record, prompts=2, generate=generate, data_retries=0)
    run_in_virtual_time(controller.run())
    actions = [action for action, _ in record.events]
    at = actions.index("drop")
    assert actions[at - 1 : at + 3] == ["fail_attempt", "drop", "shrink", "leave_slot"]
    assert record.named("drop") == [{"group": 0, "reason": "failed"}]
    assert record.named("shrink") == [{"group": 0, "step": 0}]


def test_windowed_aborts_generations_that_became_too_old() -> None:
    """Staleness 0: what still generates when the version moves is given up: task cancelled, prompt dropped."""
    record = Record()
    cancelled: list[int] = []

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 0:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append(request.group)
                raise
        return await record.generate(request)

    controller = new_controller(None, record, prompts=4, sampler=WindowedSampler(0), capacity=3, generate=generate)
    report = run_in_virtual_time(controller.run())
    assert cancelled == [0]
    assert report.dropped == {"stale_inflight": 1}
    assert settled_keys(controller) == each_once(4)
    assert controller.rollout_pump.describe().endswith("dispatched")
    assert_nothing_is_held(controller)


def test_windowed_evicts_ready_groups_that_became_too_old() -> None:
    """Three ready where a step takes two: with staleness 0 the third is too old after the step."""
    record = Record()
    controller = new_controller(None, record, prompts=3, batch_size=3, sampler=WindowedSampler(0), capacity=3)
    controller_two = new_controller(None, record, prompts=6, batch_size=2, sampler=WindowedSampler(0), capacity=3)
    assert run_in_virtual_time(controller.run()).dropped == {}
    report = run_in_virtual_time(controller_two.run())
    assert report.dropped["stale_ready"] >= 1
    assert report.trained + sum(report.dropped.values()) == 6
    assert settled_keys(controller_two) == each_once(6)
    assert_nothing_is_held(controller_two)


def test_a_budget_survives_a_restart(tmp_path: Path) -> None:
    """A prompt that fails for good must not get a fresh budget from every crash."""
    record = Record()

    async def generate(request: GenerationRequest) -> Any:
        if request.group == 3:
            raise ValueError("never")
        return await record.generate(request)

    first = new_controller(
        tmp_path, record, prompts=4, generate=generate, data_retries=2, backoff=1e6, backoff_limit=1e6, max_steps=1
    )
    report = asyncio.run(first.run())
    assert [failure.group for failure in report.failures] == [3]
    second = new_controller(tmp_path, record, prompts=4, generate=generate, data_retries=2)
    report = asyncio.run(second.run())
    assert [(failure.group, failure.final) for failure in report.failures] == [(3, False), (3, True)]
    assert report.dropped == {"failed": 1}


def test_a_classification_that_is_none_is_named() -> None:
    """`classify` is the user's; its mistakes are named like those of `generate`."""

    async def generate(request: GenerationRequest) -> Any:
        raise ValueError("no")

    controller = new_controller(None, Record(), prompts=2, generate=generate, classify=lambda error: "whatever")
    with pytest.raises(UsageError, match="classify: it returned 'whatever'"):
        run_in_virtual_time(controller.run())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("recovery", 1), ("resume", "yes"), ("load_buffer", None), ("generations", 0), ("capacity", -1),
        ("max_in_flight", 0), ("max_steps", 0), ("remainder", "keep"), ("save_period", 0), ("save_deadline", 0),
        ("transient_retries", -1), ("data_retries", True), ("backoff", -0.1), ("backoff_limit", float("inf")),
        ("attempt_timeout", 0), ("stall_warning", float("nan")), ("stall_timeout", "60"), ("classify", None),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(name: str, value: object) -> None:
    """Every field is checked when the configuration is made."""
    with pytest.raises(UsageError, match=f"ControllerConfig: {name} is "):
        ControllerConfig(**{name: value})  # type: ignore[arg-type]
