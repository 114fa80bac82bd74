"""How rows stand in a checkpoint, whichever data plane they are of: safetensors files of about one size, and an index.

A key in a file is `GROUP/FIELD`; the index says which fields a group has, and which of them are parts of jagged rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import torch

from .index import ROWS_FILES, ROWS_INDEX, key_of, rows_index, rows_missing
from .plane import RowsReader, RowsWriter
from .torch_jagged import checked_dimensions

if TYPE_CHECKING:
    from ..keys import GroupId

T = TypeVar("T")

#: Rows are split over files of about this size: a restore has a few of them in memory beside the rows themselves.
BYTES_PER_FILE = 64 << 20


def file_name(number: int) -> str:
    """The name of a file of rows."""
    return f"{ROWS_FILES}{number:03d}.safetensors"


def in_batches(items: Iterable[T], size_of: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """The items in their order, in lists of at most `most` bytes together; a larger item is alone in its list."""
    batch: list[T] = []
    filled = 0
    for item in items:
        size = size_of(item)
        if batch and filled + size > most:
            yield batch
            batch, filled = [], 0
        batch.append(item)
        filled += size
    if batch:
        yield batch


def write_index(
    writer: RowsWriter, fields: Mapping[GroupId, list[str]], jagged: Mapping[GroupId, Mapping[str, int]]
) -> None:
    """Say which fields each group has, and the ragged dimension of those that are jagged."""
    writer.write_json(
        ROWS_INDEX,
        {
            "fields": {str(group): names for group, names in fields.items()},
            "jagged": {str(group): dict(each) for group, each in jagged.items() if each},
        },
    )


def read_rows(
    reader: RowsReader, groups: Iterable[GroupId]
) -> Iterator[tuple[GroupId, dict[str, torch.Tensor], dict[str, int]]]:
    """Each of `groups`, its tensors on the host, and the ragged dimensions of its jagged fields.

    CheckpointCorrupt names what is missing.
    """
    index = rows_index(reader.read_json(ROWS_INDEX))
    tensors: dict[str, torch.Tensor] = {}
    for read in reader.read_tensor_files(name for name in reader.names() if name.startswith(ROWS_FILES)):
        tensors.update(read)
    for group in groups:
        try:
            rows = {field: tensors[key_of(group, field)] for field in index.of(group)}
        except KeyError as missing:
            raise rows_missing(group, missing.args[0]) from missing
        yield group, rows, checked_dimensions(group, index.jagged.get(str(group), {}), rows)
