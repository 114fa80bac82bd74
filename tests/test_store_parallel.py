"""Several files at a time: results in order, little in memory, and after an error nothing is written any more."""

import errno
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from loop_turns import HANG_SECONDS
from store_situations import IDENTITY, LayeredFiles, new_store, open_store, publish, valid_texts

from impl import StoreFailed, UsageError
from impl.store import LARGE_BYTES, CheckpointReader, Draft, Files, Job, StagedDirectory, in_parallel, parallel


def test_results_come_in_the_order_of_the_jobs_whatever_ends_first() -> None:
    """Large and small mixed; the first large one ends last."""
    may_end = threading.Event()

    def wait() -> str:
        assert may_end.wait(HANG_SECONDS)
        return "first"

    def end() -> str:
        may_end.set()
        return "third"

    jobs = [Job(wait, LARGE_BYTES), Job(lambda: "second", 1), Job(end, LARGE_BYTES), Job(lambda: "fourth", 1)]
    assert list(in_parallel(jobs, workers=2)) == ["first", "second", "third", "fourth"]


def test_jobs_are_made_as_there_is_room_and_never_all_at_once() -> None:
    """Of a lazy list of files only a few are in memory."""
    made = taken = most = 0

    def jobs() -> Iterator[Job[int]]:
        nonlocal made
        for number in range(50):
            made += 1
            yield Job(lambda number=number: number, LARGE_BYTES)  # type: ignore[misc]

    for _ in in_parallel(jobs(), workers=3):
        most = max(most, made - taken)
        taken += 1
    assert taken == 50
    assert most <= 5


def test_small_jobs_run_on_the_callers_thread_and_start_none() -> None:
    """So that a small run makes its calls in the same order every time, and the explorer can follow it."""
    before = threading.active_count()
    on = list(in_parallel([Job(threading.current_thread, LARGE_BYTES - 1) for _ in range(3)]))
    assert on == [threading.current_thread()] * 3
    assert threading.active_count() == before


def test_after_an_error_nothing_new_is_begun_and_what_runs_has_ended() -> None:
    """Whoever sees the error may remove the directory: nobody writes into it any more."""
    begun: list[int] = []
    ended: list[int] = []
    second_runs = threading.Event()

    def work(number: int) -> int:
        begun.append(number)
        if number == 0:
            assert second_runs.wait(HANG_SECONDS)
            raise OSError(errno.EIO, "broken")
        second_runs.set()
        ended.append(number)
        return number

    jobs = (Job(lambda number=number: work(number), LARGE_BYTES) for number in range(100))  # type: ignore[misc]
    with pytest.raises(OSError, match="broken"):
        list(in_parallel(jobs, workers=2))
    assert len(begun) < 100
    assert sorted(ended) == sorted(number for number in begun if number != 0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cleancut-files")]


@pytest.fixture
def low_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as large."""
    monkeypatch.setattr(parallel, "LARGE_BYTES", 0)


def many_files(number_of_files: int = 12) -> dict[str, dict[str, torch.Tensor]]:
    return {f"rows-{number:03d}.safetensors": {"t": torch.full((1000,), number)} for number in range(number_of_files)}


def fill(staged: StagedDirectory) -> dict[str, Any]:
    staged.writer("rows").write_tensor_files(iter(many_files().items()))
    return {}


@pytest.mark.usefixtures("low_bar")
def test_files_written_at_the_same_time_are_those_of_the_manifest_and_come_back(tmp_path: Path) -> None:
    """Each with its own digest; read in order, several at a time."""
    with open_store(tmp_path) as store:
        manifest = store.publish(Draft(1, store.take_sequence(), "full", None, None, IDENTITY), fill).manifest
    assert sorted(manifest.files) == [f"rows/{name}" for name in many_files()]
    reader: CheckpointReader = new_store(tmp_path).reader("step_1-1")
    reader.verify()
    names = list(many_files())
    for name, found in zip(names, reader.reader("rows").read_tensor_files(names), strict=True):
        assert torch.equal(found["t"], many_files()[name]["t"])


@pytest.mark.usefixtures("low_bar")
@pytest.mark.parametrize("call", ["open_new", "write", "fsync", "close"])
def test_a_fault_in_one_of_many_files_publishes_nothing_and_leaves_nothing(tmp_path: Path, call: str) -> None:
    """The error is that of the file; the other writers have ended before the directory is removed."""
    with open_store(tmp_path) as store:
        publish(store, 1)

    seen = count()

    def break_one(number: int, name: str, arguments: tuple[Any, ...]) -> None:
        in_a_helper = threading.current_thread().name.startswith("cleancut-files")
        if name == call and in_a_helper and next(seen) == 5:
            raise OSError(errno.EIO, "broken")

    store = new_store(tmp_path, cast(Files, LayeredFiles(before=break_one)))
    store.open()
    with pytest.raises(StoreFailed, match="broken"):
        store.publish(Draft(2, store.take_sequence(), "full", None, None, IDENTITY), fill)
    store.close()
    assert valid_texts(tmp_path) == ["step 1"]
    assert not list(tmp_path.glob(".*-*"))


def test_a_name_given_twice_among_many_files_is_refused(tmp_path: Path) -> None:
    """Also when the first of the two is still being written."""
    with open_store(tmp_path) as store:

        def twice(staged: StagedDirectory) -> dict[str, Any]:
            staged.writer().write_tensor_files([("a.safetensors", {"t": torch.ones(1)})] * 2)
            return {}

        with pytest.raises(UsageError, match=r"'a\.safetensors' was written twice"):
            store.publish(Draft(1, store.take_sequence(), "full", None, None, IDENTITY), twice)
    assert not list(tmp_path.glob("step*"))
