"""A run on a simulated disk, and what must hold of every state in which a power cut may leave it.

The names of the properties are those of the store machine in `spec/machines/store/properties.py` where it has them; it
knows neither the hint LATEST nor the loss of a fencing number, which it takes for durable.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from run_situations import NumberTrainer, Run, mixed
from simulated_disk import SimulatedDisk, Tree, crash_trees
from store_situations import new_store, publish

from impl import CheckpointCorrupt
from impl.store import CheckpointReader, WriterRecord, is_leftover, read_front, scan, strict_json

ROOT = Path("/disk/run")


@dataclass(frozen=True)
class Promised:
    """What was said to be safe: the sequence of the newest save that returned, and the number of the last claim."""

    sequence: int = 0
    fence: int = 0


@dataclass
class Recording:
    """Every crash state of a run; with `every` those that differ inside leftovers alone are told apart too."""

    disk: SimulatedDisk
    every: bool
    promised: Promised = Promised()
    moments: int = 0
    states: int = 0
    #: What a reader can see of the states so far, each with the most that had been promised when it was checked.
    checked: dict[Tree, Promised] = field(default_factory=dict)
    #: The states with the two extremes inside leftovers.
    trees: set[Tree] = field(default_factory=set)
    violation: str | None = None
    #: What the run was at each save, by the name of the checkpoint; None for the state of the trainer's number.
    images: dict[str, tuple[dict[str, object], int]] = field(default_factory=dict)

    def look(self) -> None:
        """A crash may come now: check every state it may leave, and stop at the first that breaks a property."""
        if self.violation is not None:
            return
        self.moments += 1
        extremes = list(crash_trees(self.disk.root))
        self.trees.update(extremes)
        for tree in crash_trees(self.disk.root, every=True) if self.every else extremes:
            self.states += 1
            seen = visible(tree)
            if self.checked.get(seen) != self.promised:
                # Promises only grow, so the newest one asks for most.
                self.checked[seen] = self.promised
                self.violation = broken_property(tree, self.promised)
                if self.violation is not None:
                    return


def visible(tree: Tree) -> Tree:
    """The tree without what is in leftovers: of those a reader sees the name alone."""
    if isinstance(tree, bytes):
        return tree
    return tuple((name, () if is_leftover(name) and below != b"" else visible(below)) for name, below in tree)


def broken_property(tree: Tree, promised: Promised) -> str | None:
    """The first property that this state breaks, with what is wrong; None if it holds them all."""
    disk = SimulatedDisk(tree)
    catalogue = scan(disk, str(ROOT))
    fences = [0]
    for candidate in catalogue.candidates:
        try:
            reader = CheckpointReader(disk, str(ROOT), candidate.name)
            reader.verify()
            fences.append(reader.manifest.fence)
        except CheckpointCorrupt as error:
            return f"published_is_whole: {error}"
    newest = catalogue.candidates[0].sequence if catalogue.candidates else 0
    if newest < promised.sequence:
        return f"acknowledged_is_durable: save {promised.sequence} had returned and the newest is {newest}"
    latest = content(disk, "LATEST")
    if latest is not None and (not latest.endswith(b"\n") or not latest.startswith(b"step_")):
        return f"latest_is_whole: {latest!r}"
    writer = content(disk, "WRITER")
    if writer is not None:
        with suppress(CheckpointCorrupt):
            fences.append(strict_json.decode(writer, WriterRecord, "WRITER").fence)
    if max(fences) < promised.fence:
        return f"fence_is_durable: {promised.fence} was taken and the highest on the disk is {max(fences)}"
    return None


def content(disk: SimulatedDisk, name: str) -> bytes | None:
    """A small file of the checkpoint directory."""
    try:
        handle = disk.open_read(f"{ROOT}/{name}")
    except FileNotFoundError:
        return None
    return read_front(disk, handle, 1 << 20)


async def recorded(skip: int | None = None, *, every: bool = False) -> Recording:
    """Two saves, the second with a retention; a restore and the same step saved again, with another; with a trainer.

    `skip` is the fsync that does nothing.
    """
    recording = Recording(SimulatedDisk((("disk", ()),), skip), every)
    recording.disk.after_change = recording.look

    async def save(run: Run, trainer: NumberTrainer) -> None:
        state = run.state()
        pending = await run.checkpointer.begin_save(trainer)
        recording.images[pending.name] = (state, trainer.value)
        info = await pending.durable()
        recording.promised = Promised(info.sequence, recording.promised.fence)

    async def live(name: str) -> Run:
        run = Run(ROOT, files=recording.disk, keep=1, name=name)
        await run.checkpointer.prepare()
        recording.promised = Promised(recording.promised.sequence, recording.promised.fence + 1)
        return run

    run = await live("first")
    await save(run, NumberTrainer(7))
    await mixed(run)
    await save(run, NumberTrainer(8))
    await run.checkpointer.close()
    run = await live("second")
    trainer = NumberTrainer()
    assert (await run.checkpointer.restore(trainer=trainer)).name == "step_1-2"
    await run.reserve()
    await save(run, trainer)
    await run.checkpointer.close()
    recording.look()
    return recording


async def resumed(tree: Tree) -> tuple[str | None, Any]:
    """What a run finds that begins in this state: the name of the checkpoint and what it is then; both None if none.

    It saves once more and leaves nothing behind but sound checkpoints.
    """
    disk = SimulatedDisk(tree)
    run, trainer = Run(ROOT, files=disk, keep=1, name="third"), NumberTrainer()
    name, image = None, None
    if run.checkpointer.latest() is not None:
        name = (await run.checkpointer.restore(trainer=trainer)).name
        image = (run.state(), trainer.value)
    await run.checkpointer.save(trainer)
    await run.checkpointer.close()
    store = new_store(ROOT, disk, keep=1, name="fourth")
    store.open()
    publish(store, 99)
    store.close()
    left = [entry for entry in disk.listdir(str(ROOT)) if entry not in (".LOCK", "WRITER", "LATEST")]
    assert len(left) == 1, left
    assert left[0].startswith("step_99-")
    return name, image
