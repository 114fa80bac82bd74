"""Tensors to the bytes of a safetensors file and back, bit for bit. Imports torch when it is first used.

The file holds forms that any safetensors tool reads; the logical type stands in the manifest. Complex numbers are
stored as pairs of reals in a last dimension of two, types without a name in the format as raw bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import CheckpointCorrupt, UsageError
from .manifest import TensorRecord

if TYPE_CHECKING:
    import torch

KEY_LIMIT = 1000

_STORED_AS: Mapping[str, str] = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
_COMPLEX: Mapping[str, str] = {"complex64": "float32", "complex128": "float64", "complex32": "float16"}


def to_bytes(tensors: Mapping[str, torch.Tensor], where: str) -> tuple[bytes, dict[str, TensorRecord]]:
    """The contents of a safetensors file, and what the manifest says of each tensor.

    Everything strided is accepted, on any device and in any layout of memory; what is not (sparse, quantised, meta, a
    subclass) is refused before a byte is written, naming the key.
    """
    from safetensors import TensorSpec, serialize

    specs: dict[str, TensorSpec] = {}
    records: dict[str, TensorRecord] = {}
    # The serializer reads raw addresses: the stored forms must stay referenced until it has returned.
    alive: list[torch.Tensor] = []
    for key, tensor in tensors.items():
        check_key(key, where)
        check_kind(key, tensor, where)
        stored, dtype = _stored_form(tensor)
        alive.append(stored)
        records[key] = TensorRecord(_dtype_name(tensor.dtype), tuple(tensor.shape))
        specs[key] = TensorSpec(
            dtype=dtype, shape=list(stored.shape), data_ptr=stored.data_ptr(), data_len=stored.nbytes
        )
    data = serialize(specs)
    del alive
    return data, records


def from_bytes(data: bytes, records: Mapping[str, TensorRecord], where: str) -> dict[str, torch.Tensor]:
    """The tensors of a file whose digest was found right; each owns its memory, on the CPU.

    The header is compared with the manifest all the same: a file can be whole and wrong.
    """
    from safetensors import SafetensorError, deserialize

    try:
        found: dict[str, Mapping[str, object]] = dict(deserialize(data))  # type: ignore[no-untyped-call]
    except (SafetensorError, ValueError, OverflowError) as error:
        raise CheckpointCorrupt(
            f"{where} is no proper safetensors file: {error}. Do not trust it; restore another checkpoint."
        ) from error
    if found.keys() != records.keys():
        odd = sorted(found.keys() ^ records.keys())[0]
        raise CheckpointCorrupt(
            f"{where}: tensor {odd!r} stands in the file or in the manifest, not in both. The files of two checkpoints "
            "were mixed, or one was edited; restore another checkpoint."
        )
    return {key: _restored(found[key], record, f"{where}: tensor {key!r}") for key, record in records.items()}


def check_key(key: str, where: str) -> None:
    """Refuse a key that the header of a safetensors file cannot hold exactly."""
    if type(key) is not str:
        reason = f"it is a {type(key).__name__}, not a text"
    elif len(key) > KEY_LIMIT:
        reason = f"it has {len(key)} characters, more than {KEY_LIMIT}"
    elif "\0" in key:
        reason = "it holds a NUL"
    elif key == "__metadata__":
        reason = "the safetensors format keeps that name for itself"
    elif any("\ud800" <= character <= "\udfff" for character in key):
        reason = "it holds half a surrogate pair"
    else:
        return
    raise UsageError(f"{where}: the tensor key {key!r:.80} cannot be saved: {reason}. Rename it before it is added.")


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
    elif tensor.is_quantized:
        reason = "it is quantised"
    elif tensor.is_nested:
        reason = "it is nested; save its values and offsets"
    elif tensor.layout is not torch.strided:
        reason = f"its layout is {tensor.layout}"
    if reason is not None:
        raise UsageError(f"{where}: tensor {key!r} cannot be saved: {reason}. Give a plain dense tensor.")


def _stored_form(tensor: torch.Tensor) -> tuple[torch.Tensor, str]:
    """The dense CPU tensor whose bytes go to the file, and torch's name of its type."""
    import torch

    plain = tensor.detach().resolve_conj().resolve_neg()
    name = _dtype_name(plain.dtype)
    if name in _COMPLEX:
        plain, name = torch.view_as_real(plain), _COMPLEX[name]
    dense = plain.to("cpu").contiguous()
    if name not in _STORED_AS:
        dense, name = dense.reshape(-1).view(torch.uint8), "uint8"
    return dense, name


def _restored(entry: Mapping[str, object], record: TensorRecord, where: str) -> torch.Tensor:
    import torch

    dtype = getattr(torch, record.dtype, None)
    data = entry["data"]
    if not isinstance(dtype, torch.dtype) or not isinstance(data, bytearray):
        raise CheckpointCorrupt(
            f"{where} has the type {record.dtype!r}, which this torch does not know. Use the version that wrote it, "
            "or restore another checkpoint."
        )
    logical = _COMPLEX.get(record.dtype, record.dtype)
    native = logical in _STORED_AS
    if native:
        expected_shape = [*record.shape, 2] if record.dtype in _COMPLEX else [*record.shape]
    else:
        expected_shape = [_elements(record.shape) * dtype.itemsize]
    if entry["shape"] != expected_shape or entry["dtype"] != _STORED_AS[logical if native else "uint8"]:
        raise CheckpointCorrupt(
            f"{where} is {entry['dtype']} {entry['shape']} in the file and {record.dtype} {list(record.shape)} in the "
            "manifest. One of the two was edited; restore another checkpoint."
        )
    if not data:
        return torch.empty(record.shape, dtype=dtype)
    # The bytearray was made for this tensor alone and lives as long as it does.
    return torch.frombuffer(data, dtype=dtype).reshape(record.shape)


def _elements(shape: tuple[int, ...]) -> int:
    total = 1
    for length in shape:
        total *= length
    return total


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
