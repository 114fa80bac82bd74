"""Faults of the disk, of other writers and of the parts, met by a whole run: it stays alive and loses nothing."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from controller_runs import Record, each_once, new_controller, settled_keys
from loop_turns import HANG_SECONDS
from run_situations import Run, documents, mixed
from store_situations import failing_files, new_store, open_store, publish, text_of, valid_texts

from impl import CleancutError, ReplayBuffer, StoreBusy, StoreFailed, StoreFull, UsageError
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Checkpointer
from impl.store import parse_checkpoint_name

FAULTS = {
    "disk full": (errno.ENOSPC, StoreFull),
    "quota": (errno.EDQUOT, StoreFull),
    "input/output error": (errno.EIO, StoreFailed),
    "read-only": (errno.EROFS, StoreFailed),
    "permission lost": (errno.EACCES, StoreFailed),
    "no handles": (errno.EMFILE, StoreFailed),
}


@pytest.mark.parametrize("call", ["mkdir", "open_new", "write", "fsync", "fsync_dir", "rename"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_case_E25_whatever_the_disk_does_the_run_goes_on_and_the_next_save_works(
    tmp_path: Path, fault: str, call: str
) -> None:
    """Case E25 for every fault: a typed error with the errno, the checkpoint before intact, the run unchanged."""
    number, kind = FAULTS[fault]
    first = await mixed(Run(tmp_path, name="first"))
    saved = await first.checkpointer.save()
    await first.checkpointer.close()
    before = documents(tmp_path, saved.name)
    # The first two files and directory syncs of this life are those of WRITER and of the staging directory.
    nth = {"mkdir": 0, "open_new": 2, "write": 2, "fsync": 2, "fsync_dir": 1, "rename": 0}[call]
    run = Run(tmp_path, name="second", files=failing_files(number, call=call, nth=nth))
    await run.checkpointer.restore()
    state = run.state()
    with pytest.raises(kind) as caught:
        await run.checkpointer.save()
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == number
    assert documents(tmp_path, saved.name) == before
    assert run.state() == state
    await run.reserve()
    later = await run.checkpointer.save()
    await run.checkpointer.close()
    resumed = Run(tmp_path, name="third")
    assert (await resumed.checkpointer.restore()).name == later.name
    assert resumed.state() == run.state()
    assert not list(tmp_path.glob(".staging*"))


async def test_case_E28_a_whole_run_on_a_directory_that_cannot_be_written_consumes_nothing(tmp_path: Path) -> None:
    """Case E28: nothing is generated, nothing trained, and the error says which directory."""
    record = Record()
    files = failing_files(errno.EROFS, call="lock", nth=0)
    checkpointer = Checkpointer(tmp_path / "run", CheckpointBarrier(trace=record.trace), files=files)
    controller = new_controller(None, record, checkpointer=checkpointer)
    with pytest.raises(StoreFailed, match=f"locking {tmp_path}/run failed"):
        await controller.run()
    assert (record.generated, record.trained) == ([], [])
    again = Record()
    controller = new_controller(tmp_path / "run", again)
    await controller.run()
    assert settled_keys(controller) == each_once(8)


async def test_case_E28_a_data_plane_that_cannot_be_saved_is_refused_when_it_is_attached(tmp_path: Path) -> None:
    """Case E28: at the start, not at the first save after work was consumed."""
    run = Run(tmp_path)

    class Forgetful:
        """A plane for a run that is never saved."""

        capture_mode = "references"

        def commit(self, cut: Any, group: Any, staged: Any, ready: Any = None) -> None: ...
        def rows(self, group: Any) -> None: ...
        def derive(self, rows: Any, columns: Any) -> None: ...
        def groups(self) -> None: ...
        def clear(self, group: Any) -> None: ...
        def capture(self, cut: Any, groups: Any) -> None: ...
        def release(self, capture: Any) -> None: ...

    buffer = ReplayBuffer(run.barrier, 4, Forgetful(), run.ledger)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"data plane is a Forgetful without persist\(\)"):
        Checkpointer(tmp_path, run.barrier).attach(
            ledger=run.ledger, loader=run.loader, sampler=run.sampler, buffer=buffer
        )


SAVER = """
import sys
from pathlib import Path
from impl.errors import StoreBusy
from store_situations import new_store, publish

root, name = Path(sys.argv[1]), sys.argv[2]
saves = refusals = 0
while saves < 10:
    store = new_store(root, keep=1000, name=name)
    try:
        store.open()
    except StoreBusy:
        refusals += 1
        continue
    for _ in range(5):
        publish(store, saves, f"{name} {saves}")
        saves += 1
    store.close()
print(refusals)
"""


def test_case_E14_four_processes_that_save_at_once_each_publish_their_own_or_are_refused(tmp_path: Path) -> None:
    """Cases E14, E15: all start together and fight for the directory; whoever is refused tries again."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    names = [f"process {number} " for number in range(4)]
    processes = [
        subprocess.Popen([sys.executable, "-c", SAVER, str(tmp_path), name], env=environment, stdout=subprocess.PIPE)
        for name in names
    ]
    for process in processes:
        output, _ = process.communicate(timeout=3000)
        assert process.returncode == 0, output
    texts = valid_texts(tmp_path)
    assert sorted(texts) == sorted(f"{name} {save}" for name in names for save in range(10))
    sequences = [parsed[1] for path in tmp_path.iterdir() if (parsed := parse_checkpoint_name(path.name))]
    assert len(set(sequences)) == len(sequences) == 40
    assert not list(tmp_path.glob(".staging*"))


def test_case_E15_two_hundred_saves_of_many_threads_are_all_valid_and_never_mixed(tmp_path: Path) -> None:
    """Case E15: one store a thread, no lock outside the store's own; none ever meets another's staging directory."""
    unexpected: list[BaseException] = []

    def save_fifty(number: int) -> None:
        done = 0
        while done < 50:
            store = new_store(tmp_path, keep=1000, name=f"thread {number} ")
            try:
                store.open()
                for _ in range(10):
                    publish(store, done, f"{number}/{done}")
                    done += 1
            except StoreBusy:
                continue
            except BaseException as error:
                unexpected.append(error)
                return
            finally:
                store.close()

    threads = [threading.Thread(target=save_fifty, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert unexpected == []
    assert sorted(valid_texts(tmp_path)) == sorted(f"{number}/{done}" for number in range(4) for done in range(50))


STOPPED = """
import sys
from pathlib import Path
from store_situations import new_store, publish

store = new_store(Path(sys.argv[1]), name="zombie")
store.open()
publish(store, 1)
print("ready", flush=True)
sys.stdin.readline()
try:
    publish(store, 2)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


def test_a_stopped_writer_that_wakes_up_after_a_takeover_publishes_nothing(tmp_path: Path) -> None:
    """A real zombie: SIGSTOP, its lock lost as a network file system loses it, a successor that saves, SIGCONT."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", STOPPED, str(tmp_path)], env=environment, **pipes) as zombie:
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == "ready\n"
        zombie.send_signal(signal.SIGSTOP)
        (tmp_path / ".LOCK").unlink()
        with open_store(tmp_path, name="successor") as store:
            publish(store, 5)
            zombie.send_signal(signal.SIGCONT)
            said, _ = zombie.communicate("go\n", timeout=3000)
        assert said.startswith(f"StoreBusy {tmp_path} is being written by writer successor")
    assert valid_texts(tmp_path) == ["step 5", "step 1"]
    assert not list(tmp_path.glob(".staging*"))


def test_a_clean_up_that_fails_never_fails_the_save_and_is_made_up_for(tmp_path: Path) -> None:
    """Leftovers of every kind, a removal that the disk refuses: a notice, and the next save tries again."""
    with open_store(tmp_path) as store:
        publish(store, 1)
    for name in (".staging-7-dead", ".deleting-step_0-0", ".temporary-LATEST-dead"):
        if name.startswith(".temporary"):
            (tmp_path / name).write_text("half")
        else:
            (tmp_path / name / "deep" / "er").mkdir(parents=True)
            (tmp_path / name / "deep" / "file").write_bytes(b"x")
    store = new_store(tmp_path, failing_files(errno.EIO, call="rmdir", nth=0))
    store.open()
    assert publish(store, 2).notices == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".LOCK", "LATEST", "WRITER", "step_1-1", "step_2-2"]
    store.close()
    assert text_of(tmp_path, "step_2-2") == "step 2"


async def test_a_damaged_newest_leftovers_and_foreign_files_at_once_do_not_stop_a_resume(tmp_path: Path) -> None:
    """What a bad week leaves: the run resumes from what is whole, says what it passed over, and saves."""
    run = await mixed(Run(tmp_path))
    good = await run.checkpointer.save()
    await run.reserve()
    bad = await run.checkpointer.save()
    await run.checkpointer.close()
    (tmp_path / bad.name / "rows-000.safetensors").write_bytes(b"")
    (tmp_path / ".staging-9-dead").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step_99-x").mkdir()
    resumed = Run(tmp_path, name="next")
    restored = await resumed.checkpointer.restore()
    assert restored.name == good.name
    assert {entry.name for entry in restored.skipped} == {bad.name, ".staging-9-dead", "notes.txt", "step_99-x"}
    assert (await resumed.checkpointer.save()).sequence == 3
    await resumed.checkpointer.close()
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / bad.name).exists(), "what is damaged stays for whoever wants to look"


async def test_a_failing_disk_under_a_whole_run_stops_it_with_the_error_and_a_resume_loses_nothing(
    tmp_path: Path,
) -> None:
    """The controller raises the error of the background save; the next life goes on from the checkpoint before."""
    record = Record()
    files = failing_files(errno.EIO, call="fsync", nth=30, lasting=True)
    checkpointer = Checkpointer(tmp_path, CheckpointBarrier(trace=record.trace), verify="digest", files=files)
    with pytest.raises(CleancutError, match="The disk or the file system reports a fault"):
        await asyncio.wait_for(new_controller(None, record, prompts=12, checkpointer=checkpointer).run(), HANG_SECONDS)
    again = Record()
    controller = new_controller(tmp_path, again, prompts=12)
    report = await controller.run()
    assert report.restored is not None
    assert settled_keys(controller) == each_once(12)
