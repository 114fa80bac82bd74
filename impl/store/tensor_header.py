"""The header of a safetensors file, read and checked without torch and without the payload behind it.

A restore compares header and manifest before it makes room for a tensor (`tensor_assembly`). Whoever only wants to know
whether a file is sound need not load the tensors, nor have torch: names, types, shapes and offsets stand in the header,
and the offsets must cover the rest of the file without gap and overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cleancut_leaf.words import counted

from ..errors import CheckpointCorrupt
from . import strict_json
from .tensor_format import HEADER_LIMIT, TensorRecord, fault_of, stored_form

_LENGTH_BYTES = 8
_METADATA = "__metadata__"


class HeaderEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the header says of one tensor; offsets count from the end of the header."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class HeaderCollector:
    """Takes a file chunk by chunk and keeps no more of it than the header."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._wanted = _LENGTH_BYTES

    def take(self, chunk: memoryview) -> memoryview:
        """The next piece of the file; returns what of it lies behind the header."""
        while len(self._head) < self._wanted and chunk:
            missing = self._wanted - len(self._head)
            self._head += chunk[:missing]
            chunk = chunk[missing:]
            if len(self._head) == self._wanted == _LENGTH_BYTES:
                # An absurd length is never collected; `check` refuses it.
                self._wanted += min(int.from_bytes(self._head, "little"), HEADER_LIMIT)
        return chunk

    @property
    def complete(self) -> bool:
        """Whether the whole header was seen."""
        return len(self._head) == self._wanted > _LENGTH_BYTES

    def check(self, length: int, records: Mapping[str, TensorRecord], where: str) -> dict[str, HeaderEntry]:
        """Compare the header with the manifest's account of the file; CheckpointCorrupt names what differs.

        `length` is that of the whole file, in bytes. Returns what the header says of each tensor.
        """
        entries, begin = self._parsed(length, where)
        if entries.keys() != records.keys():
            odd = min(entries.keys() ^ records.keys())
            raise _mixed(where, f"tensor {odd!r} stands in the file or in the manifest, not in both")
        for key, record in records.items():
            entry = entries[key]
            if (fault := fault_of(record)) is not None:
                raise _mixed(where, f"tensor {key!r}: {fault}")
            form = stored_form(record)
            if (entry.dtype, entry.shape) != (form.dtype, form.shape):
                raise _mixed(
                    where,
                    f"tensor {key!r} is {entry.dtype} {entry.shape} in the file and {record.dtype} "
                    f"{list(record.shape)} in the manifest",
                )
            begin_of, end_of = entry.data_offsets
            if end_of - begin_of != form.nbytes:
                raise _mixed(where, f"tensor {key!r} lies at {begin_of} to {end_of} and has {form.nbytes} bytes")
        _check_offsets((entry.data_offsets for entry in entries.values()), length - begin, where)
        return entries

    def _parsed(self, length: int, where: str) -> tuple[dict[str, HeaderEntry], int]:
        """The entries, and where the payload begins."""
        announced = int.from_bytes(self._head[:_LENGTH_BYTES], "little")
        if len(self._head) < _LENGTH_BYTES or announced > min(HEADER_LIMIT, length - _LENGTH_BYTES):
            raise CheckpointCorrupt(
                f"{where} is no proper safetensors file: it has {counted(length, 'byte')} and announces a header of "
                f"{announced}. Do not trust it; restore another checkpoint."
            )
        plain = strict_json.decode_plain(bytes(self._head[_LENGTH_BYTES:]), where)
        if isinstance(plain, dict):
            plain.pop(_METADATA, None)
        return strict_json.convert(plain, dict[str, HeaderEntry], where), _LENGTH_BYTES + announced


def _check_offsets(spans: Iterable[tuple[int, int]], payload: int, where: str) -> None:
    reached = 0
    for begin, end in sorted(spans):
        if begin != reached or end < begin:
            raise _mixed(where, f"its tensors lie at {begin} to {end} where {reached} was expected")
        reached = end
    if reached != payload:
        raise _mixed(where, f"its tensors take {counted(reached, 'byte')} and the payload has {payload}")


def _mixed(where: str, what: str) -> CheckpointCorrupt:
    return CheckpointCorrupt(
        f"{where}: {what}. The files of two checkpoints were mixed, or one was edited; restore another checkpoint."
    )
