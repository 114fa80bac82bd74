"""Saves that wait, are cancelled, fail or are refused: somebody learns of it, and the next one works."""

import asyncio
import errno
import json
from pathlib import Path

import pytest
from loop_turns import turns, until
from run_situations import HeldExecutor, NumberTrainer, Run, documents, mixed
from store_situations import failing_files

from impl import (
    CheckpointIncompatible,
    CommittedTensorModified,
    DrainTimeout,
    StoreBusy,
    StoreFailed,
    StoreFull,
    UsageError,
)
from impl.checkpoint import Checkpointer


async def test_a_second_save_waits_before_it_captures(tmp_path: Path) -> None:
    """What it stores is the state when its turn came, not when it was asked for."""
    executor = HeldExecutor()
    run = Run(tmp_path, executor=executor)
    first = asyncio.create_task(run.checkpointer.begin_save())
    await executor.run_next()
    pending = await first
    second = asyncio.create_task(run.checkpointer.begin_save())
    await turns()
    assert run.actions("request_cut") == ["request_cut"], "the second has not even asked for the window"
    await run.admit()
    await executor.run_next()
    assert pending.done
    later = await second
    await executor.run_next()
    await later.durable()
    assert run.actions("read_sampler", "publish", "commit_admission") == [
        "read_sampler",
        "commit_admission",
        "publish",
        "read_sampler",
        "publish",
    ]
    assert len(json.loads(documents(tmp_path, later.name)["ledger.json"])["entries"]) == 4


async def test_cancelling_the_caller_after_the_window_does_not_stop_publication(tmp_path: Path) -> None:
    """The cut is taken and others wait for it to be durable; a run that is told to end must not lose it.

    Nor may whoever is cancelled go on with training before the trainer's state is copied.
    """
    run = Run(tmp_path)
    trainer = NumberTrainer(1)
    trainer.may_stage.clear()
    save = asyncio.create_task(run.checkpointer.begin_save(trainer))
    await until(lambda: "read_trainer" in run.actions())
    await turns()
    for _ in range(2):
        save.cancel()
        await turns()
        assert not save.done()
    trainer.may_stage.set()
    with pytest.raises(asyncio.CancelledError):
        await save
    await run.checkpointer.close()
    assert run.actions("publish") == ["publish"]
    assert (tmp_path / "step_0-1").is_dir()


async def test_cancelling_durable_neither_stops_the_save_nor_hides_its_outcome(tmp_path: Path) -> None:
    """Several may wait for one save; one that gives up takes nothing from the others."""
    executor = HeldExecutor()
    run = Run(tmp_path, executor=executor)
    begun = asyncio.create_task(run.checkpointer.begin_save())
    await executor.run_next()
    pending = await begun
    waiters = [asyncio.create_task(pending.durable()) for _ in range(2)]
    await turns()
    waiters[0].cancel()
    await turns()
    assert waiters[0].cancelled()
    await executor.run_next()
    assert (await waiters[1]).name == (await pending.durable()).name == "step_0-1"


async def test_cancelling_before_the_window_leaves_nothing_behind(tmp_path: Path) -> None:
    """The turn goes on to the next save, and the barrier to the next writer."""
    run = Run(tmp_path)
    async with run.barrier.mutation() as _:
        with run.barrier.detached():
            save = asyncio.create_task(run.checkpointer.begin_save())
        await until(lambda: "request_cut" in run.actions())
        save.cancel()
        await turns()
        assert save.cancelled()
    assert (await run.checkpointer.save()).sequence == 1
    await run.checkpointer.close()


async def test_case_C11_a_drain_that_does_not_end_gives_the_save_up_and_the_next_one_works(tmp_path: Path) -> None:
    """Case C11: the holder is named, the writers behind it proceed."""
    run = Run(tmp_path, drain_timeout=0.0)
    async with run.barrier.mutation("held") as _:
        with run.barrier.detached():
            save = asyncio.create_task(run.checkpointer.begin_save())
            writer = asyncio.create_task(run.reserve())
        with pytest.raises(DrainTimeout, match="held"):
            await save
        await writer
    assert (await run.checkpointer.save()).name == "step_0-1"
    await run.checkpointer.close()


async def test_a_trainer_that_cannot_be_copied_fails_the_save_at_once(tmp_path: Path) -> None:
    """The error is the caller's, once; the next save does not raise it again."""
    run = Run(tmp_path)
    trainer = NumberTrainer()
    trainer.failure = ValueError("no copy")
    with pytest.raises(ValueError, match="no copy"):
        await run.checkpointer.begin_save(trainer)
    trainer.failure = None
    await run.checkpointer.save(trainer)
    await run.checkpointer.close()
    assert run.checkpointer.statistics().failed == 1


@pytest.mark.parametrize("way", ["save", "close", "context"])
async def test_case_E12_a_background_failure_is_raised_by_the_next_call_when_nobody_asked(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Case E12: training goes on, and the process ends with success and without a checkpoint."""
    run = Run(tmp_path, files=failing_files(errno.EIO, call="fsync", nth=1))
    pending = await run.checkpointer.begin_save()
    await until(lambda: pending.done)
    assert "step_0-1 was not published" in caplog.text, "said even if the interpreter ends now"
    if way == "save":
        with pytest.raises(StoreFailed, match="abandoned"):
            await run.checkpointer.begin_save()
        assert (await run.checkpointer.save()).name == "step_0-2", "the object can save afterwards"
        await run.checkpointer.close()
    elif way == "close":
        with pytest.raises(StoreFailed):
            await run.checkpointer.close()
        await run.checkpointer.close()
    else:
        with pytest.raises(StoreFailed):
            async with run.checkpointer:
                pass


async def test_case_E12_a_failure_that_was_seen_is_not_raised_twice(tmp_path: Path) -> None:
    """A run that has dealt with a full disk must be able to go on."""
    run = Run(tmp_path, files=failing_files(errno.ENOSPC, call="write", nth=3))
    pending = await run.checkpointer.begin_save()
    for _ in range(2):
        with pytest.raises(StoreFull, match="no room"):
            await pending.durable()
    await run.checkpointer.save()
    await run.checkpointer.close()


async def test_an_error_inside_the_context_is_not_replaced_by_the_failure_of_a_save(tmp_path: Path) -> None:
    """Both are told: one as the error, the other as its note."""
    run = Run(tmp_path, files=failing_files(errno.EIO, call="fsync", nth=1))

    async def work() -> None:
        async with run.checkpointer:
            await run.checkpointer.begin_save()
            raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        await work()
    assert "abandoned" in raised.value.__notes__[0]


async def test_case_E25_after_a_full_disk_the_run_is_unchanged_and_a_later_save_works(tmp_path: Path) -> None:
    """Case E25: the run is alive, the previous checkpoint intact."""
    run = await mixed(Run(tmp_path, files=failing_files(errno.ENOSPC, call="write", nth=15)))
    first = await run.checkpointer.save()
    before = run.state()
    with pytest.raises(StoreFull):
        await run.checkpointer.save()
    assert run.state() == before
    assert documents(tmp_path, first.name)
    later = await run.checkpointer.save()
    assert later.sequence == 3
    await run.checkpointer.close()


async def test_a_tensor_changed_after_its_commit_fails_the_save(tmp_path: Path) -> None:
    """What would be written is not what was committed, and nobody else would notice."""
    run = await mixed(Run(tmp_path, verify="digest"))
    run.plane.rows(4)["tokens"].data[0, 0] = 99
    with pytest.raises(CommittedTensorModified, match="group 4, field 'tokens'"):
        await run.checkpointer.save()
    assert not list(tmp_path.glob("step_*"))
    run.plane.rows(4)["tokens"].data[0, 0] = 4
    await run.checkpointer.save()
    await run.checkpointer.close()


@pytest.mark.parametrize("mode", ["off", "sampled", "digest"])
def test_the_data_plane_is_told_how_to_watch_committed_rows(tmp_path: Path, mode: str) -> None:
    """It has to know at commit, long before a save."""
    assert Run(tmp_path, verify=mode).plane.verify == mode


async def test_case_E15_a_second_run_is_refused_before_it_has_done_anything(tmp_path: Path) -> None:
    """Case E15: found by `prepare` at the start, or else by the first save, before its window."""
    first, second = Run(tmp_path, name="first"), Run(tmp_path, name="second")
    await first.checkpointer.save()
    for attempt in (second.checkpointer.prepare, second.checkpointer.save):
        with pytest.raises(StoreBusy, match="writer first"):
            await attempt()
    assert "request_cut" not in second.actions()
    await first.checkpointer.close()
    await second.checkpointer.prepare()
    await second.checkpointer.save()
    await second.checkpointer.close()


async def test_case_A33_a_run_does_not_save_beside_the_checkpoints_of_another(tmp_path: Path) -> None:
    """Case A33: they would be removed in time, and the newest would be taken for the run's own."""
    other = await mixed(Run(tmp_path, seed=3))
    await other.checkpointer.save()
    await other.checkpointer.close()
    before = documents(tmp_path, "step_1-1", without=())
    run = Run(tmp_path, seed=4)
    with pytest.raises(CheckpointIncompatible, match=r"seed=3.*seed=4"):
        await run.checkpointer.save()
    assert documents(tmp_path, "step_1-1", without=()) == before
    run = Run(tmp_path, seed=3)
    await run.checkpointer.prepare()
    await run.checkpointer.close()


def test_wrong_use_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Each before anything has happened."""
    run = Run(tmp_path)
    barrier = run.barrier
    with pytest.raises(UsageError, match="verify='sometimes'"):
        Checkpointer(tmp_path, barrier, verify="sometimes")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="keep=0"):
        Checkpointer(tmp_path, barrier, keep=0)
    with pytest.raises(UsageError, match="attach"):
        asyncio.run(Checkpointer(tmp_path, barrier).save())
    with pytest.raises(UsageError, match="twice"):
        run.checkpointer.attach(ledger=run.ledger, loader=run.loader, sampler=run.sampler, buffer=run.buffer)
    with pytest.raises(UsageError, match="another barrier"):
        Run(tmp_path / "x").checkpointer.__class__(tmp_path, Run(tmp_path / "y").barrier).attach(
            ledger=run.ledger, loader=run.loader, sampler=run.sampler, buffer=run.buffer
        )


async def test_closing_waits_for_the_save_in_flight_and_can_be_taken_up_again(tmp_path: Path) -> None:
    """A cancelled close must not leave the directory locked and the save unreported."""
    executor = HeldExecutor()
    run = Run(tmp_path, executor=executor)
    begun = asyncio.create_task(run.checkpointer.begin_save())
    await executor.run_next()
    pending = await begun
    closing = asyncio.create_task(run.checkpointer.close())
    await turns()
    assert not closing.done()
    closing.cancel()
    await turns()
    assert closing.cancelled()
    with pytest.raises(UsageError, match="closed"):
        await run.checkpointer.save()
    again = asyncio.create_task(run.checkpointer.close())
    await executor.run_next()
    assert (await pending.durable()).name == "step_0-1"
    await executor.run_next()
    await again
    successor = Run(tmp_path, name="next")
    await successor.checkpointer.prepare()
    await successor.checkpointer.close()


async def test_closing_after_a_cancelled_beginning_gives_the_lock_back(tmp_path: Path) -> None:
    """The lock may be taken on the writer thread after the task that asked for it is gone."""
    executor = HeldExecutor()
    run = Run(tmp_path, executor=executor)
    preparing = asyncio.create_task(run.checkpointer.prepare())
    await until(lambda: bool(executor.jobs))
    preparing.cancel()
    await turns()
    closing = asyncio.create_task(run.checkpointer.close())
    await turns()
    assert not closing.done()
    await executor.run_next()
    await executor.run_next()
    await closing
    successor = Run(tmp_path, name="next")
    await successor.checkpointer.prepare()
    await successor.checkpointer.close()


async def test_a_closed_checkpointer_accepts_nothing(tmp_path: Path) -> None:
    """The lock is gone."""
    run = Run(tmp_path)
    await run.checkpointer.close()
    for attempt in (run.checkpointer.save, run.checkpointer.restore, run.checkpointer.prepare):
        with pytest.raises(UsageError, match="closed"):
            await attempt()


async def test_case_E28_a_part_that_cannot_be_saved_is_refused_when_it_is_attached(tmp_path: Path) -> None:
    """Case E28: not at the first save, after work was consumed."""
    run = Run(tmp_path)

    class Unsavable:
        name = "custom"

        def parameters(self) -> dict[str, object]:
            return {}

        def state(self) -> dict[str, object]:
            return {"cursor": {1, 2}}

        def load_state(self, state: object) -> None:
            raise AssertionError

    fresh = Checkpointer(tmp_path, run.barrier)
    with pytest.raises(UsageError, match=r"sampler\.state\(\)\.cursor"):
        fresh.attach(ledger=run.ledger, loader=run.loader, sampler=Unsavable(), buffer=run.buffer)
