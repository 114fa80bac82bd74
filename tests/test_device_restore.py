"""Rows of a device in a checkpoint: the file knows no device, and a restore puts them where it is told to."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from run_situations import Run, rows_of
from store_situations import failing_files

from impl import StoreFull, TensorPlane, UsageError
from impl.store import Files
from interleavings.scenarios import SimulatedDevice

Groups = tuple[int, ...]


async def generated_on(device: SimulatedDevice, run: Run, make: Callable[[int], Mapping[str, torch.Tensor]]) -> Groups:
    """A batch of groups whose rows are on the device."""
    admission = await run.admit()
    await run.dispatch(*admission.groups)
    for group in admission.groups:
        staged = await run.plane.stage(group, make(group))
        async with run.barrier.mutation() as cut:
            run.buffer.commit(cut, group, staged)
        run.ledger.remove_committed(group)
    return admission.groups


async def saved_from_a_device(directory: Path) -> Groups:
    """A checkpoint whose rows were on a device; the groups in it."""
    device = SimulatedDevice(8, block_bytes=64)
    run = Run(directory, plane=TensorPlane(accelerator=device))

    def make(group: int) -> Mapping[str, torch.Tensor]:
        rows = rows_of(group).items()
        return {field: device.empty(*row.shape, dtype=row.dtype).copy_(row) for field, row in rows}

    groups = await generated_on(device, run, make)
    await run.checkpointer.save()
    await run.checkpointer.close()
    return groups


async def test_case_D16_rows_of_a_device_come_back_on_the_host_where_there_is_none(tmp_path: Path) -> None:
    """Case D16: by default on the CPU, without asking for a GPU."""
    groups = await saved_from_a_device(tmp_path)
    again = Run(tmp_path)
    await again.checkpointer.restore()
    for group in groups:
        for field, row in rows_of(group).items():
            restored = again.plane.rows(group)[field]
            assert restored.device.type == "cpu"
            assert torch.equal(restored, row)
    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


async def test_case_D16_the_checkpoint_names_no_device(tmp_path: Path) -> None:
    """Case D16: nothing in it has to be there when it is loaded."""
    await saved_from_a_device(tmp_path)
    for path in (tmp_path / "step_0-1").rglob("*"):
        if path.is_file():
            assert b"cuda" not in path.read_bytes()
            assert b"simulated" not in path.read_bytes()


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:5", torch.device("cuda", 1)])
def test_case_D16_a_device_that_is_not_there_is_refused_by_name(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case D16: when the plane is made, and not when rows have been read; counting devices initialises nothing."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UsageError, match=rf"device='{device}': this process sees 0 CUDA devices"):
        TensorPlane(device=device)


def test_case_D16_a_smaller_number_of_devices_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case D16: the fifth of two."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert TensorPlane(device="cuda:1").device == torch.device("cuda", 1)
    with pytest.raises(UsageError, match="sees 2 CUDA devices"):
        TensorPlane(device="cuda:5")


LARGE = 3 << 20


def run_of_large_rows(directory: Path, files: Files | None = None) -> tuple[SimulatedDevice, Run]:
    """A run whose rows are files of three MiB each, with pinned memory for two."""
    device = SimulatedDevice(8, block_bytes=LARGE)
    plane = TensorPlane(accelerator=device, staging_bytes=8 << 20, bytes_per_file=LARGE)
    return device, Run(directory, batch_size=8, plane=plane, files=files)


async def test_many_large_files_go_through_little_pinned_memory(tmp_path: Path) -> None:
    """However many are written at a time: who finds no memory waits for one of them."""
    device, run = run_of_large_rows(tmp_path)
    groups = await generated_on(device, run, lambda group: {"x": device.fill(device.empty(LARGE), group + 1)})
    await run.checkpointer.save()
    await run.checkpointer.close()
    statistics = run.plane.statistics()
    assert (statistics["staging_peak"], statistics["staging_in_use"]) == (8 << 20, 0)
    assert statistics["staging_allocations"] == 2
    again = Run(tmp_path, batch_size=8)
    await again.checkpointer.restore()
    for group in groups:
        assert torch.equal(again.plane.rows(group)["x"], torch.full((LARGE,), group + 1, dtype=torch.uint8))


@pytest.mark.parametrize("nth", [0, 4, 7])
async def test_a_full_disk_in_the_middle_of_large_files_leaves_no_memory_in_use(tmp_path: Path, nth: int) -> None:
    """And the next save works, through the same memory."""
    device, run = run_of_large_rows(tmp_path, failing_files(errno.ENOSPC, call="write", nth=8 + nth))
    await generated_on(device, run, lambda group: {"x": device.fill(device.empty(LARGE), group + 1)})
    with pytest.raises(StoreFull):
        await run.checkpointer.save()
    statistics = run.plane.statistics()
    assert (statistics["staging_in_use"], statistics["staging_lost"]) == (0, 0)
    await run.checkpointer.save()
    assert run.plane.statistics()["staging_allocations"] <= 2
    await run.checkpointer.close()
