"""Restoring: what comes back is what was there, from the newest checkpoint that is whole."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_situations import Run, documents, forge, saved

from impl import CheckpointCorrupt, CheckpointDamaged, CheckpointNotFound, Phase
from impl.run.samplers import WindowedSampler


async def test_every_owner_comes_back_and_each_group_holds_one_permit(tmp_path: Path) -> None:
    """Trained, buffered, in flight, admitted, reserved, unread: the state is that of the save, without what is lost."""
    run = await saved(tmp_path)
    resumed = Run(tmp_path)
    restored = await resumed.checkpointer.restore()
    assert resumed.state() == run.state()
    assert (restored.name, restored.step, restored.version) == ("step_1-1", 1, 1)
    assert (restored.buffered, restored.pending, restored.skipped, restored.subtracted) == (2, 6, (), ())
    assert list(resumed.buffer.slots) == [7, 4], "in order of arrival, the gap between them kept"
    assert resumed.buffer.permits == resumed.buffer.capacity - 2
    (event,) = (fields for action, fields in resumed.events if action == "restore")
    ready = [(slot.group, *slot.key, slot.step, slot.weight) for slot in resumed.buffer.slots.values()]
    pending = [
        (entry.group, *entry.key, entry.phase.value, entry.admission, entry.step)
        for entry in resumed.ledger.entries.values()
    ]
    assert {**event, "ready": None, "pending": None} == {
        "name": "step_1-1", "sequence": 1, "step": 1, "version": 1, "cursor": resumed.sampler.cursor,
        "shortfalls": [], "dropped": 0, "loader": (0, resumed.loader.position, resumed.loader.exhausted),
        "ready": None, "pending": None, "spares": [], "fence": 1,
    }  # fmt: skip
    assert (event["ready"], event["pending"]) == (ready, pending)


async def test_saving_restoring_and_saving_again_with_no_progress_changes_nothing(tmp_path: Path) -> None:
    """Cases A20, A21, A27: five times over, each time in new objects; the second resume is as right as the first."""
    await saved(tmp_path, keep=9)
    first = documents(tmp_path, "step_1-1")
    for sequence in range(2, 7):
        resumed = Run(tmp_path, keep=9)
        await resumed.checkpointer.restore()
        info = await resumed.checkpointer.save()
        await resumed.checkpointer.close()
        assert info.name == f"step_1-{sequence}"
        assert documents(tmp_path, info.name) == first
        manifest = json.loads((tmp_path / info.name / "manifest.json").read_text())
        assert manifest["parent"] == f"step_1-{sequence - 1}"


async def test_case_A27_the_same_object_a_new_object_and_a_new_process_continue_alike(tmp_path: Path) -> None:
    """Case A27: a private flag that is not in the state hides in the object that saved."""
    run = await saved(tmp_path)
    script = """
import asyncio, sys
from pathlib import Path
from run_situations import Run

async def main():
    run = Run(Path(sys.argv[1]))
    await run.checkpointer.restore()
    print([(await run.admit()).keys for _ in range(1)], run.sampler.cursor, run.ledger.next_group)

asyncio.run(main())
"""
    command = [sys.executable, "-W", "error", "-c", script, str(tmp_path)]
    environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    in_new_process = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    resumed = Run(tmp_path)
    await resumed.checkpointer.restore()
    for continued in (resumed, run):
        admission = await continued.admit()
        assert f"{[admission.keys]} {continued.sampler.cursor} {continued.ledger.next_group}\n" == in_new_process


async def test_the_run_goes_on_to_the_end_with_every_prompt_exactly_once(tmp_path: Path) -> None:
    """Case A01: after the restore each unfinished group is generated once, none of the finished again."""
    await saved(tmp_path)
    run = Run(tmp_path)
    await run.checkpointer.restore()
    generated = []
    for admission in run.ledger.admissions(Phase.RESERVED):
        async with run.barrier.mutation() as cut:
            run.ledger.admit(cut, admission, run.sampler.commit_admission(cut))  # type: ignore[attr-defined]
    while not run.loader.exhausted:
        await run.admit()
    for group in list(run.ledger.entries):
        await run.finish(group)
        generated.append(group)
    while run.ready():
        groups = run.sampler.select(run.buffer.slots, run.version, 4)
        await run.train(await run.claim(*groups))
    assert generated == [5, 6, 8, 9, 10, 11, 12, 13, 14, 15]
    assert run.ledger.accounts.trained == ((0, 0, 15),)
    assert run.version == 4
    assert run.buffer.permits == run.buffer.capacity


async def test_case_A16_restoring_without_the_buffer_generates_again_and_loses_nothing(tmp_path: Path) -> None:
    """Case A16: the groups behind the stored results are pending again, with the same stamp and the same cursor."""
    run = await saved(tmp_path)
    resumed = Run(tmp_path, capacity=8)
    restored = await resumed.checkpointer.restore(load_buffer=False)
    assert (restored.buffered, restored.pending) == (0, 8)
    assert list(resumed.ledger.entries) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert {group: (entry.phase, entry.step, entry.admission) for group, entry in resumed.ledger.entries.items()} == {
        **dict.fromkeys((4, 5, 6, 7), (Phase.ADMITTED, 1, 1)),
        **dict.fromkeys((8, 9, 10, 11), (Phase.RESERVED, None, 2)),
    }
    assert resumed.sampler.state() == run.sampler.state()
    assert not resumed.buffer.slots
    assert not list(resumed.plane.groups())
    assert resumed.buffer.permits == 8
    assert documents(tmp_path, "step_1-1")["rows-000.safetensors"], "the rows stay until the new list is durable"
    await resumed.checkpointer.save()
    await resumed.checkpointer.close()
    again = Run(tmp_path)
    await again.checkpointer.restore()
    assert again.state() == resumed.state()


async def test_case_A16_finished_groups_without_pending_company_form_admissions_of_their_own(tmp_path: Path) -> None:
    """Each stamp one admission, with ids that were never given; unstamped ones by weight."""
    run = Run(tmp_path / "stamped")
    for _ in range(2):
        await run.finish(*(await run.admit()).groups)
    await run.checkpointer.save()
    resumed = Run(tmp_path / "stamped")
    await resumed.checkpointer.restore(load_buffer=False)
    assert [(entry.step, entry.admission) for entry in resumed.ledger.entries.values()] == [(0, 2)] * 4 + [(1, 3)] * 4
    assert resumed.ledger.next_admission == 4

    run = Run(tmp_path / "unstamped", sampler=WindowedSampler(2))
    await run.finish(*(await run.admit()).groups)
    await run.checkpointer.save()
    resumed = Run(tmp_path / "unstamped", sampler=WindowedSampler(2))
    await resumed.checkpointer.restore(load_buffer=False)
    assert [(entry.step, entry.admission) for entry in resumed.ledger.entries.values()] == [(None, 1)] * 4


async def test_a_group_that_ledger_and_buffer_both_hold_on_the_disk_is_the_buffers(tmp_path: Path) -> None:
    """A disk written before the cut subtracted: the restore subtracts again, and says what."""
    await saved(tmp_path)
    buffer = json.loads((tmp_path / "step_1-1" / "buffer.json").read_text())
    slot = next(slot for slot in buffer["slots"] if slot["group"] == 4)

    def add_lingering(document: dict[str, Any]) -> None:
        entry = {**document["entries"][0], "group": 4, "epoch": slot["epoch"], "index": slot["index"]}
        document["entries"].append(entry)

    forge(tmp_path, "ledger.json", add_lingering)
    run = Run(tmp_path)
    restored = await run.checkpointer.restore()
    assert restored.subtracted == (4,)
    assert 4 in run.buffer.slots
    assert 4 not in run.ledger.entries


async def history(directory: Path, steps: int) -> list[dict[str, object]]:
    """Saves after each of so many steps; returns the states."""
    run = Run(directory, length=40, keep=9)
    states = []
    for _ in range(steps):
        admission = await run.admit()
        await run.finish(*admission.groups)
        await run.train(await run.claim(*admission.groups))
        await run.checkpointer.save()
        states.append(run.state())
    await run.checkpointer.close()
    return states


async def test_case_E02_a_damaged_newest_is_passed_over_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Case E02: every restart then fails until somebody deletes it by hand; or nobody learns of it."""
    states = await history(tmp_path, 4)
    (tmp_path / "step_4-4" / "loader.json").write_text("{}")
    (tmp_path / "step_3-3" / "manifest.json").unlink()
    shutil.copytree(tmp_path / "step_2-2", tmp_path / ".staging-5-x")
    (tmp_path / "step_9-9").write_text("")
    run = Run(tmp_path, length=40, keep=9)
    restored = await run.checkpointer.restore()
    assert restored.name == "step_2-2"
    assert run.state() == states[1]
    assert [entry.name for entry in restored.skipped] == ["step_4-4", "step_3-3", ".staging-5-x", "step_9-9"]
    assert "step_4-4/loader.json is damaged" in restored.skipped[0].reason
    assert "step_4-4 is passed over" in caplog.text
    assert (await run.checkpointer.save()).name == "step_2-10"
    await run.checkpointer.close()


async def test_when_every_checkpoint_is_damaged_the_run_does_not_begin_anew(tmp_path: Path) -> None:
    """Starting from nothing beside a damaged run would bury it."""
    await history(tmp_path, 2)
    for name in ("step_1-1", "step_2-2"):
        (tmp_path / name / "ledger.json").write_text("[]")
    run = Run(tmp_path, length=40)
    complaint = r"none of the 2 .*step_2-2/ledger.*step_1-1/ledger"
    with pytest.raises(CheckpointCorrupt, match=complaint):
        await run.checkpointer.restore()
    with pytest.raises(CheckpointCorrupt, match=complaint):
        run.checkpointer.latest()


async def test_an_exact_step_is_restored_or_refused_and_never_another(tmp_path: Path) -> None:
    """Somebody who names a step wants that one."""
    states = await history(tmp_path, 3)
    run = Run(tmp_path, length=40, keep=9)
    assert (await run.checkpointer.restore(step=2)).name == "step_2-2"
    assert run.state() == states[1]
    admission = await run.admit()
    await run.finish(*admission.groups)
    await run.train(await run.claim(*admission.groups))
    assert (await run.checkpointer.save()).name == "step_3-4"
    await run.checkpointer.close()
    again = Run(tmp_path, length=40)
    assert (await again.checkpointer.restore(step=3)).name == "step_3-4", "of two, the one saved last"
    (tmp_path / "step_3-4" / "ledger.json").write_text("[]")
    with pytest.raises(CheckpointDamaged, match="step_3-4"):
        await Run(tmp_path, length=40).checkpointer.restore(step=3)
    with pytest.raises(CheckpointNotFound, match=r"no checkpoint of step 7; it has the steps 3, 3, 2, 1"):
        await Run(tmp_path, length=40).checkpointer.restore(step=7)


async def test_an_empty_directory_is_told_from_a_damaged_one_and_is_not_made(tmp_path: Path) -> None:
    """A new run begins after this; the object stays usable."""
    run = Run(tmp_path / "new")
    assert run.checkpointer.latest() is None
    with pytest.raises(CheckpointNotFound, match="begin a new run"):
        await run.checkpointer.restore()
    assert not (tmp_path / "new").exists()
    await run.checkpointer.save()
    assert (latest := run.checkpointer.latest()) is not None
    assert latest.name == "step_0-1"
    await run.checkpointer.close()


async def test_case_A19_a_save_at_any_place_of_the_data_continues_as_if_there_had_been_none(tmp_path: Path) -> None:
    """Case A19, A04: the end of an epoch and the end of the data included."""

    async def drain(run: Run) -> list[tuple[int, int]]:
        keys: list[tuple[int, int]] = []
        while not run.loader.exhausted:
            keys += (await run.reserve()).keys
        return keys

    uninterrupted = await drain(Run(tmp_path / "none", length=6, epochs=2))
    for batches in range(5):
        directory = tmp_path / str(batches)
        run = Run(directory, length=6, epochs=2)
        before = [key for _ in range(batches) for key in (await run.reserve()).keys]
        await run.checkpointer.save()
        resumed = Run(directory, length=6, epochs=2)
        await resumed.checkpointer.restore()
        assert before + await drain(resumed) == uninterrupted
        assert resumed.loader.exhausted
    assert len(uninterrupted) == 12
