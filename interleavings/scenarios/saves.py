"""A save that fails, one that overlaps it, and a cancellation anywhere, beside a batch that is reserved.

The disk fails under the first checkpoint that is written. The second save waits for the end of the first, learns of
its failure where nobody else has, or goes through. Cancelling who asked for a save, wherever it stands, takes nothing
back once its window is over; cancelling the background task itself fails the save, and somebody is told.
"""

from __future__ import annotations

import asyncio
import errno
from typing import Any

from impl.errors import CleancutError
from impl.store import names
from impl.store.files import Handle
from spec.machines.cut import CutScope
from spec.machines.cut import cut as machine
from spec.machines.cut.state import OUTSIDE_WINDOW

from ..correspondence.follower import Coverage
from ..correspondence.refinement import cut_model
from ..runtime.subject import Subject
from .fake_disk import FakeDisk
from .readings import register_barrier, register_disk, register_tensors
from .scenario import Pinned, Scenario
from .whole_run import CLAIMS, DIRECTORY, WholeRun

SAVERS = 2


class FailingDisk(FakeDisk):
    """The first fsync of a file of the first checkpoint fails."""

    def fsync(self, handle: Handle) -> None:
        """Say that it failed; nobody may rely on the file any more."""
        if "/.staging-1-" in self._handles[handle][1]:
            raise OSError(errno.EIO, "the disk has failed")
        super().fsync(handle)


class OverlappingSaves(WholeRun):
    """The parts of a run, two tasks that save and one that reserves."""

    def __init__(self, *arguments: Any, **config: Any) -> None:
        super().__init__(*arguments, **config)
        #: What became of each window, and who was told of a failure, by the name of the checkpoint.
        self.ended: list[str] = []
        self.told: list[str] = []
        self.acknowledged: list[str] = []
        self.windows = 0

    def disk_to_write(self) -> FakeDisk:
        """One that fails."""
        return FailingDisk(DIRECTORY)

    async def main(self) -> None:
        """Everything at once; then close, which tells of a failure that nobody has heard of."""
        await self.checkpointer.prepare()
        tasks = [asyncio.create_task(self.save(), name=f"saver-{number}") for number in range(SAVERS)]
        tasks.append(asyncio.create_task(self.reserve(), name="reserver"))
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.listen(self.checkpointer.close())

    async def save(self) -> None:
        """Ask for a full save, and note when it is said to be durable."""
        info = await self.listen(self.checkpointer.save())
        if info is not None:
            self.acknowledged.append(info.name)

    async def reserve(self) -> None:
        """Before, after or between the windows; in none of them."""
        await self.controller.rollout_pump.reserve_batch()

    async def listen(self, call: Any) -> Any:
        """The result of a call of the checkpointer, or None and a note of whose failure it has raised."""
        try:
            return await call
        except CleancutError as error:
            self.told += [name for name in self.failed if name in f"{error} {getattr(error, '__notes__', '')}"] or [
                f"nobody's: {error}"
            ]
            return None

    @property
    def failed(self) -> list[str]:
        """The checkpoints whose save has failed."""
        return [name.removeprefix("failed ") for name in self.ended if name.startswith("failed ")]

    def trace(self, action: str, /, **fields: Any) -> None:
        """Count windows and their ends."""
        if action == "close_cut":
            self.windows += 1
        elif action == "publish":
            self.ended.append(fields["name"])
        elif action == "fail_save":
            self.ended.append(f"failed {fields['name']}")
        super().trace(action, **fields)

    def finish(self) -> str | None:
        """Each window ended once, every failure was told, and only what is published was acknowledged."""
        core = self.controller.barrier._core
        on_disk = [name for name in self.disk.listdir(DIRECTORY) if names.parse_checkpoint_name(name)]
        wrong = {
            f"{self.windows} windows were closed and {len(self.ended)} ended": len(self.ended) != self.windows,
            f"the failures of {self.failed} were told as {self.told}": set(self.told) != set(self.failed),
            f"{self.acknowledged} were acknowledged, of {self.ended}": not set(self.acknowledged) <= set(self.ended),
            f"{on_disk} are on the disk, of {self.ended}": on_disk != [n for n in self.ended if n.startswith("step_")],
            "a save is still under way": self.follower.state.window != OUTSIDE_WINDOW,
            "a section is open or waits": bool(core.inside or core._mutations or core._checkpoints or core.cut),
        }
        return "; ".join(sentence for sentence, is_so in wrong.items() if is_so) or None


SCOPE = CutScope(batches=1, batch_size=1, lookahead=0, saves=SAVERS, crashes=0, failed_saves=2, background=1)
MODEL = cut_model(SCOPE)


def program_of(coverage: Coverage) -> Subject:
    """A fresh run."""
    register_barrier()
    register_tensors()
    register_disk()
    run = OverlappingSaves(SCOPE, MODEL, coverage, frozenset(), False)
    return Subject(run.main(), observe=run.observe, finish=run.finish)


SCENARIO = Scenario(
    name="saves",
    sentence="2 saves beside a batch that is reserved; the first one's disk fails, one cancellation anywhere",
    machine=machine,
    scope=SCOPE,
    cancels=1,
    program_of=program_of,
    claims=(*CLAIMS, "finish"),
    pinned=Pinned(states=6_169, schedules=22_774_322),
    quick=False,
)
