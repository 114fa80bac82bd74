"""Committed tensors are immutable by rule; this is how a change is seen all the same.

The version counter that torch keeps is a tripwire and no proof: it counts what is written through torch's own in-place
operations, and misses numpy, dlpack, `.data`, other processes and other libraries. A digest of the bytes sees all of
these, and costs reading them. A tensor that has neither is `unchecked`, and is counted as such.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from ..errors import CommittedTensorModified
from ..store.tensor_format import row_major


def version_of(tensor: torch.Tensor) -> int | None:
    """The version counter; None for an inference tensor, which has none."""
    return None if tensor.is_inference() else tensor._version


def is_tracked(tensor: torch.Tensor) -> bool:
    """Whether all ordinary writes are counted: the tensor has a counter and torch alone owns its memory.

    Memory that came from numpy, dlpack, a buffer or a mapped file cannot be resized by torch, nor can memory that was
    handed to numpy before; and memory shared between processes is written by others. What is handed out later, or to
    dlpack, cannot be told.
    """
    if tensor.is_inference() or not tensor.untyped_storage().resizable():
        return False
    # Of memory on a CUDA device torch always says that it is shared. What came from another process cannot be resized.
    return tensor.is_cuda or not tensor.is_shared()  # type: ignore[no-untyped-call]


def digest_of(tensor: torch.Tensor) -> str:
    """sha256 of type, shape and elements of a tensor that the host can read, in row-major order."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(row_major(tensor))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Watched:
    """One committed tensor, and what it was like at its commit."""

    group: int
    field: str
    version: int | None
    digest: str | None

    def check(self, tensor: torch.Tensor, on_host: torch.Tensor) -> None:
        """Raise CommittedTensorModified if the tensor was changed since; `on_host` is what is being saved of it."""
        changed = self.version is not None and version_of(tensor) != self.version
        if not changed and self.digest is not None:
            changed = digest_of(on_host) != self.digest
        if changed:
            raise CommittedTensorModified(
                f"group {self.group}, field '{self.field}': the tensor was changed in place after its commit. "
                "Committed rows are shared with the checkpoint being written. Train on a copy, or write derived "
                "columns with write_back, which makes a new record."
            )
