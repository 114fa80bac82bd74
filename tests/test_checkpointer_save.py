"""Saving: everything in one window, and on the disk exactly what was there then."""

import asyncio
import json
import threading
from pathlib import Path
from time import monotonic

import pytest
import torch
from loop_turns import turns, until
from run_situations import READS, HeldExecutor, NumberTrainer, Run, documents, mixed

from impl import UsageError
from impl.checkpoint import Captured, PendingSave, SnapshotSkipped, read_cut


async def test_everything_is_read_in_one_window_in_a_fixed_order_and_published_after_it(tmp_path: Path) -> None:
    """Case A02: nothing comes between two reads, and the window ends before any file is written."""
    run = await mixed(Run(tmp_path))
    del run.events[:]
    info = await run.checkpointer.save()
    assert run.actions() == ["request_cut", "open_cut", *READS, "close_cut", "publish", "report_save"]
    assert run.events[-2] == ("publish", {"name": "step_1-1", "sequence": 1, "step": 1, "kind": "full", "fence": 1})
    assert (info.name, info.step, info.sequence, info.kind) == ("step_1-1", 1, 1, "full")
    await run.checkpointer.close()


async def test_no_writer_gets_between_two_reads_however_many_are_waiting(tmp_path: Path) -> None:
    """Case A02: an admission is attempted in every gap; each falls wholly before or after the window."""
    run = Run(tmp_path, length=40)
    tasks = [asyncio.create_task(run.admit()) for _ in range(5)]
    save = asyncio.create_task(run.checkpointer.begin_save())
    tasks += [asyncio.create_task(run.admit()) for _ in range(5)]
    pending = await save
    await asyncio.gather(*tasks, return_exceptions=True)
    await pending.durable()
    actions = run.actions()
    start = actions.index("read_sampler")
    assert actions[start : start + len(READS)] == READS
    await run.checkpointer.close()
    restored = Run(tmp_path, length=40)
    await restored.checkpointer.restore()
    stamps = {entry.step for entry in restored.ledger.entries.values() if entry.step is not None}
    assert restored.sampler.cursor == max(stamps, default=-1)
    assert restored.loader.position == len(restored.ledger.entries)


async def test_the_files_hold_each_artifact_and_absence_never_means_anything(tmp_path: Path) -> None:
    """A side file that is missing when it is empty cannot be told from one that was lost (case E27)."""
    run = await mixed(Run(tmp_path))
    await run.checkpointer.save(NumberTrainer(7))
    await run.checkpointer.close()
    found = documents(tmp_path, "step_1-1", without=())
    assert sorted(found) == sorted(
        [
            "buffer.json",
            "ledger.json",
            "loader.json",
            "manifest.json",
            "manifest.sha256",
            "rows-000.safetensors",
            "rows.json",
            "sampler.json",
            "spares.json",
            "trainer.json",
            "trainer/value.json",
        ]
    )
    assert json.loads(found["spares.json"]) == {"spares": []}
    manifest = json.loads(found["manifest.json"])
    assert manifest["counts"]["buffered"] == {"value": 2, "unit": "groups"}
    assert manifest["counts"]["pending"] == {"value": 6, "unit": "groups"}
    assert manifest["counts"]["trained"] == {"value": 4, "unit": "prompts"}
    assert set(manifest["files"]) == set(found) - {"manifest.json", "manifest.sha256"}
    stamp = json.loads(found["buffer.json"])["rows"]
    assert stamp == {"groups": 2, "ledger_entries": 6, "ledger_sha256": manifest["files"]["ledger.json"]["sha256"]}


async def test_a_group_whose_ledger_entry_lingers_has_one_owner_on_the_disk(tmp_path: Path) -> None:
    """Between its commit and the removal a group has two owners in memory; the cut stores the ledger without it."""
    run = Run(tmp_path)
    admission = await run.admit()
    await run.dispatch(*admission.groups)
    await run.commit(admission.groups[2], remove=False)
    assert admission.groups[2] in run.ledger.entries
    await run.checkpointer.save()
    await run.checkpointer.close()
    ledger = json.loads(documents(tmp_path, "step_0-1")["ledger.json"])
    buffer = json.loads(documents(tmp_path, "step_0-1")["buffer.json"])
    assert [entry["group"] for entry in ledger["entries"]] == [0, 1, 3]
    assert [slot["group"] for slot in buffer["slots"]] == [2]


async def test_case_A24_what_happens_after_the_window_does_not_show_on_the_disk(tmp_path: Path) -> None:
    """Cases A24, D04: a snapshot by reference shows a later instant if anything in it can change."""
    executor = HeldExecutor()
    run = await mixed(Run(tmp_path / "late", executor=executor))
    twin = await mixed(Run(tmp_path / "at once"))
    save = asyncio.create_task(run.checkpointer.begin_save())
    await executor.run_next()
    pending = await save
    await run.commit(5)
    await run.dispatch(6)
    await run.reserve()
    await run.train(await run.claim(4, 7))
    await executor.run_next()
    await pending.durable()
    await twin.checkpointer.save()
    assert documents(tmp_path / "late", pending.name) == documents(tmp_path / "at once", "step_1-1")


async def test_a_full_save_is_refused_while_a_claim_is_open(tmp_path: Path) -> None:
    """The trainer's state is then between two versions."""
    run = Run(tmp_path)
    admission = await run.admit()
    await run.finish(*admission.groups)
    claim = await run.claim(*admission.groups)
    with pytest.raises(UsageError, match="between steps"):
        await run.checkpointer.save()
    assert not list(tmp_path.glob("step_*"))
    assert not set(READS) & set(run.actions())
    await run.train(claim)
    assert (await run.checkpointer.save()).name == "step_1-1"
    await run.checkpointer.close()


async def test_a_rollout_snapshot_saves_claimed_groups_as_ready(tmp_path: Path) -> None:
    """A crash before the step ends gives them back; they are neither lost nor trained."""
    run = Run(tmp_path)
    skipped = await run.checkpointer.begin_snapshot()
    assert isinstance(skipped, SnapshotSkipped)
    assert "no full save" in skipped.reason
    trainer = NumberTrainer(5)
    await run.checkpointer.save(trainer)
    admission = await run.admit()
    await run.finish(*admission.groups)
    claim = await run.claim(*admission.groups[:3])
    snapshot = await run.checkpointer.begin_snapshot()
    assert isinstance(snapshot, PendingSave)
    assert (await snapshot.durable()).kind == "rollout"
    await run.train(claim)
    skipped = await run.checkpointer.begin_snapshot()
    assert isinstance(skipped, SnapshotSkipped)
    assert "version 1" in skipped.reason
    assert "step_0-1" in skipped.reason
    assert run.checkpointer.statistics().skipped == 2
    await run.checkpointer.close()

    resumed, restored_trainer = Run(tmp_path), NumberTrainer()
    restored = await resumed.checkpointer.restore(trainer=restored_trainer)
    assert restored.name == "step_0-2"
    assert restored_trainer.value == 5, "the trainer's state is that of the full save it is anchored on"
    assert list(resumed.ready()) == list(admission.groups)
    assert not any(slot.claimed for slot in resumed.buffer.slots.values())
    assert resumed.buffer.permits == resumed.buffer.capacity - 4
    snapshot = await resumed.checkpointer.begin_snapshot()
    assert isinstance(snapshot, PendingSave), "a restored anchor is as good as a saved one"
    await resumed.checkpointer.close()


async def test_training_waits_for_the_copy_of_the_trainer_and_not_for_the_disk(tmp_path: Path) -> None:
    """Its state changes in place with the next optimizer step."""
    executor = HeldExecutor()
    run = Run(tmp_path, executor=executor)
    trainer = NumberTrainer(1)
    trainer.may_stage.clear()
    save = asyncio.create_task(run.checkpointer.begin_save(trainer))
    await executor.run_next()
    await until(lambda: "close_cut" in run.actions())
    await turns()
    assert not save.done()
    await run.reserve()
    assert run.actions("reserve_batch"), "rollouts go on meanwhile: the window is over"
    trainer.may_stage.set()
    pending = await save
    trainer.value = 2
    await executor.run_next()
    await pending.durable()
    assert json.loads(documents(tmp_path, pending.name)["trainer/value.json"]) == 1


async def test_writing_runs_on_the_writer_thread_and_the_references_are_dropped_there(tmp_path: Path) -> None:
    """Freeing the last reference to a gigabyte takes tens of milliseconds on whatever thread drops it."""
    run = await mixed(Run(tmp_path))
    dropped_on: list[threading.Thread] = []
    capture = run.plane.capture

    def watched(*arguments: object) -> object:
        taken = capture(*arguments)  # type: ignore[arg-type]
        drop = taken.drop

        def watched_drop() -> None:
            dropped_on.append(threading.current_thread())
            drop()

        taken.drop = watched_drop  # type: ignore[method-assign]
        return taken

    run.plane.capture = watched  # type: ignore[method-assign, assignment]
    trainer = NumberTrainer()
    await run.checkpointer.save(trainer)
    assert dropped_on == [trainer.persisted_on]
    assert dropped_on[0] is not threading.current_thread()
    assert run.plane.statistics()["open_captures"] == 0
    await run.checkpointer.close()


async def test_the_figures_of_a_save_are_told(tmp_path: Path) -> None:
    """Window apart from drain, copy and disk: only the window shuts others out."""
    run = await mixed(Run(tmp_path))
    pending = await run.checkpointer.begin_save(NumberTrainer())
    info = await pending.durable()
    figures = run.checkpointer.statistics()
    (save,) = figures.saves
    assert (figures.completed, figures.failed, figures.in_flight, figures.capture_mode) == (1, 0, False, "references")
    assert save.name == info.name
    assert save.window_seconds == pending.window_seconds
    assert min(save.queue_seconds, save.drain_seconds, save.window_seconds, save.stage_seconds) >= 0
    assert save.persist_seconds > save.window_seconds
    assert save.bytes == info.bytes == sum(map(len, documents(tmp_path, info.name).values()))
    await run.checkpointer.close()


async def test_every_save_reports_its_figures_in_log_event_and_statistics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same figures in all three: who the drain waited for, and whom the save kept waiting; a free one, nobody."""
    caplog.set_level("INFO", logger="cleancut.checkpointer")
    run = Run(tmp_path)

    async def write(kind: str) -> None:
        async with run.barrier.mutation(kind):
            pass

    async with run.barrier.mutation("group_commits"):
        with run.barrier.detached():
            saving = asyncio.create_task(run.checkpointer.save())
            await until(lambda: run.barrier.statistics().waiting_checkpoints == 1)
            waiting = [asyncio.create_task(write(kind)) for kind in ("clears", "clears", "dispatches")]
            await turns(2)
    await asyncio.gather(saving, *waiting)
    await run.checkpointer.save()
    slow, free = run.checkpointer.statistics().saves
    assert slow.slowest_holder is not None
    assert slow.slowest_holder.kind == "group_commits"
    assert "test_checkpointer_save.py:" in slow.slowest_holder.place
    assert slow.blocked == {"clears": 2, "dispatches": 1}
    assert (free.slowest_holder, free.blocked) == (None, {})
    events = [fields for action, fields in run.events if action == "report_save"]
    for save, event in zip((slow, free), events, strict=True):
        assert {name: event[f"{name}_seconds"] for name in save.seconds} == save.seconds
        assert (event["name"], event["kind"], event["bytes"]) == (save.name, save.kind, save.bytes)
        assert (event["artifacts"], event["blocked"]) == (save.artifacts, save.blocked)
    holder = slow.slowest_holder
    assert events[0]["slowest_holder"] == {
        "task": holder.task,
        "kind": holder.kind,
        "age": holder.age,
        "place": holder.place,
    }
    assert events[1]["slowest_holder"] is None
    lines = [entry.getMessage() for entry in caplog.records if entry.getMessage().startswith("durable: ")]
    assert lines == [f"durable: {slow}", f"durable: {free}"]
    assert "blocked 2 clears, 1 dispatches" in lines[0]
    assert "waited for nobody; blocked nothing" in lines[1]
    figures = run.checkpointer.statistics()
    assert figures.bytes == slow.bytes + free.bytes
    assert figures.seconds == {name: slow.seconds[name] + free.seconds[name] for name in slow.seconds}
    await run.checkpointer.close()


async def test_payloads_are_json_or_references_and_anything_else_is_named(tmp_path: Path) -> None:
    """Case D13: a custom class is refused at save; the format holds no pickle."""
    run = Run(tmp_path)
    async with run.barrier.mutation() as cut:
        batch = run.loader.next_batch(cut)
        assert batch is not None
        run.ledger.reserve(cut, batch.keys, payloads=[{"text": "a/b \N{SNOWMAN}"}, None, ["x", 1], NumberTrainer()])
    with pytest.raises(UsageError, match="the payload of group 3"):
        await run.checkpointer.save()
    async with run.barrier.mutation() as cut:
        run.ledger.drop(cut, 3, "unsavable")
    await run.checkpointer.save()
    await run.checkpointer.close()
    resumed = Run(tmp_path)
    await resumed.checkpointer.restore()
    assert [entry.payload for entry in resumed.ledger.entries.values()] == [{"text": "a/b \N{SNOWMAN}"}, None, ["x", 1]]


async def test_no_tensor_is_touched_inside_the_window(tmp_path: Path) -> None:
    """The window must not grow with the bytes of the rows: it holds references."""
    run = await mixed(Run(tmp_path, executor=HeldExecutor()))
    touched: list[str] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(  # type: ignore[no-untyped-def]
            self, function, types, arguments=(), options=None
        ):
            touched.append(str(function))
            return function(*arguments, **(options or {}))

    async with run.barrier.checkpoint() as cut:
        with Watch():
            captured = read_cut(run.barrier, run.checkpointer._attached(), cut, "full", None, monotonic)
    assert isinstance(captured, Captured)
    assert touched == []
    with Watch():
        captured.rows.records[4].tensors["tokens"].clone()  # type: ignore[attr-defined]
    assert len(touched) == 1, "the watch sees what it is there to see"
