"""Rows of a device in a checkpoint: the file knows no device, and a restore puts them where it is told to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from run_situations import Run, rows_of

from impl.errors import UsageError
from impl.tensor_plane import TensorPlane
from interleavings.scenarios.simulated_device import SimulatedDevice


async def saved_from_a_device(directory: Path) -> tuple[int, ...]:
    """A checkpoint whose rows were on a device; the groups in it."""
    run = Run(directory)
    device = SimulatedDevice(8, block_bytes=64)
    run.plane._accelerator = device
    admission = await run.admit()
    await run.dispatch(*admission.groups)
    for group in admission.groups:
        rows = {}
        for field, row in rows_of(group).items():
            rows[field] = device.empty(*row.shape, dtype=row.dtype).copy_(row)
        staged = await run.plane.stage(group, rows)
        async with run.barrier.mutation() as cut:
            run.buffer.commit(cut, group, staged)
        run.ledger.remove_committed(group)
    await run.checkpointer.save()
    await run.checkpointer.close()
    return admission.groups


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
