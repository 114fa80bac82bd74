"""A disk in memory that looks at itself after every change: the file layer under a writer, and every crash state."""

from __future__ import annotations

from collections.abc import Callable

from impl.store import Handle
from interleavings.scenarios import Call, Directory, FakeDisk, Tree, crash_trees, planted

__all__ = ["SimulatedDisk", "Tree", "crash_trees"]


class SimulatedDisk(FakeDisk):
    """`Files` over such a disk. `skip` is the number of one fsync, from 0, that reports success and does nothing.

    `after_change` is called after every call that changed something, on the thread of the caller.
    """

    def __init__(self, tree: Tree = (), skip: int | None = None) -> None:
        super().__init__()
        root = planted(tree)
        assert isinstance(root, Directory)
        self.root = root
        self.after_change: Callable[[], None] = lambda: None
        self.after_call = self._changed
        #: What each fsync was of, in order: the path of a file or directory.
        self.synced: list[str] = []
        self._skip = skip

    def _changed(self, call: Call) -> None:
        self.after_change()

    def _skipped(self, path: str) -> bool:
        self.synced.append(path)
        return len(self.synced) - 1 == self._skip

    def fsync(self, handle: Handle) -> None:
        if self._skipped(self._handles[handle][1]):
            self.after_change()
        else:
            super().fsync(handle)

    def fsync_dir(self, path: str) -> None:
        if self._skipped(path):
            self.after_change()
        else:
            super().fsync_dir(path)
