"""What a directory may hold that nobody meant: texts that a terminal obeys, endless numbers, links, strange files."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inspection_damage import every_kind, replaced, seal
from loop_turns import HANG_SECONDS
from rich.console import Console
from run_situations import Run, forge, saved
from store_situations import failing_files, new_store, open_store, publish

from impl import CheckpointCorrupt, StoreFailed
from impl.__main__ import main
from impl.inspection import Readers, Watch, bytes_below, picture
from impl.inspection.examine import examine
from impl.inspection.survey import survey
from impl.store import HIGHEST_SEQUENCE, PosixFiles, checkpoint_name, folder_of

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(every_kind(tmp_path_factory.mktemp("sound") / "run"))


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    """A directory of its own, with four checkpoints of every kind."""
    return Path(shutil.copytree(sound, tmp_path / "run", symlinks=True))


def fsck(root: Path, tmp_path: Path) -> tuple[int, Any]:
    status = main(["fsck", str(root), "--json", str(tmp_path / "out.json")])
    return status, json.loads((tmp_path / "out.json").read_text())


def test_no_name_and_no_holder_reaches_the_terminal_as_it_is(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An escape sequence could clear the screen or forge a verdict; a name that is no UTF-8 was a traceback."""
    os.mkdir(os.fsencode(root) + b"/\xff\x1b[2J")
    (root / "WRITER").write_text(json.dumps({"fence": 3, "holder": "\x1b]0;mine\x07[/x]\u009b1m\nTROUBLE: none"}))
    (root / "LATEST").write_text("step_1-2\x1b[2K\n")
    status, found = fsck(root, tmp_path)
    said = capsys.readouterr().out
    assert status == 0
    assert "ignored: \\udcff\\x1b[2J: not named like a checkpoint" in said
    assert "last taken by \\x1b]0;mine\\x07[/x]\\x9b1m\\nTROUBLE: none with" in said
    assert "LATEST names step_1-2\\x1b[2K" in said
    assert not any(line.startswith("TROUBLE") for line in said.splitlines())
    assert found["ignored"][0]["name"] == "\\udcff\x1b[2J", "as text that any JSON reader takes"
    assert (tmp_path / "out.json").read_bytes().isascii()


def test_every_number_is_shown_however_narrow_the_terminal(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 60 columns headings were cut, at 40 states and parents; a name of a long run was cut at 80."""
    (root / "step_0-1").rename(root / "step_1000000-123456")
    for columns in ("40", "60", "80", "300"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["fsck", str(root)]) == 1
        words = [word.strip(",:()") for word in capsys.readouterr().out.split()]
        assert {"step_1000000-123456", "damaged", "rollout", "step_1-4", "handed", "buffered", "doubled"} <= set(words)
        assert not any("…" in word for word in words)
        console = Console(file=io.StringIO(), width=int(columns))
        watch = Watch(root)
        watch.look()
        console.print(picture(watch, console))
        assert isinstance(console.file, io.StringIO)
        shown = console.file.getvalue()
        assert "…" not in shown
        assert {"step_1-5", "rollout", "pending"} <= {word.strip(",:()") for word in shown.split()}


def broken(change: Callable[[dict[str, Any]], object], member: str) -> tuple[str, Callable[[dict[str, Any]], object]]:
    return member, change


@pytest.mark.parametrize(
    ("member", "change"),
    [
        broken(lambda d: d["state"].update(cursor="7"), "sampler.json"),
        broken(lambda d: d["state"].update(dropped=-1), "sampler.json"),
        broken(lambda d: d["state"].update(name="windowed"), "sampler.json"),
        broken(lambda d: d["parameters"].update(lookahead=3), "sampler.json"),
        broken(lambda d: d["state"].update(exhausted=[]), "loader.json"),
        broken(lambda d: d["state"].update(exhausted=True), "loader.json"),
        broken(lambda d: d["state"].update(seed=4), "loader.json"),
        broken(lambda d: d["state"].update(dataset_length=2**62), "loader.json"),
        broken(lambda d: d["entries"][0].update(index=16), "ledger.json"),
        broken(lambda d: d["entries"][0].update(epoch=-1), "ledger.json"),
        broken(lambda d: d["entries"][0].update(attempt=-1), "ledger.json"),
        broken(lambda d: d["slots"][0].update(index=99), "buffer.json"),
        broken(lambda d: d["slots"][0].update(weight=-1), "buffer.json"),
        broken(lambda d: d.update(capacity=1), "buffer.json"),
        broken(lambda d: d["accounts"]["trained"][0].update(first=2**39, last=2**39), "trainer.json"),
        broken(lambda d: d["budgets"].update(retries=-1), "trainer.json"),
        broken(lambda d: d["fields"].update({"4": 5}), "rows.json"),
        broken(lambda d: d.update(fields=None), "rows.json"),
        broken(lambda d: d.update(jagged=[]), "rows.json"),
        broken(lambda d: d["fields"].update({"4": ["nothing"]}), "rows.json"),
    ],
)
async def test_what_no_run_can_have_written_is_contradictory_to_fsck_and_to_a_restore(
    tmp_path: Path, member: str, change: Callable[[dict[str, Any]], object]
) -> None:
    """All digests fit. Each was whole to one of the two, put into place, a traceback, or a count without end."""
    await saved(tmp_path / "run")
    forge(tmp_path / "run", member, change)
    status, found = fsck(tmp_path / "run", tmp_path)
    assert (status, found["checkpoints"][0]["state"]) == (1, "contradictory")
    run = Run(tmp_path / "run")
    before = run.state()
    with pytest.raises(CheckpointCorrupt):
        await run.checkpointer.restore()
    assert run.state() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.update(parent="[/red]\x1b[2J"),
        lambda manifest: manifest.update(kind="rollout", anchor="../elsewhere/step_1-1"),
        lambda manifest: manifest.update(kind="rollout", anchor="step_0-0\0"),
        lambda manifest: manifest.update(kind="rollout"),
        lambda manifest: manifest["counts"]["pending"].update(value=5),
        lambda manifest: manifest["counts"].pop("trained"),
        lambda manifest: manifest["identity"].update(dataset_length=2**50),
        lambda manifest: manifest["identity"].update(dataset_digest="\ud800"),
    ],
)
async def test_an_edited_manifest_is_contradictory_and_leads_nowhere(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], capsys: pytest.CaptureFixture[str]
) -> None:
    """A name in it was looked for outside of the directory, and was a traceback where it was none."""
    await saved(tmp_path / "run")
    checkpoint = tmp_path / "run" / "step_1-1"
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    change(manifest)
    seal(checkpoint, json.dumps(manifest).encode())
    status, found = fsck(tmp_path / "run", tmp_path)
    assert (status, found["checkpoints"][0]["state"]) == (1, "contradictory")
    assert "\x1b" not in capsys.readouterr().out


def test_a_tensor_whose_place_has_not_its_size_is_found(root: Path, tmp_path: Path) -> None:
    """Shapes and types fit the manifest, and the places cover the file; the bytes would be those of the neighbour."""
    path = root / "step_1-4" / "rows-000.safetensors"
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    one, two = sorted((key for key in header if key.endswith("tokens")), key=lambda key: header[key]["data_offsets"])[
        :2
    ]
    header[one]["data_offsets"][1] += 8
    header[two]["data_offsets"][0] += 8
    text = json.dumps(header).encode()
    replaced(path.parent, path.name, len(text).to_bytes(8, "little") + text + data[end:])
    status, found = fsck(root, tmp_path)
    assert status == 1
    assert "and has 48 bytes" in found["problems"][0]


def test_a_file_that_somebody_put_into_a_folder_is_found_before_a_restore_stops_at_it(
    root: Path, tmp_path: Path
) -> None:
    """A file server leaves `.nfs…`, a desktop `.DS_Store`; whoever is given the folder may open them."""
    (root / "step_1-4" / "trainer" / "ranks" / ".nfs0001").touch()
    (root / "step_1-2" / "stray").touch()
    status, found = fsck(root, tmp_path)
    assert status == 1
    states = {each["name"]: each["state"] for each in found["checkpoints"]}
    assert states == {
        "step_1-5": "contradictory",
        "step_1-4": "contradictory",
        "step_1-2": "whole",
        "step_0-1": "whole",
    }
    assert folder_of("trainer/ranks/.metadata") == folder_of("trainer/ranks/__0_0.distcp") == "trainer/ranks"
    assert folder_of("trainer/value.json") is folder_of("rows.json") is None


def test_of_two_directories_with_one_sequence_both_are_looked_at(root: Path, tmp_path: Path) -> None:
    """So that somebody can tell which is meant: only one has the name that its manifest says."""
    shutil.copytree(root / "step_1-2", root / "step_7-2")
    status, found = fsck(root, tmp_path)
    assert status == 1
    states = {each["name"]: each["state"] for each in found["checkpoints"]}
    assert (states["step_1-2"], states["step_7-2"], len(states)) == ("whole", "damaged", 5)
    assert found["resume"]["refused"] is True
    assert "both carry the sequence 2" in found["resume"]["why"]


def test_a_link_among_the_leftovers_is_not_followed(root: Path, tmp_path: Path) -> None:
    """One to / took the whole machine for what a killed save had left."""
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "file").write_bytes(b"x" * 10_000)
    (root / ".staging-8-link").symlink_to(tmp_path / "large")
    assert bytes_below(str(root / ".staging-8-link")) < 10_000
    assert bytes_below(str(tmp_path / "large")) == 10_000
    (root / "manifest.json").touch()
    assert fsck(root, tmp_path)[0] == 0, "a manifest that lies astray does not make the directory a checkpoint"


def test_a_checkpoint_that_vanishes_at_any_call_is_not_called_damaged(root: Path) -> None:
    """A live run's retention takes the oldest; folders are looked into as well."""
    calls: list[str] = []

    class Vanishing(PosixFiles):
        def stat(self, path: str) -> Any:
            calls.append(path)
            if len(calls) == at and (root / "step_0-1").exists():
                (root / "step_0-1").rename(root / ".deleting-step_0-1")
            return super().stat(path)

    at = 0
    (candidate,) = [each for each in new_store(root).catalogue().candidates if each.name == "step_0-1"]
    assert examine(Readers(Vanishing(), str(root)), candidate, digests=False).state == "whole"
    for at in range(1, len(calls) + 1):
        calls.clear()
        assert examine(Readers(Vanishing(), str(root)), candidate, digests=False).state in ("removed", "whole"), at
        (root / ".deleting-step_0-1").rename(root / "step_0-1")


def test_what_may_not_be_looked_at_is_an_error_of_the_store(root: Path) -> None:
    """A directory that may not be searched raised a bare PermissionError out of a restore."""
    store = new_store(root, failing_files(13, call="stat", nth=0))
    with pytest.raises(StoreFailed, match="may not read it"):
        store.reader("step_1-2")


def test_no_save_is_made_that_no_restore_would_find(tmp_path: Path) -> None:
    """Names have 18 digits: after a directory with the highest sequence a save would get a name that is none."""
    with open_store(tmp_path) as store:
        publish(store, 1)
    (tmp_path / checkpoint_name(1, HIGHEST_SEQUENCE)).mkdir()
    with pytest.raises(CheckpointCorrupt, match="after which no checkpoint can come"):
        new_store(tmp_path).open()


def run_python(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "impl", *arguments]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_a_reader_that_leaves_is_no_wrong_use_and_an_ascii_terminal_is_no_traceback(root: Path) -> None:
    """`fsck --json | head` ended with 2 and a complaint about the pipe."""
    leaves = run_python("fsck", str(root), "--json")
    assert leaves.stdout is not None
    leaves.stdout.close()
    (root / "größe").touch()
    plain = run_python("fsck", str(root), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    said, complaints = plain.communicate(timeout=3000)
    assert (plain.returncode, complaints) == (0, "")
    assert "ignored: gr\\xf6\\xdfe: not named like a checkpoint" in said
    assert leaves.stderr is not None
    with leaves.stderr:
        assert "pipe" not in leaves.stderr.read()
    assert leaves.wait(HANG_SECONDS) == 3


def test_watch_survives_a_directory_that_comes_and_goes(sound: Path, tmp_path: Path) -> None:
    """It was refused before the run had made it, and said nothing when it went."""
    root = tmp_path / "run"
    watch = Watch(root)
    assert watch.look() == [f"{root} is not there yet"]
    assert watch.look() == []
    shutil.copytree(sound, root)
    assert sum(line.startswith("there: ") for line in watch.look()) == 4
    assert watch.look() == []
    shutil.copytree(root / "step_1-2", root / "step_01-2")
    assert not any(line.startswith("removed") for line in watch.look())
    shutil.rmtree(root)
    assert watch.look() == [f"gone: {root} has no sign of a run any more"]
    root.write_text("a file now")
    assert watch.look() == [f"{root} is not there yet"]
    assert picture(watch, Console()).renderables
    root.unlink()
    shutil.copytree(sound, root)
    assert len(watch.look()) > 4


def test_watch_goes_on_where_it_may_not_look(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the file system ended it with a traceback; it may pass."""
    watch = Watch(root)
    watch.look()
    monkeypatch.setattr("impl.inspection.watch.PosixFiles", lambda: failing_files(5, call="listdir", nth=0))
    assert [line.partition(":")[0] for line in watch.look()] == ["not looked at"]
    assert watch.look() == [], "once"
    assert watch.blind
    monkeypatch.undo()
    assert watch.look() == []
    assert not watch.blind


def test_watch_reads_nothing_again_that_has_not_changed(root: Path) -> None:
    """To count the owners of a million prompts takes seconds: every second, it would never rest."""
    opened: list[str] = []

    class Counting(PosixFiles):
        def open_read(self, path: str) -> Any:
            opened.append(path.removeprefix(f"{root}/"))
            return super().open_read(path)

    def look(known: Any) -> Any:
        opened.clear()
        found = survey(Counting(), str(root), digests=False, known={each.name: each for each in known})
        return found.checkpoints

    first = look(())
    assert len(opened) > 30
    second = look(first)
    assert set(opened) == {"LATEST", "WRITER"}
    (root / "step_1-2" / "ledger.json").write_bytes(b"{}")
    third = look(second)
    assert {name.partition("/")[0] for name in opened} == {"LATEST", "WRITER", "step_1-2"}
    assert [each.state for each in third] == ["whole", "whole", "damaged", "whole"]
    (root / "step_1-4" / "trainer" / "value.json").unlink()
    assert [each.state for each in look(third)] == ["damaged", "damaged", "damaged", "whole"], "and its snapshot"


def test_the_full_save_of_a_snapshot_is_read_once(root: Path) -> None:
    """The trainer's files are most of a checkpoint, and several snapshots stand on one full save."""
    shutil.copytree(root / "step_1-5", root / "step_1-6")
    manifest = json.loads((root / "step_1-6" / "manifest.json").read_text())
    seal(root / "step_1-6", json.dumps({**manifest, "sequence": 6}).encode())
    opened: list[str] = []

    class Counting(PosixFiles):
        def open_read(self, path: str) -> Any:
            opened.append(path.removeprefix(f"{root}/"))
            return super().open_read(path)

    found = survey(Counting(), str(root), digests=True)
    assert [each.state for each in found.checkpoints] == ["whole"] * 5
    assert all(each.digests_checked for each in found.checkpoints)
    files = [path.relative_to(root).as_posix() for path in root.glob("step_*/**/*") if path.is_file()]
    assert {path: opened.count(path) for path in files} == dict.fromkeys(files, 1)


def test_watch_ends_at_ctrl_c_with_its_summary(root: Path) -> None:
    """As a process, behind a pipe: one line each."""
    process = run_python("watch", str(root), "--interval", "0.01")
    assert process.stdout is not None
    while not process.stdout.readline().startswith("there: step_1-5"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    said, complaints = process.communicate(timeout=3000)
    assert (process.returncode, complaints) == (0, "")
    assert said.splitlines()[-1].endswith("0 published, 4 there now")
