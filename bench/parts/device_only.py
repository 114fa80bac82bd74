"""Programs that only a real device can show anything of: pinned rows, a trainer's copy, restores, every type.

As in `device_programs` each returns whether it came out right, and each control takes one rule away. On a `HostLab`
they run anywhere, and show that they are written right.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import torch

from impl import CommittedTensorModified, TensorPlane, TorchTrainerState
from impl.store import QUANTISED, as_bits

from .device_lab import Lab
from .device_programs import VALUES, Saving, after_begin
from .device_run import DeviceRun


class DeviceLab(Lab, Protocol):
    """A lab whose tensors torch itself can make: a CUDA device, or the host."""

    device: torch.device

    def pinned(self, nbytes: int) -> torch.Tensor:
        """Pinned memory full of zeros."""

    def bring(self, memory: torch.Tensor, tensor: torch.Tensor) -> None:
        """A copy into pinned memory on the current stream; waits for nothing."""


# -------------------------------------------------------------------------------------------------------- programs


async def pinned_rows(lab: DeviceLab, directory: Path) -> bool:
    """A row in pinned memory that a copy behind a slow kernel is still to fill when it is committed and cut."""
    saving, value = Saving(lab), next(VALUES)
    source, row = lab.row(), lab.pinned(lab.row_bytes)
    lab.slow()
    lab.fill(source, value)
    lab.bring(row, source)
    await saving.commit(1, {"x": row})
    saving.expected["1/x"] = torch.full((lab.row_bytes,), value, dtype=torch.uint8)
    capture = await saving.capture(1)
    with after_begin(lambda begun: lab.still_busy("the row was written")):
        return saving.write(capture)


async def pinned_rows_changed(lab: DeviceLab, directory: Path) -> bool:
    """Written in place after the commit, by torch and past torch: the save fails."""
    noticed = []
    for verify, past_torch in (("off", False), ("digest", True)):
        saving, row = Saving(lab, verify=verify), lab.pinned(lab.row_bytes)
        await saving.commit(1, {"x": row})
        capture = await saving.capture(1)
        if past_torch:
            row.data.numpy()[0] = 77
        else:
            row.add_(1)
        try:
            saving.write(capture)
        except CommittedTensorModified as error:
            noticed.append("group 1, field 'x'" in str(error))
    return noticed == [True, True]


async def rows_are_watched(lab: DeviceLab, directory: Path) -> bool:
    """Torch counts writes to memory of a device, so no row of it is one that nothing watches over."""
    saving = Saving(lab)
    await saving.commit(1, {"x": lab.row()})
    return saving.plane.statistics()["unchecked"] == 0


def trainer_behind_its_kernels(elements: int) -> Callable[[DeviceLab, Path], Any]:
    """Weights that a slow kernel on the caller's stream is still to write when their copy is asked for."""

    async def program(lab: DeviceLab, directory: Path) -> bool:
        value = next(VALUES)
        # Nothing else runs on this thread, so the stream may stay the current one while the copy is awaited.
        with lab.side(), torch.no_grad():
            model = torch.nn.Linear(elements, 1, bias=False, device=lab.device)
            lab.slow()
            lab.fill(model.weight, value)
            lab.still_busy("the copy was asked for")
            staged = await TorchTrainerState(model, random_state=False).stage()
        copy = staged.tensors["model"]["weight"]
        lab.finish_all()
        return copy.device.type == "cpu" and torch.equal(copy, torch.full((1, elements), float(value)))

    return program


async def trainer_restored(lab: DeviceLab, directory: Path) -> bool:
    """Model, moments and the generator of the device: a trainer restored from a checkpoint makes the same next step."""

    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(torch.rand(4, 8, device=lab.device)).square().mean().backward()
        optimizer.step()

    def trainer(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer, TorchTrainerState]:
        torch.manual_seed(seed)
        model = torch.nn.Linear(8, 4, device=lab.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        step(model, optimizer)
        return model, optimizer, TorchTrainerState(model, optimizer)

    model, optimizer, state = trainer(1)
    run = DeviceRun(directory, lab, groups=1)
    await (await run.checkpointer.begin_save(state)).durable()
    await run.checkpointer.close()
    step(model, optimizer)
    resumed, its_optimizer, its_state = trainer(2)
    again = DeviceRun(directory, lab, groups=1)
    await again.checkpointer.restore(trainer=its_state)
    await again.checkpointer.close()
    step(resumed, its_optimizer)
    return all(
        mine.device.type == lab.device.type and torch.equal(mine, theirs)
        for mine, theirs in zip(resumed.parameters(), model.parameters(), strict=True)
    )


async def restored_onto_the_device(lab: DeviceLab, directory: Path) -> bool:
    """Rows that a plane restores to the device, read on another stream there, and saved from it once more."""
    first = DeviceRun(directory, lab, groups=4)
    groups = await first.admit()
    for group in groups:
        await first.produce(group, 5 * group + 1)
    await first.checkpointer.save()
    await first.checkpointer.close()
    second = DeviceRun(directory, lab, groups=4, verify="digest", device=lab.device.type)
    await second.checkpointer.restore()
    with lab.side():
        right = all(second.holds(group, 5 * group + 1, lab.row_bytes) for group in groups)
    there = all(row.device.type == lab.device.type for row in second.plane.rows(groups[0]).values())
    await second.checkpointer.save()
    await second.checkpointer.close()
    third = DeviceRun(directory, None, groups=4)
    await third.checkpointer.restore()
    await third.checkpointer.close()
    return right and there and all(third.holds(group, 5 * group + 1, lab.row_bytes) for group in groups)


async def every_type(lab: DeviceLab, directory: Path) -> bool:
    """Each type that torch has, whole, strided and as a small view of something large; with digests."""
    saving = Saving(lab, verify="digest")
    wrong = []
    kinds = {kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}
    for number, kind in enumerate(sorted(kinds, key=str)):
        name = str(kind).removeprefix("torch.")
        if name in QUANTISED:
            continue
        host = torch.arange(64, dtype=torch.uint8).bitwise_and(1 if kind is torch.bool else 0xFF)
        there = lab.row()
        lab.put(there[:64], host)
        made = [memory.view(kind) for memory in (there[:64].clone(), there[:64])]
        rows = {"whole": made[0], "strided": made[0][::2], "view": made[1]}
        source = host.view(kind)
        expected = {"whole": source, "strided": source[::2], "view": source}
        try:
            await saving.commit(number, rows)
            saving.files.tensors.clear()
            saving.write(await saving.capture(number))
            if not all(
                torch.equal(as_bits(saving.files.tensors[f"{number}/{row}"]), as_bits(bits))
                for row, bits in expected.items()
            ):
                wrong.append(f"{name}: other bytes")
        except (RuntimeError, NotImplementedError) as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise TypeError("; ".join(wrong))
    return True


# -------------------------------------------------------------------------------------------------------- controls


def pinned_rows_not_waited_for(lab: DeviceLab) -> AbstractContextManager[Any]:
    """A row in pinned memory is taken for one that holds its values."""
    return patch.object(lab.accelerator, "feeds", lambda tensor: None)


def streams_not_handed_on(lab: DeviceLab) -> AbstractContextManager[Any]:
    """The thread that copies a trainer does so on its own stream."""
    return patch("impl.rows.torch_copying.done_on", lambda streams, work: work())


def everything_called_shared(lab: DeviceLab) -> AbstractContextManager[Any]:
    """What torch says of memory on a device is believed."""
    return patch("impl.rows.tensor_plane.is_tracked", lambda tensor: not tensor.is_shared())


def restored_to_the_host(lab: DeviceLab) -> AbstractContextManager[Any]:
    """The plane forgets where restored rows go."""
    return patch.object(
        TensorPlane, "device", property(lambda plane: torch.device("cpu"), lambda plane, device: None), create=True
    )


LARGE, SMALL = 1 << 19, 16
PROGRAMS: dict[str, Callable[[Any, Path], Any]] = {
    "rows in pinned memory, behind a copy": pinned_rows,
    "pinned rows written in place: the save fails": pinned_rows_changed,
    "rows on the device are watched": rows_are_watched,
    "a trainer copied behind its kernels, 2 MiB": trainer_behind_its_kernels(LARGE),
    "a trainer copied behind its kernels, 64 bytes": trainer_behind_its_kernels(SMALL),
    "a trainer restored makes the same next step": trainer_restored,
    "rows restored onto the device, and saved again": restored_onto_the_device,
    "every type of torch": every_type,
}
CONTROLS: dict[str, tuple[Callable[[Any, Path], Any], Callable[[Any], AbstractContextManager[Any]]]] = {
    "pinned rows not waited for": (pinned_rows, pinned_rows_not_waited_for),
    "streams not handed to the thread, 2 MiB": (trainer_behind_its_kernels(LARGE), streams_not_handed_on),
    "streams not handed to the thread, 64 bytes": (trainer_behind_its_kernels(SMALL), streams_not_handed_on),
    "what torch says of shared memory believed": (rows_are_watched, everything_called_shared),
    "rows restored to the host": (restored_onto_the_device, restored_to_the_host),
}
