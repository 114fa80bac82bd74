"""Committed rows are immutable by rule: what is seen of a change, what is not, and that the latter is counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from memory_files import MemoryFiles, captured, commit
from run_situations import Run, mixed

from impl import CommittedTensorModified, TensorPlane
from impl.barrier import CheckpointBarrier
from impl.rows import is_tracked


def ordinary(directory: Path) -> torch.Tensor:
    return torch.arange(4)


def of_numpy(directory: Path) -> torch.Tensor:
    import numpy

    return torch.from_numpy(numpy.arange(4))


def of_dlpack(directory: Path) -> torch.Tensor:
    import numpy

    return torch.from_dlpack(numpy.arange(4))  # type: ignore[attr-defined]


def of_a_buffer(directory: Path) -> torch.Tensor:
    return torch.frombuffer(bytearray(32), dtype=torch.int64)


def shared(directory: Path) -> torch.Tensor:
    return torch.arange(4).share_memory_()  # type: ignore[no-any-return, no-untyped-call]


def mapped(directory: Path) -> torch.Tensor:
    (directory / "rows").write_bytes(bytes(32))
    return torch.from_file(str(directory / "rows"), shared=True, size=4, dtype=torch.int64)


def inferred(directory: Path) -> torch.Tensor:
    with torch.inference_mode():
        return torch.arange(4)


UNTRACKED = [of_numpy, of_dlpack, of_a_buffer, shared, mapped, inferred]
MEMORY = [ordinary, *UNTRACKED]
Maker = Callable[[Path], torch.Tensor]


@pytest.mark.parametrize("make", MEMORY)
async def test_what_neither_counter_nor_digest_watches_over_is_counted(make: Maker, tmp_path: Path) -> None:
    """Saying nothing would promise too much; with a digest it is watched, and not counted."""
    barrier = CheckpointBarrier()
    for verify, expected in (("off", make in UNTRACKED), ("digest", False)):
        plane = TensorPlane(verify=verify)  # type: ignore[arg-type]
        await commit(plane, barrier, 1, {"x": make(tmp_path)})
        assert plane.statistics()["unchecked"] == expected


async def test_sampled_rows_are_not_counted_and_the_others_are() -> None:
    """One group in sixteen has a digest."""
    plane, barrier = TensorPlane(verify="sampled"), CheckpointBarrier()
    for group in range(16):
        await commit(plane, barrier, group, {"x": of_a_buffer(Path()), "y": torch.ones(1)})
    assert plane.statistics()["unchecked"] == 15


def through_torch(tensor: torch.Tensor) -> None:
    with torch.inference_mode():
        tensor.add_(1)


def through_numpy(tensor: torch.Tensor) -> None:
    tensor.numpy()[0] = 77


def through_dlpack(tensor: torch.Tensor) -> None:
    torch.from_dlpack(tensor.detach()).fill_(77)  # type: ignore[attr-defined]


def through_data(tensor: torch.Tensor) -> None:
    with torch.inference_mode():
        tensor.data[0] = 77


@pytest.mark.parametrize("change", [through_torch, through_numpy, through_dlpack, through_data])
@pytest.mark.parametrize("make", MEMORY)
async def test_case_D04_a_change_of_rows_in_any_memory_fails_the_save(
    make: Maker, change: Callable[[torch.Tensor], None], tmp_path: Path
) -> None:
    """Case D04: rows are not copied when they are captured; with a digest no way of writing goes unnoticed."""
    plane, barrier = TensorPlane(verify="digest"), CheckpointBarrier()
    row = make(tmp_path)
    await commit(plane, barrier, 3, {"same": torch.ones(1), "changed": row})
    capture = await captured(plane, barrier, 3)
    change(row)
    with pytest.raises(CommittedTensorModified, match="group 3, field 'changed': the tensor was changed in place"):
        plane.persist(capture, MemoryFiles())


@pytest.mark.parametrize("change", [through_torch, through_numpy, through_data, through_dlpack])
async def test_the_counter_alone_sees_torch_and_nothing_else(change: Callable[[torch.Tensor], None]) -> None:
    """What the tripwire misses, as torch is today: if one of these is seen one day, the README should say so."""
    plane, barrier = TensorPlane(verify="off"), CheckpointBarrier()
    row = torch.arange(4)
    await commit(plane, barrier, 1, {"x": row})
    capture = await captured(plane, barrier, 1)
    if change is through_torch:
        row.add_(1)
        with pytest.raises(CommittedTensorModified):
            plane.persist(capture, MemoryFiles())
    else:
        change(row)
        plane.persist(capture, MemoryFiles())


async def test_a_row_that_numpy_had_before_its_commit_is_counted() -> None:
    """torch marks the memory. It does not when it hands it to dlpack, which only a digest can see."""
    plane, barrier = TensorPlane(verify="off"), CheckpointBarrier()
    row, other = torch.arange(4), torch.arange(4)
    row.numpy()
    torch.from_dlpack(other)  # type: ignore[attr-defined]
    await commit(plane, barrier, 1, {"x": row, "y": other})
    assert plane.statistics()["unchecked"] == 1


@pytest.mark.parametrize(("resizable", "tracked"), [(True, True), (False, False)])
def test_a_row_on_a_device_is_tracked_unless_its_memory_is_not_torchs(resizable: bool, tracked: bool) -> None:
    """Torch says of all CUDA memory that it is shared; every row on a device would be counted as unchecked."""
    assert "always ``True`` for CUDA tensors" in str(torch.Tensor.is_shared.__doc__)

    class OnDevice:
        is_cuda = True
        is_inference = staticmethod(lambda: False)
        is_shared = staticmethod(lambda: True)
        untyped_storage = staticmethod(lambda: SimpleNamespace(resizable=lambda: resizable))

    row: Any = OnDevice()
    assert is_tracked(row) is tracked


async def test_saving_a_row_does_not_make_it_one_of_the_unchecked(tmp_path: Path) -> None:
    """Our own reading leaves the same mark on it as anybody's."""
    run = await mixed(Run(tmp_path, verify="off"))
    for _ in range(2):
        await run.checkpointer.save()
    assert run.plane.statistics()["unchecked"] == 0
    await run.checkpointer.close()


async def test_restored_rows_are_watched_as_well(tmp_path: Path) -> None:
    """Their digest is taken when they are read; a train step that changes them fails the next save."""
    run = await mixed(Run(tmp_path))
    await run.checkpointer.save()
    await run.checkpointer.close()
    again = Run(tmp_path)
    await again.checkpointer.restore()
    group = next(iter(again.ready()))
    again.plane.rows(group)["tokens"].data.fill_(77)
    with pytest.raises(CommittedTensorModified, match=f"group {group}, field 'tokens'"):
        await again.checkpointer.save()
    await again.checkpointer.close()


@pytest.mark.usefixtures("saves_that_do_not_ask")  # it trains a part of a step, which no run does
async def test_a_failed_save_publishes_nothing_and_the_next_one_works_without_the_row(tmp_path: Path) -> None:
    """The run is alive; what was changed is trained, and gone from the next cut."""
    run = await mixed(Run(tmp_path))
    group = next(iter(run.ready()))
    run.plane.rows(group)["tokens"].add_(1)
    with pytest.raises(CommittedTensorModified):
        await run.checkpointer.save()
    assert not list(tmp_path.glob("step_*"))
    await run.train(await run.claim(group))
    assert (await run.checkpointer.save()).step == run.version
    await run.checkpointer.close()


@pytest.mark.needs("cuda")
@pytest.mark.parametrize("change", [through_torch, through_numpy, through_data])
async def test_case_D04_a_change_of_rows_in_pinned_memory_fails_the_save(change: Any) -> None:
    """Case D04: pinned memory is host memory."""
    plane, barrier = TensorPlane(verify="digest"), CheckpointBarrier()
    row = torch.arange(4).pin_memory()
    await commit(plane, barrier, 3, {"changed": row})
    capture = await captured(plane, barrier, 3)
    change(row)
    with pytest.raises(CommittedTensorModified, match="group 3, field 'changed'"):
        plane.persist(capture, MemoryFiles())
