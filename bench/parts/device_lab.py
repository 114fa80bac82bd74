"""An accelerator to try things on: a real CUDA device, or the simulated one where there is none.

Both do the same programs. On the real one a kernel that takes a while stands where the simulated one simply has not
done yet what it was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from impl.device import Device
from impl.torch_cuda_device import CudaDevice
from interleavings.scenarios.simulated_device import SimulatedDevice

#: How long a slow kernel takes: some 0.1 s on a device of 2 GHz, long against every call of the host in between.
SLOW_CYCLES = 200_000_000


class Lab(Protocol):
    """What a program does on an accelerator."""

    row_bytes: int
    #: Room for two pieces of pinned memory, each for one row.
    two_pieces: int

    @property
    def accelerator(self) -> Device:
        """What the plane is given."""

    def row(self) -> torch.Tensor:
        """A row of bytes, made on the current stream; until it is filled it holds nothing that anybody expects."""

    def fill(self, tensor: torch.Tensor, value: int) -> None:
        """A kernel on the current stream that fills the row with one byte; counted as an in-place write."""

    def duplicate(self, tensor: torch.Tensor) -> torch.Tensor:
        """A kernel on the current stream that copies a row."""

    def slow(self) -> None:
        """Keep the current stream busy for long."""

    def slow_copies(self) -> None:
        """Keep the stream of the copies busy for long."""

    def side(self) -> Any:
        """A `with` block in which another stream is the current one."""

    def finish_stream(self) -> None:
        """Wait for the current stream alone."""

    def finish_all(self) -> None:
        """Wait for everything."""


class CudaLab:
    """The current CUDA device. Rows are one MiB, large enough for blocks of the allocator of their own."""

    row_bytes = 1 << 20
    two_pieces = 2 << 20

    def __init__(self) -> None:
        self.accelerator = CudaDevice()
        self._where = torch.cuda.current_device()
        self._side = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def row(self) -> torch.Tensor:
        # Never waited for: a program is about what is still under way.
        return torch.full((self.row_bytes,), 0xAA, dtype=torch.uint8, device="cuda")

    def fill(self, tensor: torch.Tensor, value: int) -> None:
        tensor.fill_(value)

    def duplicate(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    def slow(self) -> None:
        torch.cuda._sleep(SLOW_CYCLES)  # type: ignore[no-untyped-call]

    def slow_copies(self) -> None:
        with torch.cuda.stream(self.accelerator._copy_stream(self._where)):
            torch.cuda._sleep(SLOW_CYCLES)  # type: ignore[no-untyped-call]

    def side(self) -> Any:
        return torch.cuda.stream(self._side)

    def finish_stream(self) -> None:
        torch.cuda.current_stream().synchronize()

    def finish_all(self) -> None:
        torch.cuda.synchronize()


class SimulatedLab:
    """A simulated device that is as late as it can be."""

    row_bytes = 16
    two_pieces = 512

    def __init__(self, blocks: int = 40) -> None:
        self.accelerator = SimulatedDevice(blocks, block_bytes=32)

    def row(self) -> torch.Tensor:
        return self.accelerator.empty(self.row_bytes)

    def fill(self, tensor: torch.Tensor, value: int) -> None:
        self.accelerator.fill(tensor, value)

    def duplicate(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.accelerator.duplicate(tensor)

    def slow(self) -> None:
        """Nothing happens by itself."""

    def slow_copies(self) -> None:
        """Nothing happens by itself."""

    @contextmanager
    def side(self) -> Iterator[None]:
        with self.accelerator.on("side"):
            yield

    def finish_stream(self) -> None:
        while self.accelerator.advance(self.accelerator.current):
            pass

    def finish_all(self) -> None:
        self.accelerator.run_ahead()
