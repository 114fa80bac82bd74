"""What fsck and inspect find in a checkpoint directory, and that looking changes nothing."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_situations import NumberTrainer, Run, forge, mixed, saved
from store_situations import failing_files, open_store, publish

from impl import CleancutError
from impl.__main__ import main
from impl.inspection import Survey
from impl.inspection.lock_state import lock_state
from impl.inspection.survey import survey
from impl.store import PosixFiles


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    """A run's directory with two checkpoints, every kind of owner in the second."""
    run = Run(tmp_path / "run")
    await run.checkpointer.save(NumberTrainer(1))
    await mixed(run)
    await run.checkpointer.save(NumberTrainer(2))
    await run.checkpointer.close()
    return tmp_path / "run"


def look(root: Path, *, digests: bool = True) -> Survey:
    return survey(PosixFiles(), str(root), digests=digests)


def fsck(root: Path, tmp_path: Path, command: str = "fsck") -> tuple[int, Any]:
    """The command as a user runs it, and what it wrote as JSON."""
    status = main([command, str(root), "--json", str(tmp_path / "out.json")])
    return status, json.loads((tmp_path / "out.json").read_text())


def flip(path: Path, offset: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


async def test_a_sound_directory_holds_with_an_owner_for_every_prompt(root: Path, tmp_path: Path) -> None:
    """Names, kinds, lineage, owners and the checkpoint that a resume takes."""
    status, found = fsck(root, tmp_path)
    assert status == 0
    assert (found["verdict"], found["complete"], found["problems"]) == ("holds", True, [])
    newest, first = found["checkpoints"]
    assert (newest["name"], newest["parent"], newest["kind"], newest["state"]) == (
        "step_1-2",
        "step_0-1",
        "full",
        "whole",
    )
    assert newest["digests_checked"] is True
    assert first["parent"] is None
    assert newest["owners"] == {
        "handed_out": 12, "trained": 4, "dropped": 0, "buffered": 2, "pending": 6, "spare": 0,
        "lost": {"count": 0, "examples": []},
        "doubled": {"count": 0, "examples": []},
        "ahead_of_the_loader": {"count": 0, "examples": []},
    }  # fmt: skip
    assert newest["bytes"] == sum(path.stat().st_size for path in (root / "step_1-2").rglob("*")
                                  if path.is_file() and not path.name.startswith("manifest"))  # fmt: skip
    assert 0 <= newest["age_seconds"] < 600
    assert found["resume"]["name"] == "step_1-2"
    assert found["lock"] == {"state": "free", "holder": "writer a", "fence": 1}
    assert found["latest"] == "step_1-2"


async def test_inspect_lists_every_file_with_its_digest_and_the_type_of_every_tensor(
    root: Path, tmp_path: Path
) -> None:
    """And says that digests were not compared."""
    status, found = fsck(root, tmp_path, "inspect")
    assert status == 0
    newest = found["checkpoints"][0]
    assert newest["digests_checked"] is False
    assert newest["counts"]["pending"] == {"value": 6, "unit": "groups"}
    rows = next(each for each in newest["files"] if each["name"] == "rows-000.safetensors")
    assert rows["tensors"]["4/tokens"] == {"dtype": "int64", "shape": [3, 2]}
    assert len(rows["sha256"]) == 64
    flip(root / "step_1-2" / "rows-000.safetensors")
    assert fsck(root, tmp_path, "inspect")[0] == 0, "the payload is not read"
    (root / "step_1-2" / "rows-000.safetensors").write_bytes(b"short")
    assert fsck(root, tmp_path, "inspect")[0] == 1


async def test_one_flipped_byte_anywhere_is_found_and_the_resume_passes_it_over(root: Path, tmp_path: Path) -> None:
    """Every file of the newest checkpoint in turn; what fsck says of the resume is what a restore does."""
    for path in sorted(path for path in (root / "step_1-2").rglob("*") if path.is_file()):
        good = path.read_bytes()
        flip(path, len(good) // 2)
        status, found = fsck(root, tmp_path)
        assert status == 1, path
        assert found["checkpoints"][0]["state"] == "damaged"
        named = "manifest" if path.name.startswith("manifest") else path.name
        assert named in found["problems"][0]
        assert found["resume"]["name"] == "step_0-1"
        assert "step_1-2" in found["resume"]["why"]
        assert (await Run(root).checkpointer.restore()).name == "step_0-1"
        path.write_bytes(good)
    assert fsck(root, tmp_path)[0] == 0


def without_entry(document: dict[str, Any]) -> None:
    del document["entries"][0]


def of_another_place(document: dict[str, Any]) -> None:
    document["state"]["position"] -= 4


def buffered_twice(document: dict[str, Any]) -> None:
    document["entries"][0]["index"] = document["entries"][1]["index"]


def of_a_prompt_not_drawn(document: dict[str, Any]) -> None:
    drawn = {entry["index"] for entry in document["entries"]}
    document["entries"][0]["index"] = next(index for index in range(16) if index not in drawn)


@pytest.mark.parametrize(
    ("member", "change", "lost", "doubled", "ahead", "resumes"),
    [
        ("ledger.json", without_entry, 1, 0, 0, False),
        ("loader.json", of_another_place, 0, 0, 4, False),
        ("ledger.json", buffered_twice, 1, 1, 0, False),
        ("ledger.json", of_a_prompt_not_drawn, 1, 0, 1, False),
    ],
    ids=["forgotten", "cursor behind", "twice", "another one instead"],
)
async def test_what_a_faulty_writer_lost_or_doubled_is_counted_and_named(
    tmp_path: Path,
    member: str,
    change: Callable[[dict[str, Any]], None],
    lost: int,
    doubled: int,
    ahead: int,
    resumes: bool,
) -> None:
    """All digests fit, so only the account of every key can tell."""
    run = await saved(tmp_path / "run")
    forge(tmp_path / "run", member, change)
    status, found = fsck(tmp_path / "run", tmp_path)
    assert status == 1
    owners = found["checkpoints"][0]["owners"]
    assert (owners["lost"]["count"], owners["doubled"]["count"], owners["ahead_of_the_loader"]["count"]) == (
        lost, doubled, ahead,
    )  # fmt: skip
    keys = {tuple(entry.key) for entry in run.ledger.entries.values()}
    for named in ("lost", "doubled"):
        assert {tuple(each["key"]) for each in owners[named]["examples"]} <= keys
    ahead_of_it = {tuple(each["key"]) for each in owners["ahead_of_the_loader"]["examples"]}
    assert ahead_of_it.isdisjoint(keys) if change is of_a_prompt_not_drawn else ahead_of_it <= keys
    assert (found["resume"]["name"] is not None) == resumes
    resumed = Run(tmp_path / "run")
    if resumes:
        assert (await resumed.checkpointer.restore()).name == found["resume"]["name"]
    else:
        with pytest.raises(CleancutError):
            await resumed.checkpointer.restore()


async def test_a_buffered_group_whose_rows_are_not_there_is_found_without_reading_the_payload(tmp_path: Path) -> None:
    """A restore would stop at it; every digest fits."""
    await saved(tmp_path / "run")
    forge(tmp_path / "run", "rows.json", lambda document: document["fields"].pop("7"))
    for command in ("fsck", "inspect"):
        status, found = fsck(tmp_path / "run", tmp_path, command)
        assert status == 1
        assert "group 7 is in the buffer index" in found["problems"][0]
        assert found["resume"]["refused"] is True
    with pytest.raises(CleancutError, match="group 7 is in the buffer index"):
        await Run(tmp_path / "run").checkpointer.restore()


async def test_a_header_that_disagrees_with_the_manifest_is_found_without_torch(tmp_path: Path) -> None:
    """A file can be whole, with the right digest, and hold other tensors than the manifest says."""
    await saved(tmp_path / "run")
    checkpoint = tmp_path / "run" / "step_1-1"
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"]["rows-000.safetensors"]["tensors"]["4/tokens"]["shape"] = [2, 3]
    whole = json.dumps(manifest).encode()
    import hashlib

    (checkpoint / "manifest.json").write_bytes(whole)
    (checkpoint / "manifest.sha256").write_text(f"{hashlib.sha256(whole).hexdigest()}  manifest.json\n")
    status, found = fsck(tmp_path / "run", tmp_path)
    assert status == 1
    assert "'4/tokens' is I64 [3, 2] in the file and int64 [2, 3] in the manifest" in found["problems"][0]
    program = (
        "import sys; sys.modules['torch'] = sys.modules['safetensors'] = None\n"
        "from impl.__main__ import main\n"
        f"sys.exit(main(['fsck', {str(tmp_path / 'run')!r}]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent.parent, capture_output=True, text=True
    )
    assert ended.returncode == 1, ended.stderr
    assert "TROUBLE: step_1-1/rows-000.safetensors" in ended.stdout


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        path.relative_to(root).as_posix(): (path.lstat().st_mtime_ns, path.lstat().st_ino, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }


async def test_looking_changes_nothing_also_beside_a_run_that_saves(root: Path, tmp_path: Path) -> None:
    """Not a byte, not a time, no lock; the run goes on saving meanwhile and its lock is seen."""
    (root / ".staging-9-other").mkdir()
    (root / ".staging-9-other" / "file").write_bytes(b"12345")
    (root / "best").mkdir()
    before = snapshot(root)
    status, found = fsck(root, tmp_path)
    assert status == 0
    assert found["leftovers"] == [{"name": ".staging-9-other", "bytes": 5}]
    assert found["ignored"] == [{"name": "best", "reason": "not named like a checkpoint"}]
    assert any("1 leftover of a save" in notice for notice in found["notices"])
    assert snapshot(root) == before
    run = Run(root, name="live")
    await run.checkpointer.restore()
    await run.checkpointer.prepare()
    status, found = fsck(root, tmp_path)
    assert status == 0
    assert found["lock"] == {"state": "held", "holder": "writer live", "fence": 2}
    assert (await run.checkpointer.save()).name == "step_1-3"
    assert main(["fsck", str(root), "--probe"]) == 2
    await run.checkpointer.close()


def test_a_checkpoint_that_retention_removes_meanwhile_is_not_called_damaged(tmp_path: Path) -> None:
    """Between listing and reading a live run may have removed the oldest."""
    with open_store(tmp_path) as store:
        publish(store, 1)
        publish(store, 2)

    class Vanishing(PosixFiles):
        def open_read(self, path: str) -> Any:
            if path.endswith("step_1-1/manifest.json"):
                shutil.rmtree(tmp_path / "step_1-1")
            return super().open_read(path)

    found = survey(Vanishing(), str(tmp_path), digests=True)
    assert [each.name for each in found.checkpoints] == ["step_2-2"]
    assert any("removed while it was looked at" in notice for notice in found.notices)


async def test_what_may_not_be_read_is_not_called_damaged_and_not_called_sound(root: Path) -> None:
    """Status 3: the check is not complete."""
    files = failing_files(errno.EACCES, call="open_read", nth=0, lasting=True)
    found = survey(files, str(root), digests=True)
    assert found.verdict == "inconclusive"
    assert found.problems == ()
    assert len(found.not_checked) == 2
    assert found.resume.name is None


async def test_a_snapshot_without_its_full_save_is_damaged_as_a_restore_finds_it(root: Path, tmp_path: Path) -> None:
    """The trainer's files are those of the anchor."""
    run = Run(root, name="second")
    await run.checkpointer.restore()
    await run.checkpointer.begin_snapshot()
    await run.checkpointer.close()
    status, found = fsck(root, tmp_path)
    assert (status, found["resume"]["name"]) == (0, "step_1-3")
    assert found["checkpoints"][0]["anchor"] == "step_1-2"
    flip(root / "step_1-2" / "trainer" / "value.json")
    status, found = fsck(root, tmp_path)
    assert status == 1
    assert [each["state"] for each in found["checkpoints"]] == ["damaged", "damaged", "whole"]
    assert found["resume"]["name"] == "step_0-1"
    assert (await Run(root).checkpointer.restore()).name == "step_0-1"


async def test_two_directories_of_one_sequence_are_trouble(root: Path, tmp_path: Path) -> None:
    """A restore refuses to choose, and fsck says so."""
    shutil.copytree(root / "step_1-2", root / "step_01-2")
    status, found = fsck(root, tmp_path)
    assert status == 1
    assert "both carry the sequence 2" in found["problems"][0]
    assert found["resume"] == {"name": None, "why": found["problems"][0], "refused": True}


@pytest.mark.parametrize("command", ["fsck", "inspect"])
def test_wrong_use_is_one_line_and_status_two(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Another directory, a checkpoint instead of its directory, a file that cannot be written."""
    with open_store(tmp_path / "run") as store:
        publish(store, 1)
    (tmp_path / "empty").mkdir()
    for arguments, said in (
        ([tmp_path / "none"], "is not a directory"),
        ([tmp_path / "empty"], "holds no checkpoints and no sign of a run that saves"),
        ([tmp_path], f"{tmp_path}/run is one"),
        ([tmp_path / "run" / "step_1-1"], "is one checkpoint; give the directory it lies in"),
        ([tmp_path / "run", "--json", tmp_path / "none" / "out.json"], "cannot write"),
    ):
        assert main([command, *map(str, arguments)]) == 2
        printed = capsys.readouterr().err
        assert said in printed
        assert len(printed.strip().splitlines()) == 1


def test_a_checkpoint_of_something_else_is_contradictory_and_an_empty_run_is_fine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run killed before its first save has a lock and no checkpoint."""
    with open_store(tmp_path) as store:
        assert main(["fsck", str(tmp_path)]) == 0
        assert "there is no checkpoint yet" in capsys.readouterr().out
        publish(store, 1)
    assert main(["fsck", str(tmp_path)]) == 1
    assert "lacks files that every checkpoint of a run has" in capsys.readouterr().out


async def test_json_to_standard_output_is_nothing_but_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So that a program may read it."""
    assert main(["fsck", str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "holds"


def test_the_lock_is_told_from_the_list_of_locks_alone(tmp_path: Path) -> None:
    """Trying it could refuse a run that starts in that moment."""
    assert lock_state(PosixFiles(), str(tmp_path)).state == "free"
    with open_store(tmp_path):
        assert lock_state(PosixFiles(), str(tmp_path)).state == "held"
        assert lock_state(PosixFiles(), str(tmp_path), tmp_path / "no such table").state == "unknown"
        elsewhere = tmp_path / "table"
        elsewhere.write_text(f"1: FLOCK  ADVISORY  WRITE 1 ff:ff:{os.stat(tmp_path / '.LOCK').st_ino} 0 EOF\n")
        assert lock_state(PosixFiles(), str(tmp_path), elsewhere).state == "unknown"
    assert lock_state(PosixFiles(), str(tmp_path)).state == "free"


async def test_an_interruption_says_how_far_it_had_come(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading every byte of a large directory takes its time."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("impl.inspection.survey.examine", interrupt)
    assert main(["fsck", str(root)]) == 130
    assert "interrupted while step_1-2, 1 of 2 was looked at" in capsys.readouterr().err
