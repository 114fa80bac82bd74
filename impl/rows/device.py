"""What the data plane asks of an accelerator: to say when work is done, and to copy memory to the host meanwhile.

An accelerator runs what it is given later, each *stream* in its own order. The host may read a copy only after the
event behind it has come to pass, and the memory of a tensor may be given to another as soon as nobody refers to it,
although a stream still reads it. So every copy waits for the events of those who write its source, the source is
referred to until the copy is done, and the host memory is not used again before its bytes are durable.

`torch_cuda_device` is the real one. Whoever explores schedules puts a simulated one in its place, on which a copy reads
its source when the explorer chooses.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Protocol

#: Names one accelerator of possibly several.
Where = Hashable


class Event(Protocol):
    """A mark in a stream: everything given to the stream before it."""

    def synchronize(self) -> None:
        """Block the calling thread until all of it is done."""


class Device(Protocol):
    """The accelerators of this process. No call but `Event.synchronize` waits for one. Usable from every thread."""

    def where(self, tensor: Any) -> Where | None:
        """The accelerator that holds the tensor; None if the host can read it."""

    def feeds(self, tensor: Any) -> Where | None:
        """The accelerator that may still be copying into this host tensor, because its memory is pinned; or None."""

    def check_ready(self, ready: Any) -> None:
        """Raise UsageError naming `ready` unless it is an event of this device that was recorded."""

    def record(self, where: Where) -> Event:
        """An event behind all that the calling thread's current stream of that accelerator was given so far."""

    def hand_over(self, where: Where, after: Iterable[Any], tensors: Iterable[Any]) -> None:
        """Let the calling thread's current stream use `tensors`: it waits for `after`, their memory waits for it."""

    def clone(self, where: Where, tensor: Any, after: Iterable[Any]) -> Any:
        """A copy of the tensor on its accelerator, made on the calling thread's current stream behind `after`."""

    def copy(self, where: Where, pairs: Iterable[tuple[Any, Any]], after: Iterable[Any]) -> Event:
        """Begin copies on a stream of its own, behind `after`; return the event behind them.

        Each pair is a tensor there, and as many bytes of memory of `host_buffer` for its elements in row-major order.
        The caller refers to both until the event has come to pass.
        """

    def host_buffer(self, nbytes: int) -> Any:
        """Host memory that copies go to at full speed, as a flat tensor of bytes whose pages are all there."""
