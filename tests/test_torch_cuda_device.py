"""What is asked of CUDA, and in which order, told by a driver that only writes it down.

It runs where there is no GPU: each call is held against the signature that the installed torch has. What a real GPU
makes of it is in `bench/rows_cuda.py`.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import impl.rows.torch_cuda_device
from impl import TensorPlane, UsageError
from impl.barrier import CheckpointBarrier
from impl.rows import CudaDevice, RowsWriter, current_streams, done_on

Call = tuple[Any, ...]


class Driver:
    """Takes the place of `torch.cuda`: streams and events are names, and every call is in `calls`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[Call] = []
        self.inside: list[object] = []
        driver, real = (
            self,
            {name: getattr(torch.cuda, name) for name in ("Event", "Stream", "stream", "current_stream")},
        )

        def bound(function: Any, *arguments: Any, **named: Any) -> None:
            inspect.signature(function).bind(*arguments, **named)

        class Stream:
            def __init__(self, device: Any = None, *, name: str = "copies") -> None:
                bound(real["Stream"].__new__, real["Stream"], device=device)
                self.device, self.name = device, name

            def wait_event(self, event: Any) -> None:
                bound(real["Stream"].wait_event, self, event)
                driver.calls.append(("wait", self.name, self.device, event))

        class Event:
            def __init__(self, **options: Any) -> None:
                bound(real["Event"].__new__, real["Event"], **options)
                self.cuda_event = 0

            def record(self, stream: Any) -> None:
                bound(real["Event"].record, self, stream)
                self.cuda_event = 1
                driver.calls.append(("record", stream.name, stream.device))

            def synchronize(self) -> None:
                assert not driver.inside, "nobody waits inside a stream"
                driver.calls.append(("synchronize",))

        @contextmanager
        def stream(chosen: Any) -> Iterator[None]:
            bound(real["stream"], chosen)
            driver.inside.append(chosen)
            try:
                yield
            finally:
                driver.inside.pop()

        @contextmanager
        def device(where: Any) -> Iterator[None]:
            yield

        def current_stream(device: Any = None) -> Any:
            bound(real["current_stream"], device)
            return Stream(device, name="current")

        def record_stream(tensor: torch.Tensor, stream: Any) -> None:
            driver.calls.append(("used by", stream.name))

        fakes = {"Event": Event, "Stream": Stream, "stream": stream, "current_stream": current_stream, "device": device}
        for name, fake in fakes.items():
            patch.setattr(torch.cuda, name, fake)
        patch.setattr(torch.Tensor, "record_stream", record_stream)
        self.event = Event


class OnDevice(CudaDevice):
    """Takes some tensors of the CPU for tensors of a device."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__()
        self._there = {tensor.untyped_storage().data_ptr() for tensor in tensors}

    def where(self, tensor: torch.Tensor) -> int | None:
        return 3 if tensor.untyped_storage().data_ptr() in self._there else None

    def host_buffer(self, nbytes: int) -> torch.Tensor:
        return torch.zeros(nbytes, dtype=torch.uint8)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def test_a_copy_waits_for_the_events_then_copies_then_is_marked(driver: Driver) -> None:
    """All on one copy stream of the device, which is made once."""
    device = CudaDevice()
    events = [driver.event(), driver.event()]
    pairs = [(torch.arange(2, dtype=torch.int16), torch.zeros(4, dtype=torch.uint8))]
    for _ in range(2):
        device.copy(3, pairs, events)
    assert driver.calls == 2 * [
        ("wait", "copies", 3, events[0]),
        ("wait", "copies", 3, events[1]),
        ("record", "copies", 3),
    ]
    assert device._copy_stream(3) is device._copy_stream(3)
    assert pairs[0][1].view(torch.int16).tolist() == [0, 1]
    assert driver.inside == [], "the stream is left before the call returns"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3).t(),
        torch.arange(12)[::2],
        torch.ones(1).expand(4),
        torch.tensor([1 + 2j, 3 - 4j]).conj(),
        torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
        torch.tensor(3.5),
        torch.tensor([True, False]),
        torch.arange(4).to(torch.float8_e4m3fn),
        torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        torch.arange(8).view(torch.uint64)[::2],
    ],
    ids=[
        "transposed",
        "strided",
        "expanded",
        "conjugated",
        "negated",
        "scalar",
        "bool",
        "float8",
        "channels last",
        "unsigned",
    ],
)
def test_what_is_copied_is_dense_and_resolved_before_the_copy(driver: Driver, tensor: torch.Tensor) -> None:
    """torch resolves a bit of conjugation on the host, without waiting for the copy that is still under way."""
    memory = torch.zeros(tensor.nbytes, dtype=torch.uint8)
    CudaDevice().copy(0, [(tensor, memory)], [])
    copied = memory.view(tensor.dtype).reshape(tensor.shape)
    assert copied.tolist() == tensor.resolve_conj().resolve_neg().tolist()


def test_a_copy_that_fails_in_the_middle_waits_for_what_it_has_begun(driver: Driver) -> None:
    """Nobody has an event behind it, and its memory goes to the next file, which another device may be copied to."""
    events = [driver.event()]
    pairs = [(torch.ones(2), torch.zeros(8, dtype=torch.uint8)), (torch.ones(2), torch.zeros(3, dtype=torch.uint8))]
    with pytest.raises(RuntimeError):
        CudaDevice().copy(3, pairs, events)
    assert driver.calls == [("wait", "copies", 3, events[0]), ("record", "copies", 3), ("synchronize",)]
    assert pairs[0][1].any(), "it was begun"


def test_elements_of_less_than_a_byte_are_copied_and_cloned(driver: Driver) -> None:
    """Torch has no copy of their type, on any device; of integers as wide it has."""
    whole = torch.arange(12, dtype=torch.uint8)
    row = whole.view(torch.uint4)[::2]  # type: ignore[attr-defined]
    memory = torch.zeros(6, dtype=torch.uint8)
    CudaDevice().copy(0, [(row, memory)], [])
    assert memory.tolist() == whole[::2].tolist()
    cloned = CudaDevice().clone(0, row, [])
    assert (cloned.dtype, cloned.view(torch.uint8).tolist()) == (row.dtype, whole[::2].tolist())
    assert driver.calls[-1] == ("used by", "current")


def test_an_inference_tensor_is_copied_too(driver: Driver) -> None:
    """Engines generate in inference mode; the copy is outside of it."""
    with torch.inference_mode():
        tensor = torch.ones(2)
    memory = torch.zeros(8, dtype=torch.uint8)
    CudaDevice().copy(0, [(tensor, memory)], [])
    assert memory.view(torch.float32).tolist() == [1, 1]


async def test_a_commit_marks_the_current_stream_of_each_device_and_a_save_waits_for_it(driver: Driver) -> None:
    """Without `ready`; what the host waits for is the mark behind the copies."""
    row = torch.arange(4)
    plane, barrier = TensorPlane(accelerator=OnDevice(row), verify="off"), CheckpointBarrier()
    staged = await plane.stage(1, {"x": row, "host": torch.ones(1)})
    async with barrier.mutation() as cut:
        plane.commit(cut, 1, staged)
    assert driver.calls == [("record", "current", 3)]
    async with barrier.checkpoint() as cut:
        capture = plane.capture(cut, (1,))
    assert driver.calls == [("record", "current", 3)], "the window asks nothing of the device"
    written: dict[str, Any] = {}

    class Files(RowsWriter):
        def write_tensors(self, name: str, tensors: Any) -> None:
            written.update({key: tensor.tolist() for key, tensor in tensors.items()})

        def write_json(self, name: str, document: Any) -> None:
            pass

    plane.persist(capture, Files())
    assert [call[:3] for call in driver.calls[1:]] == [("wait", "copies", 3), ("record", "copies", 3), ("synchronize",)]
    assert written == {"1/x": [0, 1, 2, 3], "1/host": [1.0]}


async def test_rows_wait_on_the_readers_stream_of_their_own_device_and_keep_their_memory(driver: Driver) -> None:
    """The current device of the thread may be another one; `Event.wait()` alone would make the wrong stream wait."""
    row = torch.arange(4)
    plane, barrier = TensorPlane(accelerator=OnDevice(row), verify="off"), CheckpointBarrier()
    version = row._version
    staged = await plane.stage(1, {"x": row})
    ready = driver.event()
    ready.record(torch.cuda.current_stream(3))
    async with barrier.mutation() as cut:
        plane.commit(cut, 1, staged, ready)
    driver.calls.clear()
    plane.rows(1)
    assert driver.calls == [("wait", "current", 3, ready), ("used by", "current")]
    assert row._version == version


@pytest.mark.parametrize("ready", ["now", 3, object()])
async def test_what_is_no_event_is_refused_by_name(ready: Any) -> None:
    """Before anything is committed."""
    plane, barrier = TensorPlane(verify="off"), CheckpointBarrier()
    staged = await plane.stage(1, {"x": torch.ones(1)})
    async with barrier.mutation() as cut:
        with pytest.raises(UsageError, match="ready is a"):
            plane.commit(cut, 1, staged, ready)
    assert list(plane.groups()) == []


def test_an_event_that_was_never_recorded_is_refused(driver: Driver) -> None:
    """Waiting for it returns at once, and the rows would be taken for finished."""
    event = driver.event()
    with pytest.raises(UsageError, match="never recorded"):
        CudaDevice().check_ready(event)
    event.record(torch.cuda.current_stream(0))
    CudaDevice().check_ready(event)


def test_a_general_event_that_was_never_recorded_is_refused() -> None:
    """Torch has events of any accelerator beside those of CUDA."""
    with pytest.raises(UsageError, match="never recorded"):
        CudaDevice().check_ready(torch.Event("cpu"))


def test_pinned_memory_that_cannot_be_had_is_replaced_by_ordinary_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slower, and right; it is said."""
    original = torch.empty

    def empty(*shape: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        if pin_memory:
            raise RuntimeError("CUDA error: out of memory")
        return original(*shape, **options)

    monkeypatch.setattr(torch, "empty", empty)
    assert CudaDevice().host_buffer(16).numel() == 16
    assert "no 16 bytes of pinned memory" in caplog.text


def test_a_row_on_the_host_is_fed_by_nobody_before_cuda_is_in_use() -> None:
    """Asking whether memory is pinned must not initialise CUDA in a program that does not use it."""
    assert CudaDevice().feeds(torch.ones(1)) is None
    assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def test_no_stream_context_spans_an_await() -> None:
    """Another task on the thread would launch its work there. Only one file opens streams, and nothing in it awaits."""
    root = Path(impl.rows.torch_cuda_device.__file__).parent
    opening = [path for path in root.rglob("*.py") if "cuda.stream(" in path.read_text(encoding="utf-8")]
    assert [path.name for path in opening] == ["torch_cuda_device.py"]
    tree = ast.parse(opening[0].read_text(encoding="utf-8"))
    waiting = (ast.Await, ast.AsyncFunctionDef, ast.AsyncWith, ast.AsyncFor, ast.Yield, ast.YieldFrom)
    assert not [node for node in ast.walk(tree) if isinstance(node, waiting)]


def test_work_is_done_with_the_streams_of_whoever_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of its own would copy on its own stream, before the kernels that are still under way on the other."""
    seen: list[object] = []

    @contextmanager
    def entered(stream: object) -> Iterator[None]:
        seen.append(("enter", stream))
        yield
        seen.append(("leave", stream))

    monkeypatch.setattr(torch.cuda, "stream", entered)
    streams: list[Any] = ["of device 0", "of device 1"]
    done_on(streams, lambda: seen.append("work"))
    assert seen == [
        ("enter", "of device 0"),
        ("enter", "of device 1"),
        "work",
        ("leave", "of device 1"),
        ("leave", "of device 0"),
    ]
    assert current_streams([torch.zeros(2)]) == [], "what lies in host memory has no stream"
