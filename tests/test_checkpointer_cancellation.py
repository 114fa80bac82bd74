"""Saves whose background task is cancelled, wherever: turn, pending save and capture are always settled."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from loop_turns import turns, until
from run_situations import HeldExecutor, NumberTrainer, Run, mixed, saved

from impl import CheckpointIncompatible, CleancutError
from impl.checkpoint import PendingSave


def background_task() -> "asyncio.Task[object]":
    """The task that publishes the save in flight."""
    (task,) = [task for task in asyncio.all_tasks() if task.get_name().startswith("publish-")]
    return task


def cancel_at_creation(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cancel the next background task of a save before its first step; returns the names of those it was done to."""
    create_task = asyncio.create_task
    cancelled: list[str] = []

    def cancelling(coroutine: Coroutine[Any, Any, object], **named: Any) -> "asyncio.Task[object]":
        task = create_task(coroutine, **named)
        if task.get_name().startswith("publish-") and not cancelled:
            task.cancel()
            cancelled.append(task.get_name())
        return task

    monkeypatch.setattr(asyncio, "create_task", cancelling)
    return cancelled


def open_captures(run: Run) -> int:
    """Captures of the data plane that nobody has released."""
    return run.plane.statistics()["open_captures"]


async def test_a_background_task_cancelled_before_its_first_step_settles_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its coroutine runs nothing: the turn would stay taken, and the next save and close() would wait for ever."""
    run = await mixed(Run(tmp_path))
    cancelled = cancel_at_creation(monkeypatch)
    pending = await run.checkpointer.begin_save()
    await until(lambda: pending.done)
    assert cancelled == ["publish-step_1-1"]
    assert "step_1-1 was not published" in caplog.text
    with pytest.raises(CleancutError, match=r"step_1-1 was not published.*cancelled before anything was written"):
        await pending.durable()
    assert open_captures(run) == 0
    assert (await run.checkpointer.save()).name == "step_1-2"
    await run.checkpointer.close()


async def test_a_save_with_a_trainer_whose_task_is_cancelled_before_its_first_step_fails_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """begin_save waits for the copy of the trainer's state, which nobody would make."""
    run = Run(tmp_path)
    cancel_at_creation(monkeypatch)
    with pytest.raises(CleancutError, match="was not published"):
        await run.checkpointer.begin_save(NumberTrainer(1))
    assert open_captures(run) == 0
    assert (await run.checkpointer.save(NumberTrainer(1))).name == "step_0-2"
    await run.checkpointer.close()


async def test_a_save_whose_task_is_cancelled_while_the_trainer_is_copied_publishes_nothing(tmp_path: Path) -> None:
    """Nothing was written yet, and a half-made copy must not be."""
    run = Run(tmp_path)
    trainer = NumberTrainer(1)
    trainer.may_stage.clear()
    save = asyncio.create_task(run.checkpointer.begin_save(trainer))
    await until(lambda: "close_cut" in run.actions())
    await turns()
    background_task().cancel()
    with pytest.raises(CleancutError, match="was not published"):
        await save
    assert open_captures(run) == 0
    await run.checkpointer.close()
    assert not list(tmp_path.glob("step_*"))


async def test_a_save_that_is_being_written_is_seen_to_its_end_through_cancellations(tmp_path: Path) -> None:
    """The writer thread goes on in any case: released now, the rows it reads could be changed under it."""
    executor = HeldExecutor()
    run = await mixed(Run(tmp_path, executor=executor))
    begun = asyncio.create_task(run.checkpointer.begin_save())
    await executor.run_next()
    pending = await begun
    await until(lambda: bool(executor.jobs))
    for _ in range(3):
        background_task().cancel()
        await turns()
    assert not pending.done
    assert open_captures(run) == 1
    await executor.run_next()
    assert (await pending.durable()).name == "step_1-1"
    assert run.actions("publish") == ["publish"]
    assert open_captures(run) == 0


@pytest.mark.parametrize("wait", [0, 1, 2, 3, 10])
def test_the_end_of_asyncio_run_waits_for_the_save_that_is_being_written(tmp_path: Path, wait: int) -> None:
    """It cancels every task; the checkpointer is as good afterwards as if its save had been waited for."""
    run = Run(tmp_path)

    async def begin() -> PendingSave:
        pending = await run.checkpointer.begin_save()
        await turns(wait)
        return pending

    async def go_on() -> None:
        assert (await run.checkpointer.save()).name == "step_0-2"
        await run.checkpointer.close()

    pending = asyncio.run(begin())
    assert pending.done
    assert pending.failure is None
    assert (tmp_path / "step_0-1").is_dir()
    assert open_captures(run) == 0
    asyncio.run(go_on())


def test_an_end_of_the_loop_before_the_save_has_begun_to_write_is_told_by_the_next_call(tmp_path: Path) -> None:
    """SystemExit breaks the loop off at once; the tasks are cancelled where they stand, one before its first step."""
    run = Run(tmp_path)

    async def exit_at_once() -> None:
        await until(lambda: any(task.get_name().startswith("publish-") for task in asyncio.all_tasks()))
        raise SystemExit(3)

    async def begin() -> None:
        stopper = asyncio.create_task(exit_at_once())
        await run.checkpointer.begin_save()
        await stopper

    async def go_on() -> None:
        with pytest.raises(CleancutError, match="step_0-1 was not published"):
            await run.checkpointer.save()
        assert (await run.checkpointer.save()).name == "step_0-2"
        await run.checkpointer.close()

    with pytest.raises(SystemExit):
        asyncio.run(begin())
    assert not (tmp_path / "step_0-1").exists()
    assert open_captures(run) == 0
    asyncio.run(go_on())


@pytest.mark.parametrize("with_trainer", [False, True])
async def test_a_save_cancelled_at_any_turn_leaves_turn_barrier_and_capture_free(
    tmp_path: Path, with_trainer: bool
) -> None:
    """Caller and background task, each cancelled after every number of turns; the next save always works."""
    published: set[bool] = set()
    for victim in ("caller", "background"):
        for wait in range(16):
            run = Run(tmp_path / f"{victim}{wait}")
            trainer = NumberTrainer(1) if with_trainer else None
            save = asyncio.create_task(run.checkpointer.save(trainer))
            if victim == "caller":
                await turns(wait)
                save.cancel()
            else:
                await until(lambda: save.done() or "close_cut" in run.actions())  # noqa: B023 - called at once
                await turns(wait)
                for task in asyncio.all_tasks():
                    if task.get_name().startswith("publish-"):
                        task.cancel()
            outcome = (await asyncio.gather(save, return_exceptions=True))[0]
            assert victim == "caller" or not isinstance(outcome, asyncio.CancelledError)
            later = await run.checkpointer.save(trainer)
            await run.checkpointer.close()
            assert open_captures(run) == 0
            assert run.barrier.statistics().holders == ()
            assert (tmp_path / f"{victim}{wait}" / later.name).is_dir()
            published.add(len(run.actions("publish")) == 2)
    assert published == {False, True}, "some cancellations came before the writing, some after"


async def test_case_A33_a_cancelled_beginning_does_not_skip_the_check_of_the_identity(tmp_path: Path) -> None:
    """The lock is taken on the writer thread after the caller is gone; the next save must not take that for a pass."""
    await saved(tmp_path, seed=3)
    executor = HeldExecutor()
    run = Run(tmp_path, seed=4, executor=executor)
    preparing = asyncio.create_task(run.checkpointer.prepare())
    await until(lambda: bool(executor.jobs))
    preparing.cancel()
    await executor.run_next()
    save = asyncio.create_task(run.checkpointer.save())
    await executor.run_next()
    with pytest.raises(CheckpointIncompatible, match=r"seed=3.*seed=4"):
        await save


async def test_a_save_after_a_cancelled_beginning_waits_until_the_store_is_open(tmp_path: Path) -> None:
    """While the directory is read no sequence number can be given: it might be a lower one than is there."""
    await saved(tmp_path)
    executor = HeldExecutor()
    run = Run(tmp_path, executor=executor)
    preparing = asyncio.create_task(run.checkpointer.prepare())
    await until(lambda: bool(executor.jobs))
    preparing.cancel()
    await turns()
    run.checkpointer._store._lock.acquire()  # what the job does first
    save = asyncio.create_task(run.checkpointer.begin_save())
    await turns()
    assert run.actions("request_cut") == []
    run.checkpointer._store._lock.release()
    await executor.run_next()
    await executor.run_next()
    assert (await save).name == "step_0-2"
    await executor.run_next()
