"""The manifest: versions, its own digest, and the name it was published under."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_situations import new_store, open_store, publish

from impl import CheckpointCorrupt, CheckpointDamaged, CheckpointIncompatible


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with one checkpoint."""
    with open_store(tmp_path) as store:
        publish(store, 1)
    return tmp_path


def rewrite(root: Path, change: Callable[[dict[str, Any]], None], name: str = "step_1-1") -> None:
    """Change a manifest as a careful forger would: its digest fits afterwards."""
    path = root / name / "manifest.json"
    document = json.loads(path.read_text())
    change(document)
    data = json.dumps(document).encode()
    path.write_bytes(data)
    (root / name / "manifest.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n")


MISSING = object()


@pytest.mark.parametrize(
    "version", [-1, 0, 2, "1", "2", 1.0, 2.0, True, None, pytest.param(MISSING, id="missing")], ids=repr
)
def test_case_E27_any_other_schema_version_is_refused_with_both_versions(root: Path, version: object) -> None:
    """Case E27: an older or newer format may mean something else by the same fields."""

    def change(document: dict[str, Any]) -> None:
        if version is MISSING:
            del document["schema"]
        else:
            document["schema"] = version

    rewrite(root, change)
    before = (root / "step_1-1" / "manifest.json").read_bytes()
    said = "none" if version is MISSING else version
    with pytest.raises(CheckpointIncompatible, match=rf"schema version {said!r}; this version reads 1"):
        new_store(root).reader("step_1-1")
    assert (root / "step_1-1" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("field", ["parent", "anchor", "files", "identity", "counts", "sequence"])
def test_case_E27_a_missing_field_is_never_taken_for_an_empty_one(root: Path, field: str) -> None:
    """Case E27: absence and emptiness are different, also for what may be null."""
    rewrite(root, lambda document: document.pop(field))
    with pytest.raises(CheckpointCorrupt, match=rf"missing required field `{field}`"):
        new_store(root).reader("step_1-1")


def test_case_E27_an_unknown_field_is_refused(root: Path) -> None:
    """Somebody meant something by it."""
    rewrite(root, lambda document: document.update(compression="zstd"))
    with pytest.raises(CheckpointCorrupt, match="unknown field `compression`"):
        new_store(root).reader("step_1-1")


@pytest.mark.parametrize("name", ["../x", "/etc/x", "C:\\x", "a/../../x", "manifest.json", "", "Words.json"])
def test_case_E19_a_member_that_leads_outside_is_refused_before_anything_is_read(root: Path, name: str) -> None:
    """Case E19: the manifest is data too, and may be hostile."""

    def change(document: dict[str, Any]) -> None:
        document["files"][name] = document["files"]["words.json"]

    rewrite(root, change)
    with pytest.raises(CheckpointCorrupt, match="no name of a file inside"):
        new_store(root).reader("step_1-1")


def test_a_renamed_directory_is_no_checkpoint(root: Path) -> None:
    """Its name says what it is to everybody who lists the directory."""
    (root / "step_1-1").rename(root / "step_7-1")
    with pytest.raises(CheckpointDamaged, match="belongs to step_1-1"):
        new_store(root).reader("step_7-1")


def test_the_digest_of_the_manifest_can_be_checked_with_common_tools(root: Path) -> None:
    """The file has the form that sha256sum reads and writes."""
    line = (root / "step_1-1" / "manifest.sha256").read_text()
    digest = hashlib.sha256((root / "step_1-1" / "manifest.json").read_bytes()).hexdigest()
    assert line == f"{digest}  manifest.json\n"


def test_every_count_has_a_unit_and_every_file_a_length_and_a_digest(root: Path) -> None:
    """A number without a unit is read as something else by the next person."""
    document = json.loads((root / "step_1-1" / "manifest.json").read_text())
    assert document["counts"] == {"words": {"value": 1, "unit": "texts"}}
    for name, record in document["files"].items():
        data = (root / "step_1-1" / name).read_bytes()
        assert (record["length"], record["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert set(document["files"]) == {"words.json", "trainer/weights.bin"}
