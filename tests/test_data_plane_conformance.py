"""What every data plane does, of `TensorPlane` and of `TransferQueuePlane` on the real package over a local Ray."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transfer_queue
from loop_turns import HANG_SECONDS
from memory_files import MemoryFiles, captured, commit
from queue_on_ray import names_in, running_queue

from impl import (
    CheckpointBarrier,
    Checkpointer,
    CommittedTensorModified,
    Controller,
    ControllerConfig,
    DataPlane,
    ForeignCut,
    InOrderSampler,
    InvariantViolated,
    PromptLoader,
    ReplayBuffer,
    StaleCut,
    StoreFailed,
    TensorPlane,
    UsageError,
)
from impl.transfer_queue import TransferQueuePlane

pytestmark = [
    pytest.mark.slow,
    # What Ray and the queue themselves warn of, in their threads and at the end.
    *map(
        pytest.mark.filterwarnings, ("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

Plane = Any
Making = Callable[[], Plane]
PARTITIONS = itertools.count()


@pytest.fixture(scope="module")
def queue() -> Iterator[None]:
    with running_queue():
        yield


@pytest.fixture(params=["TensorPlane", "TransferQueuePlane"])
def make(request: pytest.FixtureRequest) -> Making:
    """A fresh plane each time it is called: of the same run, as after a restart."""
    if request.param == "TensorPlane":
        return lambda: TensorPlane(verify="digest")
    request.getfixturevalue("queue")
    partition = f"test-{next(PARTITIONS)}"
    return lambda: TransferQueuePlane(partition=partition)


async def eventually(what: Callable[[], bool]) -> None:
    """Removal goes on behind the call."""
    limit = time.monotonic() + HANG_SECONDS
    while not what():
        assert time.monotonic() < limit
        await asyncio.sleep(0.01)


AWKWARD = {
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "strided": torch.arange(12)[::2],
    "expanded": torch.ones(1).expand(4),
    "empty": torch.empty(0, 3),
    "none": torch.empty(2, 0),
    "scalar": torch.tensor(3.5),
    "bool": torch.tensor([True, False]),
    "conjugate": torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negated": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "nan": torch.tensor([float("nan"), -0.0]),
    "small view": torch.zeros(1 << 16)[:3],
    **{
        name: torch.arange(16, dtype=torch.uint8).view(getattr(torch, name))
        for name in ("uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16")
    },
    **{
        name: torch.arange(16, dtype=torch.uint8).view(getattr(torch, name))
        for name in ("float32", "float64", "complex64", "float8_e4m3fn", "float8_e5m2", "complex128")
    },
}  # fmt: skip


def bits(tensor: torch.Tensor) -> list[int]:
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).tolist()


def same(found: Any, given: dict[str, torch.Tensor]) -> None:
    assert list(found) == list(given)
    for field, tensor in given.items():
        assert (found[field].dtype, found[field].shape) == (tensor.dtype, tensor.shape), field
        assert bits(found[field]) == bits(tensor), field


def test_it_is_a_data_plane_and_says_how_it_captures(make: Making) -> None:
    plane = make()
    assert isinstance(plane, DataPlane)
    assert plane.capture_mode == "references"
    assert {"groups", "bytes", "open_captures", "cloned_views", "unchecked"} <= plane.statistics().keys()


async def test_staged_rows_are_named_by_nobody_until_they_are_committed(make: Making) -> None:
    plane, barrier = make(), CheckpointBarrier()
    staged = await plane.stage(1, {"x": torch.arange(3)})
    assert list(plane.groups()) == []
    with pytest.raises(InvariantViolated, match="group 1 has no rows"):
        plane.rows(1)
    async with barrier.mutation() as cut:
        plane.commit(cut, 1, staged)
    same(plane.rows(1), {"x": torch.arange(3)})
    assert plane.statistics()["groups"] == 1
    assert plane.statistics()["bytes"] == 24


async def test_a_group_is_committed_once_and_under_its_own_name(make: Making) -> None:
    plane, barrier = make(), CheckpointBarrier()
    await commit(plane, barrier, 1, {"x": torch.ones(1)})
    again, other = await plane.stage(1, {"x": torch.zeros(1)}), await plane.stage(2, {"x": torch.zeros(1)})
    for group, staged in ((1, again), (3, other)):
        async with barrier.mutation() as cut:
            with pytest.raises(InvariantViolated, match="staged"):
                plane.commit(cut, group, staged)
    same(plane.rows(1), {"x": torch.ones(1)})
    assert list(plane.groups()) == [1]


async def test_a_commit_wants_a_live_cut_and_a_capture_the_exclusive_one(make: Making) -> None:
    plane, barrier = make(), CheckpointBarrier()
    staged = await plane.stage(1, {"x": torch.ones(1)})
    async with barrier.mutation() as cut:
        with pytest.raises((ForeignCut, StaleCut)):
            plane.capture(cut, ())
        with pytest.raises((ForeignCut, StaleCut)):
            plane.load(cut, {})
    with pytest.raises(StaleCut):
        plane.commit(cut, 1, staged)
    assert list(plane.groups()) == []


@pytest.mark.parametrize(
    "rows",
    [{}, None, {"x": 1}, {"x": torch.ones(2).to_sparse()}, {"x": torch.ones(1, device="meta")}, {"": torch.ones(1)}],
    ids=["none", "no mapping", "no tensor", "sparse", "meta", "no name"],
)
async def test_what_cannot_be_kept_is_refused_when_it_is_staged(make: Making, rows: Any) -> None:
    plane = make()
    with pytest.raises(UsageError):
        await plane.stage(1, rows)
    assert plane.statistics()["groups"] == 0


async def test_a_row_changed_after_it_was_staged_is_not_saved_unnoticed(make: Making) -> None:
    """What was committed is saved, or the save fails."""
    plane, barrier, tensor, files = make(), CheckpointBarrier(), torch.zeros(4), MemoryFiles()
    await commit(plane, barrier, 1, {"x": tensor})
    tensor.add_(1)
    try:
        plane.persist(await captured(plane, barrier, 1), files)
    except CommittedTensorModified:
        return
    assert files.tensors["rows-000.safetensors"]["1/x"].tolist() == [0.0] * 4


async def test_a_capture_outlives_the_clearing_of_its_groups(make: Making) -> None:
    plane, barrier, files = make(), CheckpointBarrier(), MemoryFiles()
    await commit(plane, barrier, 1, {"x": torch.arange(5)})
    first, second = await captured(plane, barrier, 1), await captured(plane, barrier, 1)
    plane.clear(1)
    plane.clear(1)
    assert list(plane.groups()) == []
    await commit(plane, barrier, 2, {"x": torch.zeros(5)})
    assert plane.statistics()["open_captures"] == 2
    first.drop()
    plane.release(first)
    plane.persist(second, files)
    second.drop()
    plane.release(second)
    assert files.tensors["rows-000.safetensors"]["1/x"].tolist() == [0, 1, 2, 3, 4]
    assert plane.statistics()["open_captures"] == 0


async def test_rows_of_every_type_and_shape_come_back_bit_for_bit(make: Making) -> None:
    """From the plane, and through a checkpoint into another one."""
    plane, barrier, files = make(), CheckpointBarrier(), MemoryFiles()
    await commit(plane, barrier, 1, AWKWARD)
    same(plane.rows(1), AWKWARD)
    await commit(plane, barrier, 2, {"x": torch.ones(2)})
    plane.persist(await captured(plane, barrier, 1, 2), files)
    fresh, others = make(), CheckpointBarrier()
    await commit(fresh, others, 9, {"x": torch.ones(2)})
    loaded = fresh.read(files, (1,))
    assert list(fresh.groups()) == [9], "reading changes nothing"
    async with others.checkpoint() as cut:
        fresh.load(cut, loaded)
    assert list(fresh.groups()) == [1], "what no index names does not survive a restore"
    same(fresh.rows(1), AWKWARD)


async def test_jagged_rows_come_back_as_they_were(make: Making) -> None:
    plane, barrier, files = make(), CheckpointBarrier(), MemoryFiles()
    jagged = torch.nested.nested_tensor([torch.arange(3), torch.arange(5)], layout=torch.jagged)
    await commit(plane, barrier, 1, {"x": jagged, "y": torch.ones(2)})
    assert [row.tolist() for row in plane.rows(1)["x"].unbind()] == [[0, 1, 2], [0, 1, 2, 3, 4]]
    plane.persist(await captured(plane, barrier, 1), files)
    fresh = make()
    loaded = fresh.read(files, (1,))
    async with barrier.checkpoint() as cut:
        fresh.load(cut, loaded)
    assert [row.tolist() for row in fresh.rows(1)["x"].unbind()] == [[0, 1, 2], [0, 1, 2, 3, 4]]


async def test_a_checkpoint_of_one_plane_is_restored_into_the_other(queue: None) -> None:
    """Both write the same files."""
    planes: list[Plane] = [TensorPlane(), TransferQueuePlane(partition="changing")]
    for source, target in (planes, planes[::-1]):
        barrier, files = CheckpointBarrier(), MemoryFiles()
        await commit(source, barrier, 7, AWKWARD)
        source.persist(await captured(source, barrier, 7), files)
        loaded = target.read(files, (7,))
        async with barrier.checkpoint() as cut:
            target.load(cut, loaded)
        same(target.rows(7), AWKWARD)
        target.clear(7)
        source.clear(7)


async def test_an_index_that_names_rows_which_are_not_there_fails_the_save(make: Making) -> None:
    plane, barrier = make(), CheckpointBarrier()
    with pytest.raises(InvariantViolated, match="group 5 is ready"):
        plane.persist(await captured(plane, barrier, 5), MemoryFiles())


async def test_derived_columns_make_new_rows(make: Making) -> None:
    plane, barrier = make(), CheckpointBarrier()
    await commit(plane, barrier, 1, {"x": torch.ones(2)})
    rows = plane.derive(plane.rows(1), {"advantage": torch.zeros(2)})
    assert list(rows) == ["x", "advantage"]
    assert list(plane.rows(1)) == ["x"]
    with pytest.raises(UsageError):
        plane.derive(rows, {})


async def test_a_run_is_saved_and_resumed(make: Making, tmp_path: Path) -> None:
    """A whole controller, stopped with rows in the buffer, and continued by another with a fresh plane."""
    trained: list[int] = []

    async def generate(request: Any) -> dict[str, torch.Tensor]:
        return {"row": torch.full((2,), request.key.index)}

    async def train(batch: Any) -> None:
        trained.extend(int(group.rows["row"][0]) for group in batch)

    for steps in (2, None):
        barrier, plane = CheckpointBarrier(drain_timeout=20), make()
        controller = Controller(
            loader=PromptLoader(list(range(11)), batch_size=2, seed=0),
            generate=generate,
            train=train,
            sampler=InOrderSampler(lookahead=2),
            checkpointer=Checkpointer(tmp_path, barrier, verify="digest"),
            buffer=ReplayBuffer(barrier, 6, plane),
            config=ControllerConfig(generations=2, save_period=1, max_steps=steps),
        )
        report = await controller.run()
        assert report.outcome == ("exhausted" if steps is None else "steps_reached")
    assert sorted(trained) == list(range(11))
    assert plane.statistics()["groups"] == 0


# -- the queue alone ------------------------------------------------------------------------------------------------


async def test_rows_leave_the_queue_when_the_last_that_needs_them_is_gone(queue: None) -> None:
    """Cleared, dropped before its commit, cancelled while it was staged, or read and not loaded."""
    plane, barrier = TransferQueuePlane(partition="leaving"), CheckpointBarrier()
    await commit(plane, barrier, 1, {"x": torch.ones(1)})
    (name,) = names_in("leaving")
    capture = await captured(plane, barrier, 1)
    plane.clear(1)
    dropped = await plane.stage(2, {"x": torch.ones(1)})
    assert names_in("leaving") == {name, dropped.name}
    del dropped
    gc.collect()
    await eventually(lambda: names_in("leaving") == {name})
    staging = asyncio.create_task(plane.stage(3, {"x": torch.ones(1 << 20)}))
    await asyncio.sleep(0)
    staging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await staging
    del staging
    files = MemoryFiles()
    plane.persist(capture, files)
    loaded = plane.read(files, (1,))
    assert loaded[1].name in names_in("leaving")
    del loaded
    gc.collect()
    await eventually(lambda: names_in("leaving") == {name})
    assert plane.statistics()["cleared"] == 1
    plane.release(capture)
    await eventually(lambda: not names_in("leaving"))
    assert plane.statistics()["cleared"] == plane.statistics()["staged"] == 0


async def test_what_a_killed_run_left_is_removed_by_the_restore(queue: None) -> None:
    files, barrier = MemoryFiles(), CheckpointBarrier()
    killed = TransferQueuePlane(partition="killed")
    for group in (1, 2):
        await commit(killed, barrier, group, {"x": torch.full((2,), group)})
    killed.persist(await captured(killed, barrier, 1), files)
    left = names_in("killed")
    assert len(left) == 2
    resumed = TransferQueuePlane(partition="killed")
    loaded = resumed.read(files, (1,))
    async with barrier.checkpoint() as cut:
        resumed.load(cut, loaded)
    await eventually(lambda: names_in("killed") == {loaded[1].name})
    assert resumed.rows(1)["x"].tolist() == [1, 1]


async def test_a_value_changed_in_the_queue_is_seen_whenever_it_comes_back(queue: None) -> None:
    """The queue has no checksum: without the digest a flipped byte would be trained on and saved."""
    plane, barrier = TransferQueuePlane(partition="flipped"), CheckpointBarrier()
    await commit(plane, barrier, 1, {"x": torch.zeros(8, dtype=torch.uint8)})
    (name,) = names_in("flipped")
    transfer_queue.kv_put(name, "flipped", {"x": torch.tensor([0, 0, 0, 1, 0, 0, 0, 0], dtype=torch.uint8)})
    with pytest.raises(CommittedTensorModified, match="group 1, field 'x'"):
        plane.rows(1)
    with pytest.raises(CommittedTensorModified, match="group 1, field 'x'"):
        plane.persist(await captured(plane, barrier, 1), MemoryFiles())


async def test_rows_that_the_queue_has_lost_are_an_error_with_a_way_out(queue: None) -> None:
    plane, barrier = TransferQueuePlane(partition="lost"), CheckpointBarrier()
    await commit(plane, barrier, 1, {"x": torch.zeros(1)})
    transfer_queue.kv_clear(list(names_in("lost")), "lost")
    with pytest.raises(StoreFailed, match=r"give back the rows of group 1.*restore the newest checkpoint"):
        plane.rows(1)


async def test_what_the_queue_cannot_take_is_refused(queue: None) -> None:
    plane, barrier = TransferQueuePlane(partition="refused"), CheckpointBarrier()
    staged = await plane.stage(1, {"x": torch.ones(1)})
    async with barrier.mutation() as cut:
        with pytest.raises(UsageError, match="ready"):
            plane.commit(cut, 1, staged, ready=object())
    assert list(plane.groups()) == []
    with pytest.raises(UsageError, match="partition"):
        TransferQueuePlane(partition="")


def saved_bytes(place: Path) -> int:
    transfer_queue.save_checkpoint(place)
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


async def test_views_of_one_batch_do_not_swell_the_queues_own_checkpoint(queue: None, tmp_path: Path) -> None:
    """Pickle writes the storage behind a view once for each view. The control puts the same rows as one batch."""
    from tensordict import TensorDict

    batch = torch.arange(32 * 4096, dtype=torch.float32).reshape(32, 4096)
    payload, empty = batch.nbytes, saved_bytes(tmp_path / "empty")
    plane, barrier = TransferQueuePlane(partition="views"), CheckpointBarrier()
    for group in range(32):
        await commit(plane, barrier, group, {"x": batch[group]})
    ours = saved_bytes(tmp_path / "ours") - empty
    for group in range(32):
        plane.clear(group)
    await eventually(lambda: not names_in("views"))
    transfer_queue.kv_batch_put([f"row-{row}" for row in range(32)], "control", TensorDict({"x": batch}, batch_size=32))
    control = saved_bytes(tmp_path / "control") - empty
    assert payload <= ours <= 1.2 * payload
    assert control >= 8 * payload, "the trap that this is about"
