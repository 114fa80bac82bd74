"""The tensors of a safetensors file, put together while it is read: most bytes are read into their place.

Nothing that the file says sizes an allocation before it was compared with the manifest and with the length of the file.
What is wrong with the header is said at the end only: if a digest does not fit either, the file is damaged, which is
another error, and the caller meets it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import CheckpointCorrupt, CheckpointIncompatible
from .tensor_format import TensorRecord, empty_for
from .tensor_header import HeaderCollector

if TYPE_CHECKING:
    import torch

#: The most that is read at once: what a digest then goes through still lies in the cache of its core.
READ_BYTES = 256 << 10
# Below this a read of its own costs more than a copy of what several tensors were read into together.
_IN_PLACE_BYTES = 64 << 10


class TensorAssembly:
    """One file of `length` bytes. In turns: fill the front of `room()`, then `take` what was filled.

    All of the file is taken, whatever is in it, so that whoever digests it can judge first.
    """

    def __init__(self, length: int, records: Mapping[str, TensorRecord], where: str) -> None:
        self._length = length
        self._records = records
        self._where = where
        self._header = HeaderCollector()
        self._tensors: dict[str, torch.Tensor] | None = None
        self._fault: CheckpointCorrupt | CheckpointIncompatible | None = None
        # Invariant: the memory that is still to be filled, in the order of the file from the last to the first.
        self._rest: list[memoryview] = []
        self._scratch = memoryview(bytearray(min(READ_BYTES, max(length, 1))))
        self._in_place = False

    def room(self) -> memoryview:
        """Where the next bytes of the file go."""
        self._in_place = bool(self._rest) and len(self._rest[-1]) >= _IN_PLACE_BYTES
        return self._rest[-1][:READ_BYTES] if self._in_place else self._scratch

    def take(self, filled: memoryview) -> None:
        """The front of the last `room`, filled."""
        if self._in_place:
            self._advance(len(filled))
            return
        if self._tensors is None:
            filled = self._header.take(filled)
            if self._fault is None and self._header.complete:
                self._make_room()
        self._scatter(filled)

    def tensors(self) -> dict[str, torch.Tensor]:
        """After the end of the file: each owns its memory, on the CPU, in the order of the manifest."""
        if self._tensors is None and self._fault is None:
            self._make_room()  # too short for a header, or an empty one: the check says which
        if self._fault is not None:
            raise self._fault
        assert self._tensors is not None
        return {key: self._tensors[key] for key in self._records}

    def _make_room(self) -> None:
        try:
            entries = self._header.check(self._length, self._records, self._where)
            self._tensors = {key: empty_for(self._records[key], f"{self._where}: tensor {key!r}") for key in entries}
        except (CheckpointCorrupt, CheckpointIncompatible) as error:
            self._fault = error
            return
        order = sorted(entries, key=lambda key: entries[key].data_offsets)
        self._rest = [_bytes_of(self._tensors[key]) for key in reversed(order) if self._tensors[key].numel()]

    def _scatter(self, payload: memoryview) -> None:
        while payload and self._rest:
            room = self._rest[-1]
            taken = min(len(room), len(payload))
            room[:taken] = payload[:taken]
            payload = payload[taken:]
            self._advance(taken)

    def _advance(self, taken: int) -> None:
        if taken == len(self._rest[-1]):
            self._rest.pop()
        else:
            self._rest[-1] = self._rest[-1][taken:]


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy().data
