"""The tensors of a safetensors file, put together while it is read: one copy of each byte, and no file in memory.

Nothing that the file says sizes an allocation before it was compared with the manifest and with the length of the file.
What is wrong with the header is said at the end only: if a digest does not fit either, the file is damaged, which is
another error, and the caller meets it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..errors import CheckpointCorrupt
from .manifest import TensorRecord
from .tensor_format import empty_for
from .tensor_header import HeaderCollector

if TYPE_CHECKING:
    import torch


def from_chunks(
    chunks: Iterable[bytes], length: int, records: Mapping[str, TensorRecord], where: str
) -> dict[str, torch.Tensor]:
    """The tensors in a file of `length` bytes, in the order of `records`; each owns its memory, on the CPU.

    All of `chunks` is taken, whatever is in it, so that whoever digests them can judge first.
    """
    header = HeaderCollector()
    room: _Room | None = None
    fault: CheckpointCorrupt | None = None
    for chunk in chunks:
        payload = header.take(chunk) if room is None else chunk
        if room is None and fault is None and header.complete:
            try:
                room = _Room(header, length, records, where)
            except CheckpointCorrupt as error:
                fault = error
        if room is not None:
            room.fill(payload)
    if room is None:
        # Too short for a header, or an empty one: the check says which.
        room = _Room(header, length, records, where) if fault is None else None
    if room is None:
        assert fault is not None
        raise fault
    return {key: room.tensors[key] for key in records}


class _Room:
    """Memory for every tensor of a file, filled from front to back."""

    def __init__(self, header: HeaderCollector, length: int, records: Mapping[str, TensorRecord], where: str) -> None:
        entries = header.check(length, records, where)
        self.tensors = {
            key: empty_for(records[key], entry.dtype, entry.shape, f"{where}: tensor {key!r}")
            for key, entry in entries.items()
        }
        order = sorted(entries, key=lambda key: entries[key].data_offsets)
        # Invariant: what is still to be filled, in the order of the file.
        self._rest = [_bytes_of(self.tensors[key]) for key in reversed(order) if self.tensors[key].numel()]

    def fill(self, payload: bytes) -> None:
        """The next bytes behind the header."""
        data = memoryview(payload)
        while data and self._rest:
            room = self._rest[-1]
            taken = min(len(room), len(data))
            room[:taken] = data[:taken]
            data = data[taken:]
            if taken == len(room):
                self._rest.pop()
            else:
                self._rest[-1] = room[taken:]


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy().data
