"""Copying a trainer's state: the event loop goes on, training does not, and if it does the save says so."""

import asyncio
import threading
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_turns import HANG_SECONDS, turns, until
from run_situations import NumberTrainer, Run

from impl import CleancutError, TorchTrainerState, UsageError
from impl.rows import torch_copying


def large_model() -> torch.nn.Module:
    """More than is copied without a thread."""
    return torch.nn.Linear(torch_copying.LEAST_BYTES // 4, 1, bias=False)


def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Copying waits until the event is set."""
    may_copy, copied = threading.Event(), torch_copying._copied

    def waits(*arguments: Any) -> Any:
        assert may_copy.wait(HANG_SECONDS), "the event loop stood still while the trainer was copied"
        return copied(*arguments)

    monkeypatch.setattr(torch_copying, "_copied", waits)
    return may_copy


async def test_the_event_loop_goes_on_while_a_large_trainer_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of gigabytes takes longer than any task may stand still; begin_save waits for it all the same."""
    may_copy = held(monkeypatch)
    model = large_model()
    run = Run(tmp_path)
    save = asyncio.create_task(run.checkpointer.begin_save(TorchTrainerState(model)))
    await until(lambda: "close_cut" in run.actions())
    await turns(50)
    assert not save.done(), "training would go on"
    may_copy.set()
    await (await save).durable()
    await run.checkpointer.close()
    resumed = large_model()
    await Run(tmp_path).checkpointer.restore(trainer=TorchTrainerState(resumed))
    assert torch.equal(resumed.state_dict()["weight"], model.state_dict()["weight"])


async def test_little_that_lies_on_a_device_is_copied_on_a_thread_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy waits for all the kernels before it, however few bytes it has, and the event loop must not."""
    may_copy = held(monkeypatch)
    handed: list[Any] = []

    def done_on(streams: Any, work: Any) -> Any:
        handed.append(streams)
        return work()

    monkeypatch.setattr(torch_copying, "current_streams", lambda tensors: ["stream"])
    monkeypatch.setattr(torch_copying, "done_on", done_on)
    copying = asyncio.create_task(torch_copying.copied_to_the_cpu({"model": {"weight": torch.ones(2)}}))
    await turns(50)
    assert not copying.done()
    may_copy.set()
    assert (await copying)["model"]["weight"].tolist() == [1, 1]
    assert handed == [["stream"]]


async def test_training_that_goes_on_under_the_copy_fails_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One half of such a copy would be of before the step and one of after it."""
    may_copy = held(monkeypatch)
    model = large_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = Run(tmp_path)
    save = asyncio.create_task(run.checkpointer.begin_save(TorchTrainerState(model, optimizer)))
    await until(lambda: "close_cut" in run.actions())
    await turns()
    model(torch.ones(torch_copying.LEAST_BYTES // 4)).sum().backward()
    optimizer.step()
    may_copy.set()
    with pytest.raises(UsageError, match=r"'weight' of the trainer's model was changed while it was copied"):
        await save
    await run.checkpointer.close()
    assert not list(tmp_path.glob("step_*"))


async def test_whoever_is_cancelled_comes_back_when_the_copy_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread cannot be stopped, and who gives up waiting may go on with training."""
    may_copy = held(monkeypatch)
    run = Run(tmp_path)
    save = asyncio.create_task(run.checkpointer.begin_save(TorchTrainerState(large_model())))
    await until(lambda: "close_cut" in run.actions())
    await turns()
    save.cancel("enough")
    await turns(50)
    assert not save.done()
    may_copy.set()
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await save
    await run.checkpointer.close()
    assert [path.name for path in tmp_path.glob("step_*")] == ["step_0-1"], "the cut was taken, and is not lost"


class Copy:
    """What a trainer has staged; the last reference to it may be one to gigabytes."""


class CopyingTrainer(NumberTrainer):
    """Notes the thread that lets go of its copy, and may fail to write it."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.fails = fails
        self.dropped_on: list[threading.Thread] = []

    async def stage(self) -> Any:
        copy = Copy()
        weakref.finalize(copy, lambda: self.dropped_on.append(threading.current_thread()))
        return copy

    def persist(self, staged: Any, writer: Any) -> None:
        self.persisted_on = threading.current_thread()
        if self.fails:
            raise OSError("no room for the trainer")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_copy_is_given_up_on_the_writer_thread(tmp_path: Path, *, fails: bool) -> None:
    """To give a gigabyte back takes tens of milliseconds, which nobody on the loop should wait for."""
    run = Run(tmp_path)
    trainer = CopyingTrainer(fails=fails)
    pending = await run.checkpointer.begin_save(trainer)
    with pytest.raises(CleancutError, match="no room") if fails else nullcontext():
        await pending.durable()
    await run.checkpointer.close()
    assert trainer.dropped_on == [trainer.persisted_on]
    assert trainer.persisted_on is not threading.current_thread()


async def test_a_copy_that_is_cancelled_itself_ends_with_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the end of `asyncio.run`: nothing is published of it."""
    may_copy = held(monkeypatch)
    copying = asyncio.create_task(TorchTrainerState(large_model()).stage())
    await turns()
    copying.cancel()
    await turns(50)
    assert not copying.done()
    may_copy.set()
    with pytest.raises(asyncio.CancelledError):
        await copying


async def test_tensors_that_count_no_changes_are_copied_all_the_same() -> None:
    """Inference tensors have no counter."""
    with torch.inference_mode():
        frozen = torch.arange(torch_copying.LEAST_BYTES // 4, dtype=torch.float32)
    copies = await torch_copying.copied_to_the_cpu({"model": {"frozen": frozen}})
    assert torch.equal(copies["model"]["frozen"], frozen)
    assert copies["model"]["frozen"].data_ptr() != frozen.data_ptr()
