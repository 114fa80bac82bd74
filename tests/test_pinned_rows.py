"""Rows in pinned memory, into which a device may still be copying when they are committed: nobody reads them too early.

A stand-in for CUDA does the copy only when somebody waits for the event behind it, as late as it can be.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from memory_files import MemoryFiles, captured, commit

from impl import CommittedTensorModified, TensorPlane
from impl.barrier import CheckpointBarrier
from impl.rows import CudaDevice

BYTES, VALUE = 8, 7


class Copying(CudaDevice):
    """Copies into one row of the host, when it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.row = torch.zeros(BYTES, dtype=torch.uint8)
        self.asked: list[str] = []

    def feeds(self, tensor: torch.Tensor) -> int | None:
        return 0 if tensor.data_ptr() == self.row.data_ptr() else None

    def record(self, where: Any) -> Any:
        self.asked.append(f"record on {where}")
        return self

    def check_ready(self, ready: Any) -> None:
        assert ready is self

    def synchronize(self) -> None:
        """Of the event, which this is too. What a device writes no counter of torch sees."""
        if "wait" not in self.asked:
            self.row.data.fill_(VALUE)
        self.asked.append("wait")


class Forgetful(Copying):
    """The control: takes all memory of the host for finished."""

    def feeds(self, tensor: torch.Tensor) -> None:
        return None


async def saved(device: Copying, *, verify: Any = "off", given: bool = False) -> list[int]:
    """What a checkpoint holds of the row."""
    plane, barrier, files = TensorPlane(verify=verify, accelerator=device), CheckpointBarrier(), MemoryFiles()
    rows = {"x": device.row, "other": torch.ones(2)}
    if given:
        staged = await plane.stage(1, rows, device)
        async with barrier.mutation() as cut:
            plane.commit(cut, 1, staged, device)
    else:
        await commit(plane, barrier, 1, rows)
    plane.persist(await captured(plane, barrier, 1), files)
    (file,) = files.tensors.values()
    values: list[int] = file["1/x"].tolist()
    return values


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("verify", ["off", "digest"])
async def test_case_D04_a_row_in_pinned_memory_is_read_behind_the_copy_into_it(verify: str, given: bool) -> None:
    """By the writer, and by the digest, which would not be that of what is saved."""
    device = Copying()
    assert await saved(device, verify=verify, given=given) == [VALUE] * BYTES
    assert ("record on 0" in device.asked) is not given, "with its event given no other is needed"


async def test_control_a_row_in_pinned_memory_taken_for_finished_is_saved_before_it_is_written() -> None:
    """The event is there, and nobody asks whether the memory is pinned."""
    assert await saved(Forgetful()) == [0] * BYTES


async def test_whoever_is_handed_a_row_in_pinned_memory_finds_it_written() -> None:
    """The host has no stream that could wait for it."""
    device = Copying()
    plane, barrier = TensorPlane(verify="off", accelerator=device), CheckpointBarrier()
    await commit(plane, barrier, 1, {"x": device.row})
    assert plane.rows(1)["x"].tolist() == [VALUE] * BYTES


@pytest.mark.parametrize(("verify", "past_torch"), [("off", False), ("digest", True)])
async def test_case_D04_a_row_in_pinned_memory_that_is_changed_fails_the_save(verify: Any, past_torch: bool) -> None:
    """By the counter, and past torch by the digest."""
    device = Copying()
    plane, barrier = TensorPlane(verify=verify, accelerator=device), CheckpointBarrier()
    await commit(plane, barrier, 1, {"x": device.row})
    capture = await captured(plane, barrier, 1)
    device.synchronize()
    if past_torch:
        device.row.numpy()[0] = 77
    else:
        device.row.add_(1)
    with pytest.raises(CommittedTensorModified, match="group 1, field 'x'"):
        plane.persist(capture, MemoryFiles())
