"""`fsck --probe`: each property the store needs is tried, and a file system that lacks it is told."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from store_situations import failing_files

from impl.__main__ import main
from impl.inspection.probe import probe
from impl.store import Files, Handle, PosixFiles


def test_the_probe_holds_on_a_local_file_system_and_leaves_nothing(tmp_path: Path) -> None:
    """Eight properties, and an empty directory afterwards."""
    (tmp_path / "place").mkdir()
    assert main(["fsck", "--probe", str(tmp_path / "place"), "--json", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["verdict"] == "holds"
    assert len(found["checks"]) == 8
    assert list((tmp_path / "place").iterdir()) == []


class LocksNobodyOut(PosixFiles):
    """As a network file system without a lock service."""

    def lock(self, path: str) -> Handle:
        return self.open_new(path) if not Path(path).exists() else self.open_read(path)


class CopiesForRename(PosixFiles):
    """A rename that leaves the old name behind."""

    def rename(self, source: str, target: str) -> None:
        self.mkdir(target)
        for name in self.listdir(source):
            (Path(target) / name).write_bytes((Path(source) / name).read_bytes())


class StaleReads(PosixFiles):
    """A client that never looks again."""

    def __init__(self) -> None:
        self._seen: dict[str, bytes] = {}

    def open_read(self, path: str) -> Handle:
        if path in self._seen:
            Path(path).write_bytes(self._seen[path])
        else:
            self._seen[path] = Path(path).read_bytes()
        return super().open_read(path)


class MakesTwice(PosixFiles):
    """No exclusive creation."""

    def open_new(self, path: str) -> Handle:
        Path(path).unlink(missing_ok=True)
        return super().open_new(path)


@pytest.mark.parametrize(
    ("files", "lacking"),
    [
        (LocksNobodyOut(), {"the lock shuts out everybody else", "the lock ends with its holder, also a killed one"}),
        (CopiesForRename(), {"one rename moves a directory with all it holds"}),
        (StaleReads(), {"a fencing number is seen by others at once"}),
        (MakesTwice(), {"a name is taken by one creator only"}),
        (failing_files(errno.EINVAL, call="fsync_dir", nth=0, lasting=True), {"files and directories can be synced"}),
    ],
    ids=["no locks", "copies", "stale", "creates twice", "no directory sync"],
)
def test_a_file_system_that_lacks_something_is_told_by_name(files: Files, lacking: set[str], tmp_path: Path) -> None:
    """A probe that always says yes would be worse than none."""
    results = {each.needed: each for each in probe(files, str(tmp_path))}
    assert lacking <= {needed for needed, each in results.items() if not each.ok}
    assert all(results[needed].seen != "as needed" for needed in lacking)


def test_what_cannot_be_probed_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line."""
    (tmp_path / "file").write_text("")
    for place in ("none", "file"):
        assert main(["fsck", "--probe", str(tmp_path / place)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_replaced_file_is_watched_while_another_process_replaces_it(tmp_path: Path) -> None:
    """A file system whose replacement removes first would be caught."""

    class SeesNothing(PosixFiles):
        reads = 0

        def open_read(self, path: str) -> Any:
            if path.endswith("/replaced"):
                type(self).reads += 1
                if self.reads == 3:
                    raise FileNotFoundError(errno.ENOENT, "gone", path)
            return super().open_read(path)

    results = {each.needed: each for each in probe(SeesNothing(), str(tmp_path))}
    assert "no file while it was replaced" in results["a file is replaced whole under a reader's eyes"].seen
