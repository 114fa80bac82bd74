"""What fsck says of checkpoints with spares, of those without recovery, and of one whose spare has a second owner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, new_controller
from run_situations import NumberTrainer, Run, forge, mixed

from impl import CheckpointCorrupt
from impl.__main__ import main


def fsck(root: Path, report: Path) -> tuple[int, Any]:
    """The command as a user runs it, and what it wrote as JSON."""
    status = main(["fsck", str(root), "--json", str(report)])
    return status, json.loads(report.read_text())


async def with_spares(root: Path) -> None:
    run = await mixed(Run(root))
    await run.divert()
    await run.checkpointer.save()
    await run.checkpointer.close()


async def test_spares_are_owners(tmp_path: Path) -> None:
    """All 16 prompts are handed out, four of them into the pool: none is lost."""
    await with_spares(tmp_path / "run")
    status, found = fsck(tmp_path / "run", tmp_path / "out.json")
    assert (status, found["verdict"]) == (0, "holds")
    owners = found["checkpoints"][0]["owners"]
    kinds = ("trained", "dropped", "buffered", "pending", "spare")
    assert (owners["spare"], sum(owners[kind] for kind in kinds), owners["handed_out"]) == (4, 16, 16)


async def test_a_spare_with_a_second_owner_is_trouble(tmp_path: Path) -> None:
    """A prompt that is trained and a spare would be trained twice."""
    root = tmp_path / "run"
    await with_spares(root)
    pending = json.loads((root / "step_1-1" / "ledger.json").read_text())["entries"][0]

    def double(document: dict[str, Any]) -> None:
        document["spares"][0].update(epoch=pending["epoch"], index=pending["index"])

    forge(root, "spares.json", double)
    status, found = fsck(root, tmp_path / "out.json")
    assert (status, found["verdict"]) == (1, "fails")
    assert any("spare" in problem for problem in found["problems"])


async def test_a_checkpoint_without_recovery_is_whole_and_said_to_hold_the_trainer_alone(tmp_path: Path) -> None:
    """It is no checkpoint in which every prompt is lost, and none that any run resumes from."""
    root = tmp_path / "run"
    await new_controller(root, Record(), prompts=8, recovery=False, trainer=NumberTrainer()).run()
    status, found = fsck(root, tmp_path / "out.json")
    assert (status, found["verdict"]) == (0, "holds")
    assert {each["kind"] for each in found["checkpoints"]} == {"trainer"}
    assert any("saved without recovery" in notice for notice in found["notices"])
    assert "only a run with recovery=False does" in found["resume"]["why"]


@pytest.mark.parametrize("change", [{"version": -1}, {"step": -3}, {"cursor": -2}])
async def test_progress_that_no_trainer_has_made_is_contradictory_and_not_taken_up(
    tmp_path: Path, change: dict[str, int]
) -> None:
    """It was whole to fsck, and closed the barrier of the run that took it up."""
    root = tmp_path / "run"
    await new_controller(root, Record(), prompts=8, recovery=False, trainer=NumberTrainer()).run()
    newest = fsck(root, tmp_path / "out.json")[1]["checkpoints"][0]["name"]
    forge(root, "progress.json", lambda document: document.update(change), newest)
    status, found = fsck(root, tmp_path / "out.json")
    assert (status, found["checkpoints"][0]["state"]) == (1, "contradictory")
    again = new_controller(root, Record(), prompts=8, recovery=False, trainer=NumberTrainer())
    with pytest.raises(CheckpointCorrupt, match="no progress of a run"):
        await again.run()
