"""Every type that torch has × shape × layout: back bit for bit through a whole plane and its files, or refused at once.

The types are asked of torch, not listed: a new one is covered or fails here.
"""

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from memory_files import MemoryFiles
from run_situations import Run
from safetensors import safe_open
from safetensors.torch import load_file

from impl import CheckpointCorrupt, CommittedTensorModified, TensorPlane, UsageError
from impl.barrier import CheckpointBarrier
from impl.store import QUANTISED, CheckpointReader, PosixFiles

DTYPES = sorted({str(each).removeprefix("torch.") for each in vars(torch).values() if isinstance(each, torch.dtype)})
COMPLEX = ("complex32", "complex64", "complex128")

Layout = Callable[[torch.Tensor], torch.Tensor]
#: Each takes a contiguous 4 × 6 tensor.
LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda base: base,
    "transposed": lambda base: base.t(),
    "stepped": lambda base: base[::2, 1::3],
    "a view of one row": lambda base: base[2],
    "expanded": lambda base: base[:1, :1].expand(3, 5),
    "permuted": lambda base: base.reshape(2, 2, 6).permute(2, 0, 1),
    "0-dimensional": lambda base: base[1, 2],
    "empty": lambda base: base[:0],
    "empty inside": lambda base: base[:, 3:3],
    "one element": lambda base: base[3:, 5:],
}
LAZY: dict[str, Layout] = {
    "conjugated": lambda base: base.conj(),
    "conjugated and transposed": lambda base: base.conj().t(),
    "negated": lambda base: base.conj().imag,
    "conjugated, 0-dimensional": lambda base: base.conj()[0, 0],
    "conjugated, empty": lambda base: base.conj()[:0],
}


def base_of(dtype: str) -> torch.Tensor:
    """A 4 × 6 tensor of any bits; truth values are 0 or 1."""
    wanted: torch.dtype = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(11)
    high = 2 if dtype == "bool" else 256
    raw = torch.randint(0, high, (24 * wanted.itemsize,), dtype=torch.uint8, generator=generator)
    return raw.view(wanted).reshape(4, 6)


def bits(tensor: torch.Tensor) -> list[int]:
    """The bytes in row-major order, element by element: slow, and no way of the library."""
    plain = tensor.resolve_conj().resolve_neg()
    found: list[int] = []
    for place in range(plain.numel()):
        index = []
        for length in reversed(plain.shape):
            place, at = divmod(place, length)
            index.append(at)
        found += plain[tuple(reversed(index))].reshape(1).view(torch.uint8).tolist()
    return found


def situations(dtype: str) -> dict[str, torch.Tensor]:
    """One tensor a layout, of one type."""
    layouts = {**LAYOUTS, **(LAZY if dtype in COMPLEX else {})}
    return {name: layout(base_of(dtype)) for name, layout in layouts.items()}


async def committed_and_saved(directory: Path, rows: dict[str, torch.Tensor]) -> Run:
    """A run with one group of these rows, saved."""
    run = Run(directory, verify="digest")
    admission = await run.admit()
    await run.dispatch(admission.groups[0])
    staged = await run.plane.stage(0, rows)
    async with run.barrier.mutation("commit") as cut:
        run.buffer.commit(cut, 0, staged)
    await run.checkpointer.save()
    await run.checkpointer.close()
    return run


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in QUANTISED])
async def test_case_D11_every_type_in_every_shape_and_layout_comes_back_bit_for_bit(dtype: str, tmp_path: Path) -> None:
    """Cases D09, D10, D11: staged, committed, saved, read and restored; and any reader of the format reads the file."""
    rows = situations(dtype)
    await committed_and_saved(tmp_path, rows)
    restored = Run(tmp_path, name="next")
    await restored.checkpointer.restore()
    for field, tensor in restored.plane.rows(0).items():
        assert (tensor.dtype, tensor.shape) == (rows[field].dtype, rows[field].shape), field
        assert tensor.is_contiguous()
        assert bits(tensor) == bits(rows[field]), field
    manifest = CheckpointReader(PosixFiles(), str(tmp_path), "step_0-1").manifest
    described = manifest.files["rows-000.safetensors"].tensors
    assert described is not None
    file = tmp_path / "step_0-1" / "rows-000.safetensors"
    stock = load_file(file)
    with safe_open(file, framework="pt") as mapped:
        assert set(mapped.keys()) == set(stock) == {f"0/{field}" for field in rows}
        for field, tensor in rows.items():
            said = described[f"0/{field}"]
            assert (said.dtype, said.shape) == (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            for found in (stock[f"0/{field}"], mapped.get_tensor(f"0/{field}")):
                assert found.reshape(-1).view(torch.uint8).tolist() == bits(tensor), field


def quantised(dtype: str) -> torch.Tensor:
    """A tensor that torch quantised, or (for the types it quantises in other ways only) one that merely says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dtype in ("qint8", "quint8", "qint32"):
            return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, getattr(torch, dtype))
        return torch.zeros(4, dtype=torch.uint8).view(getattr(torch, dtype))


def unkeepable() -> dict[str, Any]:
    """Kinds of tensor whose bytes are not all of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds: dict[str, Any] = {dtype: quantised(dtype) for dtype in sorted(QUANTISED)}
        kinds["nested"] = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
        kinds["sparse CSR"] = torch.eye(3).to_sparse_csr()
        kinds["sparse CSC"] = torch.eye(3).to_sparse_csc()
        kinds["sparse COO"] = torch.eye(3).to_sparse()
        kinds["oneDNN"] = torch.ones(3).to_mkldnn() if torch.backends.mkldnn.is_available() else None  # type: ignore[no-untyped-call]
    return kinds


@pytest.mark.parametrize("kind", sorted(unkeepable()))
async def test_case_D12_every_other_kind_is_refused_before_it_is_committed(kind: str) -> None:
    """Accepted at commit and refused at the save would fail every save from then on."""
    plane = TensorPlane(verify="digest")
    with pytest.raises(UsageError, match=r"rows\['bad'\] is"):
        await plane.stage(16, {"good": torch.ones(1), "bad": unkeepable()[kind]})
    assert list(plane.groups()) == []
    assert plane.statistics()["bytes"] == 0


def jagged_rows() -> dict[str, torch.Tensor]:
    """Jagged tensors of every kind: plain, ragged further in, with holes, empty, and a view into a larger one."""
    parts = [torch.arange(2.0), torch.arange(5.0), torch.arange(0.0)]
    plain = torch.nested.nested_tensor(parts, layout=torch.jagged)
    wide = torch.nested.nested_tensor([torch.rand(3, 4), torch.rand(5, 4)], layout=torch.jagged)
    narrowed = torch.nested.narrow(
        torch.rand(2, 6, 3), 1, torch.tensor([0, 1]), torch.tensor([3, 2]), layout=torch.jagged
    )
    nothing = torch.nested.nested_tensor([torch.rand(0, 2)], layout=torch.jagged)
    return {"plain": plain, "ragged inside": wide.transpose(1, 2), "with holes": narrowed, "empty": nothing}


def lists(nested: torch.Tensor) -> list[Any]:
    return [part.tolist() for part in nested.unbind()]


async def test_case_D12_jagged_rows_come_back_as_they_were(tmp_path: Path) -> None:
    """Kept as values and offsets, which any reader of the files finds; handed out as the nested tensors they were."""
    given = {**jagged_rows(), "dense": torch.ones(2)}
    await committed_and_saved(tmp_path, given)
    restored = Run(tmp_path, name="next")
    await restored.checkpointer.restore()
    rows = restored.plane.rows(0)
    assert set(rows) == set(given)
    for field, nested in jagged_rows().items():
        if field in ("ragged inside", "with holes"):
            nested = given[field]  # their values are random
        assert rows[field].layout is torch.jagged
        assert rows[field].shape[0] == nested.shape[0]
        assert lists(rows[field]) == lists(nested)
    (file,) = (tmp_path / "step_0-1").rglob("rows-*.safetensors")
    stock = load_file(file)
    assert stock["0/plain/values"].tolist() == given["plain"].values().tolist()
    assert stock["0/plain/offsets"].tolist() == [0, 2, 7, 7]


async def test_case_D12_jagged_rows_of_this_process_share_the_memory_that_was_given() -> None:
    """No copy is made, neither in nor out; a write in place is seen."""
    plane, barrier = TensorPlane(verify="off"), CheckpointBarrier()
    nested = jagged_rows()["plain"]
    staged = await plane.stage(1, {"ragged": nested})
    async with barrier.mutation() as cut:
        plane.commit(cut, 1, staged)
    out = plane.rows(1)["ragged"]
    assert out.values().data_ptr() == nested.values().data_ptr()
    nested.values().add_(1)
    async with barrier.checkpoint() as cut:
        capture = plane.capture(cut, [1])
    with pytest.raises(CommittedTensorModified, match="ragged/values"):
        plane.persist(capture, MemoryFiles())


async def test_case_D12_a_jagged_field_whose_parts_are_fields_already_is_refused() -> None:
    """One of the two would vanish."""
    plane = TensorPlane()
    with pytest.raises(UsageError, match=r"there is a field 'x/values' already"):
        await plane.stage(1, {"x": jagged_rows()["plain"], "x/values": torch.ones(1)})
    assert plane.statistics()["groups"] == 0


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"plain": "1"}, "rows.json .* not have the form"),
        ({"plain": 99}, "group 1: its jagged rows cannot be put together"),
        ({"gone": 1}, "group 1: its jagged rows cannot be put together"),
        (["plain"], "rows.json .* not have the form"),
        (None, "rows.json .* not have the form"),
    ],
)
async def test_jagged_rows_that_cannot_be_put_together_are_corrupt(said: Any, message: str) -> None:
    """Found when they are read, before anything is changed."""
    plane, barrier, files = TensorPlane(verify="off"), CheckpointBarrier(), MemoryFiles()
    staged = await plane.stage(1, {"plain": jagged_rows()["plain"]})
    async with barrier.mutation() as cut:
        plane.commit(cut, 1, staged)
    async with barrier.checkpoint() as cut:
        capture = plane.capture(cut, [1])
    plane.persist(capture, files)
    files.documents["rows.json"]["jagged"]["1"] = said
    with pytest.raises(CheckpointCorrupt, match=message):
        plane.read(files, [1])


async def test_case_D09_rows_that_repeat_their_memory_are_written_out_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Case D09: a stride of 0 makes a file many times larger than the memory; once it is said, then counted."""
    plane = TensorPlane()
    for group in (1, 2):
        await plane.stage(group, {"mask": torch.ones(1).expand(1000), "plain": torch.ones(3)})
    assert plane.statistics()["expanded"] == 2
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == ["group 1"]
    assert "repeats 4 bytes of memory as 4000 bytes" in caplog.text


def in_memory_of_a_kind(kind: str, tmp_path: Path) -> torch.Tensor:
    """A tensor of 1000 ones, in memory that others may write to as well."""
    if kind == "shared":
        return torch.ones(1000).share_memory_()  # type: ignore[no-any-return, no-untyped-call]
    if kind == "memory-mapped":
        tensor = torch.from_file(str(tmp_path / "mapped"), shared=True, size=1000, dtype=torch.float32)
        return tensor.fill_(1.0)
    return torch.ones(1000)


@pytest.mark.parametrize("kind", ["plain", "shared", "memory-mapped"])
@pytest.mark.parametrize("by", ["torch", "numpy"])
async def test_case_D04_a_row_changed_behind_the_save_fails_it_and_the_checkpoint_before_stays(
    kind: str, by: str, tmp_path: Path
) -> None:
    """Case D04: rows are shared with the checkpoint; what a change in place would store is refused, not stored."""
    tensor = in_memory_of_a_kind(kind, tmp_path)
    run = await committed_and_saved(tmp_path / "run", {"x": tensor})
    again = Run(tmp_path / "run", name="next", verify="digest")
    await again.checkpointer.restore()
    restored = again.plane.rows(0)["x"]
    assert torch.equal(restored, torch.ones(1000))
    tensor.add_(1)
    assert torch.equal(restored, torch.ones(1000)), "what was restored is its own memory"
    if by == "torch":
        restored.add_(1)
    else:
        restored.numpy()[3] = 5.0
    with pytest.raises(CommittedTensorModified, match="group 0, field 'x'"):
        await again.checkpointer.save()
    fresh = Run(tmp_path / "run", name="last")
    await again.checkpointer.close()
    assert (await fresh.checkpointer.restore()).name == "step_0-1"
    assert torch.equal(fresh.plane.rows(0)["x"], torch.ones(1000))
    assert run.plane.rows(0)["x"] is not restored


def test_case_D16_a_checkpoint_says_nothing_of_devices_and_loads_where_the_caller_says(tmp_path: Path) -> None:
    """Case D16: the file holds values; without a device they come to the CPU, with one they go there."""

    async def scenario() -> None:
        await committed_and_saved(tmp_path, {"x": torch.arange(3)})
        for path in (tmp_path / "step_0-1").rglob("*"):
            assert not path.is_file() or b"cuda" not in path.read_bytes()
        plane = TensorPlane(verify="off", device="meta")
        reader = CheckpointReader(PosixFiles(), str(tmp_path), "step_0-1")
        loaded = plane.read(reader.reader(), (0,))
        async with CheckpointBarrier().checkpoint() as cut:
            plane.load(cut, loaded)
        assert plane.rows(0)["x"].device.type == "meta", "a stand-in for another device: the caller's choice decides"

    asyncio.run(scenario())
