"""examples/adopt_controller.py: a controller that is not ours, on our parts, killed and failing anywhere."""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "adopt_controller.py"
PROMPTS = 22

Line = dict[str, Any]


def live(directory: Path, until: Callable[[Line], bool]) -> list[Line]:
    """One process; it is killed as soon as it says a line for which `until` holds."""
    lines = []
    command = [sys.executable, str(EXAMPLE), str(directory)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            lines.append(json.loads(text))
            if until(lines[-1]):
                process.kill()
                lines += [json.loads(rest) for rest in process.stdout if rest.endswith("\n")]
                break
    assert process.returncode == (-9 if lines[-1]["event"] != "ended" else 0)
    return lines


def what_counts(lives: list[list[Line]]) -> list[list[int]]:
    """The rows of each step that was trained for good: a life that begins at version v undoes the steps from v on."""
    steps: list[list[int]] = []
    for lines in lives:
        assert lines[0]["event"] == "begun"
        del steps[lines[0]["version"] :]
        for line in lines:
            if line["event"] == "trained":
                assert line["step"] == len(steps)
                steps.append(line["rows"])
    return steps


def assert_nothing_lost(lives: list[list[Line]]) -> None:
    """Every prompt trained exactly once, none of a durable step generated again, and the accounts say the same."""
    rows = Counter(row for step in what_counts(lives) for row in step)
    assert rows == Counter(range(PROMPTS))
    assert lives[-1][-1] == {"event": "ended", "trained": PROMPTS, "dropped": 0}
    for number, lines in enumerate(lives):
        settled = {row for step in what_counts(lives[:number])[: lines[0]["version"]] for row in step}
        assert settled.isdisjoint(line["row"] for line in lines if line["event"] == "generated")


@pytest.mark.slow
def test_it_is_killed_four_times_and_trains_every_prompt_once(tmp_path: Path) -> None:
    """SIGKILL before the first save, right after two train steps, and in the middle of a step's generation."""
    lives = [live(tmp_path, until=lambda line: line["event"] == "generated")]
    lives.append(live(tmp_path, until=lambda line: line["event"] == "trained" and line["step"] == 2))
    lives.append(live(tmp_path, until=lambda line: line["event"] == "generated"))
    lives.append(live(tmp_path, until=lambda line: line["event"] == "trained" and line["step"] == 4))
    lives.append(live(tmp_path, until=lambda line: False))
    assert [lines[0]["version"] for lines in lives[:2]] == [0, 0]
    # A save begins only when the one before is durable: a step trained means that the second before it is saved.
    assert 1 <= lives[2][0]["version"] <= lives[3][0]["version"]
    assert lives[4][0]["version"] >= 3
    assert_nothing_lost(lives)


class Failed(Exception):
    """What a life of the next test ends with."""


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("adopt_controller", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def life_that_fails(example: ModuleType, directory: Path, at: int | None) -> list[Line]:
    """One life in this process, which fails instead of saying its line number `at`."""
    lines: list[Line] = []

    def say(event: str, **fields: object) -> None:
        if len(lines) == at:
            raise Failed(event)
        lines.append({"event": event, **fields})

    example.say = say  # type: ignore[attr-defined]
    try:
        asyncio.run(example.main(str(directory)))
    except* Failed:
        pass
    return lines


def test_a_failure_at_any_event_loses_nothing_and_the_next_life_goes_on(tmp_path: Path) -> None:
    """The engine or the trainer raises: both pumps end, the save in flight is waited for, the next life resumes."""
    example = load_example()
    whole = life_that_fails(example, tmp_path / "undisturbed", None)
    assert_nothing_lost([whole])
    for at in range(1, len(whole)):
        directory = tmp_path / str(at)
        lives = [life_that_fails(example, directory, at), life_that_fails(example, directory, None)]
        assert len(lives[0]) == at, "it failed there, and nobody said anything after it"
        assert_nothing_lost(lives)


def test_it_fits_a_page() -> None:
    """What is promised of it: forty lines."""
    code = [line for line in EXAMPLE.read_text().partition("class AdoptedController")[2].splitlines() if line.strip()]
    length = next(number for number, line in enumerate(code) if line.startswith("async def generate"))
    assert length <= 40
