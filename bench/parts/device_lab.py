"""An accelerator to try things on: a real CUDA device, a simulated one, or host memory where there is neither.

All do the same programs. On the real one a kernel that takes a while stands where the simulated one simply has not done
yet what it was given; whether that kernel was still under way when it had to be is asked of the device (`still_busy`),
since a program that came too late shows nothing, whether it ends right or wrong.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import torch

from impl.rows import CudaDevice, Device
from impl.store import row_major
from interleavings.scenarios import SimulatedDevice

#: How long a slow kernel takes: long against everything that the host does meanwhile.
SLOW_SECONDS = 0.4
#: Cycles of a kernel by which the clock of the device is measured, and of one that is over at once.
MEASURED_CYCLES, NO_CYCLES = 100_000_000, 1


class NothingShown(Exception):
    """What had to be under way was over already: that the bytes are right, or wrong, says nothing."""


class Lab(Protocol):
    """What a program does on an accelerator."""

    row_bytes: int
    #: Room for two pieces of pinned memory, each for one row.
    two_pieces: int
    #: Whether new tensors were given the memory that a program had freed; None where none was freed.
    recycled: bool | None

    @property
    def accelerator(self) -> Device:
        """What the plane is given."""

    def row(self) -> torch.Tensor:
        """A row of bytes, made on the current stream; until it is filled it holds nothing that anybody expects."""

    def fill(self, tensor: torch.Tensor, value: int) -> None:
        """A kernel on the current stream that fills the row with one byte; counted as an in-place write."""

    def put(self, tensor: torch.Tensor, source: torch.Tensor) -> None:
        """A copy from the host on the current stream, into a contiguous tensor of the same type; waits for nothing."""

    def duplicate(self, tensor: torch.Tensor) -> torch.Tensor:
        """A kernel on the current stream that copies a row."""

    def slow(self) -> None:
        """Keep the current stream busy for long."""

    def slow_copies(self) -> None:
        """Keep the stream of the copies busy for long."""

    def still_busy(self, moment: str) -> None:
        """NothingShown naming the moment, unless the last slow kernel is still under way."""

    def side(self) -> Any:
        """A `with` block in which another stream is the current one."""

    def finish_stream(self) -> None:
        """Wait for the current stream alone."""

    def finish_all(self) -> None:
        """Wait for everything."""


class CudaLab:
    """The current CUDA device, for one program after another (`afresh`).

    Rows are one MiB. What runs for the first time in a process may wait for the whole device (kernels are loaded when
    they are first used, memory is asked of the driver), and then nothing is late any more: so every program runs once
    with kernels that are not slow before `be_slow`, always on the same streams, whose memory torch keeps.
    """

    row_bytes = 1 << 20
    two_pieces = 2 << 20

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.accelerator = CudaDevice()
        self.recycled: bool | None = None
        self.cycles = NO_CYCLES
        self._side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._behind_slow: torch.cuda.Event | None = None

    def be_slow(self) -> None:
        """From here on slow kernels are slow: by the fastest clock that is seen while the device warms up."""
        per_second = 0.0
        for _ in range(5):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            began.record()
            torch.cuda._sleep(MEASURED_CYCLES)  # type: ignore[no-untyped-call]
            ended.record()
            ended.synchronize()
            per_second = max(per_second, MEASURED_CYCLES / began.elapsed_time(ended) * 1e3)
        self.cycles = int(SLOW_SECONDS * per_second)

    def afresh(self) -> CudaLab:
        """The same device for another program, with nothing under way and all memory of the last one given back."""
        self.finish_all()
        gc.collect()
        self.recycled = self._behind_slow = None
        return self

    def row(self) -> torch.Tensor:
        # Never waited for: a program is about what is still under way.
        return torch.full((self.row_bytes,), 0xAA, dtype=torch.uint8, device=self.device)

    def fill(self, tensor: torch.Tensor, value: int) -> None:
        tensor.fill_(value)

    def put(self, tensor: torch.Tensor, source: torch.Tensor) -> None:
        # From pinned memory: a copy from any other keeps the host until it is done.
        tensor.copy_(source.pin_memory(), non_blocking=True)

    def duplicate(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    def slow(self) -> None:
        torch.cuda._sleep(self.cycles)  # type: ignore[no-untyped-call]
        self._behind_slow = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._behind_slow.record()

    def slow_copies(self) -> None:
        with torch.cuda.stream(self.accelerator._copy_stream(self.device.index)):
            self.slow()

    def still_busy(self, moment: str) -> None:
        assert self._behind_slow is not None, "no slow kernel was launched"
        if self.cycles > NO_CYCLES and self._behind_slow.query():  # type: ignore[no-untyped-call]
            raise NothingShown(f"the slow kernel was over before {moment}")

    def side(self) -> Any:
        return torch.cuda.stream(self._side)

    def finish_stream(self) -> None:
        torch.cuda.current_stream().synchronize()

    def finish_all(self) -> None:
        torch.cuda.synchronize()

    def pinned(self, nbytes: int) -> torch.Tensor:
        """Pinned memory full of zeros."""
        return torch.zeros(nbytes, dtype=torch.uint8, pin_memory=True)

    def bring(self, memory: torch.Tensor, tensor: torch.Tensor) -> None:
        memory.copy_(tensor, non_blocking=True)


class SimulatedLab:
    """A simulated device that is as late as it can be."""

    row_bytes = 16
    two_pieces = 512

    def __init__(self, blocks: int = 40) -> None:
        self.accelerator = SimulatedDevice(blocks, block_bytes=32)
        self.recycled: bool | None = None

    def row(self) -> torch.Tensor:
        return self.accelerator.empty(self.row_bytes)

    def fill(self, tensor: torch.Tensor, value: int) -> None:
        self.accelerator.fill(tensor, value)

    def put(self, tensor: torch.Tensor, source: torch.Tensor) -> None:
        self.accelerator.put(tensor, bytes(row_major(source)))

    def duplicate(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.accelerator.duplicate(tensor)

    def slow(self) -> None:
        """Nothing happens by itself."""

    def slow_copies(self) -> None:
        """Nothing happens by itself."""

    def still_busy(self, moment: str) -> None:
        """It always is."""

    @contextmanager
    def side(self) -> Iterator[None]:
        with self.accelerator.on("side"):
            yield

    def finish_stream(self) -> None:
        while self.accelerator.advance(self.accelerator.current):
            pass

    def finish_all(self) -> None:
        self.accelerator.run_ahead()


class Done:
    """The event of a device that is never late."""

    def synchronize(self) -> None:
        """Nothing stands before it."""


class HostDevice(CudaDevice):
    """All is on the host, and done."""

    def check_ready(self, ready: Any) -> None:
        assert isinstance(ready, Done), ready

    def record(self, where: Any) -> Done:
        return Done()


class HostLab:
    """Host memory in the place of a device, and nothing is late: a program that is wrong here is written wrongly.

    What is right here shows nothing of a device.
    """

    row_bytes = 1 << 10
    two_pieces = 2 << 20

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.accelerator = HostDevice()
        self.recycled: bool | None = None

    def row(self) -> torch.Tensor:
        return torch.full((self.row_bytes,), 0xAA, dtype=torch.uint8)

    def fill(self, tensor: torch.Tensor, value: int) -> None:
        tensor.fill_(value)

    def put(self, tensor: torch.Tensor, source: torch.Tensor) -> None:
        tensor.copy_(source)

    def duplicate(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    def slow(self) -> None:
        """Nothing waits here."""

    def slow_copies(self) -> None:
        """Nothing waits here."""

    def still_busy(self, moment: str) -> None:
        """Nobody expects it to be."""

    def side(self) -> Any:
        return nullcontext()

    def finish_stream(self) -> None:
        """All is done."""

    def finish_all(self) -> None:
        """All is done."""

    def pinned(self, nbytes: int) -> torch.Tensor:
        """Ordinary memory full of zeros."""
        return torch.zeros(nbytes, dtype=torch.uint8)

    def bring(self, memory: torch.Tensor, tensor: torch.Tensor) -> None:
        memory.copy_(tensor)
