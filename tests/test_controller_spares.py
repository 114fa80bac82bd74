"""Spares in a run: diverted, put in the place of what failed, borrowed, and drained at the end."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runs import Record, each_once, new_controller, settled_keys
from memory_runs import SAMPLERS, MemoryRun, assert_nothing_is_held

from impl import Key, PromptLoader, UsageError
from impl.controller import ControllerConfig
from impl.run.samplers import InOrderSampler, WindowedSampler

WITH_A_GATE = ["in_order", "weight_fifo", "ready_first"]


def order(prompts: int, batch_size: int = 2) -> list[int]:
    """The rows in the order in which the loader hands them out."""
    loader = MemoryRun(prompts=prompts, batch_size=batch_size).controller._parts.loader
    assert isinstance(loader, PromptLoader)
    return [loader._order[place] for place in range(prompts)]


def between(run: MemoryRun, first: str, last: str) -> list[str]:
    """The events from the last `first` before the first `last` to that one."""
    actions = [action for action, _ in run.events]
    end = actions.index(last)
    start = end - actions[:end][::-1].index(first) - 1
    return actions[start : end + 1]


@pytest.mark.parametrize("sampler", WITH_A_GATE)
def test_case_A31_a_group_that_fails_is_replaced_and_its_step_keeps_its_size(sampler: str) -> None:
    """The old prompt is dropped as replaced, the spare is trained in its step; every permit comes back."""
    failing = order(12)[0]
    run = MemoryRun(
        prompts=12, batch_size=2, sampler=SAMPLERS[sampler](1), failures={failing: -1}, delays={failing: 9}, spares=2,
        borrow=False, data_retries=0,
    )  # fmt: skip
    report = run.run()
    assert [len(keys) for _, keys in run.trained[:2]] == [2, 2]
    assert settled_keys(run.controller) == each_once(12)
    (substitution,) = run.named("substitute")
    (failed,) = run.named("fail_attempt")
    assert substitution["group"] == failed["group"]
    assert report.dropped == {"remainder": 1, "replaced": 1}
    assert run.controller.ledger.accounts.dropped[Key(0, failing)] == "replaced"
    assert_nothing_is_held(run.controller)


def test_the_place_moves_to_the_spare_in_one_section() -> None:
    """Ledger, slot, pool and account change between one entry and its end."""
    run = MemoryRun(prompts=8, batch_size=2, failures={order(8)[0]: -1}, spares=2, borrow=False, data_retries=0)
    run.run()
    section = between(run, "enter_slot", "substitute")
    assert section == ["enter_slot", "substitute"]
    fields = run.named("substitute")[0]
    assert fields["spare"] not in (None, fields["group"])
    request = next(request for request in run.requests if request.group == fields["spare"])
    assert (request.key, request.step, request.attempt) == (fields["key"], fields["step"], 0)
    assert request.prompt == request.key.index


def test_no_batch_is_diverted_before_the_first_admission() -> None:
    """The first batch of a run is for training; after it the pool is filled, whole batch by whole batch."""
    run = MemoryRun(prompts=12, batch_size=2, spares=3)
    run.run()
    actions = [action for action, _ in run.events if action in ("commit_admission", "divert_batch", "dispatch")]
    assert actions[:5] == ["commit_admission", "dispatch", "dispatch", "divert_batch", "divert_batch"]
    assert actions.count("divert_batch") == 2


async def test_diverting_by_hand_before_the_first_admission_is_refused() -> None:
    """And leaves loader and pool as they are."""
    controller = new_controller(None, Record(), prompts=4)
    with pytest.raises(UsageError, match="divert_batch: nothing was admitted yet"):
        await controller.rollout_pump.divert_batch()
    with pytest.raises(UsageError, match="drain_pool: the loader is not exhausted"):
        await controller.rollout_pump.drain_pool()
    assert controller._parts.loader.state().position == 0
    assert len(controller.pool) == 0


@pytest.mark.parametrize("sampler", WITH_A_GATE)
def test_case_A04_without_failures_all_spares_are_trained_at_the_end(sampler: str) -> None:
    """Held back, not lost: whole steps of spares are reserved and trained like any other."""
    run = MemoryRun(prompts=12, batch_size=2, sampler=SAMPLERS[sampler](1), spares=4)
    report = run.run()
    assert (report.trained, report.dropped, report.steps) == (12, {}, 6)
    assert len(run.named("drain_pool")) == 2
    last = [keys for _, keys in run.trained[-2:]]
    diverted = [key for fields in run.named("divert_batch") for key in fields["keys"]]
    assert sorted(key for keys in last for key in keys) == sorted(diverted)
    assert_nothing_is_held(run.controller)


def test_spares_that_fill_no_step_are_dropped_as_remainder() -> None:
    """One of two spares was used; the other fills no step of two."""
    run = MemoryRun(prompts=6, batch_size=2, failures={order(6)[0]: -1}, spares=2, data_retries=0)
    report = run.run()
    assert report.dropped == {"remainder": 1, "replaced": 1}
    assert [fields for fields in run.named("drain_pool") if fields.get("reason") == "remainder"]
    assert settled_keys(run.controller) == each_once(6)


def test_the_pool_is_not_drained_while_something_generates_that_may_need_a_spare() -> None:
    """The slowest group fails after everything else is done, and still finds its spare."""
    last = order(6)[5]
    run = MemoryRun(
        prompts=6, batch_size=2, sampler=InOrderSampler(2), failures={last: -1}, delays={last: 60}, spares=2,
        data_retries=0,
    )  # fmt: skip
    report = run.run()
    assert report.dropped == {"remainder": 1, "replaced": 1}
    assert [len(keys) for _, keys in run.trained] == [2, 2]
    actions = [action for action, _ in run.events]
    assert actions.index("substitute") < actions.index("drain_pool")


def test_case_A30_without_a_spare_left_the_step_shrinks_and_no_permit_is_lost() -> None:
    """Two failures, one batch of one spare: the second makes its step smaller."""
    run = MemoryRun(prompts=3, batch_size=1, failures={0: -1, 1: -1, 2: -1}, spares=1, data_retries=0)
    report = run.run()
    assert report.trained == 0
    assert report.dropped == {"failed": 2, "replaced": 1}
    assert len(run.named("empty_step")) == 2
    assert_nothing_is_held(run.controller)


def borrowing(borrow: bool) -> MemoryRun:
    """Steps 0 to 2 are under way; a group of step 0 fails late, when all of the later ones are ready."""
    slow = order(8)[0]
    run = MemoryRun(
        prompts=8, batch_size=2, sampler=InOrderSampler(2), failures={slow: -1}, delays={slow: 60}, spares=2,
        borrow=borrow, data_retries=0,
    )  # fmt: skip
    run.run()
    return run


def test_borrow_moves_up_a_ready_group_of_the_furthest_step_and_the_spare_takes_its_place() -> None:
    """The trainer waits for the spare later instead of now."""
    run = borrowing(True)
    (fields,) = run.named("borrow")
    assert (fields["step"], fields["later"]) == (0, 2)
    trained = dict(run.trained)
    lender = next(request.key for request in run.requests if request.group == fields["lender"])
    assert lender in trained[0]
    assert fields["key"] in trained[2]
    spare = next(request for request in run.requests if request.group == fields["spare"])
    assert spare.step == 2
    assert [len(keys) for _, keys in run.trained] == [2, 2, 2]
    assert run.named("substitute") == []
    assert_nothing_is_held(run.controller)


def test_without_borrowing_the_spare_fills_the_hole_itself() -> None:
    """The same run, with borrow=False."""
    run = borrowing(False)
    (fields,) = run.named("substitute")
    assert fields["step"] == 0
    assert fields["key"] in dict(run.trained)[0]
    assert run.named("borrow") == []


def test_a_spare_that_fails_is_replaced_like_any_other() -> None:
    """The budget of the spare is its own; the group it replaced had used up another."""
    first, _, spare, *_ = order(8)
    failures = {first: -1, spare: -1}
    run = MemoryRun(prompts=8, batch_size=2, failures=failures, spares=2, borrow=False, data_retries=1)
    report = run.run()
    assert report.dropped == {"replaced": 2}
    assert [fields["attempt"] for fields in run.named("fail_attempt")] == [0, 1, 0, 1]
    assert settled_keys(run.controller) == each_once(8)


def test_a_pool_that_was_saved_serves_a_run_that_keeps_none() -> None:
    """spares=0 diverts nothing; what is in the pool is used up all the same."""
    run = MemoryRun(prompts=20, batch_size=2, spares=2, max_steps=1)
    run.run()
    again = MemoryRun(run.images[-1].disk, prompts=20, batch_size=2, spares=0)
    report = again.run()
    assert report.restored is not None
    assert report.restored.spares == 2
    assert again.named("divert_batch") == []
    assert len(again.named("drain_pool")) == 1
    assert settled_keys(again.controller) == each_once(20)
    assert report.trained == 20


def test_a_failure_budget_used_up_before_a_crash_is_used_up_after_it() -> None:
    """A save finds the group given up; the restored run attempts it once more and then replaces it."""
    failing = order(8)[2]
    run = MemoryRun(
        prompts=8, batch_size=2, sampler=InOrderSampler(1), failures={failing: -1}, spares=2, max_in_flight=1,
        data_retries=2,
    )  # fmt: skip
    run.run()
    for image in run.images:
        again = MemoryRun(
            image.disk, prompts=8, batch_size=2, failures={failing: -1}, spares=2, max_in_flight=1, data_retries=2
        )
        again.run()
        attempts = [request.attempt for request in again.requests if request.key.index == failing]
        assert attempts == sorted(attempts)
        assert settled_keys(again.controller) == each_once(8)


def test_case_A29_ids_are_never_given_twice_over_restarts() -> None:
    """Groups of spares get theirs when they are taken; the counter is in every checkpoint."""
    settings: dict[str, Any] = {"prompts": 12, "batch_size": 2, "failures": {0: -1, 5: -1, 7: -1}, "spares": 2}
    run = MemoryRun(max_steps=2, **settings)
    run.run()
    again = MemoryRun(run.images[-1].disk, **settings)
    again.run()
    key_of: dict[int, Key] = {}
    for request in run.requests + again.requests:
        assert key_of.setdefault(request.group, request.key) == request.key
    assert len(set(key_of.values())) == len(key_of)


def test_the_windowed_sampler_has_no_use_for_spares_and_says_so() -> None:
    """It fills a step from whatever is ready; nothing tells it that there was a first admission."""
    with pytest.raises(UsageError, match=r"spares is 1, and the windowed sampler has no use for spares"):
        new_controller(None, Record(), sampler=WindowedSampler(1), spares=1)


@pytest.mark.parametrize("value", [-1, True, 1.0, "2", None])
def test_wrong_settings_are_named(value: object) -> None:
    """A typed error that names the field."""
    with pytest.raises(UsageError, match="spares is"):
        ControllerConfig(spares=value)  # type: ignore[arg-type]
    if value is not True:
        with pytest.raises(UsageError, match="borrow is"):
            ControllerConfig(borrow=value)  # type: ignore[arg-type]
