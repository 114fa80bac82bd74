"""Faults put into the library that the scenarios of misuse, gate, retries, aborts, cancellations and stalls find.

Each stands for the length of a test. Where it shows deep in the schedules, the search goes depth first: it is found all
the same, only not by a shortest way.
"""

from __future__ import annotations

from typing import Any

import pytest

from impl import ReplayBuffer
from impl.barrier import (
    BarrierFrontEnd,
    Detachment,
    Held,
    Named,
    asyncio_sections,
    chain,
    detached,
    links,
    outer_sections,
)
from impl.controller import Generation, Progress, RunTask, SaveSchedule, Supervisor, Watchdog
from impl.run.samplers import InOrderSampler, WindowedSampler
from interleavings import explore
from interleavings.correspondence import Coverage
from interleavings.runtime import Failure
from interleavings.scenarios import scenario_named

# Faults that a save would refuse by itself are left to the scenarios, the machines and the model to find.
pytestmark = pytest.mark.usefixtures("saves_that_do_not_ask")


def failure_of(name: str, **options: Any) -> Failure:
    """The first failure that a search of the scenario meets."""
    scenario = scenario_named(name)
    settings = {"cancels": scenario.cancels, "timers": scenario.timers, "max_states": 20_000, **options}
    result = explore(scenario.program(Coverage()), **settings)
    assert result.verdict == "fails", result.summary()
    assert result.failure is not None
    return result.failure


# ------------------------------------------------------------------------------------------------------- misuse


def test_case_B09_a_barrier_that_does_not_look_which_sections_a_context_holds_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The naive form: a child asks for a slot under its parent's, which the machine refuses."""
    monkeypatch.setattr(asyncio_sections, "outer_sections", lambda held, barrier: None)
    failure = failure_of("misuse")
    assert failure.property == "refinement"
    assert "did request_slot(task=child-0, kind=child) where the protocol forbids it" in failure.message
    assert failure.details["the rule"].startswith("child_request (child): The child of writer `w` asks for a slot once")


def test_a_detached_that_frees_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task meant to outlive the section is refused as long as the section is open, in some orders only."""

    def without_marks(held: Held, barrier: Named) -> Held | None:
        plain = chain([link for link in links(held) if not isinstance(link, Detachment)])
        assert plain is not None
        return outer_sections(plain, barrier)

    monkeypatch.setattr(asyncio_sections, "outer_sections", without_marks)
    failure = failure_of("misuse")
    assert failure.property == "BarrierReentered"
    assert "opened by task 'writer-1'" in failure.message


def test_a_detached_that_frees_its_maker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The maker would wait for itself: it still holds its section."""
    monkeypatch.setattr(detached, "Detachment", lambda barrier, made_here: Detachment(barrier, lambda: False))
    failure = failure_of("misuse")
    assert failure.property == "refinement"
    assert "request_slot(task=writer-0, kind=inner)" in failure.message


# --------------------------------------------------------------------------------------------------------- gate


def test_case_B19_a_sampler_that_waits_in_its_slot_is_found_and_the_message_says_who_waits_for_whom() -> None:
    """The control: the save waits for the slot, the slot for the trainer, and the trainer for the save."""
    failure = failure_of("gate_in_slot")
    assert failure.property == "deadlock"
    assert "train-pump waits for rollout-pump, rollout-pump waits for train-pump" in failure.message
    blocked = {entry["task"]: entry for entry in failure.details["blocked"]}
    assert "before which must end: slot of kind 'admissions' of rollout-pump" in blocked["train-pump"]["waits for"]
    assert (
        "gate, which the trainer opens (dispatch cursor 1, trainer version 1)" in blocked["rollout-pump"]["waits for"]
    )
    assert blocked["rollout-pump"]["at"].endswith("in commit_admission")
    assert "shut by the checkpoint of train-pump" in blocked["generate-1"]["waits for"]


@pytest.mark.slow
def test_a_drain_limit_that_names_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error would say that a drain took too long, and not whose slot it waited for."""
    monkeypatch.setattr(BarrierFrontEnd, "_holders", lambda barrier: ())
    assert failure_of("gate_limit").property == "drain_limit_names_holders"


def test_a_gate_that_opens_a_step_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no lookahead the second batch must wait for the first step."""
    early = property(lambda sampler: sampler.cursor < sampler.version + sampler.lookahead + 1)
    monkeypatch.setattr(InOrderSampler, "gate_open", early)
    failure = failure_of("gate")
    assert failure.property == "refinement"
    assert "does not enable pass_gate" in failure.message


# ------------------------------------------------------------------------------------------------------ retries


def test_a_permit_that_is_kept_while_backing_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other group could not be generated meanwhile, however long the back-off."""
    original = Generation.fail_attempt

    async def fail_attempt(generation: Generation, group: int, error: BaseException) -> float | None:
        delay = await original(generation, group, error)
        if delay is not None:
            generation.in_flight._grant()
        return delay

    monkeypatch.setattr(Generation, "fail_attempt", fail_attempt)
    failure = failure_of("retries")
    assert failure.property == "no_permit_while_backing_off"
    assert "groups [0] wait for their next attempt" in failure.message


def test_a_failure_that_is_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that fails for good would be tried for ever: the machine has given it up."""
    monkeypatch.setattr(Progress, "count_failure", lambda progress, cut, group, cause: 0)
    failure = failure_of("retries", order="depth")
    assert failure.property == "refinement"
    assert "does not enable" in failure.message


def test_budgets_that_are_not_saved_are_found_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that fails for good would get a fresh budget from every restart."""
    original = Progress.read

    def read(progress: Progress, cut: Any) -> Any:
        counters = original(progress, cut)
        counters.budgets.clear()  # type: ignore[attr-defined]
        return counters

    monkeypatch.setattr(Progress, "read", read)
    failure = failure_of("retries", order="depth")
    assert failure.property == "image_equals_cut"
    assert failure.message.endswith("it differs in failures")


# -------------------------------------------------------------------------------------- aborts and cancellations


def test_groups_that_are_too_old_and_not_given_up_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a group is never taken, and nobody trains or drops its prompt."""
    monkeypatch.setattr(WindowedSampler, "stale", lambda sampler, slots, version: ())
    failure = failure_of("abort", order="depth")
    assert failure.property == "finish"
    assert "the machine is not finished" in failure.message


def test_an_abort_that_keeps_the_permit_of_its_slot_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer would have one place less for the rest of the run."""
    original = ReplayBuffer.abort_stale

    def abort_stale(buffer: ReplayBuffer, cut: Any, group: int) -> None:
        original(buffer, cut, group)
        buffer._permits.take_places(1)

    monkeypatch.setattr(ReplayBuffer, "abort_stale", abort_stale)
    failure = failure_of("abort", order="depth")
    assert failure.property == "finish"
    assert "1 permit is placed and the buffer has 0 slots" in failure.message


def test_a_cancelled_generation_that_nobody_takes_off_the_list_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is cancelled before its first step runs no handler of its own."""
    original = Supervisor.start

    def start(supervisor: Supervisor, coroutine: Any, name: str, ended: Any = None) -> RunTask:
        return original(supervisor, coroutine, name)

    monkeypatch.setattr(Supervisor, "start", start)
    failure = failure_of("commit_cancelled", order="depth")
    assert failure.property == "finish"
    assert "generations still running" in failure.message


# ------------------------------------------------------------------------------------------------------- stalls


@pytest.mark.slow
def test_a_long_save_that_is_taken_for_a_stall_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the writer's job runs nothing else moves, for as long as the disk takes."""
    monkeypatch.setattr(SaveSchedule, "in_progress", property(lambda saves: False))
    failure = failure_of("watchdog", order="depth")
    assert failure.property == "RunStalled"
    assert "nothing has moved for 40 s" in failure.message


def test_a_report_of_a_stall_that_does_not_say_who_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare time limit helps nobody at three in the morning."""
    monkeypatch.setattr(Watchdog, "report", lambda watchdog, seconds: f"nothing has moved for {seconds:.0f} s")
    failure = failure_of("stall", order="depth")
    assert failure.property == "stall_says_who_waits"
    assert "'train pump: waits for step 1, which needs 1 group; ready [], generating [1]'" in failure.message
