"""What has to hold at the end of a run: each a claim, with what was found. A check that was not made is no pass."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from impl import Key
from impl.demo import Death

from .arithmetic import broken_rows
from .outcome import Outcome, Step
from .setting import CHECKPOINTS, TRACE, Setting

Verdict = Literal["holds", "fails", "not run"]
ROOT = Path(__file__).resolve().parents[2]
#: The exit status of a command of this project that concluded nothing.
_OPEN = 3


@dataclass(frozen=True)
class Check:
    """One claim about the run."""

    claim: str
    verdict: Verdict
    found: str


def all_checks(
    setting: Setting, directory: Path, outcome: Outcome, deaths: Sequence[Death], planned: int, least_gain: float | None
) -> list[Check]:
    """Every check there is. `least_gain` None: the run is too short for learning to show, and is not asked about it."""
    checks = [
        every_prompt_ended(setting, outcome),
        broken_rows_were_dropped(setting, outcome),
        kills_and_resumptions(outcome, deaths, planned),
        ages_within_bounds(setting, outcome),
        last_checkpoint_is_sound(directory),
        trace_is_accepted(directory),
    ]
    if least_gain is not None:
        checks.insert(0, reward_rose(outcome.steps, least_gain))
    return checks


def reward_rose(steps: Sequence[Step], least: float) -> Check:
    """The policy is better at the end than at the start, by a margin that chance does not give."""
    first, last = ends(steps)
    found = f"{mean(first):.2f} in the first {len(first)} steps, {mean(last):.2f} in the last {len(last)}"
    gain = mean(last) - mean(first)
    return _check(f"the mean reward rises by {least} or more", gain >= least, f"{found}: {gain:+.2f}")


def ends(steps: Sequence[Step]) -> tuple[Sequence[Step], Sequence[Step]]:
    """The first twentieth of the steps and the last tenth."""
    return steps[: max(1, len(steps) // 20)], steps[-max(1, len(steps) // 10) :]


def mean(steps: Sequence[Step]) -> float:
    """Their mean reward."""
    return sum(step.reward for step in steps) / len(steps) if steps else 0.0


def every_prompt_ended(setting: Setting, outcome: Outcome) -> Check:
    """Handed out = trained + dropped, by the last checkpoint, by the logs of the lives, and by the size of the data."""
    account = outcome.account
    everything = {Key(epoch, row) for epoch in range(setting.epochs) for row in range(setting.rows)}
    settled = len(account.trained) + len(account.dropped)
    holds = (
        account.balanced
        and not account.pending
        and account.handed_out == outcome.handed_out == everything
        and settled == len(everything)
    )
    found = (
        f"{len(account.handed_out)} handed out ({len(outcome.handed_out)} by the log) of {len(everything)}, "
        f"{len(account.trained)} trained, {len(account.dropped)} dropped, {len(account.pending)} pending, "
        f"{len(account.lost)} lost, {len(account.doubled)} doubled"
    )
    return _check("every prompt handed out was trained or dropped, once", holds, found)


def broken_rows_were_dropped(setting: Setting, outcome: Outcome) -> Check:
    """A row that cannot be generated is given up in each epoch, and no other is given up as failed.

    The windowed sampler may give one up for its age while it still waits for its last attempt.
    """
    broken = {Key(epoch, row) for epoch in range(setting.epochs)
              for row in broken_rows(setting.rows, setting.broken_every)}  # fmt: skip
    dropped = outcome.account.dropped
    failed = {key for key, reason in dropped.items() if reason == "failed"}
    reasons = {"failed", "stale_inflight"} if setting.sampler == "windowed" else {"failed"}
    holds = failed <= broken and all(dropped.get(key) in reasons for key in broken)
    found = f"{len(broken)} broken, {len(failed & broken)} of them failed, {len(failed - broken)} others failed"
    return _check("rows that cannot be generated are dropped in each epoch, and no other fails", holds, found)


def kills_and_resumptions(outcome: Outcome, deaths: Sequence[Death], planned: int) -> Check:
    """Each planned kill has met a living process, and each later life went on from a checkpoint, if there was one."""
    killed = sum(death.kill is not None for death in deaths)
    resumed = [life for life in outcome.lives if life.checkpoint is not None]
    fresh = len(outcome.lives) - len(resumed)
    again = sum(len(life.steps) for life in outcome.lives) - len(outcome.steps)
    # Only before the first checkpoint may a life begin from nothing.
    in_order = [life.checkpoint is not None for life in outcome.lives] == [False] * fresh + [True] * len(resumed)
    found = f"{killed} of {planned} killed, {len(resumed)} resumed from a checkpoint, {again} steps done again"
    holds = killed == planned and len(deaths) == len(outcome.lives) == planned + 1 and in_order
    return _check("each kill meets a living run, and the next life takes over", holds, found)


def ages_within_bounds(setting: Setting, outcome: Outcome) -> Check:
    """No group is trained that an older policy wrote than the sampler allows; ready_first has no bound."""
    ages = Counter(age for step in outcome.steps for age in step.ages)
    found = ", ".join(f"{count} groups {age} steps old" for age, count in sorted(ages.items()))
    if setting.sampler == "ready_first":
        return _check("no group is younger than its step", min(ages) >= 0, found)
    claim = f"no trained group is more than {setting.staleness} steps old"
    return _check(claim, min(ages) >= 0 and max(ages) <= setting.staleness, found)


def last_checkpoint_is_sound(directory: Path) -> Check:
    """`python -m impl fsck`: every digest, no prompt with two owners, and the newest is what a resume takes."""
    report = directory / "fsck.json"
    command = ["-m", "impl", "fsck", str(directory / CHECKPOINTS), "--json", str(report)]
    done = _python(command)
    if done.returncode != 0:
        return Check("fsck finds the last checkpoint sound", "fails", _last_line(done))
    said = json.loads(report.read_text(encoding="utf-8"))
    newest = said["checkpoints"][0]
    sound = said["verdict"] == "holds" and newest["state"] == "whole" and newest["digests_checked"]
    idle = newest["owners"]["pending"] == newest["owners"]["buffered"] == 0
    found = (
        f"{newest['name']} is {newest['state']}; a resume takes {said['resume']['name']}; {said['lock']['state']} lock"
    )
    holds = sound and idle and said["resume"]["name"] == newest["name"] and said["lock"]["state"] != "held"
    return _check("fsck finds the last checkpoint sound", holds, found)


def trace_is_accepted(directory: Path) -> Check:
    """`python -m interleavings validate`: the machines can take every step that the run took."""
    return judged_trace(_python(["-m", "interleavings", "validate", str(directory / TRACE)]))


def judged_trace(done: subprocess.CompletedProcess[str]) -> Check:
    """What the command's end means; one that came to no conclusion is no pass."""
    claim = "python -m interleavings validate accepts the trace of the run"
    said = _last_line(done)
    if done.returncode == _OPEN:
        return Check(claim, "not run", said)
    # Of a refusal everything: which line it is about and why is what whoever looks for the cause needs.
    return _check(claim, done.returncode == 0, said if done.returncode == 0 else (done.stdout + done.stderr).strip())


def _python(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1] if lines else f"no word, exit status {done.returncode}"


def _check(claim: str, holds: bool, found: str) -> Check:
    return Check(claim, "holds" if holds else "fails", found)
