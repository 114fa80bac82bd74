"""Restores that are refused: everything is validated before anything is changed."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_turns import turns
from run_situations import HeldExecutor, NumberTrainer, Run, forge, mixed, saved

from impl import BarrierClosed, CheckpointCorrupt, CheckpointIncompatible, InvariantViolated, Phase, UsageError
from impl.checkpoint import Checkpointer
from impl.controller import Progress
from impl.run.samplers import WindowedSampler


async def test_case_A13_a_smaller_buffer_is_refused_with_both_numbers_before_anything_is_touched(
    tmp_path: Path,
) -> None:
    """Case A13: truncating loses prompts; refusing without guidance leaves people stuck."""
    run = await saved(tmp_path)
    small = Run(tmp_path, capacity=1)
    before = small.state()
    with pytest.raises(CheckpointIncompatible, match=r"2 buffered groups.*capacity of 1.*load_buffer=False"):
        await small.checkpointer.restore()
    assert small.state() == before
    same = Run(tmp_path, capacity=64)
    await same.checkpointer.restore()
    assert same.state() == run.state()


async def test_case_A14_a_cursor_behind_the_groups_is_an_error_that_names_the_step(tmp_path: Path) -> None:
    """Cases A14, A02: on a right cursor this cannot happen, so a guard against it only ever hides a wrong one."""
    await saved(tmp_path)
    forge(tmp_path, "sampler.json", lambda document: document["state"].update(cursor=0))
    run = Run(tmp_path)
    before = run.state()
    with pytest.raises(CheckpointCorrupt, match=r"cursor is 0, but 4 groups are stamped with step 1"):
        await run.checkpointer.restore()
    assert run.state() == before


def twice(entries: list[dict[str, Any]], **changes: object) -> None:
    entries.append({**entries[-1], **changes})


CONTRADICTIONS: dict[str, tuple[str, Callable[[dict[str, Any]], None], str]] = {
    "group twice in the ledger": ("ledger.json", lambda d: twice(d["entries"]), "twice"),
    "key twice in the ledger": ("ledger.json", lambda d: twice(d["entries"], group=12), "twice"),
    "group twice in the buffer": (
        "buffer.json",
        lambda d: d["slots"][0].update(d["slots"][1]),
        "the buffer holds group 4",
    ),
    "another number of groups": ("buffer.json", lambda d: d["slots"].pop(), "captured with 2 groups"),
    "admission in two phases": (
        "ledger.json",
        lambda d: d["entries"][0].update(phase="reserved", step=None),
        "disagree",
    ),
    "admission with two stamps": ("ledger.json", lambda d: d["entries"][0].update(step=0), "disagree"),
    "group id above the counter": ("trainer.json", lambda d: d.update(next_group=7), "next group"),
    "buffered id above the counter": ("buffer.json", lambda d: d["slots"][0].update(group=99), "99"),
    "admission id above the counter": ("trainer.json", lambda d: d.update(next_admission=1), "admission"),
    "pending and trained": (
        "trainer.json",
        lambda d: d["accounts"].update(trained=[{"epoch": 0, "first": 0, "last": 15}]),
        "trained",
    ),
    "pending and dropped": (
        "trainer.json",
        lambda d: d["accounts"].update(dropped=[{"epoch": 0, "index": i, "reason": "failed"} for i in range(16)]),
        "dropped",
    ),
    "dropped twice": (
        "trainer.json",
        lambda d: d["accounts"].update(trained=[], dropped=[{"epoch": 5, "index": 1, "reason": "failed"}] * 2),
        "twice",
    ),
    "ledger of another save": ("buffer.json", lambda d: d["rows"].update(ledger_sha256="0" * 64), "two saves"),
    "index without rows": ("buffer.json", lambda d: d["slots"][0].update(group=3), "rows are not there"),
    "permits": ("trainer.json", lambda d: d["permits"].update(held=5), "permits"),
    "drops below zero": ("sampler.json", lambda d: d["state"].update(dropped=-1), "dropped -1, which no sampler has"),
    "loader beyond the data": ("loader.json", lambda d: d["state"].update(position=99), "position 99"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
async def test_a_checkpoint_that_contradicts_itself_is_refused_and_changes_nothing(tmp_path: Path, case: str) -> None:
    """All bytes are as they were written, so an older checkpoint is no answer: somebody has to look."""
    run = await saved(tmp_path, keep=9)
    resumed = Run(tmp_path, keep=9)
    await resumed.checkpointer.restore()
    await resumed.checkpointer.save()
    await resumed.checkpointer.close()
    member, change, complaint = CONTRADICTIONS[case]
    forge(tmp_path, member, change, "step_1-2")
    victim = Run(tmp_path)
    before = victim.state()
    with pytest.raises(CheckpointCorrupt, match=complaint):
        await victim.checkpointer.restore()
    assert victim.state() == before
    assert run.state() != before


UNKNOWN: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "phase": ("ledger.json", lambda d: [entry.update(phase="parked") for entry in d["entries"]], "phase 'parked'"),
    "payload": ("ledger.json", lambda d: d["entries"][0]["payload"].update(kind="pickle"), "kind 'pickle'"),
    "sampler field": ("sampler.json", lambda d: d["state"].update(phase=1), "other fields.*phase"),
}


@pytest.mark.parametrize("what", UNKNOWN)
async def test_what_this_version_does_not_know_is_refused_and_not_passed_over(tmp_path: Path, what: str) -> None:
    """Case E27 within the documents: a newer version meant something by it."""
    await saved(tmp_path)
    member, change, complaint = UNKNOWN[what]
    forge(tmp_path, member, change)
    with pytest.raises(CheckpointIncompatible, match=complaint):
        await Run(tmp_path).checkpointer.restore()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"seed": 4}, r"seed: 3 in the checkpoint, 4 here"),
        ({"length": 20}, r"dataset_length: 16 in the checkpoint, 20 here.*|dataset_digest"),
        ({"batch_size": 2}, r"batch_size: 4 in the checkpoint, 2 here"),
        ({"lookahead": 6}, r"sampler: "),
        pytest.param({"sampler": WindowedSampler(2)}, r"windowed", id="windowed"),
        ({"generations": 8}, r"generations: None in the checkpoint, 8 here"),
    ],
    ids=str,
)
async def test_case_A33_a_checkpoint_of_another_run_is_refused_with_both_identities(
    tmp_path: Path, options: dict[str, Any], complaint: str
) -> None:
    """Case A33: also when it lies in the directory that was given."""
    await saved(tmp_path)
    run = Run(tmp_path, **options)
    before = run.state()
    with pytest.raises(CheckpointIncompatible, match=complaint):
        await run.checkpointer.restore()
    assert run.state() == before


async def test_case_C05_a_restore_is_refused_while_a_section_is_open_or_another_restore_goes_on(tmp_path: Path) -> None:
    """Case C05: applying a snapshot while also applying entries raises the question which comes first."""
    run = await saved(tmp_path)
    executor = HeldExecutor()
    resumed = Run(tmp_path, executor=executor)
    async with resumed.barrier.mutation("mine") as _:
        with pytest.raises(UsageError, match=r"sections are open.*mine"):
            await resumed.checkpointer.restore()
    async with resumed.barrier.checkpoint() as _:
        with pytest.raises(UsageError, match="sections are open"):
            await resumed.checkpointer.restore()
    claimed = await mixed(Run(tmp_path))
    await claimed.claim(4, 7)
    with pytest.raises(UsageError, match="claimed groups"):
        await claimed.checkpointer.restore()
    first = asyncio.create_task(resumed.checkpointer.restore())
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match="another restore"):
        await resumed.checkpointer.restore()
    with pytest.raises(UsageError, match="a restore is going on"):
        await resumed.checkpointer.save()
    await executor.run_next()
    await first
    assert resumed.state() == run.state(), "what was refused has changed nothing"


@pytest.mark.parametrize("part", ["loader", "sampler", "ledger", "buffer", "plane", "counters", "trainer"])
async def test_case_A18_after_a_restore_that_failed_half_way_nobody_gets_in(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case A18: un-pausing unconditionally let half-restored workers accept new work."""
    run = await mixed(Run(tmp_path))
    await run.checkpointer.save(NumberTrainer())
    await run.checkpointer.close()
    resumed = Run(tmp_path)
    trainer = NumberTrainer()

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError(part)

    victim = {"counters": resumed.checkpointer.counters, "trainer": trainer}.get(part) or getattr(resumed, part)
    monkeypatch.setattr(victim, "load_state" if part in ("loader", "sampler") else "load", fail)
    with pytest.raises(ZeroDivisionError, match=part):
        await resumed.checkpointer.restore(trainer=trainer)
    with pytest.raises(BarrierClosed, match="step_1-1"):
        await resumed.reserve()
    with pytest.raises(UsageError, match="accepts no work, because restoring failed"):
        await resumed.checkpointer.save()


async def test_case_A18_after_a_refused_restore_no_save_until_one_succeeds(tmp_path: Path) -> None:
    """Nothing was changed, and yet a save would overwrite the history of a run that was meant to be resumed."""
    await saved(tmp_path)
    good = (tmp_path / "step_1-1" / "ledger.json").read_bytes()
    (tmp_path / "step_1-1" / "ledger.json").write_bytes(b"damaged")
    run = Run(tmp_path)
    with pytest.raises(CheckpointCorrupt):
        await run.checkpointer.restore()
    for attempt in (run.checkpointer.save, run.checkpointer.begin_snapshot, run.checkpointer.prepare):
        with pytest.raises(UsageError, match="Restore successfully first"):
            await attempt()
    (tmp_path / "step_1-1" / "ledger.json").write_bytes(good)
    await run.checkpointer.restore()
    await run.checkpointer.save()
    await run.checkpointer.close()


async def test_a_trainer_that_refuses_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """It is asked first, since it alone may still refuse."""
    run = await mixed(Run(tmp_path))
    await run.checkpointer.save(NumberTrainer(1))
    await run.checkpointer.close()
    resumed = Run(tmp_path)
    before = resumed.state()
    other = NumberTrainer()
    other.refusal = CheckpointIncompatible("another model")
    with pytest.raises(CheckpointIncompatible, match="another model"):
        await resumed.checkpointer.restore(trainer=other)
    assert resumed.state() == before
    restored = await resumed.checkpointer.restore()
    assert restored.trainer is not None
    assert restored.trainer.read_json("value.json") == 1, "without a trainer its files are handed to the caller"


async def test_a_trainer_is_not_left_as_it_is_when_the_checkpoint_has_none(tmp_path: Path) -> None:
    """The run would go on with fresh parameters at an old version."""
    await saved(tmp_path)
    with pytest.raises(CheckpointIncompatible, match="holds no trainer state"):
        await Run(tmp_path).checkpointer.restore(trainer=NumberTrainer())


@pytest.mark.parametrize("member", ["rows-000.safetensors", "rows.json", "sampler.json", "spares.json", "trainer.json"])
async def test_case_E23_damage_in_any_artifact_is_named_whether_or_not_it_is_loaded(
    tmp_path: Path, member: str
) -> None:
    """Case E23: also the rows that a replay-free restore does not use."""
    await saved(tmp_path)
    path = tmp_path / "step_1-1" / member
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    for load_buffer in (True, False):
        with pytest.raises(CheckpointCorrupt, match=rf"step_1-1/{member} is damaged"):
            await Run(tmp_path).checkpointer.restore(load_buffer=load_buffer)


async def test_case_A14_a_step_that_is_occupied_is_refused_at_admission_too(tmp_path: Path) -> None:
    """The ledger's own guard, reached when a wrong cursor came by another way."""
    await saved(tmp_path)
    run = Run(tmp_path)
    await run.checkpointer.restore()
    async with run.barrier.mutation() as cut:
        admission = run.ledger.admissions(Phase.RESERVED)[0]
        with pytest.raises(InvariantViolated, match="step 1"):
            run.ledger.admit(cut, admission, 1)


def assert_untouched(run: Run, before: dict[str, object]) -> None:
    """Nothing was replaced, and the barrier admits writers as before."""
    assert run.state() == before
    with run.barrier.mutation_nowait():
        pass


async def test_a_loader_with_fewer_epochs_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    """The number of epochs is no part of the identity, as it may grow; so the loader itself has to be asked first."""
    run = Run(tmp_path, length=4, epochs=2)
    for _ in range(2):
        await run.reserve()
    assert run.loader.exhausted
    assert run.loader.epoch == 1
    await run.checkpointer.save()
    await run.checkpointer.close()
    shorter = Run(tmp_path, length=4, epochs=1)
    before = shorter.state()
    with pytest.raises(CheckpointIncompatible, match=r"epoch 1 .*this one has 1 epoch\..*epochs=2 or more"):
        await shorter.checkpointer.restore()
    assert_untouched(shorter, before)
    longer = Run(tmp_path, length=4, epochs=3)
    await longer.checkpointer.restore()
    assert (await longer.reserve()).keys[0].epoch == 2


async def test_counters_that_their_owner_refuses_are_refused_before_anything_is_changed(tmp_path: Path) -> None:
    """They are put into place last: refused there, the run would be half replaced and the barrier closed."""
    await saved(tmp_path)
    forge(tmp_path, "trainer.json", lambda document: document.update(budgets={"nobody/knows": 1}))
    run = Run(tmp_path)
    fresh = Checkpointer(tmp_path, run.barrier)
    fresh.attach(
        ledger=run.ledger,
        loader=run.loader,
        sampler=run.sampler,
        buffer=run.buffer,
        counters=Progress(run.barrier, run.sampler),
    )
    before = run.state()
    with pytest.raises(CheckpointCorrupt, match="'nobody/knows', which names no group and cause"):
        await fresh.restore()
    assert_untouched(run, before)


async def test_a_restore_while_somebody_waits_for_a_permit_is_refused_before_anything_is_changed(
    tmp_path: Path,
) -> None:
    """The places given back by the restore would go to the one who waits, and the restored groups have none."""
    await saved(tmp_path)
    run = Run(tmp_path, capacity=4)
    await run.finish(*(await run.admit()).groups)
    before = run.state()
    waiting = asyncio.create_task(run.buffer.acquire_permit())
    await turns()
    with pytest.raises(UsageError, match="holds or awaits a permit"):
        await run.checkpointer.restore()
    assert_untouched(run, before)
    waiting.cancel()
