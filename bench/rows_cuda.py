"""Rows on a CUDA device: what is saved is what was committed, each rule is needed, and what a save costs.

    python bench/rows_cuda.py [--device cuda|simulated] [--json FILE] [--quick]

Three tables in one run of some two minutes (reference: one H200):

- programs: rows behind slow kernels, on two streams, cleared, overwritten by new tensors, changed in place, in pinned
  memory, of every type; a trainer's copy; restores; 1 where it comes out right;
- controls: the same with one rule taken away; 1 where it comes out wrong, as it must;
- figures: the exclusive window with 8 GiB on the device, and how fast a save copies, beside a plain pinned copy of the
  same tensors, measured in turns.

Each row is also printed when it is known, on the standard error. A part that fails, or that comes too late to show
anything, is a row that is not ok and says why; the others still run. After four minutes the run ends with the stack of
every thread and status 1.

`--device simulated` runs programs and controls where there is no GPU, on a device that is as late as it can be; those
that need a real one run on host memory instead, without controls; there are no figures. Without a device the answer is
`not run` and status 3, never a pass. Needs torch, numpy and msgspec.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import io
import logging
import statistics
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # also where the project is not installed

import torch  # noqa: E402
from parts import device_only  # noqa: E402
from parts.device_lab import CudaLab, HostLab, Lab, NothingShown, SimulatedLab  # noqa: E402
from parts.device_only import DeviceLab  # noqa: E402
from parts.device_programs import CONTROLS, PROGRAMS  # noqa: E402
from parts.device_run import FIELDS, DeviceRun, DiscardingFiles, whole_checkpoint  # noqa: E402
from parts.figures import Row, at_least, at_most, missed, only_shown, options_of, reported, truth  # noqa: E402

from impl.rows import STAGING_BYTES, RowsWriter  # noqa: E402

SECONDS = 240
GROUPS = 256
MIB, GIB = 1 << 20, 1 << 30

Part = tuple[str, Callable[[], Coroutine[Any, Any, list[Row]]]]


def programs(new_lab: Callable[[], Lab], new_device: Callable[[], DeviceLab], root: Path) -> Iterator[Part]:
    """Each program as it is: it has to come out right."""
    found = {
        f"a whole checkpoint, restored, verify={verify}": lambda verify=verify: whole_checkpoint(
            new_lab(), fresh(root), verify
        )
        for verify in ("off", "digest")
    }
    found |= {name: lambda program=program: program(new_lab()) for name, program in PROGRAMS.items()}
    found |= {
        name: lambda program=program: program(new_device(), fresh(root))
        for name, program in device_only.PROGRAMS.items()
    }
    for name, program in found.items():
        yield f"program: {name}", partial(right, f"program: {name}", program)


async def right(name: str, program: Callable[[], Coroutine[Any, Any, bool]]) -> list[Row]:
    """The row of a program that has to come out right."""
    return [truth(name, await program())]


def controls(new_lab: Callable[[], Lab], new_device: Callable[[], DeviceLab] | None, root: Path) -> Iterator[Part]:
    """Each with one rule taken away: it has to come out wrong."""
    for name, (program, without) in CONTROLS.items():
        yield f"control: {name}", partial(wrong, f"control: {name}", new_lab, program, without)
    if new_device is not None:
        for name, (program, without) in device_only.CONTROLS.items():
            there = partial(in_a_directory, program, root)
            yield f"control: {name}", partial(wrong, f"control: {name}", new_device, there, without)


async def wrong(
    name: str, new_lab: Callable[[], Any], program: Callable[[Any], Any], without: Callable[[Any], Any]
) -> list[Row]:
    """The row of a control, which has to come out wrong."""
    lab = new_lab()
    try:
        with without(lab):
            came_right = await program(lab)
    finally:
        lab.finish_all()
    if came_right and lab.recycled is False:
        return [missed(name, "nothing shown, the freed memory was not given to another tensor")]
    return [truth(name, not came_right)]


async def in_a_directory(program: Callable[[Any, Path], Any], root: Path, lab: Any) -> bool:
    """A program that writes files."""
    return bool(await program(lab, fresh(root)))


def fresh(root: Path) -> Path:
    """A directory of its own, below."""
    return Path(tempfile.mkdtemp(dir=root))


class NoWriter(RowsWriter):
    """Looks at nothing: what is left is the copying."""

    def write_tensors(self, name: str, tensors: Mapping[str, Any]) -> None:
        """Nothing."""

    def write_json(self, name: str, document: Any) -> None:
        """Nothing."""


async def measure(lab: DeviceLab, size: int, saves: int, rounds: int, directory: Path) -> list[Row]:
    """The window, and the rate of the copies, with `size` bytes of rows on the device."""
    run = DeviceRun(directory, lab, GROUPS, files=DiscardingFiles())
    each = size // (GROUPS * len(FIELDS))
    for group in await run.admit():
        rows = {field: torch.full((each,), group % 251, dtype=torch.uint8, device=lab.device) for field in FIELDS}
        await run.commit(group, rows)
    lab.finish_all()
    for _ in range(saves):
        await run.checkpointer.save()
    windows = [save.window_seconds for save in run.checkpointer.statistics().saves]
    staged, plain = [], []
    # As much pinned memory as a save has, and filled in turn: a single place would stay in the host's caches.
    memory = lab.pinned(STAGING_BYTES // each * each).view(-1, each)
    groups = tuple(run.plane.groups())
    for _ in range(rounds):
        async with run.barrier.checkpoint() as cut:
            capture = run.plane.capture(cut, groups)
        tensors = [tensor for record in capture.records.values() for tensor in record.tensors.values()]
        began = perf_counter()
        for number, tensor in enumerate(tensors):
            memory[number % len(memory)].copy_(tensor, non_blocking=True)
        lab.finish_all()
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


def found_out(part: Part) -> list[Row]:
    """The rows of one part; one that is not ok where it fails or shows nothing."""
    name, rows = part
    try:
        return asyncio.run(rows())
    except NothingShown as why:
        return [missed(name, f"nothing shown, {why}")]
    except Exception as error:
        traceback.print_exc()
        return [missed(name, f"{type(error).__name__}: {error}".partition("\n")[0])]


def shown(parts: Iterator[Part]) -> list[Row]:
    """The rows of all parts, each printed as soon as it is known."""
    rows = []
    for part in parts:
        for row in found_out(part):
            print(f"{'ok' if row.ok else 'NO'}  {row.figure}  {row.value:g}", file=sys.stderr, flush=True)
            rows.append(row)
    return rows


def warm(lab: CudaLab, root: Path) -> None:
    """Run everything once with kernels that are not slow; what comes of it is looked at when it runs again."""
    print("warming up", file=sys.stderr, flush=True)
    logging.disable()
    with redirect_stderr(io.StringIO()):
        for part in [*programs(lab.afresh, lab.afresh, root), *controls(lab.afresh, lab.afresh, root)]:
            found_out(part)
    logging.disable(logging.NOTSET)
    lab.be_slow()


def main(arguments: list[str]) -> int:
    parser = options_of("Rows on a CUDA device: right, each rule needed, and the cost.")
    parser.add_argument("--device", choices=("cuda", "simulated"), default="cuda", help="where the rows are")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            "rows_cuda: not run: torch finds no CUDA device; --device simulated runs programs and controls without one"
        )
        return 3
    began = perf_counter()
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    # What is there by now stays: else looking for garbage takes longer than the kernels that are to be slow.
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="cleancut-bench-") as directory:
        root = Path(directory)
        if options.device == "cuda":
            lab = CudaLab()
            warm(lab, root)
            rows = shown(programs(lab.afresh, lab.afresh, root)) + shown(controls(lab.afresh, lab.afresh, root))
            size, saves, rounds = (GIB // 16, 3, 3) if options.quick else (8 * GIB, 5, 7)
            figures = ("figures", lambda: measure(lab.afresh(), size, saves, rounds, fresh(root)))
            rows += shown(iter([figures]))
            name = torch.cuda.get_device_name()
        else:
            rows = shown(programs(SimulatedLab, HostLab, root)) + shown(controls(SimulatedLab, None, root))
            name = "a simulated device, no figures"
    faulthandler.cancel_dump_traceback_later()
    heading = f"rows_cuda: {name}, torch {torch.__version__}, {perf_counter() - began:.0f} s"
    return reported(heading, rows, options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
