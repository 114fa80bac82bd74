"""examples/grpo as a whole: every sampler, and a run that is killed against one that is not."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from examples.grpo.__main__ import main
from examples.grpo.checks import (
    ages_within_bounds,
    broken_rows_were_dropped,
    every_prompt_ended,
    last_checkpoint_is_sound,
)
from examples.grpo.figures import BUFFER, DURATIONS, REWARD
from examples.grpo.killing import REPORT, run_example
from examples.grpo.life import Life
from examples.grpo.outcome import Outcome, read_outcome
from examples.grpo.setting import CHECKPOINTS, SAMPLERS, TRACE, Setting
from impl import read_trace
from impl.tracing import Event

ROOT = Path(__file__).parent.parent

#: Seven or eight steps of four prompts; the data has two epochs, and the last step of each is short.
SHORT = Setting(
    rows=15, broken_every=7, epochs=2, operands=4, prompts_per_step=4, loader_batch=3, workers=0, generations=6,
    width=16, layers=1, save_period=2, snapshot_period=0.005, latency=0.004, evaluation=0.02, lost_attempts=0.1,
)  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in a process of its own, where sums are made in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def undisturbed(directory: Path, setting: Setting) -> Outcome:
    """A run in this process, from the beginning to the end of the data."""
    directory.mkdir()
    setting.write(directory)
    asyncio.run(Life(directory, Setting.read(directory), io.StringIO()).run())
    return read_outcome(directory)


def actions(directory: Path) -> list[str]:
    return [record.action for _, record in read_trace(directory / TRACE) if isinstance(record, Event)]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_with_each_sampler_every_prompt_is_trained_or_dropped_once(tmp_path: Path, sampler: str) -> None:
    """A few steps with each, over the real loader, with lost attempts, broken rows and short steps."""
    setting = replace(SHORT, sampler=sampler, workers=2 if sampler == "windowed" else 0)
    outcome = undisturbed(tmp_path / "run", setting)
    assert len(outcome.steps) >= 5
    checks = [
        every_prompt_ended(setting, outcome), broken_rows_were_dropped(setting, outcome),
        ages_within_bounds(setting, outcome), last_checkpoint_is_sound(tmp_path / "run"),
    ]  # fmt: skip
    assert [check.verdict for check in checks] == ["holds"] * 4, checks
    taken = actions(tmp_path / "run")
    assert taken.count("write_back") == sum(len(step.keys) for step in outcome.steps)
    assert taken.count("publish") == len(outcome.saves)
    assert max(sample.generating + sample.ready + sample.claimed for sample in outcome.occupancy[0]) <= outcome.capacity


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Setting, int, str]:
    """A run without staleness, killed once at a moment that its seed decides; its status and what was shown."""
    directory = tmp_path_factory.mktemp("grpo") / "killed"
    setting = replace(SHORT, staleness=0, workers=2, seed=5)
    shown = io.StringIO()
    status = run_example(setting, directory, 1, None, Console(file=shown, width=160))
    return directory, setting, status, shown.getvalue()


def trainer_of(directory: Path) -> dict[str, torch.Tensor]:
    """Every tensor of model and optimizer in the last checkpoint."""
    newest = directory / CHECKPOINTS / (directory / CHECKPOINTS / "LATEST").read_text().strip()
    return {
        f"{name}/{key}": value
        for name in ("model", "optimizer")
        for key, value in load_file(newest / "trainer" / f"{name}-000.safetensors").items()
    }


@pytest.mark.slow
def test_a_killed_run_without_staleness_ends_as_one_that_was_never_killed(
    killed: tuple[Path, Setting, int, str], tmp_path: Path
) -> None:
    """The same keys as often, and more than that: the same steps, the same rewards, the same weights bit for bit."""
    directory, setting, _, _ = killed
    disturbed, whole = read_outcome(directory), undisturbed(tmp_path / "whole", setting)
    assert len(disturbed.lives) == 2
    keys = [sorted(key for step in outcome.steps for key in step.keys) for outcome in (disturbed, whole)]
    assert keys[0] == keys[1]
    assert len(keys[0]) == 2 * (15 - 2)
    assert disturbed.steps == whole.steps
    weights, expected = trainer_of(directory), trainer_of(tmp_path / "whole")
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)
    other = undisturbed(tmp_path / "other", replace(setting, seed=6))
    assert other.steps != whole.steps, "or equal steps would say nothing"


@pytest.mark.slow
def test_the_end_of_a_killed_run_shows_its_account_its_checks_and_its_figures(
    killed: tuple[Path, Setting, int, str],
) -> None:
    """The status is that of the checks: 0 when all hold, 3 while one of them cannot be made."""
    directory, _, status, shown = killed
    report = json.loads((directory / REPORT).read_text())
    verdicts = [check["verdict"] for check in report["checks"]]
    assert "fails" not in verdicts, report["checks"]
    assert verdicts.count("not run") <= 1
    assert status == (3 if "not run" in verdicts else 0)
    words = " ".join(shown.split())
    for part in ("life 1: began anew, killed", "life 2:", "prompts handed out 30", "trained 26", "dropped: failed 4",
                 "lost 0", "duplicated 0", "drain: open sections end", "example:"):  # fmt: skip
        assert part in words
    assert "\x1b" not in shown, "what is piped has no colours and no bar"
    for name in (REWARD, BUFFER, DURATIONS):
        data = (directory / name).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(data[16:20], "big") == 1080, "width in pixels"
        assert len(data) > 15_000, "an empty pair of axes is smaller"


def test_wrong_use_is_one_line_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory of another run, and arguments that mean nothing; nothing is begun."""
    (tmp_path / "something").write_text("")
    assert main(["--directory", str(tmp_path)]) == 2
    assert "is not an empty directory" in capsys.readouterr().err
    wrong: list[tuple[list[str], str]] = [
        (["--sampler", "random"], "argument --sampler: invalid choice"),
        (["--kills", "-1"], "argument --kills: '-1' is not a whole number from 0 to 50"),
        (["--staleness", "x"], "argument --staleness: 'x' is not a whole number from 0 to 8"),
        (["--kl-weight", "nan"], "argument --kl-weight: 'nan' is no number from 0 to 100"),
    ]
    for arguments, message in wrong:
        with pytest.raises(SystemExit) as refused:
            main([*arguments, "--directory", str(tmp_path / "new")])
        assert refused.value.code == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_help_needs_no_torch_and_shows_examples() -> None:
    """Somebody who looks around should not wait for seconds."""
    program = (
        "import sys; from examples.grpo.__main__ import main\n"
        "try: main(['--help'])\nexcept SystemExit: print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    )
    done: Any = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "examples:\n  python -m examples.grpo " in done.stdout
    assert done.stdout.splitlines()[-1] == "False False"
