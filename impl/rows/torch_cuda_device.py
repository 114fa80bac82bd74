"""CUDA devices as the data plane uses them: events, one copy stream a device, pinned memory.

Nothing here initialises CUDA before a tensor that lies on a device comes along. No function awaits, so that no stream
context is open while another task runs on the same thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, TypeVar

import torch

from ..errors import UsageError
from ..store.tensor_format import as_bits
from .device import Event, Where

_log = logging.getLogger("cleancut.plane")


T = TypeVar("T")


def current_streams(tensors: Iterable[torch.Tensor]) -> list[torch.cuda.Stream]:
    """The current stream, on this thread, of each device that some of the tensors lie on."""
    devices = {tensor.device for tensor in tensors if tensor.is_cuda}
    return [torch.cuda.current_stream(device) for device in devices]


def done_on(streams: Iterable[torch.cuda.Stream], work: Callable[[], T]) -> T:
    """Do something with these as the current streams: another thread has its own, which know nothing of them."""
    with ExitStack() as current:
        for stream in streams:
            current.enter_context(torch.cuda.stream(stream))
        return work()


class CudaDevice:
    """All CUDA devices of the process; `where` is a device's index."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._copy_streams: dict[Where, torch.cuda.Stream] = {}

    def where(self, tensor: torch.Tensor) -> int | None:
        return tensor.device.index if tensor.is_cuda else None

    def feeds(self, tensor: torch.Tensor) -> int | None:
        if tensor.is_cuda or not torch.cuda.is_initialized() or not tensor.is_pinned():  # type: ignore[no-untyped-call]
            return None
        return torch.cuda.current_device()

    def check_ready(self, ready: Any) -> None:
        if not isinstance(ready, torch.cuda.Event | torch.Event):
            raise UsageError(
                f"ready is a {type(ready).__name__}, not an event. Give the torch.cuda.Event that was recorded on the "
                "stream which writes the rows, or leave it out when that is the committing thread's current stream."
            )
        # Waiting for an event that was never recorded returns at once: the rows would be taken for finished.
        mark = ready.cuda_event if isinstance(ready, torch.cuda.Event) else ready.event_id
        if not mark:
            raise UsageError(
                "ready is an event that was never recorded, so nothing could be waited for. Call event.record(stream) "
                "behind the work that writes the rows."
            )

    def record(self, where: Where) -> Event:
        return _recorded_on(torch.cuda.current_stream(where))  # type: ignore[arg-type]

    def hand_over(self, where: Where, after: Iterable[Any], tensors: Iterable[torch.Tensor]) -> None:
        stream = torch.cuda.current_stream(where)  # type: ignore[arg-type]
        for event in after:
            stream.wait_event(event)
        for tensor in tensors:
            # The allocator knows only the stream a tensor was made on: without this it gives the memory away while
            # another stream still reads it. Through `.data`, which has a version counter of its own.
            tensor.data.record_stream(stream)

    def clone(self, where: Where, tensor: torch.Tensor, after: Iterable[Any]) -> torch.Tensor:
        self.hand_over(where, after, (tensor,))
        with torch.cuda.device(where):
            return as_bits(tensor).clone().view(tensor.dtype)

    def copy(self, where: Where, pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], after: Iterable[Any]) -> Event:
        stream = self._copy_stream(where)
        try:
            with torch.no_grad(), torch.cuda.stream(stream):
                for event in after:
                    stream.wait_event(event)
                for source, memory in pairs:
                    # What is made here on the way belongs to the copy stream, so freeing it needs no care.
                    memory.copy_(_row_major_bytes(source), non_blocking=True)
                return _recorded_on(stream)
        except BaseException:
            # As where the device has no room to make a row dense: the copies before it still write their memory.
            _recorded_on(stream).synchronize()
            raise

    def host_buffer(self, nbytes: int) -> torch.Tensor:
        # When it is let go torch keeps it pinned, for whoever asks for as much again.
        try:
            return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        except RuntimeError as error:
            # Right all the same, and slower: a save is not given up for want of locked memory.
            _log.warning("no %d bytes of pinned memory (%s); device copies go through ordinary memory", nbytes, error)
            return torch.zeros(nbytes, dtype=torch.uint8)

    def _copy_stream(self, where: Where) -> torch.cuda.Stream:
        with self._lock:
            if where not in self._copy_streams:
                self._copy_streams[where] = torch.cuda.Stream(device=where)  # type: ignore[no-untyped-call]
            return self._copy_streams[where]


def _recorded_on(stream: torch.cuda.Stream) -> torch.cuda.Event:
    # `blocking`: the thread that waits sleeps, and does not keep a core busy.
    event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    event.record(stream)
    return event


def _row_major_bytes(source: torch.Tensor) -> torch.Tensor:
    """The elements in row-major order as bytes, on the device.

    Bits of conjugation and negation are resolved here: a copy that has to resolve them does so on the host, where it
    does not wait for the copy itself.
    """
    return as_bits(source).contiguous().reshape(-1).view(torch.uint8)
