"""What the choice of the sampler means for a whole run: who waits for whom, and what becomes of short batches."""

from __future__ import annotations

from collections import Counter

import pytest
from controller_runs import each_once, settled_keys
from memory_runs import SAMPLERS, MemoryRun, assert_nothing_is_held

from impl import PromptLoader
from impl.run.samplers import InOrderSampler, ReadyFirstSampler, WeightFifoSampler


def order(prompts: int, batch_size: int) -> list[int]:
    """The rows in the order in which the loader hands them out."""
    loader = MemoryRun(prompts=prompts, batch_size=batch_size).controller._parts.loader
    assert isinstance(loader, PromptLoader)
    return [loader._order[place] for place in range(prompts)]


@pytest.mark.parametrize("reach", [0, 1, 2])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_case_A35_short_batches_in_the_middle_shut_no_gate(sampler: str, reach: int) -> None:
    """Four epochs of 2 + 2 + 1 prompts: a gate that counts whole batches would be three groups short at the end."""
    run = MemoryRun(prompts=5, batch_size=2, epochs=4, sampler=SAMPLERS[sampler](reach), stall_timeout=60.0)
    report = run.run()
    assert report.outcome == "exhausted"
    assert settled_keys(run.controller) == each_once(5, epochs=4)
    assert_nothing_is_held(run.controller)
    if sampler == "ready_first":
        assert report.trained == 20


@pytest.mark.parametrize("slow", range(3))
def test_case_A35_a_group_that_comes_when_its_time_is_over_is_given_up_and_opens_the_gate(slow: int) -> None:
    """Weight FIFO aborts nothing in flight. The step it was dispatched for has passed without it, by the credit of a
    short batch; if nobody gives it up when it comes, the gate counts it for ever and no step is full again."""
    run = MemoryRun(
        prompts=3, batch_size=2, epochs=3, sampler=WeightFifoSampler(0), capacity=3, max_in_flight=1,
        delays={slow: 2}, stall_timeout=5.0,
    )  # fmt: skip
    report = run.run()
    assert report.outcome == "exhausted"
    assert report.dropped["stale_ready"] >= 1
    assert settled_keys(run.controller) == each_once(3, epochs=3)
    assert_nothing_is_held(run.controller)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_short_batch_is_dropped_as_it_is_read_whatever_the_sampler(sampler: str) -> None:
    """One prompt of each epoch: nobody generates it, and it is not mixed into the next epoch's first step."""
    run = MemoryRun(prompts=5, batch_size=2, epochs=3, sampler=SAMPLERS[sampler](1), remainder="drop")
    report = run.run()
    assert report.dropped == {"remainder": 3}
    assert all(len(keys) == 2 for _, keys in run.trained)
    dropped = set(run.controller.ledger.accounts.dropped)
    assert dropped.isdisjoint(run.generated)
    assert Counter(key.epoch for key in dropped) == {0: 1, 1: 1, 2: 1}
    short = [fields for fields in run.named("reserve_batch") if fields.get("reason") == "remainder"]
    assert [tuple(fields["groups"]) for fields in short] == [(), (), ()]
    assert settled_keys(run.controller) == each_once(5, epochs=3)


@pytest.mark.parametrize("sampler", ["weight_fifo", "ready_first", "windowed"])
def test_what_failures_leave_at_the_end_is_trained_in_a_smaller_step(sampler: str) -> None:
    """As with stamps: `remainder` is about short batches, not about a step that has lost a group."""
    failing = order(6, 2)[5]
    run = MemoryRun(
        prompts=6, batch_size=2, sampler=SAMPLERS[sampler](2), failures={failing: -1}, remainder="drop", data_retries=0
    )
    report = run.run()
    assert (report.trained, report.dropped) == (5, {"failed": 1})
    assert sorted(len(keys) for _, keys in run.trained) == [1, 2, 2]


def steps_until_the_slow_one(sampler: object, patience: int) -> list[int]:
    """In which order the first four groups of a run of six are trained, when the very first is slow."""
    rows = order(6, 2)
    run = MemoryRun(prompts=6, batch_size=2, sampler=sampler, delays={rows[0]: patience}, save_period=None)
    run.run()
    place = {row: number for number, row in enumerate(rows)}
    return [place[key.index] for _, keys in run.trained for key in keys]


def test_weight_fifo_lets_no_younger_group_overtake_a_slow_one() -> None:
    """Its siblings of the same weight go first; the second step of another weight waits for it."""
    assert set(steps_until_the_slow_one(WeightFifoSampler(1), 80)[:4]) == {0, 1, 2, 3}


def test_ready_first_trains_past_a_slow_group() -> None:
    """The slow one comes whenever it arrives, here at the very end."""
    assert steps_until_the_slow_one(ReadyFirstSampler(2), 80)[-1] == 0


def test_in_order_waits_for_the_slow_group() -> None:
    """Its step is the first, and the others come after it."""
    assert set(steps_until_the_slow_one(InOrderSampler(2), 80)[:2]) == {0, 1}
