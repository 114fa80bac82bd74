"""Retention beside a save: whoever waits for a checkpoint does not wait until the files of older ones are gone."""

import asyncio
import errno
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from loop_turns import HANG_SECONDS, turns
from run_situations import Run, mixed
from store_situations import LayeredFiles, failing_files

from impl import StoreFailed
from impl.checkpoint import Captured, CheckpointInfo
from impl.store import Files


@contextmanager
def files_that_are_slow_to_go() -> Iterator[tuple[Files, threading.Event]]:
    """Files of which none is unlinked before the event is set; the end of the block sets it."""
    may_go = threading.Event()

    def wait(number: int, call: str, arguments: tuple[Any, ...]) -> None:
        if call == "unlink":
            assert may_go.wait(HANG_SECONDS)

    try:
        yield cast(Files, LayeredFiles(before=wait)), may_go
    finally:
        may_go.set()


def checkpoints(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if "step" in path.name)


async def test_a_checkpoint_is_durable_before_older_ones_are_gone(tmp_path: Path) -> None:
    """What is to go was renamed, so no reader takes it for a checkpoint while its files go; the next save waits."""
    with files_that_are_slow_to_go() as (files, may_go):
        run = await mixed(Run(tmp_path, keep=1, files=files))
        await run.checkpointer.save()
        del run.events[:]
        info = await asyncio.wait_for(run.checkpointer.save(), HANG_SECONDS)
        assert info.notices == ()
        assert run.actions()[-2:] == ["publish", "report_save"], "told before anybody is woken, and told once"
        assert checkpoints(tmp_path) == [".deleting-step_1-1", "step_1-2"]
        assert run.checkpointer.statistics().completed == 2
        assert run.checkpointer.statistics().in_flight, "the writer thread still has to do"
        next_save = asyncio.create_task(run.checkpointer.save())
        await turns(50)
        assert not next_save.done()
        may_go.set()
        await asyncio.wait_for(next_save, HANG_SECONDS)
        await run.checkpointer.close()
    assert checkpoints(tmp_path) == ["step_1-3"]
    assert [action for action in run.actions() if action in ("publish", "fail_save")] == ["publish"] * 2


async def test_the_end_of_a_run_waits_for_what_is_being_removed(tmp_path: Path) -> None:
    """`close` gives the lock back, and no file of this writer may go after that."""
    with files_that_are_slow_to_go() as (files, may_go):
        run = await mixed(Run(tmp_path, keep=1, files=files))
        await run.checkpointer.save()
        await asyncio.wait_for(run.checkpointer.save(), HANG_SECONDS)
        end = asyncio.create_task(run.checkpointer.close())
        await turns(50)
        assert not end.done()
        may_go.set()
        await asyncio.wait_for(end, HANG_SECONDS)
    assert checkpoints(tmp_path) == ["step_1-2"]


async def test_files_that_could_not_go_are_told_in_the_log_and_go_with_the_next_save(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint was durable before: its `notices` are what was known then."""
    run = await mixed(Run(tmp_path, keep=1, files=failing_files(errno.EIO, call="unlink", nth=0)))
    await run.checkpointer.save()
    with caplog.at_level(logging.WARNING, "cleancut.store"):
        info = await run.checkpointer.save()
        third = await run.checkpointer.save()
    assert info.notices == third.notices == ()
    assert "leftovers of an earlier save stay until the next one" in caplog.text
    await run.checkpointer.close()
    assert checkpoints(tmp_path) == ["step_1-3"]


class Odd(Exception):
    """What no disk says: a fault of whoever wrote the `Files`, or of ours."""


def counting_files(odd_at: int | None, calls: list[tuple[str, tuple[Any, ...]]]) -> Files:
    """Files that note their calls, one of which raises what is no OSError."""

    def note(number: int, call: str, arguments: tuple[Any, ...]) -> None:
        calls.append((call, arguments))
        if number == odd_at:
            raise Odd(f"in call {number}")

    return cast(Files, LayeredFiles(before=note))


async def second_of_two_saves(directory: Path, odd_at: int | None) -> tuple[CheckpointInfo | Exception, list[str], int]:
    """A save that takes the place of another: its outcome, the calls so far by name, and the first after it counts."""
    calls: list[tuple[str, tuple[Any, ...]]] = []
    run = await mixed(Run(directory, keep=1, files=counting_files(odd_at, calls)))
    await run.checkpointer.save()
    try:
        outcome: CheckpointInfo | Exception = await run.checkpointer.save()
    except Exception as error:
        outcome = error
    await run.checkpointer.close()
    renamed = next((n for n, (call, to) in enumerate(calls) if call == "rename" and to[1].endswith("/step_1-2")), None)
    return outcome, [call for call, _ in calls], len(calls) if renamed is None else renamed + 2


async def test_whatever_goes_wrong_once_a_checkpoint_counts_it_is_durable_and_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An odd error in any later call, of the disk or not; the control is the same error in the calls before."""
    _, calls, first_later = await second_of_two_saves(tmp_path / "plain", None)
    end = len(calls) - calls[::-1].index("rmdir")
    assert {"replace", "rename", "unlink", "rmdir", "listdir"} <= set(calls[first_later:end])
    for number in range(first_later - 2, end):
        caplog.clear()
        outcome, _, _ = await second_of_two_saves(tmp_path / str(number), number)
        said = "\n".join(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
        if number < first_later:
            assert isinstance(outcome, Odd), number
            assert "checkpoint step_1-2 was not published: in call" in said, number
            continue
        assert isinstance(outcome, CheckpointInfo), (number, calls[number], outcome)
        assert outcome.name == "step_1-2"
        assert "not published" not in said
        assert f"Odd('in call {number}')" in said
        assert caplog.records[-1].exc_info is not None, "the place is needed: no disk says that"
        there = Run(tmp_path / str(number), name="later")
        assert (await there.checkpointer.restore()).name == "step_1-2"


async def test_rows_that_cannot_be_let_go_are_no_fault_of_the_save(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plane's own trouble: the checkpoint is durable, or has failed for its own reason."""

    def drop(captured: Captured) -> None:
        raise Odd("in drop")

    monkeypatch.setattr(Captured, "drop", drop)
    run = await mixed(Run(tmp_path, files=failing_files(errno.EIO, call="rename", nth=1)))
    assert (await run.checkpointer.save()).name == "step_1-1"
    assert "step_1-1: the plane could not let go of what was captured" in caplog.text
    assert "not published" not in caplog.text
    with pytest.raises(StoreFailed, match="injected into rename 1"):
        await run.checkpointer.save()
    await run.checkpointer.close()


async def test_where_nothing_goes_the_save_is_told_when_the_thread_has_ended(tmp_path: Path) -> None:
    """No second message between the threads for the ordinary save."""
    run = await mixed(Run(tmp_path, keep=3))
    await run.checkpointer.save()
    assert not run.checkpointer.statistics().in_flight
    await run.checkpointer.close()
