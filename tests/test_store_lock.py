"""One writer per directory, also where a file system loses locks."""

import errno
import multiprocessing
import os
import signal
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from loop_turns import HANG_SECONDS
from store_situations import (
    Died,
    LayeredFiles,
    dying_files,
    failing_files,
    new_store,
    open_store,
    publish,
    valid_texts,
)

from impl import JsonlTracer, StoreBusy, StoreFailed, UsageError
from impl.store import Files


def test_case_E15_a_second_writer_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    """Case E15: two runs that save into one directory remove each other's checkpoints."""
    with open_store(tmp_path, name="first") as first:
        publish(first, 1)
        second = new_store(tmp_path, name="second")
        with pytest.raises(StoreBusy, match="being written by writer first"):
            second.open()
        with pytest.raises(StoreBusy, match="another checkpointer of this process"):
            new_store(tmp_path, name="first").open()
        publish(first, 2)
    second.open()
    publish(second, 3)
    second.close()
    assert valid_texts(tmp_path) == ["step 3", "step 2", "step 1"]


def hold_until_killed(root: Path, ready: "multiprocessing.synchronize.Event") -> None:
    store = new_store(root, name="doomed")
    store.open()
    publish(store, 1)
    ready.set()
    signal.pause()


def test_case_E15_a_killed_writer_blocks_nobody(tmp_path: Path) -> None:
    """Case E15: its claim ends with the process, whatever it left on the disk."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=hold_until_killed, args=(tmp_path, ready))
    process.start()
    assert ready.wait(HANG_SECONDS)
    with pytest.raises(StoreBusy, match="writer doomed"):
        new_store(tmp_path, name="next").open()
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    with open_store(tmp_path, name="next") as store:
        publish(store, 2)
    assert valid_texts(tmp_path) == ["step 2", "step 1"]


def hold_beside_a_forked_process_until_killed(root: Path, ready: "multiprocessing.synchronize.Event") -> None:
    store = new_store(root, name="doomed")
    store.open()
    tracer = JsonlTracer(root / "trace.jsonl")
    tracer.begin_run(None)
    tracer.flush()
    if os.fork() == 0:
        # What a worker does that collects its parent's objects: the lock is no longer its own to give back.
        store.close()
        ready.set()
        signal.pause()
    signal.pause()


def test_a_killed_writer_blocks_nobody_though_a_process_that_it_forked_lives_on(tmp_path: Path) -> None:
    """The workers of a data loader outlive a killed run by seconds; the run is started again at once."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=hold_beside_a_forked_process_until_killed, args=(tmp_path, ready))
    process.start()
    assert ready.wait(HANG_SECONDS)
    assert process.pid is not None
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    try:
        with pytest.raises(StoreBusy, match="writer doomed"):
            new_store(tmp_path, name="next").open()
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        os.kill(int(child), 0)
        with open_store(tmp_path, name="next") as store:
            publish(store, 1)
        JsonlTracer(tmp_path / "trace.jsonl").close()
    finally:
        process.kill()
        process.join()
        os.kill(int(child), signal.SIGKILL)
    assert valid_texts(tmp_path) == ["step 1"]


def test_a_forked_process_keeps_its_own_files_where_a_lock_was_refused_before(tmp_path: Path) -> None:
    """A descriptor that no lock stands behind any more may be another file's by the time of the fork."""
    (tmp_path / "other").write_text("no trace")
    with pytest.raises(UsageError, match="Appending would spoil it"):
        JsonlTracer(tmp_path / "other")
    with open_store(tmp_path / "run"), pytest.raises(StoreBusy):
        new_store(tmp_path / "run").open()
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(into, b"whole")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(into)
    assert os.read(out, 16) == b"whole"
    os.close(out)


def test_a_writer_that_was_overtaken_publishes_nothing(tmp_path: Path) -> None:
    """On a file system that lost the lock the fencing number is what tells the two apart."""
    with open_store(tmp_path, name="slow") as slow:
        publish(slow, 1)
        (tmp_path / ".LOCK").unlink()
        with open_store(tmp_path, name="fast") as fast:
            publish(fast, 2)
            with pytest.raises(StoreBusy, match="writer fast"):
                publish(slow, 3)
    assert valid_texts(tmp_path) == ["step 2", "step 1"]
    assert not list(tmp_path.glob(".staging*"))


@pytest.mark.parametrize("effect", [False, True], ids=["before", "after"])
def test_a_takeover_at_any_point_of_its_clean_up_leaves_no_checkpoint_in_part(tmp_path: Path, effect: bool) -> None:
    """The overtaken writer stands before its rename; the successor, which removes its files, has come to any call."""
    stops = 0
    for at in count():
        root = tmp_path / str(at)
        successor = new_store(root, dying_files(at, effect=effect), name="fast")

        def take_over(number: int, call: str, arguments: tuple[Any, ...], root: Path = root) -> None:
            if call == "rename" and (root / ".LOCK").exists():
                (root / ".LOCK").unlink()
                with suppress(Died):
                    successor.open()  # noqa: B023 - called within this turn of the loop

        slow = new_store(root, cast(Files, LayeredFiles(before=take_over)), name="slow")
        slow.open()
        try:
            publish(slow, 1)
        except StoreFailed:
            stops += 1
            assert valid_texts(root) == []
        else:
            assert valid_texts(root) == ["step 1"]
        slow.close()
        if successor.is_open:
            with suppress(Died):
                successor.close()
            break
    assert stops > 5


def test_the_fencing_number_rises_with_every_writer_even_if_its_file_is_lost(tmp_path: Path) -> None:
    """A number that could repeat would not fence."""
    fences: list[int] = []
    for spoil in (None, "unlink", "damage", None):
        if spoil == "unlink":
            (tmp_path / "WRITER").unlink()
        elif spoil == "damage":
            (tmp_path / "WRITER").write_text('{"fence": 1, "fence": 2}')
        with open_store(tmp_path) as store:
            fences.append(publish(store, len(fences)).manifest.fence)
    assert fences == [1, 2, 3, 4]


@pytest.mark.parametrize("call", ["lock", "open_new", "replace", "mkdir"])
def test_case_E28_a_directory_that_cannot_be_written_is_found_out_when_it_is_opened(tmp_path: Path, call: str) -> None:
    """Case E28: before any work is consumed, not at the first save."""
    store = new_store(tmp_path / "run", failing_files(errno.EROFS, call=call, nth=0))
    with pytest.raises(StoreFailed, match="may not write"):
        store.open()
    assert not store.is_open
    store.open()
    publish(store, 1)
    store.close()


def test_a_store_that_was_dropped_without_closing_gives_the_lock_back(tmp_path: Path) -> None:
    """A checkpointer that nobody refers to any more cannot save; it must not keep others from it."""
    store = new_store(tmp_path, name="dropped")
    store.open()
    del store
    with open_store(tmp_path, name="next") as successor:
        publish(successor, 1)
