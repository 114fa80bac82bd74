"""What a participant sees of a checkpoint: a place to put files, a place to get them back.

The writer runs on the one writer thread; the reader on any thread. Neither shows a path, but that of a folder in which
other processes write or read by themselves, such as the ranks over which a trainer is sharded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from .files import Buffer

if TYPE_CHECKING:
    import torch


class DirectoryWriter(Protocol):
    """Takes the files of one participant. Each name once; each file is durable when its call returns."""

    def write_bytes(self, name: str, data: Buffer) -> None:
        """Write a file. `name` is fixed by code ("rows-000.safetensors"), never derived from an id."""
        ...

    def write_json(self, name: str, document: object) -> None:
        """Write strict JSON from plain values; UsageError names the part that cannot be held."""
        ...

    def write_tensors(self, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write a safetensors file; values, shapes and types come back bit for bit, devices and graphs do not."""
        ...

    def write_tensor_files(self, files: Iterable[tuple[str, Mapping[str, torch.Tensor]]]) -> None:
        """Write many, several at a time; all are durable when it returns. `files` may be lazy."""
        ...

    def folder(self, name: str) -> str:
        """Make a directory in which others write by themselves, and return its absolute path.

        What lies in it once `persist` has returned is part of the checkpoint: each file is then synced, read once for
        its digest and listed, as deep as eight parts of letters, digits, '_', '-' and '.'. So `persist` waits for all
        who write. Whoever does so on another machine, through a shared file system, syncs its files itself.
        """
        ...


class DirectoryReader(Protocol):
    """Gives the files back. Every byte is compared with the manifest as it is read; an error names the file."""

    def names(self) -> tuple[str, ...]:
        """The names this participant wrote, sorted."""
        ...

    def read_bytes(self, name: str) -> bytes:
        """The contents of a file."""
        ...

    def read_json(self, name: str) -> object:
        """The value of a JSON file: dicts, lists, text, numbers."""
        ...

    def read_tensors(self, name: str) -> dict[str, torch.Tensor]:
        """The tensors of a safetensors file: on the CPU, each owning its memory."""
        ...

    def read_tensor_files(self, names: Iterable[str]) -> Iterator[dict[str, torch.Tensor]]:
        """The tensors of many files, in that order; several are read at a time."""
        ...

    def folder(self, name: str) -> str:
        """The path of a folder, for others to read in until `load` returns.

        Every byte in it is compared with the manifest first; CheckpointDamaged also where a file is that nobody saved.
        """
        ...
