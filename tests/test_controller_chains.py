"""Chains of crashes and resumes, with every sampler, spares and failures: each prompt is settled exactly once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from controller_runs import each_once, settled_keys
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_runs import SAMPLERS, Image, MemoryRun, assert_nothing_is_held

from impl import Key
from interleavings.correspondence.refinement import handed_out_count, owners_of_files


def assert_one_owner_each(image: Image) -> None:
    """Every prompt behind the cursor of the newest checkpoint has one owner, and no other prompt has any."""
    names = [name for name in image.disk.listdir("/checkpoints") if name.startswith("step_")]
    newest = max(names, key=lambda name: int(name.rpartition("-")[2]))
    documents = image.disk.documents(f"/checkpoints/{newest}")
    owners = owners_of_files(documents)
    assert len(owners) == handed_out_count(documents)
    assert {key: who for key, who in owners.items() if len(who) != 1} == {}


def chain(crashes: list[int], *, sampler: str, reach: int, load_buffer: bool, **setting: Any) -> MemoryRun:
    """Run, crash at a checkpoint, resume from its image, and so on; the last process runs to its end.

    Asserts that the steps that survive, over all processes, train every prompt at most once, and that what they leave
    is dropped by name.
    """
    trained: Counter[Key] = Counter()
    image: Image | None = None
    prompts, epochs = setting["prompts"], setting["epochs"]
    for crash in [*crashes, None]:
        run = MemoryRun(
            None if image is None else image.disk,
            sampler=SAMPLERS[sampler](reach),
            load_buffer=load_buffer,
            **setting,
        )
        report = run.run()
        assert (report.restored is None) == (image is None)
        assert settled_keys(run.controller) == each_once(prompts, epochs)
        assert_nothing_is_held(run.controller)
        for each in run.images:
            assert_one_owner_each(each)
        if crash is None or not run.images:
            trained += run.trained_before()
            assert report.trained == sum(trained.values())
            assert report.trained + sum(report.dropped.values()) == prompts * epochs
            break
        image = run.images[crash % len(run.images)]
        trained += run.trained_before(image.version)
    assert set(trained.values()) <= {1}
    assert set(trained) == set(each_once(prompts, epochs)) - set(run.controller.ledger.accounts.dropped)
    return run


@pytest.mark.parametrize("load_buffer", [True, False])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_case_A16_every_checkpoint_of_a_run_with_failures_resumes_to_a_whole_account(
    sampler: str, load_buffer: bool
) -> None:
    """Crash at each checkpoint in turn, with spares where the sampler has a use for them, and failures for good."""
    setting: dict[str, Any] = {
        "sampler": sampler, "reach": 1, "load_buffer": load_buffer, "prompts": 11, "batch_size": 2, "epochs": 2,
        "failures": {1: -1, 4: 1, 6: -1, 9: -1}, "delays": {row: row * 5 % 7 + 1 for row in range(11)},
        "spares": 0 if sampler == "windowed" else 2, "data_retries": 1,
    }  # fmt: skip
    whole = chain([], **setting)
    assert len(whole.images) >= 6
    for crash in range(len(whole.images)):
        run = chain([crash, crash // 2], **setting)
        dropped = Counter(run.controller.ledger.accounts.dropped.values())
        assert dropped["failed"] + dropped["replaced"] + dropped["stale_ready"] + dropped["stale_inflight"] >= 3
        assert set(dropped) <= {"failed", "replaced", "remainder", "stale_ready", "stale_inflight"}


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes, samplers, spares, failures, delays, and where the process dies."""
    sampler = draw(st.sampled_from(sorted(SAMPLERS)))
    prompts = draw(st.integers(1, 12))
    rows = st.integers(0, prompts - 1)
    return {
        "sampler": sampler,
        "reach": draw(st.integers(0, 2)),
        "prompts": prompts,
        "batch_size": draw(st.integers(1, 3)),
        "epochs": draw(st.integers(1, 2)),
        "spares": 0 if sampler == "windowed" else draw(st.integers(0, 4)),
        "borrow": draw(st.booleans()),
        "remainder": draw(st.sampled_from(["train", "drop"])),
        "failures": draw(st.dictionaries(rows, st.sampled_from([-1, 1, 2]), max_size=5)),
        "delays": draw(st.dictionaries(rows, st.integers(0, 40), max_size=6)),
        "data_retries": draw(st.integers(0, 1)),
        "max_in_flight": draw(st.sampled_from([1, 2, 64])),
        "save_period": draw(st.integers(1, 2)),
        "load_buffer": draw(st.booleans()),
        "crashes": draw(st.lists(st.integers(0, 20), max_size=3)),
    }


@settings(max_examples=120, deadline=None)
@given(histories())
def test_case_A20_any_chain_of_crashes_with_spares_and_failures_settles_every_prompt_once(
    history: dict[str, Any],
) -> None:
    """Every sampler, any sizes; the accounts of the last process agree with what all of them trained."""
    crashes = history.pop("crashes")
    chain(crashes, **history)
