"""Rows on a CUDA device: what is saved is what was committed, each rule is needed, and what a save costs.

    python bench/cuda.py [--device cuda|simulated] [--json FILE] [--quick]

Three tables in one run of some two minutes (reference: one H200):

- programs: rows behind slow kernels, on two streams, cleared, overwritten by new tensors, changed in place; 1 where
  what was saved is right;
- controls: the same with one rule taken away; 1 where it comes out wrong, as it must;
- figures: the exclusive window with 8 GiB on the device, and how fast a save copies, beside a plain pinned copy of the
  same tensors, measured in turns.

`--device simulated` runs programs and controls where there is no GPU, on a device that is as late as it can be; it has
no figures. Without a device the answer is `not run` and status 3, never a pass. Needs torch, msgspec and safetensors.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # also where the project is not installed

import torch  # noqa: E402
from parts.device_lab import CudaLab, Lab, SimulatedLab  # noqa: E402
from parts.device_programs import CONTROLS, PROGRAMS  # noqa: E402
from parts.device_run import FIELDS, DeviceRun, DiscardingFiles, whole_checkpoint  # noqa: E402
from parts.figures import Row, at_least, at_most, only_shown, options_of, reported, truth  # noqa: E402

from impl.plane import RowsWriter  # noqa: E402

GROUPS = 256
MIB, GIB = 1 << 20, 1 << 30


def run_programs(new_lab: Callable[[], Lab], directory: Path) -> list[Row]:
    """Each program as it is: it has to come out right."""
    rows = [truth("program: a whole checkpoint, restored", asyncio.run(whole_checkpoint(new_lab(), directory)))]
    for name, program in PROGRAMS.items():
        rows.append(truth(f"program: {name}", asyncio.run(program(new_lab()))))
    return rows


def run_controls(new_lab: Callable[[], Lab]) -> list[Row]:
    """Each with one rule taken away: it has to come out wrong."""
    rows = []
    for name, (program, without) in CONTROLS.items():
        lab = new_lab()
        with without(lab):
            right = asyncio.run(program(lab))
        lab.finish_all()
        rows.append(truth(f"control: {name}", not right))
    return rows


class NoWriter(RowsWriter):
    """Looks at nothing: what is left is the copying."""

    def write_tensors(self, name: str, tensors: Mapping[str, Any]) -> None:
        """Nothing."""

    def write_json(self, name: str, document: Any) -> None:
        """Nothing."""


async def measure(size: int, saves: int, rounds: int, directory: Path) -> list[Row]:
    """The window, and the rate of the copies, with `size` bytes of rows on the device."""
    run = DeviceRun(directory, CudaLab(), GROUPS, files=DiscardingFiles())
    each = size // (GROUPS * len(FIELDS))
    for group in await run.admit():
        rows = {field: torch.full((each,), group % 251, dtype=torch.uint8, device="cuda") for field in FIELDS}
        await run.commit(group, rows)
    torch.cuda.synchronize()
    for _ in range(saves):
        await run.checkpointer.save()
    windows = [save.window_seconds for save in run.checkpointer.statistics().saves]
    staged, plain = [], []
    memory = torch.empty(each, dtype=torch.uint8, pin_memory=True)
    groups = tuple(run.plane.groups())
    for _ in range(rounds):
        async with run.barrier.checkpoint() as cut:
            capture = run.plane.capture(cut, groups)
        tensors = [tensor for record in capture.records.values() for tensor in record.tensors.values()]
        began = perf_counter()
        for tensor in tensors:
            memory.copy_(tensor, non_blocking=True)
        torch.cuda.synchronize()
        copied = perf_counter()
        run.plane.persist(capture, NoWriter())
        ended = perf_counter()
        capture.drop()
        run.plane.release(capture)
        plain.append(each * len(tensors) / (copied - began) / 1e9)
        staged.append(each * len(tensors) / (ended - copied) / 1e9)
    await run.checkpointer.close()
    named = f"{size / GIB:g} GiB on the device"
    window = statistics.median(windows) * 1e3
    ratio = statistics.median(mine / theirs for mine, theirs in zip(staged, plain, strict=True))
    figures = run.plane.statistics()
    return [
        at_most(f"exclusive window, {named}, p50 (ms)", window, 1.0),
        only_shown(f"exclusive window, {named}, worst of {saves} (ms)", max(windows) * 1e3),
        only_shown("copies of a save (GB/s)", statistics.median(staged)),
        only_shown("plain pinned copies (GB/s)", statistics.median(plain)),
        at_least("copies of a save / plain pinned copies", ratio, 0.8),
        only_shown("pinned memory at most in use (MiB)", figures["staging_peak"] / MIB),
        truth("pinned memory within its bound", figures["staging_peak"] <= figures["staging_limit"]),
    ]


def main(arguments: list[str]) -> int:
    parser = options_of("Rows on a CUDA device: right, each rule needed, and the cost.")
    parser.add_argument("--device", choices=("cuda", "simulated"), default="cuda", help="where the rows are")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("cuda: not run: torch finds no CUDA device; --device simulated runs programs and controls without one")
        return 3
    new_lab: Callable[[], Lab] = CudaLab if options.device == "cuda" else SimulatedLab
    began = perf_counter()
    with tempfile.TemporaryDirectory(prefix="cleancut-bench-") as directory:
        rows = run_programs(new_lab, Path(directory) / "whole") + run_controls(new_lab)
        if options.device == "cuda":
            size, saves, rounds = (GIB // 16, 3, 3) if options.quick else (8 * GIB, 5, 7)
            rows += asyncio.run(measure(size, saves, rounds, Path(directory) / "figures"))
    name = torch.cuda.get_device_name() if options.device == "cuda" else "a simulated device, no figures"
    heading = f"cuda: {name}, torch {torch.__version__}, {perf_counter() - began:.0f} s"
    return reported(heading, rows, options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
