"""Power cuts under a real run: ext4 on a loop device that stops in mid-work, and what is there afterwards.

    python bench/power_cuts.py [--json FILE] [--quick] [--cuts N] [--seed N]

A life of a run saves again and again into a mounted image. At a random moment the file system is shut down without
flushing its journal (the ioctl that `xfstests` uses): what the kernel had not yet handed to the device is gone, and so
is the journal's running transaction. The process is killed, the image mounted again, the journal replayed as after a
power cut, and the directory surveyed as by `python -m impl fsck`. The next life goes on from there.

A checkpoint is *lost* when the life had been told that it is durable, and neither it nor a newer one is whole. The
control is the same with every fsync left out: if it loses nothing, the cuts are no cuts. What is not simulated: a disk
that drops writes after it has confirmed a flush. Needs root, a loop device and mkfs.ext4; else `not run`, exit 3.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from parts.figures import Row, at_least, at_most, only_shown, options_of, reported

from impl import CheckpointBarrier, Checkpointer, Controller, ControllerConfig, InOrderSampler, PromptLoader
from impl.inspection.survey import survey
from impl.store import PosixFiles

# FS_IOC_SHUTDOWN of ext4, and its flag to throw the journal's running transaction away.
_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_IMAGE_MIB = 192
_OPTIONS = ("data=ordered", "data=writeback")


@dataclass
class Tally:
    """What a series of cuts came to."""

    cuts: int = 0
    acknowledged: int = 0
    lost: int = 0
    damaged: int = 0
    prompts_lost: int = 0
    behind_by_one: int = 0


class NeverSyncs(PosixFiles):
    """The control: every fsync reports success and does nothing."""

    def fsync(self, handle: Any) -> None:
        pass

    def fsync_dir(self, path: str) -> None:
        pass


def why_not() -> str | None:
    """What this machine lacks for power cuts; None if nothing."""
    if os.geteuid() != 0:
        return "it needs root"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"no `{tool}` on PATH"
    with tempfile.TemporaryDirectory() as place:
        disk = Disk(Path(place), size=8)
        try:
            disk.make()
            disk.mount("data=ordered")
        except subprocess.CalledProcessError as error:
            return f"`{error.cmd[0]}` failed: {error.stderr.decode().strip().splitlines()[-1]}"
        disk.unmount()
    return None


class Disk:
    """An image, mounted by way of a loop device."""

    def __init__(self, place: Path, size: int = _IMAGE_MIB) -> None:
        self._image = place / "disk.img"
        self.mounted_at = place / "mounted"
        self._size = size

    def make(self) -> None:
        """A fresh ext4."""
        with self._image.open("wb") as file:
            file.truncate(self._size << 20)
        _call("mkfs.ext4", "-q", "-F", str(self._image))
        self.mounted_at.mkdir(exist_ok=True)

    def mount(self, options: str) -> None:
        """Mount it; the journal is replayed."""
        _call("mount", "-o", f"loop,{options}", str(self._image), str(self.mounted_at))

    def cut(self) -> None:
        """From now on nothing reaches the device."""
        descriptor = os.open(self.mounted_at, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        """Patient: a killed process may hold it for a moment longer."""
        for attempt in range(50):
            try:
                _call("umount", str(self.mounted_at))
                return
            except subprocess.CalledProcessError:
                if attempt == 49:
                    raise
                time.sleep(0.1)


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def disk_in(place: Path) -> Iterator[Disk]:
    """A fresh disk that is unmounted in the end."""
    disk = Disk(place)
    disk.make()
    try:
        yield disk
    finally:
        if os.path.ismount(disk.mounted_at):
            disk.unmount()


def live(root: Path, said: int, synced: bool) -> None:
    """One life, in a process of its own: trains and saves until it is killed; says each checkpoint that is durable."""

    def trace(action: str, /, **fields: object) -> None:
        if action == "publish":
            os.write(said, f"{fields['sequence']}\n".encode())

    async def generate(request: Any) -> dict[str, torch.Tensor]:
        # Of random size, so that a cut falls into a write as well as between two.
        size = random.Random(str(request.key)).randrange(1, 40_000)
        return {"tokens": torch.full((1, size), request.key.index)}

    async def train(batch: Any) -> None:
        await asyncio.sleep(0)

    checkpointer = Checkpointer(root, CheckpointBarrier(trace=trace), keep=2, files=None if synced else NeverSyncs())
    controller = Controller(
        loader=PromptLoader(list(range(1000)), batch_size=4, seed=0, epochs=1000),
        generate=generate,
        train=train,
        sampler=InOrderSampler(lookahead=1),
        checkpointer=checkpointer,
        config=ControllerConfig(generations=1, save_period=1, stall_warning=None),
    )
    asyncio.run(controller.run())


def start(root: Path, synced: bool) -> tuple[int, int]:
    """Fork a life; its process and the end of the pipe on which it speaks."""
    hears, says = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(hears)
        logging.disable()
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        try:
            live(root, says, synced)
        finally:
            os._exit(1)
    os.close(says)
    return process, hears


def one_cut(disk: Disk, chooser: random.Random, tally: Tally, synced: bool) -> None:
    """Mount, live, cut, mount again, look."""
    disk.mount(chooser.choice(_OPTIONS))
    root = disk.mounted_at / "run"
    process, hears = start(root, synced)
    with os.fdopen(hears) as speech:
        acknowledged = [int(speech.readline() or 0) for _ in range(chooser.randrange(1, 4))]
        time.sleep(chooser.uniform(0, 0.06))
        disk.cut()
        os.kill(process, signal.SIGKILL)
        # What it said before the cut and nobody has read yet was promised all the same.
        acknowledged += [int(line) for line in speech if line.endswith("\n")]
    os.waitpid(process, 0)
    disk.unmount()
    disk.mount("data=ordered")
    if not any(acknowledged):
        raise RuntimeError("a life ended before it had saved anything; the run itself is at fault")
    promised = max(acknowledged)
    newest = 0
    if root.is_dir():
        found = survey(PosixFiles(), str(root), digests=True)
        whole = [each for each in found.checkpoints if each.state == "whole"]
        newest = max((each.candidate.sequence for each in whole), default=0)
        tally.damaged += sum(each.state != "whole" for each in found.checkpoints)
        tally.prompts_lost += sum(each.ownership.lost.count for each in found.checkpoints if each.ownership)
        tally.behind_by_one += found.latest is not None and whole != [] and found.latest != whole[0].name
    tally.cuts += 1
    tally.acknowledged += sum(1 for sequence in acknowledged if sequence)
    tally.lost += newest < promised
    disk.unmount()


def series(cuts: int, seed: int, synced: bool) -> Tally:
    """So many cuts, one life after the other on one disk; a control that lost something begins on a fresh one."""
    tally, chooser = Tally(), random.Random(seed)
    while tally.cuts < cuts:
        with tempfile.TemporaryDirectory() as place, disk_in(Path(place)) as disk:
            before = tally.lost + tally.damaged
            while tally.cuts < cuts and tally.lost + tally.damaged == before:
                one_cut(disk, chooser, tally, synced)
    return tally


def measure(cuts: int, control: int, seed: int) -> list[Row]:
    """The table."""
    found = series(cuts, seed, synced=True)
    without = series(control, seed, synced=False)
    return [
        only_shown("power cuts on ext4", found.cuts),
        only_shown("checkpoints acknowledged before them", found.acknowledged),
        at_most("acknowledged checkpoints lost", found.lost, 0),
        at_most("published checkpoints damaged", found.damaged, 0),
        at_most("prompts without an owner", found.prompts_lost, 0),
        only_shown("LATEST behind the newest checkpoint", found.behind_by_one),
        only_shown("control without fsync: cuts", without.cuts),
        at_least("control without fsync: lost or damaged (at least 1)", without.lost + without.damaged, 1),
    ]


def main(arguments: list[str]) -> int:
    parser = options_of("Power cuts under a real run.", "five cuts; not for quoting")
    parser.add_argument("--cuts", type=int, default=60, metavar="N", help="how many cuts (60)")
    parser.add_argument("--seed", type=int, default=0, help="decides when they come (0)")
    options = parser.parse_args(arguments)
    if options.cuts < 1:
        parser.error("--cuts must be at least 1")
    missing = why_not()
    if missing is not None:
        print(f"not run: power cuts ({missing})", file=sys.stderr)
        return 3
    rows = measure(5 if options.quick else options.cuts, 3 if options.quick else 10, options.seed)
    heading = f"power cuts, ext4 on a loop device, Linux {os.uname().release}, seed {options.seed}"
    return reported(heading, rows, options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
