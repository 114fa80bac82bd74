"""When rows hold their values: the events that stand between whoever wrote them and whoever reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..store.tensor_format import as_bits
from .torch_immutability import version_of

if TYPE_CHECKING:
    import torch

    from .device import Device, Where
    from .torch_record import Record


def nbytes(tensor: torch.Tensor) -> int:
    """The bytes a tensor's own elements take."""
    return tensor.numel() * tensor.element_size()


def is_small_view(tensor: torch.Tensor) -> bool:
    """Whether it keeps more than twice its own bytes alive."""
    return tensor.untyped_storage().nbytes() > 2 * nbytes(tensor)


def cloned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with memory of its own. By way of integers: some types can be viewed and not be copied."""
    return as_bits(tensor).clone().view(tensor.dtype)


def events_behind(
    device: Device, tensors: Mapping[str, torch.Tensor], given: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The events behind which rows on devices, and rows on the host, hold their values.

    Without any given: one for each device the rows are on, recorded on this thread's current stream. A row in pinned
    memory may be the target of a copy that is still under way, so it has one too.
    """
    on_host = [tensor for tensor in tensors.values() if device.where(tensor) is None]
    if given:
        return given, given if on_host else ()
    holding = dict.fromkeys(device.where(tensor) for tensor in tensors.values())
    feeding = dict.fromkeys(device.feeds(tensor) for tensor in on_host)
    recorded = {where: device.record(where) for where in {**holding, **feeding} if where is not None}
    return (
        tuple(recorded[where] for where in holding if where is not None),
        tuple(recorded[where] for where in feeding if where is not None),
    )


def owned(device: Device, record: Record) -> Record:
    """The record with its small views on devices cloned, each behind the events of the record."""
    tensors, versions = dict(record.tensors), dict(record.versions)
    cloned: dict[Where, None] = {}
    for field, tensor in record.tensors.items():
        where = device.where(tensor)
        if where is not None and is_small_view(tensor):
            tensors[field] = device.clone(where, tensor, record.ready)
            versions[field] = version_of(tensors[field])
            cloned[where] = None
    if not cloned:
        return record
    behind = (*record.ready, *(device.record(where) for where in cloned))
    return replace(record, tensors=MappingProxyType(tensors), versions=MappingProxyType(versions), ready=behind)


def hand_over(device: Device, record: Record) -> None:
    """Let the calling thread use the rows: on the host at once, on a device on its current stream."""
    for event in record.filled:
        event.synchronize()
    held: dict[Where, list[torch.Tensor]] = {}
    for tensor in record.tensors.values():
        where = device.where(tensor)
        if where is not None:
            held.setdefault(where, []).append(tensor)
    for where, tensors in held.items():
        device.hand_over(where, record.ready, tensors)
