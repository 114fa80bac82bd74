"""A folder in a checkpoint that others fill: the ranks of a sharded trainer, each with files and names of its own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
from crash_states import ROOT as DISK
from crash_states import Promised, broken_property
from simulated_disk import SimulatedDisk, crash_trees
from store_situations import IDENTITY, new_store, open_store

from impl import CheckpointCorrupt, CheckpointDamaged, UsageError
from impl.store import CheckpointReader, CheckpointStore, Count, Draft, StagedDirectory, names

#: As torch's distributed checkpoint names them, one of them as large as is read on a thread of its own.
SHARDS = {".metadata": b"about", "__0_0.distcp": b"a" * (3 << 20), "step/__1_0.distcp": b"b"}


def put(folder: Path, files: Mapping[str, bytes] = SHARDS) -> None:
    """Write as another process would, with no fsync."""
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


def published(root: Path, fill: Callable[[Path], None]) -> CheckpointReader:
    """A checkpoint whose trainer let others write."""
    with open_store(root) as store:
        return store.reader(store.publish(draft(store), lambda staged: filled(staged, fill)).manifest.name)


def draft(store: CheckpointStore) -> Draft:
    return Draft(step=1, sequence=store.take_sequence(), kind="full", parent=None, anchor=None, identity=IDENTITY)


def filled(staged: StagedDirectory, fill: Callable[[Path], None]) -> Mapping[str, Count]:
    writer = staged.writer("trainer")
    writer.write_json("about.json", {"ranks": 2})
    fill(Path(writer.folder("shards")))
    return {}


def test_files_that_others_wrote_are_listed_with_their_digests_and_given_back(tmp_path: Path) -> None:
    """Under the names they chose, as deep as they lie."""
    read = published(tmp_path, put)
    listed = {name: (record.length, record.sha256) for name, record in read.manifest.files.items() if "shards" in name}
    assert listed == {
        f"trainer/shards/{name}": (len(data), hashlib.sha256(data).hexdigest()) for name, data in SHARDS.items()
    }
    folder = Path(read.reader("trainer").folder("shards"))
    assert {name: (folder / name).read_bytes() for name in SHARDS} == SHARDS


@pytest.mark.parametrize("name", SHARDS)
def test_a_flipped_byte_is_found_before_anybody_is_given_the_path(tmp_path: Path, name: str) -> None:
    """As in any other file; and one that was removed."""
    read = published(tmp_path, put)
    path = tmp_path / read.name / "trainer" / "shards" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointDamaged, match=name):
        read.reader("trainer").folder("shards")
    path.unlink()
    with pytest.raises(CheckpointDamaged, match="not there"):
        new_store(tmp_path).reader(read.name).reader("trainer").folder("shards")


@pytest.mark.parametrize("name", ["more", "step/more", "empty/"])
def test_a_file_that_nobody_saved_is_not_shown_to_those_who_read_the_folder(tmp_path: Path, name: str) -> None:
    """They would open whatever lies there; a file outside of the folder is never opened and does no harm."""
    read = published(tmp_path, put)
    (tmp_path / read.name / "trainer" / "beside").write_text("")
    read.reader("trainer").folder("shards")
    added = tmp_path / read.name / "trainer" / "shards" / name
    added.mkdir() if name.endswith("/") else added.write_text("")
    with pytest.raises(CheckpointDamaged, match="not listed in the manifest"):
        read.reader("trainer").folder("shards")


def test_a_folder_that_was_not_saved_is_no_folder(tmp_path: Path) -> None:
    """Also one in which nothing was written: nobody who reads could tell the two apart."""
    read = published(tmp_path, lambda folder: None)
    for name in ("shards", "other"):
        with pytest.raises(CheckpointCorrupt, match="has no folder"):
            read.reader("trainer").folder(name)


def a_link(folder: Path) -> None:
    (folder / "link").symlink_to("/etc/passwd")


def a_linked_directory(folder: Path) -> None:
    (folder / "link").symlink_to("/etc")


def a_fifo(folder: Path) -> None:
    os.mkfifo(folder / "fifo")


def an_odd_name(folder: Path) -> None:
    put(folder, {"a b": b""})


def too_deep(folder: Path) -> None:
    (folder / "/".join("abcdefg")).mkdir(parents=True)


@pytest.mark.parametrize("fill", [a_link, a_linked_directory, a_fifo, an_odd_name, too_deep])
def test_case_E19_what_is_no_plain_file_is_refused_and_nothing_is_published(
    tmp_path: Path, fill: Callable[[Path], None]
) -> None:
    """Case E19: a link leads outside, a fifo blocks whoever reads it, and a name may be more than a name."""
    with pytest.raises(UsageError, match=r"was put into a folder of a checkpoint"):
        published(tmp_path, fill)
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("step_")] == []


@pytest.mark.parametrize(
    ("name", "said"),
    [("about.json", "written twice"), ("shards", "written twice"), ("../x", "cannot name"), ("Shards", "cannot name")],
)
def test_a_folder_has_a_fixed_name_that_nothing_else_has(tmp_path: Path, name: str, said: str) -> None:
    """A file of the participant, or another folder."""

    def fill(staged: StagedDirectory) -> Mapping[str, Count]:
        filled(staged, put)
        staged.writer("trainer").folder(name)
        return {}

    with open_store(tmp_path) as store, pytest.raises(UsageError, match=said):
        store.publish(draft(store), fill)


def test_a_participant_and_others_may_not_write_the_same_file(tmp_path: Path) -> None:
    """Whoever came second would have replaced it, or failed."""

    def fill(staged: StagedDirectory) -> Mapping[str, Count]:
        filled(staged, put)
        staged.writer("trainer").write_json("shards/more.json", {})
        return {}

    with open_store(tmp_path) as store, pytest.raises(UsageError, match="written twice"):
        store.publish(draft(store), fill)


@hypothesis.given(st.text("aA0_-./\\\0", min_size=1).filter(names.is_listed_name))
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.filter_too_much])
def test_no_name_that_a_manifest_may_list_leads_outside(name: str) -> None:
    """Hidden files are let pass, ways up and empty parts are not."""
    assert names.is_member_name(name.partition("/")[0]), "the first part is one of ours"
    assert all(part.strip(".") for part in name.split("/"))
    assert "\\" not in name
    assert "\0" not in name


# -- power cuts


def put_on(disk: SimulatedDisk, folder: Path) -> None:
    disk.mkdir(f"{folder}/step")
    for name, data in (("__0_0.distcp", b"shard of rank 0"), ("step/__1_0.distcp", b"shard of rank 1")):
        handle = disk.open_new(f"{folder}/{name}")
        disk.write(handle, data)
        disk.close(handle)


def worst_of(skip: int | None) -> tuple[list[str], str | None]:
    """The fsyncs of a save, and what is wrong in a crash state once its checkpoint counts, with one fsync left out."""
    disk = SimulatedDisk((("disk", ()),), skip)
    store = new_store(DISK, disk)
    store.open()
    store.publish(draft(store), lambda staged: filled(staged, lambda folder: put_on(disk, folder)))
    store.close()
    wrong = (broken_property(tree, Promised(1, 1)) for tree in crash_trees(disk.root, every=True))
    return disk.synced, next((found for found in wrong if found), None)


def test_case_E03_no_power_cut_loses_what_others_wrote_and_each_fsync_of_it_is_needed() -> None:
    """Case E03: they need not sync; files and directories of the folder are synced before the checkpoint counts."""
    synced, wrong = worst_of(None)
    assert wrong is None
    of_folder = [i for i, path in enumerate(synced) if "/shards" in path]
    assert [synced[i].rpartition("trainer/")[2] for i in of_folder] == [
        "shards/__0_0.distcp", "shards/step/__1_0.distcp", "shards/step", "shards",
    ]  # fmt: skip
    for skip in of_folder:
        _, wrong = worst_of(skip)
        assert wrong is not None, synced[skip]
        assert wrong.startswith("published_is_whole"), (synced[skip], wrong)
