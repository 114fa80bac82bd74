"""The checks at the end of examples/grpo: each can fail, and what was not checked is no pass."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from test_grpo_run import SHORT, undisturbed

from examples.grpo.checks import (
    Check,
    Verdict,
    ages_within_bounds,
    broken_rows_were_dropped,
    every_prompt_ended,
    judged_trace,
    kills_and_resumptions,
    last_checkpoint_is_sound,
    reward_rose,
)
from examples.grpo.figures import occupancy_columns
from examples.grpo.killing import status_of
from examples.grpo.outcome import Lived, Occupancy, Outcome, Step
from examples.grpo.setting import CHECKPOINTS, Setting
from impl import Key
from impl.demo import Audit, Death, Kill

SETTING = Setting(rows=4, broken_every=4, epochs=1, prompts_per_step=2, staleness=1)
KEYS = [Key(0, row) for row in range(4)]
STEPS = (
    Step(0, (KEYS[0], KEYS[1]), (0, 0), 0.2, 0.0),
    Step(1, (KEYS[2],), (1,), 0.8, 0.5),
)
ACCOUNT = Audit(
    handed_out=frozenset(KEYS), trained=frozenset(KEYS[:3]), dropped={KEYS[3]: "failed"}, pending=frozenset(),
    lost=frozenset(), doubled=frozenset(), steps=2, superseded_steps=1, rewards=(0.2, 0.8),
)  # fmt: skip
#: Killed after step 0 was saved and step 1 trained; the second life trains step 1 again.
RIGHT = Outcome(
    account=ACCOUNT,
    handed_out=frozenset(KEYS),
    lives=(
        Lived(0, None, (STEPS[0], replace(STEPS[1], reward=0.7)), ()),
        Lived(1, "step_1-1", STEPS[1:], ()),
    ),
    occupancy=(),
    capacity=4,
    saves=(),
)
DEATHS = [Death(Kill(1, "claim", 0.0), 1), Death(None, 2)]


def changed_account(**fields: object) -> Outcome:
    return replace(RIGHT, account=replace(ACCOUNT, **fields))  # type: ignore[arg-type]


def with_lives(*lives: Lived) -> Outcome:
    return replace(RIGHT, lives=lives)


def test_the_steps_that_count_are_those_that_no_later_life_did_again() -> None:
    """Step 1 was trained twice, and the second time is what the model has seen."""
    assert RIGHT.steps == list(STEPS)
    fresh = with_lives(RIGHT.lives[0], Lived(0, None, STEPS[:1], ()))
    assert fresh.steps == [STEPS[0]], "a life that began anew forgets everything"


Checking = Callable[[Outcome], Check]


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (lambda outcome: every_prompt_ended(SETTING, outcome), changed_account(lost=frozenset(KEYS[:1]))),
        (lambda outcome: every_prompt_ended(SETTING, outcome), changed_account(doubled=frozenset(KEYS[:1]))),
        (lambda outcome: every_prompt_ended(SETTING, outcome), changed_account(pending=frozenset(KEYS[:1]))),
        (lambda outcome: every_prompt_ended(SETTING, outcome), changed_account(trained=frozenset(KEYS[:2]))),
        (lambda outcome: every_prompt_ended(SETTING, outcome), changed_account(handed_out=frozenset(KEYS[:3]))),
        (lambda outcome: every_prompt_ended(SETTING, outcome), replace(RIGHT, handed_out=frozenset(KEYS[:3]))),
        (lambda outcome: every_prompt_ended(replace(SETTING, epochs=2), outcome), RIGHT),
        (lambda outcome: broken_rows_were_dropped(SETTING, outcome), changed_account(dropped={})),
        (lambda outcome: broken_rows_were_dropped(SETTING, outcome), changed_account(dropped={KEYS[3]: "stale_ready"})),
        (
            lambda outcome: broken_rows_were_dropped(SETTING, outcome),
            changed_account(dropped={KEYS[3]: "failed", KEYS[0]: "failed"}),
        ),
        (lambda outcome: ages_within_bounds(replace(SETTING, staleness=0), outcome), RIGHT),
        (
            lambda outcome: ages_within_bounds(SETTING, outcome),
            with_lives(Lived(0, None, (replace(STEPS[0], ages=(0, -1)),), ())),
        ),
        (lambda outcome: kills_and_resumptions(outcome, DEATHS[:1], 1), RIGHT),
        (lambda outcome: kills_and_resumptions(outcome, [Death(None, 2), Death(None, 2)], 1), RIGHT),
        (
            # The second life has begun anew although the first had resumed, so there was a checkpoint.
            lambda outcome: kills_and_resumptions(outcome, DEATHS, 1),
            with_lives(RIGHT.lives[1], replace(RIGHT.lives[0])),
        ),
        (lambda outcome: reward_rose(outcome.steps, 0.61), RIGHT),
    ],
)
def test_a_run_that_went_wrong_fails_the_check_that_a_right_one_passes(check: Checking, wrong: Outcome) -> None:
    """One thing is wrong in each."""
    assert check(wrong).verdict == "fails"


def test_a_run_that_went_right_passes_them_all() -> None:
    """Or the checks above would fail for any reason."""
    too_old = changed_account(dropped={KEYS[3]: "stale_inflight"})
    checks = [
        every_prompt_ended(SETTING, RIGHT),
        broken_rows_were_dropped(SETTING, RIGHT),
        broken_rows_were_dropped(replace(SETTING, sampler="windowed"), too_old),
        ages_within_bounds(SETTING, RIGHT),
        kills_and_resumptions(RIGHT, DEATHS, 1),
        reward_rose(RIGHT.steps, 0.59),
    ]
    assert [check.verdict for check in checks] == ["holds"] * 6, checks


@pytest.mark.parametrize(
    ("status", "said", "verdict"),
    [
        (0, "1,234 events, accepted", "holds"),
        (1, "line 17: no action fits", "fails"),
        (2, "no such file", "fails"),
        (3, "the trace has a gap", "not run"),
    ],
)
def test_only_an_accepted_trace_is_a_pass(status: int, said: str, verdict: str) -> None:
    """A command that concluded nothing counts as not run, and anything else that is not 0 as a failure."""
    check = judged_trace(subprocess.CompletedProcess([], status, f"trace.jsonl, line 7: why\n{said}", ""))
    assert check.verdict == verdict
    assert ("line 7: why" in check.found) is (verdict == "fails"), "a refusal is told whole"


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [(["holds", "holds"], 0), (["holds", "not run"], 3), (["fails", "not run"], 1), (["fails", "holds"], 1)],
)
def test_the_status_is_0_only_if_every_check_holds(verdicts: list[Verdict], status: int) -> None:
    """What was not run is no pass, and does not hide a failure either."""
    assert status_of([Check("a claim", verdict, "") for verdict in verdicts]) == status


@pytest.mark.slow
def test_a_flipped_byte_and_a_missing_checkpoint_fail_the_check_of_the_last_checkpoint(tmp_path: Path) -> None:
    """It reads every byte, by the command that a user would call."""
    directory = tmp_path / "run"
    undisturbed(directory, SHORT)
    assert last_checkpoint_is_sound(directory).verdict == "holds"
    newest = directory / CHECKPOINTS / (directory / CHECKPOINTS / "LATEST").read_text().strip()
    model = newest / "trainer" / "model-000.safetensors"
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    model.write_bytes(data)
    assert last_checkpoint_is_sound(directory).verdict == "fails"
    assert last_checkpoint_is_sound(tmp_path / "nowhere").verdict == "fails"


def test_occupancy_is_a_mean_over_time() -> None:
    """Two slots for a quarter of a column and none for the rest are half a slot; a column may be short at the end."""
    samples = [Occupancy(0.0, 2, 0, 0), Occupancy(0.25, 0, 0, 0), Occupancy(1.0, 0, 1, 3), Occupancy(1.5, 4, 0, 0)]
    places, (claimed, ready, generating) = occupancy_columns(samples, 1.0)
    assert places == [0.5, 1.25]
    assert (claimed, ready, generating) == ([0.0, 3.0], [0.0, 1.0], [0.5, 0.0])
