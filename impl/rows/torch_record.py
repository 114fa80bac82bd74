"""One group's rows as they were committed, and the rows that a checkpoint refers to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .torch_immutability import Watched

if TYPE_CHECKING:
    import torch

    from ..keys import GroupId


@dataclass(frozen=True)
class Record:
    """One group's rows as they were committed. Never changed; a change is another record."""

    group: GroupId
    tensors: Mapping[str, torch.Tensor]
    versions: Mapping[str, int | None]
    digests: Mapping[str, str] | None = None
    #: Events behind which rows on a device hold their values.
    ready: tuple[Any, ...] = ()
    #: The same for rows on the host; only those in pinned memory need any.
    filled: tuple[Any, ...] = ()
    #: Fields that are kept as values and offsets, and the ragged dimension of each.
    jagged: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    #: How many of the tensors have a version counter that misses writers.
    untracked: int = 0

    def only(self, fields: Iterable[str]) -> Record:
        """The same record with these of its fields."""
        return replace(self, tensors=MappingProxyType({field: self.tensors[field] for field in fields}))

    def watched(self, field: str) -> Watched:
        """What a row was like at its commit."""
        digest = None if self.digests is None else self.digests[field]
        return Watched(self.group, field, self.versions[field], digest)


@dataclass
class TensorCapture:
    """The records of one cut, by reference. Rows on devices leave it when they are about to be copied."""

    records: dict[GroupId, Record]
    groups: tuple[GroupId, ...]

    def drop(self) -> None:
        """Forget the rows."""
        self.records = {}
