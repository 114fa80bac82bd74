"""The scenarios with crashes, snapshots, epochs and failing saves can fail: each fault below is found by one of them.

A fault that shows only after a crash is looked for in one schedule of stock asyncio with a crash at each of its points:
a part of what the scenario searches, and seconds instead of minutes. The others go depth first, for the same reason.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from impl import BufferSnapshot, Ledger, LedgerSnapshot, LoaderState, PromptLoader, ReplayBuffer
from impl.barrier import CheckpointBarrier
from impl.checkpoint import Plan, SaveLog, WriterThread, capture
from impl.store import CheckpointStore, durable_file, staging
from interleavings import explore, replay
from interleavings.command_line import main
from interleavings.correspondence import Coverage
from interleavings.runtime import Failure, Fence, Rules, is_a_fault
from interleavings.scenarios import DIRECTORY, EMPTY, FakeDisk, Model, Survivors, Tree, checkpoints_in, scenario_named
from interleavings.search import Setting, look, paused_collection

# Faults that a save would refuse by itself are left to the scenarios, the machines and the model to find.
pytestmark = pytest.mark.usefixtures("saves_that_do_not_ask")


def test_crashes_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Another budget is a scenario of its own name; one that cannot crash is refused by name."""
    assert main(["check", "epoch", "--crashes", "0"]) == 0
    assert "epoch_with_0_crashes: holds (complete: " in capsys.readouterr().out
    assert main(["check", "barrier", "--crashes", "1"]) == 2
    assert "barrier does not say what survives a crash" in capsys.readouterr().err
    assert main(["check", "--crashes", "-1"]) == 2
    assert "0 or more" in capsys.readouterr().err
    assert scenario_named("restart_with_1_crashes").crashes == 1


def failure_of(name: str, crashes: int | None = None, **options: Any) -> Failure:
    """The failure that a search of the scenario finds; its trace replays."""
    scenario = scenario_named(name)
    if crashes is not None:
        assert scenario.with_crashes is not None
        scenario = scenario.with_crashes(crashes)
    program = scenario.program(Coverage())
    budgets = {"cancels": scenario.cancels, "crashes": scenario.crashes, "order": "depth", **options}
    result = explore(program, **budgets)
    assert result.verdict == "fails", result.summary()
    assert result.failure is not None
    assert result.counterexample is not None
    assert replay(program, result.counterexample).reproduced
    return result.failure


def failure_after_a_crash(name: str) -> Failure | None:
    """The failure after one crash, at any point of the first schedule of stock asyncio and with any image."""
    with_crashes = scenario_named(name).with_crashes
    assert with_crashes is not None
    program, points = with_crashes(1).program(Coverage()), [(0, 0)]
    with Fence() as fence, paused_collection():
        setting = Setting(program, Rules(crashes=1, fifo=True), fence, None, None)
        for at, image in points:
            with setting.start() as run:
                failure, options = look(run)
                for step in itertools.count():
                    if failure is not None or not options:
                        break
                    crashes = [key for key in options if key.startswith("crash")]
                    if step == at and crashes:
                        points += [(at, image + 1)] if image + 1 < len(crashes) else [(at + 1, 0)]
                        target = options[crashes[image]]
                    else:
                        target = next(target for target in options.values() if not is_a_fault(target))
                    run.step(target)
                    failure, options = look(run)
                if failure is not None:
                    assert run.crashes_left == 0, failure
                    return failure
    assert len(points) > 20
    return None


@pytest.mark.parametrize("name", ["open_step", "epoch", "restart"])
def test_without_a_fault_a_crash_at_each_point_of_one_schedule_holds(name: str) -> None:
    """The control of the searches for faults; every order is asked by `test_scenarios.py`."""
    assert failure_after_a_crash(name) is None


# --------------------------------------------------------------------------------------------------------- open_step


def test_a_snapshot_past_its_anchor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """`snapshot_past_anchor`, put into the library: nobody looks whether the trainer is past the newest full save."""
    monkeypatch.setattr(capture, "_no_snapshot", lambda parts, cut, anchor: None)
    failure = failure_of("open_step", crashes=0, order="breadth", max_states=2_000)
    assert failure.property == "refinement"
    assert "does not enable read_sampler" in failure.message


def test_claimed_groups_that_a_snapshot_forgets_are_found_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """`claimed_forgotten`: the buffer's snapshot leaves out what the open step has taken, and the ledger has it not."""
    original = ReplayBuffer.snapshot

    def snapshot(buffer: ReplayBuffer, cut: Any) -> BufferSnapshot:
        whole = original(buffer, cut)
        unclaimed = {group: slot for group, slot in whole.slots.items() if not buffer.slots[group].claimed}
        return replace(whole, slots=MappingProxyType(unclaimed))

    monkeypatch.setattr(ReplayBuffer, "snapshot", snapshot)
    assert failure_of("open_step", crashes=0).property == "one_owner_on_disk"


def test_a_column_that_is_written_without_its_event_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine ends no step whose columns were not written."""
    original = CheckpointBarrier.emit

    def emit(barrier: CheckpointBarrier, action: str, **fields: object) -> None:
        if action != "write_back":
            original(barrier, action, **fields)

    monkeypatch.setattr(CheckpointBarrier, "emit", emit)
    failure = failure_of("open_step", crashes=0)
    assert failure.property == "refinement"
    assert "does not enable finish_step" in failure.message


# ------------------------------------------------------------------------------------------------------------- epoch


def test_an_exhausted_bit_that_is_not_saved_is_found_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """`exhausted_bit_missing`: the loader's state is read in the window without it."""
    original = PromptLoader.state

    def state(loader: PromptLoader) -> LoaderState:
        cut = loader._barrier._core.cut if isinstance(loader._barrier, CheckpointBarrier) else None
        return original(loader) if cut is None else replace(original(loader), exhausted=False)

    monkeypatch.setattr(PromptLoader, "state", state)
    failure = failure_of("epoch", crashes=0)
    assert failure.property == "image_equals_cut"
    assert "differs in exhausted" in failure.message


def test_a_restored_loader_that_begins_its_epoch_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompts of the epoch would be handed out a second time."""
    original = PromptLoader.load_state

    def load_state(loader: PromptLoader, saved: LoaderState, cut: Any = None) -> None:
        original(loader, replace(saved, position=0, exhausted=False), cut)

    monkeypatch.setattr(PromptLoader, "load_state", load_state)
    failure = failure_after_a_crash("epoch")
    assert failure is not None
    assert failure.property == "refinement"
    assert "cursor" in failure.message


# ------------------------------------------------------------------------------------------------------------- saves


def test_a_failed_save_that_nobody_is_told_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked was cancelled, and neither the next save nor `close` says anything."""
    monkeypatch.setattr(SaveLog, "raise_unseen_failure", lambda log: None)
    failure = failure_of("saves")
    assert failure.property == "finish"
    assert "were told as []" in failure.message


def test_a_publication_that_a_cancellation_stops_half_way_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The save is said to have failed, and its job publishes all the same."""
    monkeypatch.setattr(WriterThread, "see_out", WriterThread.run)
    failure = failure_of("saves")
    assert failure.property in ("finish", "one_owner_on_disk", "image_equals_cut", "refinement")
    assert "on the disk" in failure.message or "IndexError" in failure.message, failure


def test_a_save_that_begins_before_the_one_before_has_ended_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One save in flight: the machine asks for no second cut while an image is being written."""

    class NoTurn(asyncio.Lock):
        async def acquire(self) -> Any:
            return True

        def release(self) -> None:
            pass

    from impl.checkpoint import checkpointer

    original = checkpointer.Checkpointer.__init__

    def begin(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self._turn = NoTurn()

    monkeypatch.setattr(checkpointer.Checkpointer, "__init__", begin)
    failure = failure_of("saves", cancels=0)
    assert failure.property == "refinement"
    assert "does not enable request_cut" in failure.message


# ----------------------------------------------------------------------------------------------------------- restart


def unsynced_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """One file of a checkpoint is written and never synced: a crash finds the name and not the bytes."""
    original = durable_file.write_durably

    def write(files: Any, path: str, chunks: Any) -> None:
        if not path.endswith("ledger.json"):
            original(files, path, chunks)
            return
        handle = files.open_new(path)
        for chunk in chunks:
            files.write(handle, chunk)
        files.close(handle)

    monkeypatch.setattr(staging, "write_durably", write)


def unsynced_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is not synced after the rename: the save is acknowledged, and its name may be gone."""
    original = FakeDisk.fsync_dir

    def fsync_dir(disk: FakeDisk, path: str) -> None:
        if path != DIRECTORY:
            original(disk, path)

    monkeypatch.setattr(FakeDisk, "fsync_dir", fsync_dir)


def ledger_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore puts back everything but the prompts in flight."""
    original = Ledger.load

    def load(ledger: Ledger, cut: Any, snapshot: LedgerSnapshot) -> None:
        original(ledger, cut, replace(snapshot, entries=MappingProxyType({})))

    monkeypatch.setattr(Ledger, "load", load)


def trainer_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer is not loaded, and begins with nothing learnt."""
    monkeypatch.setattr(Model, "load", lambda model, reader: None)


def restored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore that announces itself a second time."""
    original = Plan.put_into_place

    def put_into_place(plan: Plan, barrier: Any, parts: Any, cut: Any, trainer: Any) -> None:
        original(plan, barrier, parts, cut, trainer)
        parts.counters.load(cut, replace(plan.counters, version=plan.counters.version + 1))

    monkeypatch.setattr(Plan, "put_into_place", put_into_place)


@pytest.mark.parametrize(
    ("fault", "properties", "says"),
    [
        (unsynced_file, ("CheckpointCorrupt", "refinement", "CheckpointDamaged"), ""),
        (unsynced_parent, ("acknowledged_is_durable",), "had been published"),
        (ledger_forgotten, ("refinement",), "disagree about ledger"),
        (trainer_forgotten, ("trained_matches_trainer",), "was restored at version 1"),
        (restored_twice, ("refinement",), "disagree about version"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_fault_of_the_store_or_of_a_restore_is_found_with_one_crash(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], properties: tuple[str, ...], says: str
) -> None:
    """Each shows only in the process after the crash; without a crash the scenario holds."""
    fault(monkeypatch)
    failure = failure_after_a_crash("restart")
    assert failure is not None
    assert failure.property in properties, failure
    assert says in failure.message


# ------------------------------------------------------------------------------------------------- what a crash leaves


def images_while(write: Callable[[FakeDisk], None]) -> dict[str, Tree]:
    """The crash images of one step that makes these calls."""
    survivors = Survivors(EMPTY)
    survivors.step_ended()
    write(survivors.disk)
    survivors.step_ended()
    return dict(survivors.images())


def checkpoint(disk: FakeDisk, *, synced: bool) -> None:
    """A directory with one file, published as the store does it."""
    staged = f"{DIRECTORY}/.staging-1-0"
    disk.mkdir(staged)
    handle = disk.open_new(f"{staged}/manifest.json")
    disk.write(handle, b"{}")
    if synced:
        disk.fsync(handle)
    disk.close(handle)
    disk.fsync_dir(staged)
    disk.rename(staged, f"{DIRECTORY}/step_1-1")
    disk.fsync_dir(DIRECTORY)


def test_a_crash_in_the_middle_of_a_job_finds_the_old_or_the_new_checkpoint() -> None:
    """Both are images of the step that has published; after the next step only the new one is."""
    survivors = Survivors(EMPTY)
    survivors.step_ended()
    assert [checkpoints_in(tree) for tree in survivors.images().values()] == [[]]
    checkpoint(survivors.disk, synced=True)
    survivors.step_ended()
    assert list(survivors.images()) == ["no checkpoint; fence none", "step_1-1; fence none"]
    survivors.step_ended()
    assert list(survivors.images()) == ["step_1-1; fence none"]


def test_a_file_that_was_not_synced_is_found_whole_empty_half_or_zeros() -> None:
    """Every legal content is an image of its own, under a name of its own."""
    images = images_while(lambda disk: checkpoint(disk, synced=False))
    published = [name for name, tree in images.items() if checkpoints_in(tree)]
    assert len(published) == 4
    assert len(images) == 5


def test_a_leftover_and_the_hint_latest_make_no_image_of_their_own() -> None:
    """Nothing reads them: a run resumes alike whatever they are, as the tests of the store show state by state."""

    def write(disk: FakeDisk) -> None:
        for name in (".staging-2-0", "LATEST"):
            handle = disk.open_new(f"{DIRECTORY}/{name}")
            disk.write(handle, b"step_1-1\n")
            disk.close(handle)

    assert list(images_while(write)) == ["no checkpoint; fence none"]


def test_a_retention_that_removes_first_is_seen_by_a_crash() -> None:
    """`delete_before_publish`: between the two calls there is no checkpoint, and an image says so."""

    def write(disk: FakeDisk) -> None:
        checkpoint(disk, synced=True)
        disk.rename(f"{DIRECTORY}/step_1-1", f"{DIRECTORY}/.deleting-step_1-1")

    assert {tuple(checkpoints_in(tree)) for tree in images_while(write).values()} == {(), ("step_1-1",)}


def test_the_store_is_opened_by_the_next_process_on_every_image_of_a_real_save() -> None:
    """The images come from the library's own writer here."""
    from store_situations import publish, writer_identity

    def new_store(disk: FakeDisk) -> CheckpointStore:
        return CheckpointStore(DIRECTORY, disk, 3, writer_identity("a"))

    survivors = Survivors(EMPTY)
    store = new_store(survivors.disk)
    store.open()
    survivors.step_ended()
    publish(store, 1)
    survivors.step_ended()
    assert list(survivors.images()) == ["no checkpoint; fence 1", "step_1-1; fence 1"]
    for tree in survivors.images().values():
        next_store = new_store(FakeDisk.found(tree))
        next_store.open()
        assert [known.name for known in next_store._known.values()] == checkpoints_in(tree)
