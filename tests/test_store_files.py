"""`PosixFiles` keeps the promises of the protocol that the rest of the store is built on."""

import errno
import os
from pathlib import Path

import pytest

from impl.store import FileStat, PosixFiles

FILES = PosixFiles()


def test_a_new_file_never_takes_the_place_of_another_name(tmp_path: Path) -> None:
    """Opening over an existing file, or through a link, would write where nobody looks."""
    (tmp_path / "there").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("there", "link"):
        with pytest.raises(FileExistsError):
            FILES.open_new(str(tmp_path / name))
    assert (tmp_path / "there").read_bytes() == b"old"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_case_E19_only_regular_files_are_opened_and_a_fifo_does_not_block(tmp_path: Path, kind: str) -> None:
    """Case E19: a payload file replaced by something that leads outside, or waits for ever."""
    path = tmp_path / "name"
    if kind == "link":
        (tmp_path / "target").write_bytes(b"outside")
        path.symlink_to(tmp_path / "target")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(OSError, match=r"ELOOP|Too many levels|not a regular file"):
        FILES.open_read(str(path))
    assert FILES.stat(str(path)) == FileStat("directory" if kind == "directory" else "other", 0)


def test_a_write_is_continued_until_all_bytes_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take fewer bytes than it is given, and says so only in a number that is easily ignored."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data)[:3]))
    handle = FILES.open_new(str(tmp_path / "file"))
    FILES.write(handle, memoryview(b"abcdefgh"))
    FILES.write(handle, b"")
    FILES.close(handle)
    assert (tmp_path / "file").read_bytes() == b"abcdefgh"


def test_a_lock_excludes_a_second_one_in_the_same_process_until_it_is_given_back(tmp_path: Path) -> None:
    """A lock that belongs to the process would let two checkpointers of one process write into one directory."""
    path = str(tmp_path / "lock")
    first = FILES.lock(path)
    with pytest.raises(BlockingIOError) as refused:
        FILES.lock(path)
    assert refused.value.errno in (errno.EAGAIN, errno.EWOULDBLOCK)
    FILES.unlock(first)
    FILES.unlock(FILES.lock(path))


def test_a_lock_that_was_given_back_does_not_live_on_in_a_forked_process(tmp_path: Path) -> None:
    """A worker of a data loader inherits the open file, and may outlive the run that forked it."""
    files = PosixFiles()
    first = files.lock(f"{tmp_path}/LOCK")
    inherited = os.dup(first)
    try:
        files.unlock(first)
        files.unlock(files.lock(f"{tmp_path}/LOCK"))
    finally:
        os.close(inherited)


def test_names_are_listed_in_one_order(tmp_path: Path) -> None:
    """The order of a directory differs from machine to machine; a run must repeat."""
    for name in ("b", "a", "C", "10", "9"):
        (tmp_path / name).touch()
    assert FILES.listdir(str(tmp_path)) == ["10", "9", "C", "a", "b"]
