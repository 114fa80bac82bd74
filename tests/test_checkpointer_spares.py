"""The spare pool in a checkpoint: written even when empty, restored as it was, and refused when it contradicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from disk_owners import handed_out_count, newest, owners
from run_situations import Run, forge, mixed

from impl import CheckpointCorrupt, CheckpointIncompatible, InvariantViolated, SparePool, UsageError


async def saved_with_spares(directory: Path, **options: Any) -> Run:
    """Groups 0-3 trained, 4 and 7 buffered, 5 and 6 admitted, 8-11 reserved, and the last batch in the pool."""
    run = await mixed(Run(directory, **options))
    await run.divert()
    await run.checkpointer.save()
    await run.checkpointer.close()
    return run


async def test_case_A04_spares_are_on_disk_too_and_every_prompt_has_one_owner(tmp_path: Path) -> None:
    """All 16 prompts are handed out: trained, buffered, pending, and four in the pool."""
    await saved_with_spares(tmp_path)
    found = owners(newest(tmp_path))
    assert handed_out_count(newest(tmp_path)) == len(found) == 16
    assert all(len(who) == 1 for who in found.values())
    assert sum(who == ["spares"] for who in found.values()) == 4


async def test_case_A21_a_save_right_after_a_restore_holds_the_same_spares(tmp_path: Path) -> None:
    """And saving again without progress writes the same bytes."""
    run = await saved_with_spares(tmp_path)
    before = run.state()
    resumed = Run(tmp_path)
    restored = await resumed.checkpointer.restore()
    assert restored.spares == 4
    assert resumed.state() == before
    await resumed.checkpointer.save()
    await resumed.checkpointer.close()
    first, second = ((tmp_path / name / "spares.json").read_bytes() for name in ("step_1-1", "step_1-2"))
    assert first == second


async def test_case_E27_an_empty_pool_is_written_as_empty_and_its_absence_is_damage(tmp_path: Path) -> None:
    """A missing file never means "no spares": with it prompts would be lost without a word."""
    run = await mixed(Run(tmp_path))
    await run.checkpointer.save()
    await run.checkpointer.close()
    assert json.loads((tmp_path / "step_1-1" / "spares.json").read_text()) == {"spares": []}
    (tmp_path / "step_1-1" / "spares.json").unlink()
    victim = Run(tmp_path)
    before = victim.state()
    with pytest.raises(CheckpointCorrupt, match=r"spares\.json"):
        await victim.checkpointer.restore()
    assert victim.state() == before


async def test_a_run_without_a_pool_does_not_restore_spares(tmp_path: Path) -> None:
    """They would be lost; with an empty pool on disk there is nothing to lose."""
    await saved_with_spares(tmp_path)
    victim = Run(tmp_path, pool=False)
    before = victim.state()
    with pytest.raises(CheckpointIncompatible, match=r"holds 4 spare prompts, which would be lost: this run has no"):
        await victim.checkpointer.restore()
    assert victim.state() == before


async def test_a_run_without_a_pool_writes_an_empty_one(tmp_path: Path) -> None:
    """So that either kind of run resumes from it."""
    run = await mixed(Run(tmp_path, pool=False))
    await run.checkpointer.save()
    await run.checkpointer.close()
    assert json.loads((tmp_path / "step_1-1" / "spares.json").read_text()) == {"spares": []}
    resumed = Run(tmp_path)
    assert (await resumed.checkpointer.restore()).spares == 0


async def test_a_pool_of_another_barrier_is_refused(tmp_path: Path) -> None:
    """Its writers would not be kept out of the window."""
    run, other = Run(tmp_path / "a"), Run(tmp_path / "b", length=8)
    await other.divert()
    from impl.checkpoint import Checkpointer

    checkpointer = Checkpointer(tmp_path / "c", run.barrier)
    with pytest.raises(UsageError, match="pool belongs to another barrier"):
        checkpointer.attach(
            ledger=run.ledger, loader=run.loader, sampler=run.sampler, buffer=run.buffer, pool=other.pool
        )


def add(document: dict[str, Any], epoch: int, index: int) -> None:
    document["spares"].append({"epoch": epoch, "index": index, "payload": {"kind": "dataset", "value": None}})


def a_key_of(directory: Path, member: str, place: str) -> tuple[int, int]:
    record = json.loads((directory / "step_1-1" / member).read_text())[place][0]
    return record["epoch"], record["index"]


CONTRADICTIONS: dict[str, tuple[Callable[[Path, dict[str, Any]], None], str]] = {
    "a spare twice": (lambda path, d: d["spares"].append(dict(d["spares"][0])), r"holds the prompt .* twice"),
    "a spare that is pending": (lambda path, d: add(d, *a_key_of(path, "ledger.json", "entries")), "belongs to group"),
    "a spare that is buffered": (lambda path, d: add(d, *a_key_of(path, "buffer.json", "slots")), "belongs to group"),
    "a row that is not there": (lambda path, d: add(d, 0, 16), "which no epoch has"),
    "an epoch before the first": (lambda path, d: add(d, -1, 3), "which no epoch has"),
    "not a spare": (lambda path, d: d["spares"].append(1), "does not have the form"),
    "a field too many": (lambda path, d: d["spares"][0].update(group=3), "does not have the form"),
    "a field too few": (lambda path, d: d["spares"][0].pop("payload"), "does not have the form"),
    "no list": (lambda path, d: d.update(spares=None), "does not have the form"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
async def test_a_pool_that_contradicts_the_rest_is_refused_and_changes_nothing(tmp_path: Path, case: str) -> None:
    """One owner each, spares included."""
    await saved_with_spares(tmp_path)
    change, complaint = CONTRADICTIONS[case]
    forge(tmp_path, "spares.json", lambda document: change(tmp_path, document))
    victim = Run(tmp_path)
    before = victim.state()
    with pytest.raises(CheckpointCorrupt, match=complaint):
        await victim.checkpointer.restore()
    assert victim.state() == before


async def test_a_spare_that_is_trained_already_is_refused(tmp_path: Path) -> None:
    """It would be trained a second time."""
    await saved_with_spares(tmp_path)
    span = json.loads((tmp_path / "step_1-1" / "trainer.json").read_text())["accounts"]["trained"][0]
    forge(tmp_path, "spares.json", lambda document: add(document, span["epoch"], span["first"]))
    victim = Run(tmp_path)
    before = victim.state()
    with pytest.raises(CheckpointCorrupt, match=r"is in the spare pool, and its prompt .* was trained"):
        await victim.checkpointer.restore()
    assert victim.state() == before


async def test_a_payload_of_an_unknown_kind_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    """A newer version meant something by it."""
    await saved_with_spares(tmp_path)
    forge(tmp_path, "spares.json", lambda document: document["spares"][0]["payload"].update(kind="pickle"))
    with pytest.raises(CheckpointIncompatible, match=r"payload of the spare .* is of the kind 'pickle'"):
        await Run(tmp_path).checkpointer.restore()


async def test_payloads_of_spares_are_saved_and_what_cannot_be_is_refused(tmp_path: Path) -> None:
    """A prompt that is no row of the dataset is written itself, as in the ledger."""
    run = Run(tmp_path / "a", length=4, batch_size=2)
    async with run.barrier.mutation() as cut:
        batch = run.loader.next_batch(cut)
        assert batch is not None
        run.pool.divert(cut, batch, [{"text": "one"}, None])
    await run.checkpointer.save()
    await run.checkpointer.close()
    resumed = Run(tmp_path / "a", length=4, batch_size=2)
    await resumed.checkpointer.restore()
    assert [spare.payload for spare in resumed.pool.spares] == [{"text": "one"}, None]

    unsavable = Run(tmp_path / "b", length=4, batch_size=2)
    async with unsavable.barrier.mutation() as cut:
        batch = unsavable.loader.next_batch(cut)
        assert batch is not None
        unsavable.pool.divert(cut, batch, [{"text": {1, 2}}, None])
    with pytest.raises(UsageError, match="the payload of the spare"):
        await unsavable.checkpointer.save()


async def test_a_spare_takes_the_place_of_a_group_with_its_admission_and_a_fresh_id(tmp_path: Path) -> None:
    """`Ledger.replace`: same admission and stamp for the hole; ids go on, and are in the checkpoint."""
    run = Run(tmp_path)
    admission = await run.admit()
    (spare, *_) = await run.divert()
    async with run.barrier.mutation() as cut:
        entry = run.ledger.replace(cut, admission.groups[1], spare.key, spare.payload, 0)
        assert run.pool.take(cut) == spare
    assert (entry.group, entry.admission, entry.step) == (4, admission.id, 0)
    assert run.ledger.next_group == 5
    assert run.ledger.accounts.dropped == {admission.keys[1]: "replaced"}
    assert admission.groups[1] not in run.ledger.entries


async def test_replacing_what_has_no_place_or_with_what_has_an_owner_is_refused(tmp_path: Path) -> None:
    """And leaves ledger and accounts as they were."""
    run = Run(tmp_path)
    admitted, reserved = await run.admit(), await run.reserve()
    spares = await run.divert()
    async with run.barrier.mutation() as cut:
        before = run.state()
        for group, key, complaint in (
            (reserved.groups[0], spares[0].key, "it is only RESERVED"),
            (99, spares[0].key, "no such entry"),
            (admitted.groups[0], reserved.keys[0], r"is group 4 already"),
        ):
            with pytest.raises(InvariantViolated, match=complaint):
                run.ledger.replace(cut, group, key, None, 0)
        assert run.state() == before


async def test_a_borrowed_place_joins_the_pending_admission_of_its_step_or_makes_a_new_one(tmp_path: Path) -> None:
    """Groups of one admission agree about their stamp, so the spare of a later step is not of the hole's admission."""
    run = Run(tmp_path)
    first, second, third = await run.admit(), await run.admit(), await run.admit()
    spares = await run.divert()
    async with run.barrier.mutation() as cut:
        joined = run.ledger.replace(cut, first.groups[0], spares[0].key, None, 1)
        run.pool.take(cut)
        for group in third.groups:
            run.ledger.remove_committed(group)
        alone = run.ledger.replace(cut, first.groups[1], spares[1].key, None, 2)
        run.pool.take(cut)
    assert (joined.admission, joined.step) == (second.id, 1)
    assert (alone.admission, alone.step) == (3, 2)
    assert run.ledger.next_admission == 4
    assert isinstance(run.pool, SparePool)
