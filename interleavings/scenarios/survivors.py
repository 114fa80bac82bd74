"""What a crash may leave of the disk of a run, at this moment or in the middle of the step that has just ended.

A job of the writer is one step of the explorer, and makes some sixty calls. What the process has in memory is gone
after a crash whichever call was the last, so the moments between the calls are offered when the step has ended.

An image is one choice for all that a run which resumes finds alike: checkpoints and the writer's fencing number, in
every state that POSIX allows. Left out are LATEST, which nothing reads, and leftovers, which are removed and never
read; images that differ in those alone are taken as one, the one with the fewest effects. Every single crash state of
the writer is enumerated where that is the question, in tests/test_store_power.py.
"""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from impl.store import names
from impl.store.files import Handle

from .crash_images import Tree, crash_trees
from .fake_disk import Call, FakeDisk

#: What was worked out already, by the state of the disk and the calls since: a search replays the same calls over and
#: over.
_known: dict[tuple[bytes, bytes], tuple[dict[str, Tree], bytes]] = {}


class Survivors:
    """The crash images of one disk. `step_ended` after every step; `images` are then those of that step."""

    def __init__(self, tree: Tree) -> None:
        self.disk = FakeDisk.found(tree)
        self.disk.after_call = self._note
        self._tree = tree
        self._calls: list[Call] = []
        self._now = self._digest(tree)
        self._began = (0, self._now)
        self._ended = self._began

    def step_ended(self) -> None:
        """From here on a crash finds what this step has left, or left half done."""
        self._began, self._ended = self._ended, (len(self._calls), self._now)

    def images(self) -> dict[str, Tree]:
        """Each image by the name of what a resuming run finds in it."""
        return self._found()[0]

    def identity(self) -> bytes:
        """The same as one value: two disks with the same crash images have the same."""
        return self._found()[1]

    def _note(self, call: Call) -> None:
        self._calls.append(call)
        self._now = self._digest((self._now, *call))

    def _found(self) -> tuple[dict[str, Tree], bytes]:
        key = (self._began[1], self._ended[1])
        if key not in _known:
            named = self._named()
            _known[key] = (named, self._digest(tuple(named.items())))
        return _known[key]

    def _named(self) -> dict[str, Tree]:
        """Do the calls again on a disk of its own, and look at it after each of the step's."""
        disk, seen = FakeDisk.found(self._tree), dict[Tree, Tree]()
        handles: dict[str, Handle] = {}
        for number, (name, arguments) in enumerate(self._calls[: self._ended[0]]):
            if number == self._began[0]:
                _look(disk, seen)
            _do_again(disk, handles, name, arguments)
            if number >= self._began[0]:
                _look(disk, seen)
        _look(disk, seen)
        named: dict[str, Tree] = {}
        for tree in seen.values():
            name, repeated = name_of(tree), 1
            while name in named:
                repeated += 1
                name = f"{name_of(tree)} (#{repeated})"
            named[name] = tree
        return named

    @staticmethod
    def _digest(value: Any) -> bytes:
        return hashlib.blake2b(marshal.dumps(value, 2), digest_size=16).digest()


def _do_again(disk: FakeDisk, handles: dict[str, Handle], name: str, arguments: tuple[Any, ...]) -> None:
    if name == "open_new":
        handles[arguments[0]] = disk.open_new(*arguments)
    elif name in ("write", "fsync"):
        path, *rest = arguments
        getattr(disk, name)(handles[path], *rest)
    else:
        getattr(disk, name)(*arguments)


def _look(disk: FakeDisk, seen: dict[Tree, Tree]) -> None:
    for tree in crash_trees(disk.root):
        seen.setdefault(what_is_found(tree), tree)


def directory_of(tree: Tree) -> dict[str, Tree]:
    """What is in the one directory at the root: the checkpoint directory."""
    assert not isinstance(tree, bytes)
    ((_, below),) = tree
    assert not isinstance(below, bytes)
    return dict(below)


def what_is_found(tree: Tree) -> Tree:
    """What a run that resumes reads of a tree, or could."""
    unread = (names.LATEST, names.LOCK)
    return tuple(
        (name, below)
        for name, below in directory_of(tree).items()
        if name not in unread and not names.is_leftover(name)
    )


def checkpoints_in(tree: Tree) -> list[str]:
    """The names of the checkpoints in it, the highest sequence last; whether they are whole is not asked."""
    found = {name: numbers for name in directory_of(tree) if (numbers := names.parse_checkpoint_name(name)) is not None}
    return sorted(found, key=lambda name: found[name][1])


def content_in(tree: Tree, path: str) -> bytes | None:
    """The bytes of a file below the checkpoint directory; None where there is none."""
    node: Tree | None = tuple(directory_of(tree).items())
    for part in path.split("/"):
        node = None if node is None or isinstance(node, bytes) else dict(node).get(part)
    return node if isinstance(node, bytes) else None


def changed(tree: Tree, path: str, change: Callable[[bytes], bytes]) -> Tree:
    """The same tree with another content of one file below the checkpoint directory."""

    def within(node: Tree, parts: list[str]) -> Tree:
        if isinstance(node, bytes):
            return change(node)
        return tuple((name, within(below, parts[1:]) if name == parts[0] else below) for name, below in node)

    assert not isinstance(tree, bytes)
    ((root, below),) = tree
    return ((root, within(below, path.split("/"))),)


def name_of(tree: Tree) -> str:
    """What a reader of a trace is told of an image."""
    writer, fence = directory_of(tree).get(names.WRITER), "none"
    if isinstance(writer, bytes):
        with suppress(ValueError, KeyError, TypeError):
            fence = json.loads(writer)["fence"]
    return f"{', '.join(checkpoints_in(tree)) or 'no checkpoint'}; fence {fence}"
