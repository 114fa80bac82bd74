"""What the table of the README says of a slow group, for every sampler with the capacity that the controller takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from controller_runs import Record, each_once, settled_keys
from hypothesis import given
from hypothesis import strategies as st
from jumping_clock import run_in_virtual_time

from impl import PromptLoader, RunStalled
from impl.barrier import CheckpointBarrier
from impl.controller import Controller, ControllerConfig, GenerationRequest, RunReport
from impl.run.samplers import InOrderSampler, ReadyFirstSampler, Sampler, WeightFifoSampler, WindowedSampler

#: How many batches of data there are.
BATCHES = 8
SAMPLERS: dict[str, Callable[[int], Sampler]] = {
    "in_order": InOrderSampler,
    "weight_fifo": WeightFifoSampler,
    "ready_first": ReadyFirstSampler,
    "windowed": WindowedSampler,
}


class Situation:
    """A run with defaults in which the given groups of the dataset hang for ever, or fail for good."""

    def __init__(self, sampler: Sampler, batch_size: int, groups: set[int], *, fail: bool, **config: Any) -> None:
        self.record = Record()
        self._groups, self._fail = groups, fail
        settings = {"recovery": False, "generations": 2, "stall_warning": None, "backoff": 0.0, "data_retries": 0}
        self.controller = Controller(
            loader=PromptLoader(list(range(BATCHES * batch_size)), batch_size=batch_size, seed=0),
            generate=self.generate,
            train=self.record.train,
            sampler=sampler,
            config=ControllerConfig(**{**settings, "stall_timeout": 1_000.0, **config}),
        )
        assert isinstance(self.controller.barrier, CheckpointBarrier)
        #: What a run that stalls has reported, or how it ended.
        self.outcome = "has not run"

    async def generate(self, request: GenerationRequest) -> Any:
        if request.group in self._groups:
            if self._fail:
                raise ValueError("this prompt cannot be generated")
            await asyncio.get_running_loop().create_future()
        return await self.record.generate(request)

    def run(self) -> Situation:
        """Run to the end, or to the stall."""
        try:
            report: RunReport = run_in_virtual_time(self.controller.run())
        except RunStalled:
            self.outcome = "stalled"
        else:
            self.outcome = report.outcome
        return self

    @property
    def steps(self) -> int:
        """Steps that were trained."""
        return len(self.record.trained)

    @property
    def dropped(self) -> dict[str, int]:
        """Prompts given up, by reason."""
        return dict(self.controller.ledger.accounts.dropped_counts)


sizes, stalenesses = st.integers(1, 4), st.integers(0, 3)


@given(st.sampled_from(sorted(SAMPLERS)), sizes, stalenesses, st.data())
def test_case_G17_one_failure_stalls_no_sampler_with_its_default_capacity(
    name: str, batch_size: int, staleness: int, data: st.DataObject
) -> None:
    """Wherever it is in the data: everything else is settled, and the run ends."""
    failing = data.draw(st.integers(0, BATCHES * batch_size - 1), "the group that fails")
    ran = Situation(SAMPLERS[name](staleness), batch_size, {failing}, fail=True).run()
    assert ran.outcome == "exhausted"
    assert ran.dropped.pop("failed") == 1
    assert settled_keys(ran.controller) == each_once(BATCHES * batch_size)


@given(sizes, st.integers(1, 3), st.data())
def test_case_G17_the_windowed_sampler_aborts_what_hangs_with_its_default_capacity(
    batch_size: int, staleness: int, data: st.DataObject
) -> None:
    """As it was reported, for as many that hang at once as the README says, while there is data to pass steps with."""
    most = batch_size * staleness
    hanging = data.draw(st.sets(st.integers(0, most - 1), min_size=1, max_size=most), "the groups that hang")
    ran = Situation(WindowedSampler(staleness), batch_size, hanging, fail=False).run()
    assert ran.outcome == "exhausted"
    assert ran.dropped["stale_inflight"] == len(hanging)
    assert settled_keys(ran.controller) == each_once(BATCHES * batch_size)


@given(sizes, stalenesses)
def test_case_G17_the_default_capacity_gives_up_nothing_of_a_run_without_hangs(batch_size: int, staleness: int) -> None:
    """More slots than a window would let groups that were ready at once grow too old before their turn comes."""
    ran = Situation(WindowedSampler(staleness), batch_size, set(), fail=False).run()
    assert (ran.outcome, ran.dropped) == ("exhausted", {})


@given(sizes, st.integers(1, 3), st.data())
def test_case_G17_a_hanging_group_holds_nobody_back_with_ready_first(
    batch_size: int, staleness: int, data: st.DataObject
) -> None:
    """All others are trained, but for what fills no step beside it at the end of the data."""
    hanging = data.draw(st.integers(0, batch_size * BATCHES - 1), "the group that hangs")
    ran = Situation(ReadyFirstSampler(staleness), batch_size, {hanging}, fail=False).run()
    assert ran.outcome == "stalled"  # the end of the run waits for it
    assert ran.steps == BATCHES - 1


@given(sizes, stalenesses, st.data())
def test_case_G17_a_hanging_group_holds_its_step_back_in_order(
    batch_size: int, lookahead: int, data: st.DataObject
) -> None:
    """The steps before it are trained, and none after it."""
    hanging = data.draw(st.integers(0, batch_size * BATCHES - 1), "the group that hangs")
    ran = Situation(InOrderSampler(lookahead), batch_size, {hanging}, fail=False).run()
    assert (ran.outcome, ran.steps) == ("stalled", hanging // batch_size)


@given(sizes, stalenesses, st.data())
def test_case_G17_a_hanging_group_holds_younger_ones_back_with_weight_fifo(
    batch_size: int, staleness: int, data: st.DataObject
) -> None:
    """Nothing that was dispatched at a later version overtakes it."""
    hanging = data.draw(st.integers(0, batch_size * BATCHES - 1), "the group that hangs")
    ran = Situation(WeightFifoSampler(staleness), batch_size, {hanging}, fail=False).run()
    slots = ran.controller.buffer.slots
    assert ran.outcome == "stalled"
    versions = {request.key: request.version for request in ran.record.requests}
    assert all(versions[key] <= slots[hanging].weight for _, keys in ran.record.trained for key in keys)


@pytest.mark.parametrize("name", ["ready_first", "windowed"])
def test_case_G17_without_staleness_what_hangs_is_waited_for_as_the_readme_says(name: str) -> None:
    """No step may pass without it; with a time limit it is given up and the run goes on."""
    assert Situation(SAMPLERS[name](0), 2, {1}, fail=False).run().outcome == "stalled"
    limited = Situation(SAMPLERS[name](0), 2, {1}, fail=False, attempt_timeout=10.0, transient_retries=1).run()
    assert (limited.outcome, limited.dropped["failed"]) == ("exhausted", 1)


@pytest.mark.parametrize("name", sorted(SAMPLERS))
@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_case_G17_a_time_limit_ends_what_hangs_in_the_last_step_with_every_sampler(name: str, staleness: int) -> None:
    """There no step passes any more, so nothing grows too old."""
    last = BATCHES * 2 - 1
    assert Situation(SAMPLERS[name](staleness), 2, {last}, fail=False).run().outcome == "stalled"
    limited = Situation(SAMPLERS[name](staleness), 2, {last}, fail=False, attempt_timeout=10.0, transient_retries=0)
    assert limited.run().outcome == "exhausted"


def test_a_capacity_of_one_step_would_be_noticed() -> None:
    """As it was: the default was the least with which the sampler works if everything comes."""
    assert Situation(WindowedSampler(1), 2, {1}, fail=False, capacity=2).run().outcome == "stalled"
