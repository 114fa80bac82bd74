"""An accelerator in memory that does what it is given when it is told to, and hands freed memory out again at once.

It has the protocol of `impl.rows.device`. Its tensors are torch tensors over one arena, so that the real data plane
takes them; what is given to a *stream* (a kernel that fills a tensor, a copy to the host) waits in that stream's
queue and reads or writes the arena only when somebody lets it:

- `advance(stream)` lets the first of a queue happen, where nothing it has to wait for is missing;
- `Event.synchronize` lets exactly what is needed happen, in order, and no more: the device is as late as it can be;
- with `ahead` set everything happens as soon as it may: the device is as early as it can be;
- `launched(operation)` is told of each operation, so that an explorer can make `allow(operation)` a choice;
- `between()` is called whenever the host calls, so that a test can let anything happen there.

Like the caching allocator of torch it gives the block of a tensor back when nobody refers to the tensor any more, to be
reused in the order of the stream it was made on, whatever other streams still do with it. A freed block is poisoned.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from impl.errors import UsageError

if TYPE_CHECKING:
    import torch

#: What freed memory holds, and what memory holds before anything is written to it.
POISON, UNWRITTEN = 0xDD, 0xAA
#: The one device, as the data plane names it.
WHERE = "simulated"
MAIN, COPIES = "main", "copies"


@dataclass(eq=False)
class Event:
    """A mark in a stream."""

    device: SimulatedDevice
    recorded: bool = False
    done: bool = False

    def synchronize(self) -> None:
        """Let happen what stands before the mark."""
        self.device.run_until(self)


@dataclass(frozen=True)
class Region:
    """Elements somewhere in the arena, in the layout of a tensor; refers to no tensor."""

    offset: int
    dtype: Any
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    conjugated: bool
    negated: bool


@dataclass(eq=False)
class Operation:
    """One entry of a stream's queue. `allowed` is set once it may happen whenever its turn comes."""

    stream: str
    what: str
    offset: int = 0
    data: bytes = b""
    source: Region | None = None
    target: Any = None
    event: Event | None = None
    allowed: bool = field(default=False)


class SimulatedDevice:
    """`blocks` blocks of `block_bytes` each; a tensor takes one."""

    def __init__(self, blocks: int, block_bytes: int = 16) -> None:
        import torch

        self.ahead = False
        self.launched: Callable[[Operation], None] | None = None
        self.between: Callable[[], None] | None = None
        self.current = MAIN
        self.arena = bytearray([UNWRITTEN]) * (blocks * block_bytes)
        self.queues: dict[str, deque[Operation]] = {MAIN: deque(), COPIES: deque()}
        #: Blocks nobody has, the next one last: by the stream they belong to, and those that belong to none yet.
        self.free: dict[str, list[int]] = {}
        self.fresh = [block_bytes * number for number in reversed(range(blocks))]
        #: Blocks freed while another stream was known to use them, with the marks behind that use.
        self.held: list[tuple[int, str, list[Event]]] = []
        #: Streams that a block was handed over to, besides its own.
        self.users: dict[int, set[str]] = {}
        #: Every piece of host memory that was made for copies.
        self.host_memory: list[torch.Tensor] = []
        self._memory = torch.frombuffer(self.arena, dtype=torch.uint8)
        self._base = self._memory.data_ptr()
        self._lock = threading.RLock()
        self._block_bytes = block_bytes
        self._block: Any = type("Block", (ctypes.c_uint8 * block_bytes,), {"__del__": _freed})

    # -- what a program does on the device ------------------------------------------------------------------------

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """A tensor in a block of the current stream; unwritten, or with what its last owner left."""
        import torch

        kind = torch.uint8 if dtype is None else dtype
        elements = math.prod(shape)
        if not 0 < elements * kind.itemsize <= self._block_bytes:
            raise UsageError(f"shape: {shape} of {kind} does not fit a block of {self._block_bytes} bytes.")
        with self._lock:
            self._reclaim()
            mine = self.free.setdefault(self.current, [])
            if not mine and not self.fresh:
                raise MemoryError("the simulated device has no free block")
            offset = mine.pop() if mine else self.fresh.pop()
            self.users[offset] = set()
            block = self._block.from_buffer(self.arena, offset)
            block.device, block.offset, block.stream = self, offset, self.current
        return torch.frombuffer(block, dtype=kind, count=elements).reshape(shape)

    def fill(self, tensor: torch.Tensor, value: int) -> torch.Tensor:
        """A kernel that fills the whole of a contiguous tensor with one byte, on the current stream."""
        return self.put(tensor, bytes([value]) * tensor.nbytes)

    def put(self, tensor: torch.Tensor, data: bytes) -> torch.Tensor:
        """A copy of these bytes from the host over the whole of a contiguous tensor, on the current stream."""
        # An empty view: the version counter moves as it does when a kernel is launched, and no byte does.
        tensor.reshape(-1)[:0].zero_()
        self._launch(Operation(self.current, "write", self._offset(tensor), data))
        self._asked()
        return tensor

    def duplicate(self, tensor: torch.Tensor) -> torch.Tensor:
        """A kernel that copies a tensor into a new one, on the current stream, and tells the allocator nothing."""
        made = self.empty(*tensor.shape, dtype=tensor.dtype)
        self._launch(Operation(self.current, "clone", self._offset(made), source=self._region(tensor)))
        self._asked()
        return made

    @contextmanager
    def on(self, stream: str) -> Iterator[None]:
        """Make a stream the current one."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    # -- the protocol of impl.rows.device ------------------------------------------------------------------------------

    def where(self, tensor: torch.Tensor) -> str | None:
        inside = self._base <= tensor.data_ptr() < self._base + len(self.arena)
        return WHERE if inside else None

    def feeds(self, tensor: torch.Tensor) -> str | None:
        return None

    def check_ready(self, ready: Any) -> None:
        if not isinstance(ready, Event) or not ready.recorded:
            raise UsageError(f"ready is {ready!r}, not a recorded event of the simulated device.")

    def record(self, where: Any) -> Event:
        self._asked()
        return self._recorded_on(self.current)

    def hand_over(self, where: Any, after: Iterable[Event], tensors: Iterable[torch.Tensor]) -> None:
        self._asked()
        for event in after:
            self._launch(Operation(self.current, "wait", event=event))
        for tensor in tensors:
            self.users[self._start(tensor)].add(self.current)

    def clone(self, where: Any, tensor: torch.Tensor, after: Iterable[Event]) -> torch.Tensor:
        self.hand_over(where, after, (tensor,))
        return self.duplicate(tensor)

    def copy(self, where: Any, pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], after: Iterable[Event]) -> Event:
        self._asked()
        for event in after:
            self._launch(Operation(COPIES, "wait", event=event))
        for source, memory in pairs:
            self._launch(Operation(COPIES, "copy", source=self._region(source), target=memory))
        return self._recorded_on(COPIES)

    def host_buffer(self, nbytes: int) -> torch.Tensor:
        import torch

        self._asked()
        self.host_memory.append(torch.full((nbytes,), UNWRITTEN, dtype=torch.uint8))
        return self.host_memory[-1]

    # -- when it happens ------------------------------------------------------------------------------------------

    def runnable(self) -> list[str]:
        """The streams whose next operation may happen now."""
        with self._lock:
            self._settle()
            return [stream for stream, queue in self.queues.items() if queue and not self._blocked(queue[0])]

    def advance(self, stream: str) -> bool:
        """Let the next operation of a stream happen; False where there is none or it has to wait."""
        with self._lock:
            self._settle()
            queue = self.queues[stream]
            if not queue or self._blocked(queue[0]):
                return False
            self._happen(queue.popleft())
            self._settle()
            return True

    def allow(self, operation: Operation) -> None:
        """Let an operation happen as soon as its turn comes; the same if it has happened already."""
        with self._lock:
            operation.allowed = True
            self._settle()

    def run_ahead(self) -> None:
        """Let everything happen that may."""
        while any(self.advance(stream) for stream in list(self.queues)):
            pass

    def run_until(self, event: Event) -> None:
        """Let what stands before an event happen, and nothing else."""
        self._asked()
        with self._lock:
            self._settle()
            while not event.done:
                queue = next(q for q in self.queues.values() if any(o.event is event and o.what == "mark" for o in q))
                first = queue[0]
                if first.what == "wait" and first.event is not None and not first.event.done:
                    self.run_until(first.event)
                elif first.what != "mark":
                    self._happen(queue.popleft())
                self._settle()

    def contents(self) -> Hashable:
        """All that can be told of the device: what is in its memory and the host's, and what it still has to do."""
        number = {id(memory): place for place, memory in enumerate(self.host_memory)}
        marks: dict[Event | None, int] = {}

        def of(operation: Operation) -> Hashable:
            target = operation.target
            place = None if target is None else (number.get(id(target._base), -1), target.storage_offset())
            mark = marks.setdefault(operation.event, len(marks))
            return operation.what, operation.offset, operation.data, operation.source, place, mark, operation.allowed

        with self._lock:
            return (
                bytes(self.arena),
                tuple((stream, tuple(map(of, queue))) for stream, queue in sorted(self.queues.items())),
                tuple((stream, tuple(blocks)) for stream, blocks in sorted(self.free.items())),
                tuple(self.fresh),
                tuple((offset, stream, len(events)) for offset, stream, events in self.held),
                tuple(sorted((offset, tuple(sorted(streams))) for offset, streams in self.users.items())),
                tuple(memory.numpy().tobytes() for memory in self.host_memory),
                (self.current, self.ahead),
            )

    # -- inside ---------------------------------------------------------------------------------------------------

    def _asked(self) -> None:
        if self.between is not None:
            self.between()

    def _recorded_on(self, stream: str) -> Event:
        event = Event(self, recorded=True)
        self._launch(Operation(stream, "mark", event=event))
        return event

    def _launch(self, operation: Operation) -> None:
        with self._lock:
            self.queues.setdefault(operation.stream, deque()).append(operation)
            if self.ahead:
                self.run_ahead()
            self._settle()
        if self.launched is not None and operation.what in ("write", "clone", "copy"):
            self.launched(operation)

    @staticmethod
    def _blocked(operation: Operation) -> bool:
        return operation.what == "wait" and operation.event is not None and not operation.event.done

    def _settle(self) -> None:
        """Marks, waits that are over and poison happen by themselves; so does what is allowed."""
        moved = True
        while moved:
            moved = False
            for queue in self.queues.values():
                while queue and (queue[0].what in ("mark", "wait", "poison") or queue[0].allowed):
                    if self._blocked(queue[0]):
                        break
                    self._happen(queue.popleft())
                    moved = True

    def _happen(self, operation: Operation) -> None:
        if operation.what == "mark":
            assert operation.event is not None
            operation.event.done = True
            return
        data = operation.data
        if operation.source is not None:
            data = self._bytes(operation.source)
        if operation.what == "copy":
            import torch

            operation.target.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        else:
            self.arena[operation.offset : operation.offset + len(data)] = data

    def _offset(self, tensor: torch.Tensor) -> int:
        return tensor.data_ptr() - self._base

    def _start(self, tensor: torch.Tensor) -> int:
        return self._offset(tensor) // self._block_bytes * self._block_bytes

    def _region(self, tensor: torch.Tensor) -> Region:
        layout = tuple(tensor.shape), tensor.stride()
        return Region(self._offset(tensor), tensor.dtype, *layout, tensor.is_conj(), tensor.is_neg())

    def _bytes(self, region: Region) -> bytes:
        """The elements in row-major order, as they are now."""
        import torch

        last = sum((length - 1) * step for length, step in zip(region.shape, region.stride, strict=True))
        raw = self._memory[region.offset : region.offset + (last + 1) * region.dtype.itemsize]
        values = raw.view(region.dtype).as_strided(region.shape, region.stride)
        values = torch.conj_physical(values) if region.conjugated else values
        values = torch.neg(values) if region.negated else values
        return values.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()

    def free_block(self, offset: int, stream: str) -> None:
        """Nobody refers to a block any more; what other streams were told of goes first, what they do untold not."""
        with self._lock:
            others = self.users.pop(offset) - {stream}
            self.held.append((offset, stream, [self._recorded_on(other) for other in sorted(others)]))
            self._reclaim()

    def _reclaim(self) -> None:
        self._settle()
        ended = [each for each in self.held if all(event.done for event in each[2])]
        self.held = [each for each in self.held if each not in ended]
        for offset, stream, _ in ended:
            self.free.setdefault(stream, []).append(offset)
            self._launch(Operation(stream, "poison", offset, bytes([POISON]) * self._block_bytes))


def _freed(block: Any) -> None:
    block.device.free_block(block.offset, block.stream)
