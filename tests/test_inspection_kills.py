"""A real run that is killed twenty times: fsck after each death, and the resume that it foretold."""

import json
from pathlib import Path
from typing import Any

import pytest

from impl.__main__ import main
from impl.demo import CHECKPOINTS, STEPS, TRAINED_LOG, life, plan_kills

KILLS = 20


def fsck(directory: Path) -> tuple[int, Any]:
    """Status and JSON of the command."""
    status = main(["fsck", str(directory / CHECKPOINTS), "--json", str(directory / "fsck.json")])
    return status, json.loads((directory / "fsck.json").read_text())


def resumptions(directory: Path) -> list[int]:
    """The steps at which the lives of the run resumed; 0 for a life that began anew."""
    lines = (directory / TRAINED_LOG).read_text().splitlines()
    return [line["step"] for line in map(json.loads, lines) if line["event"] == "resumed"]


@pytest.mark.slow
def test_after_each_of_twenty_kills_fsck_reports_none_lost_and_names_what_the_resume_takes(tmp_path: Path) -> None:
    """SIGKILL at twenty moments of a small run that trains; then one flipped byte, and fsck says no."""
    foretold: list[int] = []
    deaths = 0
    for kill in plan_kills(KILLS, 7, STEPS):
        deaths += life(tmp_path, 7, kill).kill is not None
        if not (tmp_path / CHECKPOINTS).exists():
            foretold.append(0)
            continue
        status, found = fsck(tmp_path)
        assert status == 0, found["problems"]
        assert found["lock"]["state"] == "free"
        for each in found["checkpoints"]:
            assert each["state"] == "whole"
            assert each["owners"]["lost"]["count"] == each["owners"]["doubled"]["count"] == 0
        named = [each["step"] for each in found["checkpoints"] if each["name"] == found["resume"]["name"]]
        foretold.append(named[0] if named else 0)
    assert deaths == KILLS
    life(tmp_path, 7, None)
    assert resumptions(tmp_path)[1:] == foretold, "each life after a death resumed what fsck had named"
    status, found = fsck(tmp_path)
    assert status == 0
    assert found["checkpoints"][0]["owners"]["pending"] == 0

    newest = tmp_path / CHECKPOINTS / found["resume"]["name"]
    target = newest / "trainer" / "model-000.safetensors"
    data = bytearray(target.read_bytes())
    data[len(data) // 2] ^= 1
    target.write_bytes(data)
    status, found = fsck(tmp_path)
    assert status == 1
    assert found["resume"]["name"] == found["checkpoints"][1]["name"]
    assert "model-000.safetensors is damaged" in found["problems"][0]
