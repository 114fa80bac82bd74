"""Real file systems that are full, out of inodes, read-only or cut off from power. Root alone may make them."""

import asyncio
import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_situations import Run, documents, mixed
from store_situations import new_store, publish, valid_texts

from impl import StoreFailed, StoreFull

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.needs("mounts")


def mount(*options: str) -> None:
    subprocess.run(["mount", *options], check=True, capture_output=True)


@pytest.fixture
def small() -> Iterator[Path]:
    """A file system of one megabyte and sixty-four inodes, at a place that other users reach too."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    mount("-t", "tmpfs", "-o", "size=1m,nr_inodes=64", "none", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True, capture_output=True)
        place.rmdir()


async def test_case_E25_a_disk_filled_to_each_percentage_keeps_the_previous_checkpoint(small: Path) -> None:
    """Case E25: a real full disk; the error has its errno, the run is unchanged, and with room it saves again."""
    run = await mixed(Run(small / "run", keep=1))
    await run.checkpointer.save()
    outcomes = []
    for percentage in range(0, 101, 2):
        filling = small / "filling"
        room = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
        filling.write_bytes(b"x" * (room * percentage // 100))
        previous = run.checkpointer.latest()
        assert previous is not None
        before, state = documents(small / "run", previous.name), run.state()
        failure = None
        try:
            await run.checkpointer.save()
        except StoreFull as error:
            failure = error.__cause__
        if failure is not None:
            assert isinstance(failure, OSError)
            assert failure.errno == errno.ENOSPC
            assert documents(small / "run", previous.name) == before
            assert not list((small / "run").glob(".staging*")), "the room is needed"
            outcomes.append("full")
        else:
            outcomes.append("saved")
        assert run.state() == state
        filling.unlink()
    assert outcomes[0] == "saved"
    assert outcomes[-1] == "full"
    assert (await run.checkpointer.save()).name == run.checkpointer.latest().name  # type: ignore[union-attr]
    await run.checkpointer.close()


def test_case_E25_no_free_inode_is_said_to_be_no_room_and_passes(small: Path) -> None:
    """Case E25: space is left and no inode; at each number of free ones the save works or says so."""
    store = new_store(small / "run", keep=1)
    store.open()
    publish(store, 1)
    files: list[Path] = []
    while os.statvfs(small).f_ffree:
        files.append(small / f"file-{len(files)}")
        files[-1].write_bytes(b"")
    outcomes = []
    for _ in range(20):
        try:
            publish(store, 2)
            outcomes.append("saved")
        except StoreFull:
            outcomes.append("full")
            assert valid_texts(small / "run") == ["step 1"]
        files.pop().unlink()
    assert outcomes == sorted(outcomes), "once there are enough it works"
    assert set(outcomes) == {"full", "saved"}
    assert valid_texts(small / "run") == ["step 2"]
    store.close()


async def test_a_file_system_that_turned_read_only_is_restored_from_and_says_so_before_work_is_done(
    small: Path,
) -> None:
    """As ext4 does after an error; after the repair the same run saves."""
    first = await mixed(Run(small / "run"))
    saved = await first.checkpointer.save()
    await first.checkpointer.close()
    mount("-o", "remount,ro", str(small))
    run = Run(small / "run", name="next")
    assert (await run.checkpointer.restore()).name == saved.name
    state = run.state()
    for attempt in (run.checkpointer.prepare, run.checkpointer.save, Run(small / "other").checkpointer.prepare):
        with pytest.raises(StoreFailed, match="may not write there"):
            await attempt()
    assert run.state() == state == first.state()
    mount("-o", "remount,rw", str(small))
    assert (await run.checkpointer.save()).sequence > saved.sequence
    await run.checkpointer.close()


def as_nobody(root: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a user that owns nothing; what it must read is readable by all."""
    source = (
        "import asyncio, sys\nfrom pathlib import Path\nimport os\n"
        "from run_situations import Run\nfrom impl.errors import StoreFailed\n"
        # Everything is imported while it may still be read.
        "import impl.checkpoint.restoring\n"
        "os.setgid(65534)\nos.setuid(65534)\n"
        f"root = Path({str(root)!r})\n{program}"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=False)


def test_a_permission_that_is_lost_is_said_and_calls_no_checkpoint_damaged(small: Path) -> None:
    """Another user may neither write here nor read what is shut; the checkpoint is not passed over for it."""

    async def save() -> None:
        run = await mixed(Run(small / "run"))
        await run.checkpointer.save()
        await run.checkpointer.close()

    asyncio.run(save())
    small.chmod(0o755)
    for path in (small / "run").rglob("*"):
        path.chmod(0o755)
    writes = as_nobody(small / "run", "asyncio.run(Run(root).checkpointer.prepare())")
    assert f"locking {small}/run failed: Permission denied" in writes.stderr
    (small / "run" / "step_1-1" / "ledger.json").chmod(0o600)
    reads = as_nobody(small / "run", "asyncio.run(Run(root).checkpointer.restore())")
    assert f"reading {small}/run/step_1-1/ledger.json failed: Permission denied" in reads.stderr
    assert "which says nothing about the checkpoint" in reads.stderr


@pytest.mark.slow
def test_case_E03_fifty_power_cuts_lose_no_acknowledged_checkpoint(tmp_path: Path) -> None:
    """Case E03: a real ext4 that stops from one moment to the next; the control without fsync loses something."""
    script = [
        sys.executable,
        str(ROOT / "bench" / "power_cuts.py"),
        "--cuts",
        "50",
        "--json",
        str(tmp_path / "out.json"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=3000, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = {row["figure"]: row["value"] for row in json.loads((tmp_path / "out.json").read_text())}
    assert rows["power cuts on ext4"] == 50
    assert rows["checkpoints acknowledged before them"] >= 50
    assert rows["acknowledged checkpoints lost"] == rows["published checkpoints damaged"] == 0
    assert rows["control without fsync: lost or damaged (at least 1)"] >= 1
