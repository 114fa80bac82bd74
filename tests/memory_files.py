"""A directory writer and reader in memory, for tests of the data plane, and the way of rows into a capture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from impl.barrier import CheckpointBarrier
from impl.rows import RowsWriter


class MemoryFiles(RowsWriter):
    """A directory writer and reader in memory; remembers which tensors it was given."""

    def __init__(self) -> None:
        self.tensors: dict[str, dict[str, torch.Tensor]] = {}
        self.documents: dict[str, Any] = {}

    def write_tensors(self, name: str, tensors: Mapping[str, Any]) -> None:
        self.tensors[name] = {key: tensor.detach().clone() for key, tensor in tensors.items()}

    def write_json(self, name: str, document: Any) -> None:
        self.documents[name] = document

    def names(self) -> tuple[str, ...]:
        return tuple(sorted([*self.tensors, *self.documents]))

    def read_tensors(self, name: str) -> dict[str, Any]:
        return {key: tensor.clone() for key, tensor in self.tensors[name].items()}

    def read_tensor_files(self, names: Iterable[str]) -> Iterable[dict[str, Any]]:
        return (self.read_tensors(name) for name in names)

    def read_json(self, name: str) -> Any:
        return self.documents[name]


async def commit(plane: Any, barrier: CheckpointBarrier, group: int, rows: Mapping[str, Any]) -> None:
    """Stage outside, commit inside."""
    staged = await plane.stage(group, rows)
    async with barrier.mutation() as cut:
        plane.commit(cut, group, staged)


async def captured(plane: Any, barrier: CheckpointBarrier, *groups: int) -> Any:
    """The rows of some groups, as a window would take them."""
    async with barrier.checkpoint() as cut:
        return plane.capture(cut, groups)
