"""Programs that save rows while a device is at work, and the same with one rule of the staging taken away.

Each returns whether what was saved is what the rows held at their commit. Values differ from program to program, so
that memory which an earlier one has left behind is never taken for a right answer. NothingShown says that a slow kernel
was over too early for the program to show anything.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch

from impl import CheckpointBarrier, CommittedTensorModified, TensorPlane
from impl.rows import RowsWriter, cloned
from impl.rows.torch_staging import _Begun
from impl.store import as_bits

from .device_lab import Lab

#: Never what memory holds before it is written (0xAA), what a simulated device poisons with (0xDD), nor zero.
VALUES = itertools.cycle([value for value in range(1, 256) if value not in (0xAA, 0xDD)])


#: New tensors that are made where memory may have been freed.
OTHERS = 8


class HostFiles(RowsWriter):
    """Keeps a copy of what it is given, after everything the device still has to do is done if `patient`."""

    def __init__(self, lab: Lab, patient: bool) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._lab, self._patient = lab, patient

    def write_tensors(self, name: str, tensors: Mapping[str, Any]) -> None:
        if self._patient:
            self._lab.finish_all()
        self.tensors.update((key, cloned(tensor)) for key, tensor in tensors.items())

    def write_json(self, name: str, document: Any) -> None:
        """The index is not looked at."""


class Saving:
    """A plane over a device, with one method for each thing that happens around a save."""

    def __init__(self, lab: Lab, *, verify: Any = "off", patient: bool = False) -> None:
        self.lab = lab
        self.barrier = CheckpointBarrier()
        self.plane = TensorPlane(
            verify=verify, accelerator=lab.accelerator, staging_bytes=lab.two_pieces, bytes_per_file=lab.row_bytes
        )
        self.files = HostFiles(lab, patient)
        self.expected: dict[str, torch.Tensor] = {}

    async def commit(self, group: int, rows: Mapping[str, torch.Tensor], ready: Any = None) -> None:
        staged = await self.plane.stage(group, rows, ready)
        async with self.barrier.mutation() as cut:
            self.plane.commit(cut, group, staged, ready)

    async def produce(self, group: int, *, side: bool = False) -> torch.Tensor:
        """Commit a row that a kernel behind a slow one fills; on another stream, its event is given."""
        value, ready = next(VALUES), None
        with self.lab.side() if side else nullcontext():
            row = self.lab.row()
            self.lab.slow()
            self.lab.fill(row, value)
            if side:
                ready = self.lab.accelerator.record(self.lab.accelerator.where(row))
        self.expected[f"{group}/x"] = torch.full((self.lab.row_bytes,), value, dtype=torch.uint8)
        await self.commit(group, {"x": row}, ready)
        return row

    async def capture(self, *groups: int) -> Any:
        async with self.barrier.checkpoint() as cut:
            return self.plane.capture(cut, groups)

    def churn(self, freed: int | None = None) -> list[torch.Tensor]:
        """New tensors of the same size, which the allocator gives whatever was freed last; filled at once.

        `freed` is the address of a row that nobody refers to any more: whether it was given away is noted.
        """
        gc.collect()
        value, others = next(VALUES), [self.lab.row() for _ in range(OTHERS)]
        for other in others:
            self.lab.fill(other, value)
        if freed is not None:
            self.lab.recycled = any(other.data_ptr() == freed for other in others)
        return others

    def write(self, capture: Any) -> bool:
        """What the writer thread does. Whether it wrote what was expected."""
        try:
            self.plane.persist(capture, self.files)
        finally:
            capture.drop()
            self.plane.release(capture)
            self.lab.finish_all()
        return self.right()

    def right(self) -> bool:
        """Every expected row, bit for bit, and no other."""
        return self.files.tensors.keys() == self.expected.keys() and all(
            saved.dtype == self.expected[key].dtype and torch.equal(as_bits(saved), as_bits(self.expected[key]))
            for key, saved in self.files.tensors.items()
        )


@contextmanager
def after_begin(then: Callable[[_Begun], None]) -> Iterator[None]:
    """Do something as soon as the copies of a file have been begun."""
    original = _Begun.begin

    def begin(begun: _Begun, device: Any) -> None:
        original(begun, device)
        then(begun)

    with patch.object(_Begun, "begin", begin):
        yield


# -------------------------------------------------------------------------------------------------------- programs


async def slow_kernels(lab: Lab) -> bool:
    """Rows behind slow kernels on two streams; cut, cleared and their memory asked for, before any has run."""
    saving = Saving(lab)
    for group in (1, 2):
        await saving.produce(group, side=group == 2)
    capture = await saving.capture(1, 2)
    for group in (1, 2):
        saving.plane.clear(group)
    others = saving.churn()
    with after_begin(lambda begun: lab.still_busy("the rows were copied")):
        right = saving.write(capture)
    del others
    return right


async def cleared_while_copied(lab: Lab) -> bool:
    """The copy has been begun and not done when new tensors of the same size are made and filled."""
    saving = Saving(lab)
    row = await saving.produce(1)
    lab.finish_all()
    capture = await saving.capture(1)
    saving.plane.clear(1)
    address, others = row.data_ptr(), []
    del row

    def churn(begun: _Begun) -> None:
        others.extend(saving.churn(address))
        lab.finish_stream()
        lab.still_busy("new tensors were filled")

    lab.slow_copies()
    with after_begin(churn):
        return saving.write(capture)


async def more_files_than_memory(lab: Lab) -> bool:
    """Five files through two pieces of pinned memory, each written when the copy of the next one is done too."""
    saving = Saving(lab, patient=True)
    for group in range(1, 6):
        await saving.produce(group)
    return saving.write(await saving.capture(*range(1, 6)))


async def trained_on_another_stream(lab: Lab) -> bool:
    """A trainer's stream still reads a row when its group is cleared; other rows are read and saved as ever."""
    saving = Saving(lab)
    address = (await saving.produce(1)).data_ptr()
    await saving.produce(2)
    lab.finish_all()
    with lab.side():
        rows = saving.plane.rows(1)
        saving.plane.rows(2)
        lab.slow()
        made = lab.duplicate(rows["x"])
        ready = lab.accelerator.record(lab.accelerator.where(made))
    del rows
    saving.plane.clear(1)
    others = saving.churn(address)
    lab.finish_stream()
    lab.still_busy("new tensors were filled")
    await saving.commit(3, {"x": made}, ready)
    saving.expected["3/x"] = saving.expected.pop("1/x")
    right = saving.write(await saving.capture(2, 3))
    del others
    return right


async def written_in_place(lab: Lab) -> bool:
    """A kernel changes a committed row: the save fails, naming group and field. By the counter, and by digest."""
    noticed = []
    for verify, through_data in (("off", False), ("digest", True)):
        saving = Saving(lab, verify=verify)
        row = await saving.produce(1)
        lab.fill(row.data if through_data else row, next(VALUES))
        lab.finish_all()
        try:
            saving.write(await saving.capture(1))
        except CommittedTensorModified as error:
            noticed.append("group 1, field 'x'" in str(error))
    return noticed == [True, True]


async def every_layout(lab: Lab) -> bool:
    """Transposed, strided, expanded, conjugated and negated rows behind a slow kernel; small views are cloned."""
    saving = Saving(lab)
    sources = {
        "integers": torch.arange(4, dtype=torch.int32),
        "complex": torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64),
        "bool": torch.tensor([True, False, True]),
        "half": torch.arange(4).to(torch.bfloat16),
        "float8": torch.arange(4).to(torch.float8_e4m3fn),
    }
    there = {}
    for name, source in sources.items():
        there[name] = lab.row()[: source.nbytes].view(source.dtype)
        lab.slow()
        lab.put(there[name], source)
    makers: dict[str, Callable[[Mapping[str, torch.Tensor]], torch.Tensor]] = {
        "transposed": lambda of: of["integers"].reshape(2, 2).t(),
        "strided": lambda of: of["integers"][::2],
        "expanded": lambda of: of["integers"][:2].reshape(1, 2).expand(3, 2),
        "scalar": lambda of: of["integers"][3],
        "conjugated": lambda of: of["complex"].conj(),
        "negated": lambda of: of["complex"].conj().imag,
        "bool": lambda of: of["bool"],
        "half": lambda of: of["half"],
        "float8": lambda of: of["float8"],
    }
    await saving.commit(1, {name: make(there) for name, make in makers.items()})
    del there
    saving.expected = {f"1/{name}": make(sources) for name, make in makers.items()}
    capture = await saving.capture(1)
    with after_begin(lambda begun: lab.still_busy("the rows were copied")):
        return saving.write(capture)


# -------------------------------------------------------------------------------------------------------- controls


def no_event_wait(lab: Lab) -> AbstractContextManager[Any]:
    """Copies begin without waiting for whoever writes the rows."""
    copy = lab.accelerator.copy
    return patch.object(lab.accelerator, "copy", lambda where, pairs, after: copy(where, pairs, ()))


def no_wait_for_the_copy(lab: Lab) -> AbstractContextManager[Any]:
    """The host reads as soon as the copy has been begun."""
    return patch.object(_Begun, "_wait", lambda begun: None)


def source_dropped_early(lab: Lab) -> AbstractContextManager[Any]:
    """Nobody refers to the rows from the beginning of their copy on."""

    def drop(begun: _Begun) -> None:
        for row in begun.rows:
            row.tensor, row.watched = torch.empty(0), None

    return after_begin(drop)


def pinned_memory_reused_early(lab: Lab) -> AbstractContextManager[Any]:
    """The memory of a file goes back to the pool when its copy has been begun."""

    def give_back(begun: _Begun) -> None:
        if begun.lease is not None:
            begun.lease.give_back()

    return after_begin(give_back)


def allocator_not_told(lab: Lab) -> AbstractContextManager[Any]:
    """A reader's stream waits for the rows, and their memory does not wait for it."""
    hand_over = lab.accelerator.hand_over
    return patch.object(lab.accelerator, "hand_over", lambda where, after, tensors: hand_over(where, after, ()))


async def in_place_past_the_tripwire(lab: Lab) -> bool:
    """A write in place through `.data`, with no digest."""
    saving = Saving(lab)
    row = await saving.produce(1)
    lab.fill(row.data, next(VALUES))
    lab.finish_all()
    return saving.write(await saving.capture(1))


PROGRAMS = {
    "slow kernels, cut, clear, churn": slow_kernels,
    "cleared while it is copied": cleared_while_copied,
    "more files than pinned memory": more_files_than_memory,
    "read by a trainer's stream, cleared": trained_on_another_stream,
    "written in place: the save fails": written_in_place,
    "every layout": every_layout,
}
CONTROLS: dict[str, tuple[Any, Callable[[Any], AbstractContextManager[Any]]]] = {
    "no event wait": (slow_kernels, no_event_wait),
    "no wait for the copy": (slow_kernels, no_wait_for_the_copy),
    "source dropped early": (cleared_while_copied, source_dropped_early),
    "pinned memory reused before fsync": (more_files_than_memory, pinned_memory_reused_early),
    "allocator not told of a reader": (trained_on_another_stream, allocator_not_told),
    "write in place, no tripwire": (in_place_past_the_tripwire, lambda lab: nullcontext()),
}
