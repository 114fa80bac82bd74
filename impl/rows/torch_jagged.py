"""Jagged rows: kept and saved as values and offsets, handed out as the nested tensors they were.

A nested tensor with the jagged layout is a few plain tensors and the number of its ragged dimension. Taking it apart
and putting it together again moves no data. The older nested layout (strided) is refused like any other subclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from ..errors import CheckpointCorrupt
from .index import LENGTHS, OFFSETS, VALUES, part_of


def is_jagged(tensor: torch.Tensor) -> bool:
    """Whether it is a nested tensor that `taken_apart` can take apart."""
    return tensor.is_nested and tensor.layout is torch.jagged


def taken_apart(field: str, nested: torch.Tensor) -> tuple[dict[str, torch.Tensor], int]:
    """The plain tensors of a jagged field by name, sharing its memory, and its ragged dimension."""
    whole: Any = nested.detach()
    parts = {VALUES: whole.values(), OFFSETS: whole.offsets(), LENGTHS: whole.lengths()}
    return {part_of(field, name): part for name, part in parts.items() if part is not None}, int(whole._ragged_idx)


def put_together(tensors: Mapping[str, torch.Tensor], jagged: Mapping[str, int]) -> Mapping[str, torch.Tensor]:
    """The rows as they were given: each jagged field as one nested tensor, over the memory of its parts."""
    if not jagged:
        return tensors
    owner = {part_of(field, part): field for field in jagged for part in (VALUES, OFFSETS, LENGTHS)}
    rows: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        field = owner.get(name)
        if field is None:
            rows[name] = tensor
        elif field not in rows:
            rows[field] = torch.nested.nested_tensor_from_jagged(
                tensors[part_of(field, VALUES)],
                tensors[part_of(field, OFFSETS)],
                tensors.get(part_of(field, LENGTHS)),
                jagged_dim=jagged[field],
            )
    return MappingProxyType(rows)


def checked_dimensions(group: int, described: object, tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """What a checkpoint says of the jagged fields of a group, or CheckpointCorrupt if they cannot be put together."""
    fields = described if isinstance(described, dict) else None
    if fields is not None and all(
        type(dimension) is int and {part_of(field, VALUES), part_of(field, OFFSETS)} <= tensors.keys()
        for field, dimension in fields.items()
    ):
        try:
            put_together(tensors, fields)
        except (RuntimeError, ValueError, IndexError, TypeError):
            pass
        else:
            return fields
    raise CheckpointCorrupt(
        f"group {group}: its jagged rows cannot be put together from what the checkpoint holds ({described!r}). It was "
        "damaged or edited; restore an earlier one."
    )
