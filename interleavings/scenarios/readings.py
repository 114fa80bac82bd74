"""What the explorer reads of parts of `impl` and of torch that it cannot, or need not, read by itself.

A part is left out of the state only where nothing the run does depends on it; the reason stands beside each.
"""

from __future__ import annotations

from typing import Any

from impl.barrier import CheckpointBarrier
from impl.barrier.asyncio_sections import AsyncioSection
from impl.barrier.statistics import Recorder
from impl.checkpoint.pending import SaveStatistics
from impl.checkpoint.publication import Written
from impl.checkpoint.save_log import SaveLog
from impl.rows.pinned_pool import PinnedPool

from ..correspondence.follower import Coverage, EventlessFollower, Follower, Remembered
from ..state.walkers import register_walker
from .crash_images import Directory, File
from .fake_disk import FakeDisk

# Only events carry them: a section's number, and how many were given. Only figures and messages: since when.
ONLY_FOR_EVENTS = {"number", "_sections_named", "since", "_drain_began"}


def _without_event_numbers(part: Any) -> tuple[Any, ...]:
    names = [n for kind in type(part).__mro__ for n in getattr(kind, "__slots__", ())] + list(vars_of(part))
    return _named({n: getattr(part, n) for n in names if n not in ONLY_FOR_EVENTS and hasattr(part, n)})


def _named(held: dict[str, Any]) -> tuple[Any, ...]:
    """All names first, then what each holds: one tuple, where a pair for each would cost as much again."""
    return (tuple(held), *held.values())


def vars_of(part: Any) -> dict[str, Any]:
    """The attributes of an object that has a dictionary."""
    return getattr(part, "__dict__", {})


def register_barrier() -> None:
    """The barrier and its sections, without what only events and figures need."""
    # Statistics are written and never read by the run: durations and counts of what happened before.
    register_walker(Recorder, lambda recorder: ())
    register_walker(SaveStatistics, lambda figures: (figures.name, figures.kind))
    register_walker(SaveLog, lambda log: (*log._saves, log._completed, log._failed, log._skipped, log._last_failed))
    register_walker(Written, lambda written: (written.published,))
    register_walker(CheckpointBarrier, _without_event_numbers)
    register_walker(AsyncioSection, _without_event_numbers)
    # The machine's state is part of every state already, as what `observe` returns; coverage is counted over all runs.
    register_walker(Follower, lambda follower: ())
    register_walker(EventlessFollower, lambda follower: ())
    register_walker(Coverage, lambda coverage: ())
    register_walker(Remembered, lambda model: ())


def register_disk() -> None:
    """A disk is what is in it and what of that is durable; whoever looks on is none of it."""

    def directory(node: Directory) -> tuple[Any, ...]:
        entries = _named({name: node.entries[name] for name in sorted(node.entries)})
        return (*entries, node.durable, node.pending) if node.pending else entries

    register_walker(
        File, lambda node: (node.content,) if node.durable == node.content else (node.content, node.durable)
    )
    register_walker(Directory, directory)
    register_walker(FakeDisk, lambda disk: (disk.root, disk._handles, disk._locked, disk._numbers))


def register_tensors() -> None:
    """A tensor is its dtype, shape and bytes; pinned memory is what is kept of it, without the lock around it."""
    import torch

    from impl.rows.tensor_plane import Record, TensorPlane
    from impl.rows.torch_cuda_device import CudaDevice

    def content(tensor: torch.Tensor) -> tuple[Any, ...]:
        # A copy: torch marks memory that numpy has seen, and the library looks at that mark.
        plain = tensor.detach().clone(memory_format=torch.contiguous_format)
        return (str(plain.dtype), tuple(plain.shape), plain.flatten().view(torch.uint8).numpy().tobytes())

    register_walker(torch.Tensor, content)
    # What is only counted: whose memory it is depends on who has read it before, and nothing depends on the count.
    counted = {"untracked", "_unchecked", "_undigested", "_cloned_views"}
    for kind in (Record, TensorPlane):
        register_walker(kind, lambda part: _named({n: v for n, v in vars(part).items() if n not in counted}))
    register_walker(PinnedPool, lambda pool: (pool._in_use, pool._free))
    # No program here has a CUDA device, so it has no streams.
    register_walker(CudaDevice, lambda device: ())
