"""Reading a directory of checkpoints: what is taken for one, and that no damage is read as data."""

import errno
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest
from store_situations import failing_files, new_store, open_store, publish, text_of

import impl
from impl import CheckpointCorrupt, CheckpointDamaged, StoreFailed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with one checkpoint."""
    with open_store(tmp_path) as store:
        publish(store, 1)
    return tmp_path


def files_of(root: Path, name: str = "step_1-1") -> list[Path]:
    return sorted(path for path in (root / name).rglob("*") if path.is_file())


def test_case_E23_a_flipped_bit_in_any_byte_is_detected_and_the_file_is_named(root: Path) -> None:
    """Case E23: every byte of every file, the manifest and its digest included."""
    bytes_flipped = 0
    for path in files_of(root):
        good = path.read_bytes()
        named = "manifest" if path.name.startswith("manifest") else path.relative_to(root).as_posix()
        for offset in range(len(good)):
            bad = bytearray(good)
            bad[offset] ^= 1 << offset % 8
            path.write_bytes(bad)
            with pytest.raises(CheckpointDamaged, match=named):
                text_of(root, "step_1-1")
            bytes_flipped += 1
        path.write_bytes(good)
    assert bytes_flipped > 1000
    assert text_of(root, "step_1-1") == "step 1"


def test_case_E23_a_file_cut_short_at_any_length_or_grown_is_detected(root: Path) -> None:
    """Case E23: existence of a manifest was taken for validity."""
    for path in files_of(root):
        good = path.read_bytes()
        for changed in [good[:length] for length in range(0, len(good), max(1, len(good) // 40))] + [good + b"\0"]:
            path.write_bytes(changed)
            with pytest.raises(CheckpointDamaged, match=r"step_1-1"):
                text_of(root, "step_1-1")
        path.write_bytes(good)


def test_case_E23_two_files_of_equal_size_that_change_places_are_detected(tmp_path: Path) -> None:
    """Case E23: each is whole by itself."""
    with open_store(tmp_path) as store:
        publish(store, 1, "aaaa")
        publish(store, 2, "bbbb")
    mine, other = tmp_path / "step_1-1" / "words.json", tmp_path / "step_2-2" / "words.json"
    first, second = mine.read_bytes(), other.read_bytes()
    mine.write_bytes(second)
    other.write_bytes(first)
    for name in ("step_1-1", "step_2-2"):
        with pytest.raises(CheckpointDamaged, match=rf"{name}/words\.json is damaged"):
            text_of(tmp_path, name)


@pytest.mark.parametrize(
    "member", ["words.json", "trainer/weights.bin", "manifest.json", "manifest.sha256", "trainer", ""]
)
@pytest.mark.parametrize("kind", ["link", "fifo", "missing", "directory", "file"])
def test_case_E19_only_regular_files_in_real_directories_are_read(root: Path, member: str, kind: str) -> None:
    """Case E19: a payload or a directory replaced by a link to a true copy outside, a fifo that would block, or nothing
    but an empty one of its own kind."""
    path = root / "step_1-1" / member if member else root / "step_1-1"
    outside = root / "outside"
    path.rename(outside)
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "file":
        path.write_bytes(b"")
    with pytest.raises(CheckpointDamaged, match="step_1-1"):
        text_of(root, "step_1-1")


def test_case_E21_an_enormous_manifest_is_refused_without_being_read(root: Path) -> None:
    """Case E21: a length field must not size an allocation."""
    with (root / "step_1-1" / "manifest.json").open("r+b") as file:
        file.truncate(2 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointDamaged, match="was not read"):
            new_store(root).reader("step_1-1")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOENT])
def test_a_disk_that_cannot_give_a_file_back_has_damaged_the_checkpoint(root: Path, error: int) -> None:
    """A restore may then take the checkpoint before."""
    with pytest.raises(CheckpointDamaged, match="cannot be read"):
        new_store(root, failing_files(error, call="read_into", nth=0)).reader("step_1-1")


@pytest.mark.parametrize("error", [errno.EACCES, errno.EMFILE])
def test_a_process_that_may_not_read_says_so_and_calls_no_checkpoint_damaged(root: Path, error: int) -> None:
    """Falling back to an older checkpoint because of a wrong permission would lose work for nothing."""
    with pytest.raises(StoreFailed):
        new_store(root, failing_files(error, call="open_read", nth=0)).reader("step_1-1")


def test_case_E02_what_is_no_checkpoint_is_listed_with_the_reason(root: Path) -> None:
    """Case E02: complete 10, truncated 20, without manifest 30, staging leftover 40, a file named 50."""
    with open_store(root, keep=9) as store:
        for step in (10, 20, 30):
            publish(store, step)
    (root / "step_20-3" / "trainer" / "weights.bin").write_bytes(b"short")
    (root / "step_30-4" / "manifest.json").unlink()
    shutil.copytree(root / "step_10-2", root / ".staging-5-old")
    (root / "step_50-6").write_text("a file")
    (root / "best").mkdir()
    catalogue = new_store(root).catalogue()
    assert [candidate.name for candidate in catalogue.candidates] == ["step_30-4", "step_20-3", "step_10-2", "step_1-1"]
    assert {entry.name: entry.reason for entry in catalogue.ignored} == {
        ".staging-5-old": "left over from a save or a removal that did not end",
        "step_50-6": "named like a checkpoint, but no directory: a file",
        "best": "not named like a checkpoint",
    }
    assert text_of(root, "step_10-2") == "step 10"
    with open_store(root, keep=9) as store:
        assert publish(store, 20, "again").manifest.name == "step_20-7"
    assert (root / ".staging-5-old").exists(), "a whole checkpoint that no writer has put there"
    assert (root / "best").exists(), "what is not ours is left alone"


def test_case_E07_the_order_is_that_of_the_numbers(tmp_path: Path) -> None:
    """Case E07: step_9 sorts after step_10 as text, and step_1000 before both."""
    with open_store(tmp_path, keep=9) as store:
        for step in (9, 10, 99, 100, 1000):
            publish(store, step)
    steps = [candidate.step for candidate in new_store(tmp_path).catalogue().candidates]
    assert steps == [1000, 100, 99, 10, 9]


def test_the_newest_is_the_one_saved_last_and_not_the_one_with_the_highest_step(tmp_path: Path) -> None:
    """A run that went back to step 10 and saved 20 again must not meet the abandoned 30."""
    with open_store(tmp_path, keep=9) as store:
        for step in (10, 20, 30, 20):
            publish(store, step)
    names = [candidate.name for candidate in new_store(tmp_path).catalogue().candidates]
    assert names == ["step_20-4", "step_30-3", "step_20-2", "step_10-1"]


def test_case_E09_padding_does_not_change_the_order_and_two_names_for_one_number_are_an_error(root: Path) -> None:
    """Case E09: a choice between two directories of one sequence would be a guess."""
    with open_store(root, keep=9) as store:
        publish(store, 100)
    (root / "step_100-2").rename(root / "step_000100-0002")
    assert text_of(root, "step_000100-0002") == "step 100"
    with open_store(root, keep=9) as store:
        assert publish(store, 101).manifest.sequence == 3
    shutil.copytree(root / "step_1-1", root / "step_0001-1")
    with pytest.raises(CheckpointCorrupt, match="step_0001-1 and step_1-1 both carry the sequence 1"):
        new_store(root).catalogue()


def test_a_directory_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """And looking does not make it."""
    assert new_store(tmp_path / "none").catalogue().candidates == ()
    assert not (tmp_path / "none").exists()


def test_case_E10_a_reader_needs_no_pointer(root: Path) -> None:
    """Case E10: missing or dangling, the newest checkpoint is found by looking."""
    for content in (None, "step_99-99\n", ""):
        (root / "LATEST").unlink(missing_ok=True)
        if content is not None:
            (root / "LATEST").write_text(content)
        assert new_store(root).catalogue().candidates[0].name == "step_1-1"


def test_the_errors_of_the_store_are_public_and_of_the_common_families() -> None:
    """A program that handles a damaged checkpoint or a failing disk must not import from inside the library."""
    assert impl.CheckpointDamaged is CheckpointDamaged
    assert impl.StoreFailed is StoreFailed
    assert issubclass(CheckpointDamaged, impl.CheckpointCorrupt)
    assert issubclass(StoreFailed, impl.CleancutError)
