"""Whole runs over a loader of torchdata, and what becomes of its worker processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from controller_runs import GENERATIONS, Record, each_once
from torchdata_loaders import QUIET, loader

from impl import CheckpointBarrier, Checkpointer, CheckpointIncompatible, Controller, ControllerConfig, InOrderSampler

pytestmark = QUIET


async def test_worker_processes_end_in_good_order_though_another_thread_made_them(tmp_path: Path) -> None:
    """One that failed at its end, as a fork of an executor's thread does, would make torch raise in the event loop."""
    dataloader = loader(list(range(11)), own=3, batch_size=2, num_workers=2)
    await dataloader.prepare()
    iterator: Any = dataloader._iterator
    processes = iterator._workers
    assert len(processes) == 2
    dataloader._iterator = None
    iterator._shutdown_workers()
    assert [process.exitcode for process in processes] == [0, 0]


@pytest.mark.parametrize("workers", [0, 2])
async def test_a_run_over_torchdata_resumes_and_trains_every_prompt_once(tmp_path: Path, workers: int) -> None:
    """Saved after every step and ended after the second: pending, leftover and unread prompts are all taken up."""
    records = [Record(), Record()]
    for record, steps in zip(records, (2, None), strict=True):
        report = await Controller(
            loader=loader(list(range(11)), own=3, batch_size=2, epochs=2, num_workers=workers),
            generate=record.generate,
            train=record.train,
            sampler=InOrderSampler(lookahead=1),
            checkpointer=Checkpointer(tmp_path, CheckpointBarrier(), verify="digest"),
            config=ControllerConfig(generations=GENERATIONS, save_period=1, max_steps=steps, stall_warning=None),
        ).run()
    assert records[0].trained_keys + records[1].trained_keys == each_once(11, epochs=2)
    assert report.trained == 22
    assert report.restored is not None


async def test_a_run_over_a_shorter_dataset_is_refused_before_it_begins(tmp_path: Path) -> None:
    """torchdata would end the epoch early, without a word."""
    for rows in (8, 6):
        controller = Controller(
            loader=loader(list(range(rows)), own=3, batch_size=2),
            generate=(record := Record()).generate,
            train=record.train,
            sampler=InOrderSampler(lookahead=0),
            checkpointer=Checkpointer(tmp_path, CheckpointBarrier()),
            config=ControllerConfig(generations=GENERATIONS, max_steps=1, stall_warning=None),
        )
        if rows == 8:
            await controller.run()
        else:
            with pytest.raises(CheckpointIncompatible, match="dataset_length"):
                await controller.run()
            assert record.generated == []
