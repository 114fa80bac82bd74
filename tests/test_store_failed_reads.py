"""Every error at every call that reads: its type says what was found, and no word is of a save that nobody made."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from run_situations import Run, saved
from store_situations import failing_files, new_store, open_store, publish

from impl import CheckpointCorrupt, CheckpointDamaged, CleancutError, StoreFailed
from impl.inspection.survey import survey
from impl.store import DAMAGE, READING, FileStat, Handle, PosixFiles, store_error

READS = ("listdir", "stat", "open_read", "read_into")
#: Whoever reads has attempted no save.
OF_A_SAVE = re.compile(r"attempt|abandon|next save|save again|published|publish|untouched|no room")
#: Those which Python gives a meaning of their own, before the store sees them.
RETRIED = {errno.EINTR}


class Losing(PosixFiles):
    """Files of a disk that has lost everything whose path holds `name`, as one kind of call finds out."""

    def __init__(self, name: str, call: str) -> None:
        self._name, self._call = name, call
        self._lost: set[Handle] = set()

    def stat(self, path: str) -> FileStat:
        self._ask("stat", self._name in path)
        return super().stat(path)

    def open_read(self, path: str) -> Handle:
        self._ask("open_read", self._name in path)
        handle = super().open_read(path)
        (self._lost.add if self._name in path else self._lost.discard)(handle)
        return handle

    def read_into(self, handle: Handle, room: memoryview) -> int:
        self._ask("read_into", handle in self._lost)
        return super().read_into(handle, room)

    def _ask(self, call: str, lost: bool) -> None:
        if lost and call == self._call:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "run"
    with open_store(path) as store:
        publish(store, 1)
        publish(store, 2)
    return path


def look(root: Path, number: int, call: str, nth: int) -> CleancutError | None:
    """What listing, opening and verifying the newest checkpoint says when one call fails; None if none of them did."""
    store = new_store(root, failing_files(number, call=call, nth=nth))
    try:
        for candidate in store.catalogue().candidates[:1]:
            store.reader(candidate.name).verify()
    except CleancutError as error:
        return error
    return None


@pytest.mark.parametrize("call", READS)
def test_case_G18_every_error_of_every_read_is_told_as_a_failed_read(root: Path, call: str) -> None:
    """ENOMEM, EFBIG, ESTALE and EIO were "the attempt was abandoned; look at the disk before the next save"."""
    calls = next(nth for nth in range(100) if look(root, errno.ENOMEM, call, nth) is None)
    assert calls >= 1
    found: Counter[type[CleancutError]] = Counter()
    for number in sorted(set(errno.errorcode) - RETRIED):
        for nth in range(calls):
            error = look(root, number, call, nth)
            if error is None:
                # Missing when it is looked at: a live writer has removed it.
                assert (call, number) in {("stat", errno.ENOENT), ("listdir", errno.ENOENT)} or number in DAMAGE
                continue
            said = str(error)
            found[type(error)] += 1
            assert not OF_A_SAVE.search(said.replace("after it was published", "")), said
            assert "Nothing was changed" in said or "nothing was changed" in said or "Restore another" in said, said
            within = call != "listdir"
            expected = CheckpointDamaged if number in DAMAGE and within else StoreFailed
            assert type(error) is expected, (number, nth, said)
            if number != errno.ENOENT:
                assert f"(errno {number})" in said
                assert isinstance(error.__cause__, OSError)
    assert found[StoreFailed] > 50
    assert look(root, errno.EIO, call, calls) is None, "the next read is as good as ever"


def test_case_G18_what_is_said_of_the_process_the_way_and_the_medium_differs() -> None:
    """Who reads it has to know where to look: memory, the mount, the size, or the disk."""
    numbers = (errno.ENOMEM, errno.EFBIG, errno.ESTALE, errno.EIO, errno.EACCES, errno.EMFILE, errno.EBUSY)
    said = {number: str(store_error(OSError(number, os.strerror(number)), f"{READING}/x")) for number in numbers}
    assert len({text.partition(". ")[2] for text in said.values()}) == len(said)
    assert "no memory left" in said[errno.ENOMEM]
    assert "larger than this process can read" in said[errno.EFBIG]
    assert "mounted anew" in said[errno.ESTALE]
    assert "The medium or the file system reports" in said[errno.EIO]
    written = str(store_error(OSError(errno.EIO, os.strerror(errno.EIO)), "writing /x"))
    assert "before the next save" in written, "a failed write is still told as one"
    assert OF_A_SAVE.search(written), "and the search for its words finds them"


@pytest.mark.parametrize("call", ["stat", "open_read", "read_into"])
def test_case_G18_a_medium_that_has_lost_one_checkpoint_costs_that_one(tmp_path: Path, call: str) -> None:
    """An inode that cannot be read was the end of every resume, whatever lay beside it."""

    async def lives() -> tuple[str, list[str]]:
        await saved(tmp_path / "run")
        second = Run(tmp_path / "run", name="b")
        await second.checkpointer.restore()
        await second.checkpointer.save()
        await second.checkpointer.close()
        run = Run(tmp_path / "run", name="c", files=Losing("step_1-2", call))
        restored = await run.checkpointer.restore()
        await run.checkpointer.close()
        return restored.name, [entry.name for entry in restored.skipped]

    assert asyncio.run(lives()) == ("step_1-1", ["step_1-2"])
    found = survey(Losing("step_1-2", call), str(tmp_path / "run"), digests=True)
    assert [(each.name, each.state) for each in found.checkpoints] == [("step_1-2", "damaged"), ("step_1-1", "whole")]
    assert found.resume.name == "step_1-1"


def test_case_G18_no_memory_is_no_reason_to_take_an_older_checkpoint(root: Path) -> None:
    """Whatever says nothing about the file must not send the run back to the one before."""
    for number in (errno.ENOMEM, errno.ESTALE, errno.EFBIG, errno.EACCES, errno.EMFILE):
        for call in ("stat", "open_read", "read_into"):
            assert not isinstance(look(root, number, call, 3), CheckpointCorrupt)
