"""Tensors to the bytes of a safetensors file and back, bit for bit. Imports torch when it is first used.

The file holds forms that any safetensors tool reads; the logical type stands in the manifest. Complex numbers are
stored as pairs of reals in a last dimension of two, types without a name in the format as raw bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from cleancut_leaf.words import counted

from ..errors import CheckpointIncompatible, UsageError
from .files import Buffer

if TYPE_CHECKING:
    import torch

#: Types whose values mean nothing without a scale that the tensor's bytes do not hold.
QUANTISED = frozenset({"qint8", "quint8", "qint32", "quint4x2", "quint2x4"})
KEY_LIMIT = 1000
#: Readers of the format refuse a longer header.
HEADER_LIMIT = 100_000_000
_MOST_ELEMENTS = 1 << 80

_STORED_AS: Mapping[str, str] = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
_COMPLEX: Mapping[str, str] = {"complex64": "float32", "complex128": "float64", "complex32": "float16"}
#: Stored as raw bytes, with the bytes in an element of each.
_RAW: Mapping[str, int] = {
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
    "bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "bits8": 1, "bits16": 2,
    **{f"{sign}int{bits}": 1 for sign in ("", "u") for bits in range(1, 8)},
}  # fmt: skip
#: Torch can do little with a tensor of more dimensions.
_MOST_DIMENSIONS = 64
#: Strides, and the bytes of a tensor, are signed integers of 64 bits.
_MOST_BYTES = 2**63 - 1


class TensorRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The logical type and shape of one tensor; the file may hold it in another form of the same bits."""

    dtype: str
    shape: tuple[int, ...]


class StoredForm(NamedTuple):
    """How the bytes of a tensor are described in the header of the file."""

    dtype: str
    shape: list[int]
    nbytes: int
    alignment: int


def to_pieces(tensors: Mapping[str, torch.Tensor], where: str) -> tuple[Iterator[Buffer], dict[str, TensorRecord]]:
    """The contents of a safetensors file, piece by piece, and what the manifest says of each tensor.

    Everything strided is accepted, on any device and in any layout of memory; what is not (sparse, quantised, meta, a
    subclass) is refused here, before the first piece, naming the key. The pieces are views of the tensors where their
    memory allows: no copy of a whole file is made, which would keep the interpreter from every other thread meanwhile.
    """
    records: dict[str, TensorRecord] = {}
    forms: dict[str, StoredForm] = {}
    for key, tensor in tensors.items():
        check_key(key, where)
        check_kind(key, tensor, where)
        records[key] = record = TensorRecord(_dtype_name(tensor.dtype), tuple(tensor.shape))
        forms[key] = stored_form(record)
    # The widest elements first: each tensor then begins at a multiple of its element size, as readers that map the
    # file into memory want it.
    order = sorted(tensors, key=lambda key: (-forms[key].alignment, key))
    header = _header(order, forms)
    if len(header) > HEADER_LIMIT:
        raise UsageError(
            f"{where}: {counted(len(records), 'tensor needs', 'tensors need')} a header of "
            f"{counted(len(header), 'byte')}, and the format ends at {HEADER_LIMIT}. Spread them over several files."
        )

    def pieces() -> Iterator[Buffer]:
        yield header
        for key in order:
            yield row_major(tensors[key])

    return pieces(), records


def check_key(key: str, where: str) -> None:
    """Refuse a key that the header of a safetensors file cannot hold exactly."""
    reason = f"it is a {type(key).__name__}, not a text" if type(key) is not str else fault_of_key(key)
    if reason is not None:
        raise UsageError(
            f"{where}: the tensor key {key!r:.80} cannot be saved: {reason}. Rename it before it is added."
        )


def fault_of_key(key: str) -> str | None:
    """Why no tensor of a safetensors file has this name; None for one that may have it."""
    if len(key) > KEY_LIMIT:
        return f"it has {counted(len(key), 'character')}, more than {KEY_LIMIT}"
    if "\0" in key:
        return "it holds a NUL"
    if key == "__metadata__":
        return "the safetensors format keeps that name for itself"
    if any("\ud800" <= character <= "\udfff" for character in key):
        return "it holds half a surrogate pair"
    return None


def fault_of(record: TensorRecord) -> str | None:
    """Why no tensor has this type and shape; None for those that can be written and read back."""
    size = _itemsize(record.dtype)
    if size is None:
        return f"it has the type {record.dtype!r}, which this version cannot hold"
    if len(record.shape) > _MOST_DIMENSIONS:
        return f"its shape is of length {len(record.shape)}, and {_MOST_DIMENSIONS} is the most"
    for length in record.shape:
        if length < 0:
            return f"it has the shape {list(record.shape)}, and no length is below 0"
        # A length of 0 leaves nothing of the others, and strides are made of them all the same.
        size *= max(length, 1)
    if size > _MOST_BYTES:
        return f"it has the shape {list(record.shape)}, which is larger than any memory"
    return None


def check_kind(key: str, tensor: torch.Tensor, where: str) -> None:
    """Refuse a tensor that would not come back as what it is."""
    import torch

    reason = None
    if not isinstance(tensor, torch.Tensor):
        reason = f"it is a {type(tensor).__name__}, not a tensor"
    elif type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        reason = f"it is a {type(tensor).__name__}, and a subclass would come back as a plain tensor"
    elif tensor.is_meta:
        reason = "it is a meta tensor and has no data"
    elif tensor.is_quantized or _dtype_name(tensor.dtype) in QUANTISED:
        reason = "it is quantised"
    elif tensor.is_nested:
        reason = "it is nested; save its values and offsets"
    elif tensor.layout is not torch.strided:
        reason = f"its layout is {tensor.layout}"
    else:
        reason = fault_of(TensorRecord(_dtype_name(tensor.dtype), tuple(tensor.shape)))
    if reason is not None:
        raise UsageError(f"{where}: tensor {key!r} cannot be saved: {reason}. Give a plain dense tensor.")


def stored_form(record: TensorRecord) -> StoredForm:
    """How a tensor without a fault stands in the file, from what the manifest says of it. Needs no torch."""
    itemsize = _itemsize(record.dtype)
    assert itemsize is not None, "of a type that `fault_of` has let pass"
    elements = _elements(record.shape)
    if record.dtype in _COMPLEX:
        return StoredForm(_STORED_AS[_COMPLEX[record.dtype]], [*record.shape, 2], elements * itemsize, itemsize // 2)
    if record.dtype in _STORED_AS:
        return StoredForm(_STORED_AS[record.dtype], [*record.shape], elements * itemsize, itemsize)
    return StoredForm(_STORED_AS["uint8"], [elements * itemsize], elements * itemsize, 1)


def _itemsize(dtype: str) -> int | None:
    """The bytes in an element of a type; None for one that this version cannot hold."""
    if dtype in _RAW:
        return _RAW[dtype]
    stored = _STORED_AS.get(_COMPLEX.get(dtype, dtype))
    if stored is None:
        return None
    bits = int("".join(filter(str.isdecimal, stored.partition("_")[0])) or 8)
    return bits // 8 * (2 if dtype in _COMPLEX else 1)


def _header(order: Iterable[str], forms: Mapping[str, StoredForm]) -> bytes:
    entries: dict[str, object] = {}
    begin = 0
    for key in order:
        form = forms[key]
        entries[key] = {"dtype": form.dtype, "shape": form.shape, "data_offsets": [begin, begin + form.nbytes]}
        begin += form.nbytes
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def as_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements as integers of the same width, lazy conjugations and negations done; a view where it can be.

    Torch can copy any integer. Of the types of less than a byte it knows little more than their width.
    """
    import torch

    plain = tensor.detach().resolve_conj().resolve_neg()
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return plain.view(integers.get(plain.dtype.itemsize, plain.dtype))


def row_major(tensor: torch.Tensor) -> Buffer:
    """The bytes of a tensor in row-major order, on the CPU; a view of its memory where that is how they lie."""
    import torch

    dense = as_bits(tensor).to("cpu").contiguous()
    return dense.reshape(-1).view(torch.uint8).numpy().data


def empty_for(record: TensorRecord, where: str) -> torch.Tensor:
    """A tensor of the logical type and shape, its memory its own, to be filled with the bytes of the file.

    CheckpointIncompatible if this torch does not know the type. The header has agreed with the record before.
    """
    import torch

    dtype = getattr(torch, record.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointIncompatible(
            f"{where} has the type {record.dtype!r}, which this torch does not know. Use the version that wrote it, "
            "or restore another checkpoint."
        )
    return torch.empty(record.shape, dtype=dtype)


def _elements(shape: tuple[int, ...]) -> int:
    if 0 in shape:
        return 0
    total = 1
    for length in shape:
        total *= length
        if abs(total) > _MOST_ELEMENTS:
            # No file has so many. To multiply on would cost the square of what a manifest claims.
            break
    return total


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
