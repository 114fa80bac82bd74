"""Two writers at a time, as where the lock was lost: nothing told durable is lost, and neither is in the other's way.

The orders of their file calls are gone through on a disk in memory; each rule of the writer is taken away once, and the
same orders then break what it is there for.
"""

import errno
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import interleaved_writers
import pytest
from interleaved_writers import broken_rule, every_order_with_two_switches, run
from run_situations import Run, mixed
from simulated_disk import crash_trees
from store_situations import LayeredFiles, failing_files, new_store, open_store, publish, text_of, valid_texts

from impl import DurabilityUnknown, NameTaken, StoreBusy, StoreFailed, StoreOvertaken
from impl.store import Catalogue, CheckpointStore, Draft, Files, lock, names, scan


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of lives say what they passed over."""
    monkeypatch.setattr(logging.getLogger("cleancut.store"), "disabled", True)


def first_violation(make: Callable[..., CheckpointStore] = CheckpointStore, thinned: int = 3) -> str | None:
    """The first rule that any order breaks."""
    for order in every_order_with_two_switches(thinned):
        disk, outcomes, full = run(order, make=make)
        if full and (broken := broken_rule(disk, outcomes)) is not None:
            return broken
    return None


def test_case_G01_G02_in_every_order_of_two_writers_nothing_durable_is_lost_and_the_live_one_saves() -> None:
    """Cases G01, G02: the first stands still after any call of its own while the second comes to any of its own."""
    assert first_violation() is None


def test_case_G01_G02_orders_with_many_switches_keep_the_same_rules_also_at_a_power_cut() -> None:
    """Three saves each, up to nine switches; then the power goes, and what was told is there in every crash state."""
    chance = random.Random(5)
    told = overtaken = 0
    for _ in range(250):
        order = [(chance.choice("ab"), chance.randrange(1, 60)) for _ in range(chance.randrange(3, 10))]
        disk, outcomes, _full = run(order, saves=3)
        names_told = [name for outcome in outcomes.values() for name, _ in outcome.told]
        newest = max((int(name.rpartition("-")[2]) for name in names_told), default=1)
        told += len(names_told)
        overtaken += sum(outcome.error is not None for outcome in outcomes.values())
        for tree in list(crash_trees(disk.root))[:40]:
            there = scan(type(disk)(tree), str(interleaved_writers.ROOT)).candidates
            assert there[0].sequence >= newest, (order, names_told)
        assert broken_rule(disk, outcomes) is None, order
    assert told > 700
    assert overtaken > 100


class CatalogueBeforeClaim(CheckpointStore):
    """What another writer has published between the two is not looked for, nor what it is about to publish."""

    def _put_leftovers_away(self) -> None:
        pass

    def _look_again(self, before: Catalogue) -> None:
        self._next_sequence = max(self._next_sequence, before.highest_sequence + 1)

    def _refuse_taken(self, draft: Draft) -> None:
        pass


class RemovesEveryLeftover(CheckpointStore):
    """What it finds when it removes, whoever has made it, and without a look at the fence."""

    def _remove_leftovers(self) -> tuple[str, ...]:
        self._doomed.update(dict.fromkeys(filter(names.is_leftover, self._files.listdir(self.root))))
        return super()._remove_leftovers()


class LooksBeforeItLists(CheckpointStore):
    """The look at the fence says nothing of what was made after it."""

    def _put_leftovers_away(self) -> None:
        self._lock.check_fence()
        for name in self._files.listdir(self.root):
            if names.is_leftover(name):
                self._tolerated(lambda name=name: self._put_away(name), "")  # type: ignore[misc]


class RemovesInPlace(CheckpointStore):
    """File by file under its own name: its writer may publish what is left."""

    def _put_away(self, name: str) -> None:
        self._doomed[name] = None


class LooksForNothing(CheckpointStore):
    """Publishes whatever the fence says."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lock.check_fence = lambda: None  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (CatalogueBeforeClaim, "one_sequence_one_save|a_resume_exists"),
        (RemovesEveryLeftover, "the_live_writer_loses_no_save"),
        (LooksBeforeItLists, "the_live_writer_loses_no_save"),
        (RemovesInPlace, "the_live_writer_loses_no_save"),
        (LooksForNothing, "who_was_overtaken_is_told_so"),
    ],
)
def test_each_rule_of_the_writer_is_needed(make: Callable[..., CheckpointStore], rule: str) -> None:
    """Taken away, some order breaks the property that it is there for."""
    broken = first_violation(make, thinned=1)
    assert broken is not None
    assert broken.partition(":")[0] in rule.split("|"), broken


def test_a_claim_is_made_again_when_an_earlier_writer_takes_it_for_a_leftover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case G01: it may be clearing away still; with one try the live writer could not even open."""
    monkeypatch.setattr(lock, "_CLAIMS", 1)
    broken = first_violation(thinned=1)
    assert broken is not None
    assert "StoreFailed('writing /disk/run/WRITER failed: No such file" in broken


def test_records_without_a_token_do_not_tell_two_claims_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case G02: two that read WRITER at once take one number, and two containers may have one host and process id."""
    monkeypatch.setattr(lock.WriterRecord, "__eq__", lambda self, other: self.fence == getattr(other, "fence", None))
    monkeypatch.setattr(lock.WriterRecord, "__ne__", lambda self, other: self.fence != getattr(other, "fence", None))
    assert first_violation(thinned=1) is not None


def test_case_G02_a_claim_in_the_middle_of_a_catalogue_gives_no_number_twice(tmp_path: Path) -> None:
    """Case G02: slow between its look at the directory and its claim, while the other saves. On a real disk."""
    first = new_store(tmp_path, name="first")
    first.open()
    publish(first, 1)
    saved: list[str] = []

    def save_meanwhile(number: int, call: str, arguments: tuple[Any, ...]) -> None:
        if call == "open_new" and names.WRITER in str(arguments[0]) and not saved:
            saved.append(publish(first, 2).manifest.name)

    (tmp_path / ".LOCK").unlink()
    second = new_store(tmp_path, cast(Files, LayeredFiles(before=save_meanwhile)), name="second")
    second.open()
    assert saved == ["step_2-2"]
    assert publish(second, 7).manifest.name == "step_7-3"
    with pytest.raises(StoreBusy, match="writer second"):
        publish(first, 3)
    second.close()
    assert valid_texts(tmp_path) == ["step 7", "step 2", "step 1"]


def test_case_G01_an_overtaken_writer_removes_its_own_attempt_and_no_other(tmp_path: Path) -> None:
    """Case G01: its error path and its start took away what the live one was writing."""
    slow = new_store(tmp_path, name="slow")
    slow.open()
    publish(slow, 1)
    (tmp_path / ".LOCK").unlink()
    with open_store(tmp_path, name="fast") as fast:
        real = fast._stage

        def stage(*arguments: Any) -> Any:
            manifest = real(*arguments)
            for _ in range(2):
                with pytest.raises(StoreBusy):
                    publish(slow, 2)
            return manifest

        fast._stage = stage  # type: ignore[method-assign,assignment]
        publish(fast, 3)
    assert valid_texts(tmp_path) == ["step 3", "step 1"]
    assert not list(tmp_path.glob(".*ing-*"))


def test_a_writer_whose_attempt_was_put_away_is_told_who_has_taken_over(tmp_path: Path) -> None:
    """Case G01: it is no fault of the disk."""
    slow = new_store(tmp_path, name="slow")
    slow.open()

    def fill(staged: Any) -> dict[str, Any]:
        (tmp_path / ".LOCK").unlink()
        with open_store(tmp_path, name="fast"):
            staged.writer().write_bytes("late.bin", b"x")
        return {}

    with pytest.raises(StoreOvertaken, match="writer fast"):
        slow.publish(Draft(1, slow.take_sequence(), "full", None, None, cast(Any, None)), fill)


def copied(root: Path, source: str, target: str) -> Path:
    shutil.copytree(root / source, root / target)
    return root / target


@pytest.mark.parametrize("target", ["step_1-2", "step_2-2", "step_9-2", "step_2-002", "step_4-9"])
def test_case_G12_a_name_with_the_number_of_the_next_save_is_said_and_kept(tmp_path: Path, target: str) -> None:
    """Case G12: with the same name, another step, another padding, or a higher number, which would hide the save."""
    with open_store(tmp_path, keep=1) as store:
        publish(store, 1)
        copy = copied(tmp_path, "step_1-1", target)
        with pytest.raises(NameTaken, match=f"{target} is there.*copied or moved in by hand"):
            publish(store, 2)
        assert not list(tmp_path.glob(".staging*"))
        later = publish(store, 2)
        assert later.notices == ()
        publish(store, 3)
    assert (copy / "manifest.json").exists()
    assert new_store(tmp_path).catalogue().candidates[0].step == 3


@pytest.mark.parametrize(
    "name",
    [
        ".staging-1-x",
        ".staging-notes",
        ".staging-7-4711-0123456789ab",
        ".deleting-x",
        ".deleting-step_1-1",
        ".deleting-.staging-1-x",
    ],
)
def test_case_G12_a_whole_checkpoint_under_a_name_of_a_leftover_is_never_removed(tmp_path: Path, name: str) -> None:
    """Case G12: somebody's copy; neither a new writer nor the saves of a live one may take it away."""
    with open_store(tmp_path, keep=1) as store:
        publish(store, 1)
        copy = copied(tmp_path, "step_1-1", name)
    for step in (2, 3):
        with open_store(tmp_path, keep=5) as store:
            publish(store, step)
    assert (copy / "manifest.json").exists()
    assert (copy / "trainer" / "weights.bin").exists()


def test_what_a_killed_writer_left_whole_is_still_removed(tmp_path: Path) -> None:
    """Killed between the manifest and the rename, or between the rename and the removal: its manifest says so."""
    with open_store(tmp_path, failing_files(errno.EIO, call="rename", nth=0, lasting=True), keep=1) as store:
        store._remove_leftovers = lambda: ()  # type: ignore[method-assign]
        with pytest.raises(StoreFailed):
            publish(store, 1)
    (left,) = tmp_path.glob(".staging-*")
    assert (left / "manifest.sha256").exists()
    with open_store(tmp_path) as store:
        publish(store, 2)
    (tmp_path / "step_2-1").rename(tmp_path / ".deleting-step_2-1")
    with open_store(tmp_path) as store:
        publish(store, 3)
    assert {path.name for path in tmp_path.iterdir()} == {".LOCK", "LATEST", "WRITER", "step_3-1"}


async def test_case_G13_a_life_that_restored_nothing_removes_nothing_of_an_earlier_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Case G13: nor does the life after it, which goes on from what that one has saved."""
    old = await mixed(Run(tmp_path, keep=2, name="old"))
    kept = [(await old.checkpointer.save()).name for _ in range(3)][1:]
    await old.checkpointer.close()
    for resumes in (False, True):
        life = Run(tmp_path, keep=2, name=f"resumes {resumes}")
        if resumes:
            assert (await life.checkpointer.restore()).name.endswith("-6")
        for _ in range(3):
            await life.checkpointer.save()
        await life.checkpointer.close()
        assert ("none was restored" in caplog.text) is not resumes
        caplog.clear()
        there = {path.name for path in tmp_path.glob("step_*")}
        assert there >= set(kept)
        assert len(there) == 4, "and keep counts within a run"
    back = Run(tmp_path, keep=2, name="back")
    assert (await back.checkpointer.restore(step=1)).step == 1
    await back.checkpointer.close()


async def test_case_G15_a_save_that_failed_after_its_rename_is_told_from_one_that_published_nothing(
    tmp_path: Path,
) -> None:
    """Case G15: a restart takes it, so whoever decides what to do next has to know."""
    for nth, published, error in ((3, "no", StoreFailed), (4, "unknown", DurabilityUnknown)):
        root = tmp_path / str(nth)
        run = Run(root, files=failing_files(errno.EIO, call="fsync_dir", nth=nth - 1))
        pending = await run.checkpointer.begin_save()
        with pytest.raises(StoreFailed) as raised:
            await pending.durable()
        assert type(raised.value) is error
        assert pending.published == published
        again = await run.checkpointer.begin_save()
        assert again.published is None
        await again.durable()
        assert again.published == "yes"
        await run.checkpointer.close()
        if isinstance(raised.value, DurabilityUnknown):
            assert raised.value.checkpoint == pending.name


def test_case_G15_a_rename_that_was_done_and_reported_as_failed_is_in_doubt_and_one_that_was_not_is_not(
    tmp_path: Path,
) -> None:
    """Case G15: a file server may lose the answer; what is there decides, and a stranger's directory is not ours."""

    def fail(number: int, call: str, arguments: tuple[Any, ...]) -> None:
        if call == "rename" and "/step_" in str(arguments[1]):
            raise OSError(errno.EIO, "the answer was lost")

    for layer, error in (("after", DurabilityUnknown), ("before", StoreFailed)):
        root = tmp_path / layer
        files = cast(Files, LayeredFiles(**{layer: fail}))
        with open_store(root, files) as store:
            with pytest.raises(StoreFailed) as raised:
                publish(store, 1)
            assert type(raised.value) is error
            assert store.is_in_doubt("step_1-1") is (layer == "after")
        assert (root / "step_1-1").exists() is (layer == "after")
        if layer == "after":
            assert text_of(root, "step_1-1") == "step 1"


def test_an_attempt_in_doubt_that_somebody_has_replaced_is_not_removed(tmp_path: Path) -> None:
    """Case G12: by the name alone it would go with the next retention."""
    store = new_store(tmp_path, failing_files(errno.EIO, call="fsync_dir", nth=4), keep=3)
    store.open()
    publish(store, 1)
    del store
    root = tmp_path / "again"
    store = new_store(root, failing_files(errno.EIO, call="fsync_dir", nth=4), keep=3)
    store.open()
    with pytest.raises(DurabilityUnknown):
        publish(store, 1)
    shutil.rmtree(root / "step_1-1")
    (root / "step_1-1").mkdir()
    (root / "step_1-1" / "notes.txt").write_text("mine")
    publish(store, 2)
    store.close()
    assert (root / "step_1-1" / "notes.txt").exists()


def test_case_G12_a_name_that_retention_needs_and_somebody_has_keeps_one_checkpoint_and_not_all(tmp_path: Path) -> None:
    """Case G12: else nothing would ever go again, and the disk would fill."""
    with open_store(tmp_path, keep=1) as store:
        publish(store, 1)
        copy = copied(tmp_path, "step_1-1", ".deleting-step_1-1")
        for step in (2, 3, 4):
            assert publish(store, step).notices == ()
    assert (copy / "manifest.json").exists()
    assert valid_texts(tmp_path) == ["step 4", "step 1"]
