"""Programs that may crash: a disk with a cache, and what a process that starts on it goes on with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from interleavings import Subject


class CachedDisk:
    """Cells that are durable once synced; before that a crash may leave each of them old or new, all in one way."""

    def __init__(self, durable: dict[str, int] | None = None) -> None:
        self.durable = dict(durable or {})
        self.cached: dict[str, int] = {}

    def read(self, name: str) -> int:
        """The newest value, 0 when there is none."""
        return self.cached.get(name, self.durable.get(name, 0))

    def write(self, name: str, value: int) -> None:
        """Into the cache."""
        self.cached[name] = value

    def sync(self) -> None:
        """All of the cache becomes durable."""
        self.durable.update(self.cached)
        self.cached.clear()

    def images(self) -> dict[str, CachedDisk]:
        """What a crash now may leave: what was synced, or all that was written."""
        found = {"what was synced": CachedDisk(self.durable)}
        if any(self.durable.get(name) != value for name, value in self.cached.items()):
            found["all that was written"] = CachedDisk({**self.durable, **self.cached})
        return found


def counting(to: int, *, syncs: bool) -> Callable[[], Subject]:
    """Counts up on the disk and says each number once it is safe; a number that was said must not be lost."""

    def program() -> Subject:
        said: list[int] = []
        disk = CachedDisk()

        async def count(disk: CachedDisk) -> int:
            while (value := disk.read("number")) < to:
                await asyncio.sleep(0)
                disk.write("number", value + 1)
                await asyncio.sleep(0)
                if syncs:
                    disk.sync()
                said.append(value + 1)
                await asyncio.sleep(0)
            return disk.read("number")

        def recover(image: CachedDisk) -> Any:
            nonlocal disk
            disk = image
            found = disk.read("number")
            assert found >= max(said, default=0), f"{max(said)} was said to be safe, and {found} is left"
            return count(disk)

        return Subject(count(disk), durable=lambda: disk.images(), recover=recover)

    return program


def lost_update() -> Subject:
    """`counting` without a sync, as a generated test can import it."""
    return counting(2, syncs=False)()


def scripted(scripts: Sequence[Sequence[str]]) -> Callable[[], Subject]:
    """Tasks that each run a script over a cached disk and asyncio's primitives; after a crash all run again."""

    def program() -> Subject:
        disk = CachedDisk()
        lives = 0

        async def run(script: Sequence[str], event: asyncio.Event, queue: asyncio.Queue[int]) -> None:
            try:
                for instruction in script:
                    if instruction == "pass":
                        await asyncio.sleep(0)
                    elif instruction == "add":
                        seen = disk.read("x")
                        await asyncio.sleep(0)
                        disk.write("x", seen + 1)
                    elif instruction == "copy":
                        disk.write("y", disk.read("x"))
                    elif instruction == "sync":
                        disk.sync()
                    elif instruction == "set":
                        event.set()
                    elif instruction == "wait":
                        await event.wait()
                    elif instruction == "put":
                        queue.put_nowait(disk.read("x"))
                    elif instruction == "get":
                        disk.write("z", await queue.get())
                    elif instruction == "sleep":
                        await asyncio.sleep(1)
                    elif instruction == "thread":
                        await asyncio.to_thread(disk.write, "y", 7)
            finally:
                disk.write("ended", disk.read("ended") + 1)

        async def main() -> tuple[Any, ...]:
            event, queue = asyncio.Event(), asyncio.Queue[int]()
            await asyncio.gather(*(run(script, event, queue) for script in scripts))
            return lives, *(disk.read(name) for name in ("x", "y", "z", "ended"))

        def recover(image: CachedDisk) -> Any:
            nonlocal disk, lives
            disk = image
            lives += 1
            return main()

        return Subject(main(), durable=lambda: disk.images(), recover=recover)

    return program
