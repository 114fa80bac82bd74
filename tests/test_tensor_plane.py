"""The embedded data plane: what it takes, what it refuses, and that committed rows stay as they were."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from memory_files import MemoryFiles, captured, commit

from impl import (
    CheckpointCorrupt,
    CommittedTensorModified,
    ForeignCut,
    InvariantViolated,
    StaleCut,
    TensorPlane,
    UsageError,
)
from impl.barrier import CheckpointBarrier
from impl.rows import Record


async def test_staged_rows_are_named_by_nobody_until_they_are_committed() -> None:
    """A task that dies between stage and commit leaves nothing behind."""
    plane = TensorPlane()
    await plane.stage(1, {"tokens": torch.zeros(2)})
    assert list(plane.groups()) == []
    with pytest.raises(InvariantViolated, match="group 1 has no rows"):
        plane.rows(1)


async def test_case_D17_the_autograd_graph_is_not_kept() -> None:
    """Committed rows are data; a graph would keep the activations of every generation alive."""
    plane, barrier = TensorPlane(), CheckpointBarrier()
    weight = torch.nn.Parameter(torch.ones(3))
    await commit(plane, barrier, 1, {"score": weight * 2, "weight": weight})
    rows = plane.rows(1)
    assert rows["score"].grad_fn is None
    assert not rows["weight"].requires_grad
    assert type(rows["weight"]) is torch.Tensor


async def test_case_D06_a_small_view_of_a_large_storage_is_cloned() -> None:
    """Otherwise three numbers would keep a megabyte alive; a view of half its storage is taken as it is."""
    plane, barrier = TensorPlane(), CheckpointBarrier()
    large, pair = torch.zeros(1 << 18), torch.arange(6.0)
    await commit(plane, barrier, 1, {"small": large[:3], "half": pair[:3], "whole": pair})
    rows = plane.rows(1)
    assert rows["small"].untyped_storage().nbytes() == 12
    assert rows["half"].data_ptr() == pair.data_ptr()
    assert rows["whole"].data_ptr() == pair.data_ptr()
    assert plane.statistics()["cloned_views"] == 1


def quantised() -> torch.Tensor:
    """torch warns that this kind is on its way out; until then it has to be refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)


class Subclass(torch.Tensor):
    """A tensor whose storage is not all of it."""


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.eye(3).to_sparse(), "is sparse"),
        (quantised(), "is quantised"),
        (torch.ones(2, device="meta"), "is on the meta device"),
        (torch.ones(2).as_subclass(Subclass), "is a subclass of tensor"),
        ([1, 2, 3], "is a list, not a torch.Tensor"),
        (None, "is a NoneType"),
    ],
)
async def test_case_D12_what_cannot_be_kept_is_refused_by_field_and_reason(tensor: Any, reason: str) -> None:
    """At staging, long before a save would fail."""
    plane = TensorPlane()
    with pytest.raises(UsageError, match=rf"rows\['bad'\] {reason}"):
        await plane.stage(1, {"good": torch.ones(1), "bad": tensor})


@pytest.mark.parametrize("rows", [{}, None, [torch.ones(1)], {"": torch.ones(1)}, {"a\0b": torch.ones(1)}])
async def test_rows_that_are_no_rows_are_refused(rows: Any) -> None:
    """At least one field, each with a name that can be stored."""
    with pytest.raises(UsageError, match="rows"):
        await TensorPlane().stage(1, rows)


async def test_a_group_is_committed_once_and_under_its_own_name() -> None:
    """A refused commit leaves the rows that are there."""
    plane, barrier = TensorPlane(), CheckpointBarrier()
    await commit(plane, barrier, 1, {"x": torch.ones(1)})
    for group, staged in (
        (1, await plane.stage(1, {"x": torch.zeros(1)})),
        (2, await plane.stage(3, {"x": torch.zeros(1)})),
    ):
        async with barrier.mutation() as cut:
            with pytest.raises(InvariantViolated):
                plane.commit(cut, group, staged)
    assert plane.rows(1)["x"].item() == 1
    assert list(plane.groups()) == [1]


async def test_the_window_wants_the_exclusive_cut_and_a_commit_a_live_one() -> None:
    """A capture under the shared side could see half of another writer's section."""
    plane, barrier = TensorPlane(), CheckpointBarrier()
    staged = await plane.stage(1, {"x": torch.ones(1)})
    async with barrier.mutation() as cut:
        with pytest.raises(ForeignCut):
            plane.capture(cut, ())
        with pytest.raises(ForeignCut):
            plane.load(cut, {})
    with pytest.raises(StaleCut):
        plane.commit(cut, 1, staged)
    assert list(plane.groups()) == []


async def test_a_capture_outlives_the_clearing_of_its_groups() -> None:
    """The rows leave the index at once; their memory only with the capture."""
    plane, barrier = TensorPlane(verify="digest"), CheckpointBarrier()
    await commit(plane, barrier, 1, {"x": torch.arange(4)})
    capture = await captured(plane, barrier, 1)
    kept = weakref.ref(capture.records[1].tensors["x"])
    plane.clear(1)
    assert list(plane.groups()) == []
    files = MemoryFiles()
    plane.persist(capture, files)
    assert torch.equal(files.tensors["rows-000.safetensors"]["1/x"], torch.arange(4))
    assert kept() is not None
    capture.drop()
    plane.release(capture)
    gc.collect()
    assert kept() is None
    assert plane.statistics()["open_captures"] == 0


async def test_a_capture_copies_no_payload() -> None:
    """The window must not grow with bytes: the very tensors are referred to."""
    plane, barrier = TensorPlane(), CheckpointBarrier()
    await commit(plane, barrier, 1, {"x": torch.arange(4)})
    capture = await captured(plane, barrier, 1)
    assert capture.records[1].tensors["x"] is plane.rows(1)["x"]


@pytest.mark.parametrize(
    ("verify", "change", "noticed"),
    [
        ("digest", lambda tensor: tensor.add_(1), True),
        ("digest", lambda tensor: tensor.numpy().__setitem__(0, 7), True),
        ("off", lambda tensor: tensor.add_(1), True),
        ("off", lambda tensor: tensor.numpy().__setitem__(0, 7), False),
        ("digest", lambda tensor: tensor.sum(), False),
    ],
    ids=["in place, digest", "through numpy, digest", "in place, tripwire", "through numpy, tripwire", "read only"],
)
async def test_a_row_changed_after_its_commit_fails_the_save(verify: Any, change: Any, noticed: bool) -> None:
    """The version counter is a tripwire only; the digest sees what went around it. Group and field are named."""
    plane, barrier = TensorPlane(verify=verify), CheckpointBarrier()
    tensor = torch.arange(4)
    await commit(plane, barrier, 16, {"x": tensor})
    change(tensor)
    capture = await captured(plane, barrier, 16)
    if noticed:
        with pytest.raises(CommittedTensorModified, match="group 16, field 'x'"):
            plane.persist(capture, MemoryFiles())
    else:
        plane.persist(capture, MemoryFiles())


async def test_sampled_verification_digests_every_sixteenth_group() -> None:
    """Cheap enough to be always on; a writer that changes rows is met sooner or later."""
    plane = TensorPlane(verify="sampled")
    digested = [group for group in range(33) if (await plane.stage(group, {"x": torch.ones(1)})).digests is not None]
    assert digested == [0, 16, 32]


async def test_inference_tensors_are_counted_as_unchecked() -> None:
    """Their version counter cannot be read; saying nothing would promise too much."""
    plane, barrier = TensorPlane(verify="off"), CheckpointBarrier()
    with torch.inference_mode():
        tensor = torch.ones(2)
    await commit(plane, barrier, 1, {"x": tensor})
    assert plane.statistics()["unchecked"] == 1
    plane.persist(await captured(plane, barrier, 1), MemoryFiles())


AWKWARD = {
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "strided": torch.arange(12)[::2],
    "expanded": torch.ones(1).expand(4),
    "channels last": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(3.5),
    "bfloat16": torch.arange(4, dtype=torch.bfloat16),
    "float8": torch.arange(4).to(torch.float8_e4m3fn),
    "bool": torch.tensor([True, False]),
    "complex conjugate": torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "a/b..\\c": torch.tensor([1]),
}


async def test_rows_of_every_shape_and_type_come_back_as_they_were() -> None:
    """Capture, persist, read, load: equal values, shapes and types; nothing that the index does not name."""
    plane, barrier = TensorPlane(verify="digest"), CheckpointBarrier()
    await commit(plane, barrier, 1, AWKWARD)
    await commit(plane, barrier, 2, {"x": torch.ones(2)})
    files = MemoryFiles()
    plane.persist(await captured(plane, barrier, 1, 2), files)
    fresh = TensorPlane(verify="digest")
    await commit(fresh, barrier, 9, {"x": torch.ones(2)})
    loaded = fresh.read(files, (1,))
    assert list(fresh.groups()) == [9], "reading changes nothing"
    async with barrier.checkpoint() as cut:
        fresh.load(cut, loaded)
    assert list(fresh.groups()) == [1]
    rows = fresh.rows(1)
    assert list(rows) == list(AWKWARD)
    for field, tensor in AWKWARD.items():
        assert rows[field].dtype == tensor.dtype
        assert rows[field].shape == tensor.shape
        assert rows[field].tolist() == tensor.tolist()


async def test_rows_are_split_over_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore holds one file's rows in memory at a time, beside the rows themselves."""
    monkeypatch.setattr("impl.rows.tensor_plane.BYTES_PER_FILE", 64)
    plane, barrier = TensorPlane(), CheckpointBarrier()
    for group in range(5):
        await commit(plane, barrier, group, {"x": torch.full((4,), group, dtype=torch.int64)})
    files = MemoryFiles()
    plane.persist(await captured(plane, barrier, *range(5)), files)
    assert [len(tensors) for tensors in files.tensors.values()] == [2, 2, 1]
    loaded = plane.read(files, range(5))
    assert [loaded[group].tensors["x"][0].item() for group in range(5)] == [0, 1, 2, 3, 4]


async def test_a_change_in_the_middle_of_the_writing_fails_the_save() -> None:
    """The writing takes longest of all; a check before it alone would let through what is changed meanwhile."""
    plane, barrier = TensorPlane(verify="off"), CheckpointBarrier()
    tensor = torch.zeros(4)
    await commit(plane, barrier, 1, {"x": tensor})
    capture = await captured(plane, barrier, 1)

    class Meanwhile(MemoryFiles):
        def write_tensors(self, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
            super().write_tensors(name, tensors)
            tensor.add_(1)

    with pytest.raises(CommittedTensorModified, match="group 1, field 'x'"):
        plane.persist(capture, Meanwhile())


async def test_missing_rows_are_corruption() -> None:
    """An index that names rows which are not there must not become an empty group."""
    plane, barrier = TensorPlane(), CheckpointBarrier()
    await commit(plane, barrier, 1, {"x": torch.ones(1)})
    files = MemoryFiles()
    plane.persist(await captured(plane, barrier, 1), files)
    with pytest.raises(CheckpointCorrupt, match="group 2 is in the buffer index"):
        plane.read(files, (1, 2))


async def test_a_ready_group_without_rows_fails_the_save() -> None:
    """Index and plane disagree: publishing would lose the group."""
    plane, barrier = TensorPlane(), CheckpointBarrier()
    with pytest.raises(InvariantViolated, match="group 5 is ready"):
        plane.persist(await captured(plane, barrier, 5), MemoryFiles())


async def test_large_rows_are_digested_off_the_loop() -> None:
    """A long digest must not stop the loop; its result is the same."""
    plane = TensorPlane(verify="digest")
    large = torch.arange(1 << 18)
    first: Record = await plane.stage(1, {"x": large})
    second: Record = await plane.stage(2, {"x": large.clone()})
    assert first.digests is not None
    assert second.digests is not None
    assert first.digests["x"] == second.digests["x"]


def test_an_unknown_verification_is_refused() -> None:
    """A typing error must not turn the check off."""
    with pytest.raises(UsageError, match="'always'"):
        TensorPlane(verify="always")  # type: ignore[arg-type]


@pytest.mark.needs("cuda")
async def test_rows_stay_on_their_device_and_come_back_to_the_wanted_one() -> None:
    """Commit records the producing stream; a restore puts rows where the plane was told to."""
    plane, barrier = TensorPlane(verify="digest", device="cuda"), CheckpointBarrier()
    tensor = torch.arange(1 << 20, device="cuda") * 2
    await commit(plane, barrier, 1, {"x": tensor})
    assert plane.rows(1)["x"].data_ptr() == tensor.data_ptr()
    files = MemoryFiles()
    plane.persist(await captured(plane, barrier, 1), files)
    loaded = plane.read(files, (1,))
    assert loaded[1].tensors["x"].is_cuda
    assert torch.equal(loaded[1].tensors["x"], tensor)
