"""A checkpoint that is passed over is never a secret: it is in the log, in what a restore returns, and in fsck."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from controller_runs import Record, new_controller
from run_situations import Run

from impl import CheckpointCorrupt, CheckpointDamaged
from impl.inspection import Survey
from impl.inspection.survey import survey
from impl.store import PosixFiles


def linked_back(path: Path) -> None:
    shutil.move(path, path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def linked_within(path: Path) -> None:
    path.rename(path.with_name("kept"))
    path.symlink_to("kept")


def a_broken_link(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to("nowhere")


def a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_bytes(b"moved to the archive\n")


def an_empty_file(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


def a_fifo(path: Path) -> None:
    shutil.rmtree(path)
    os.mkfifo(path)


def an_empty_directory(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def without_its_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


REPLACED: list[Callable[[Path], None]] = [
    linked_back, linked_within, a_broken_link, a_file, an_empty_file, a_fifo, an_empty_directory, without_its_manifest,
]  # fmt: skip
#: What a damaged directory is told as, which it always was.
DAMAGED = (an_empty_directory, without_its_manifest)


async def three_saves(root: Path) -> Path:
    run = Run(root, keep=9)
    for _ in range(3):
        await run.checkpointer.save()
    await run.checkpointer.close()
    return root


def looked_at(root: Path) -> Survey:
    return survey(PosixFiles(), str(root), digests=True)


@pytest.mark.parametrize("replace", REPLACED)
async def test_case_G06_whatever_stands_in_the_place_of_the_newest_is_told_everywhere(
    tmp_path: Path, replace: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A resume took the older one with no line anywhere, and fsck said that all holds."""
    root = await three_saves(tmp_path / "run")
    replace(root / "step_0-3")
    found = looked_at(root)
    assert found.verdict == "fails"
    assert [problem for problem in found.problems if "step_0-3" in problem]
    assert found.resume.name == "step_0-2"
    assert "step_0-3" in found.resume.why
    run = Run(root, name="b")
    restored = await run.checkpointer.restore()
    await run.checkpointer.close()
    assert restored.name == "step_0-2"
    assert [entry.name for entry in restored.passed_over] == ["step_0-3"]
    told = [record for record in caplog.records if "step_0-3 is passed over" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.WARNING]


@pytest.mark.parametrize("replace", REPLACED)
async def test_case_G06_the_report_of_a_run_names_what_it_passed_over(
    tmp_path: Path, replace: Callable[[Path], None]
) -> None:
    """Who reads no log reads the report."""
    root = tmp_path / "run"
    await new_controller(root, Record()).run()
    newest = max((path for path in root.glob("step_*")), key=lambda path: int(path.name.rpartition("-")[2]))
    replace(newest)
    report = await new_controller(root, Record()).run()
    assert report.restored is not None
    assert [entry.name for entry in report.restored.passed_over] == [newest.name]
    again = await new_controller(root, Record()).run()
    assert again.restored is not None
    assert again.restored.passed_over == (), "the run has saved since, and what is taken is newer"


@pytest.mark.parametrize("replace", [linked_back, a_file, a_fifo])
async def test_case_G06_an_older_one_is_no_trouble_of_a_resume(
    tmp_path: Path, replace: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing newer is lost by it; it stands among what is ignored, as before."""
    root = await three_saves(tmp_path / "run")
    replace(root / "step_0-1")
    assert looked_at(root).problems == ()
    run = Run(root, name="b")
    restored = await run.checkpointer.restore()
    await run.checkpointer.close()
    assert (restored.name, restored.passed_over) == ("step_0-3", ())
    assert "passed over" not in caplog.text


@pytest.mark.parametrize("replace", [linked_back, a_file, a_broken_link])
async def test_case_G06_a_run_of_which_no_checkpoint_is_left_does_not_begin_anew_beside_them(
    tmp_path: Path, replace: Callable[[Path], None]
) -> None:
    """With all of them linked there were none: the run began at the first prompt, and buried itself."""
    root = await three_saves(tmp_path / "run")
    for path in list(root.glob("step_*")):
        shutil.rmtree(path) if path.name != "step_0-3" else replace(path)
    assert looked_at(root).resume.refused
    assert looked_at(root).verdict == "fails"
    run = Run(root, name="b")
    said = "step_0-3 is named like a checkpoint, but no directory"
    with pytest.raises(CheckpointCorrupt, match=said):
        run.checkpointer.latest()
    with pytest.raises(CheckpointCorrupt, match=said):
        await run.checkpointer.restore()
    await run.checkpointer.close()


async def test_case_G06_a_step_that_was_asked_for_and_is_a_link_is_refused_by_name(tmp_path: Path) -> None:
    """ "It was never saved, or retention has removed it" was said of a checkpoint that lies next door."""
    root = await three_saves(tmp_path / "run")
    for name in ("step_0-1", "step_0-2"):
        shutil.rmtree(root / name)
    (root / "step_0-3").rename(root / "step_5-3")
    linked_back(root / "step_5-3")
    shutil.copytree(tmp_path / "elsewhere", root / "step_0-1")
    run = Run(root, name="b")
    with pytest.raises(CheckpointDamaged, match=r"step_5-3 is named like a checkpoint, but no directory: a link"):
        await run.checkpointer.restore(step=5)
    await run.checkpointer.close()
