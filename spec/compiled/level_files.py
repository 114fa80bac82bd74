"""A search put aside after a completed level, so that it can go on later.

Only whole levels are kept: what a half-expanded level had added is worked out again. Files are written beside and moved
into place, the description last, with the digests of the others; without it there is nothing to resume, and what does
not fit it is refused. A search that went on from other states would hold for the wrong reason.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from .kept_code import write_whole
from .library import cache_directory
from .storage import Storage

DESCRIPTION, STATES, PARENTS = "search.json", "states.npy", "parents.npy"


@dataclass(frozen=True)
class Level:
    """A search at the moment a level was completed: the states from `first` on are to be expanded next."""

    depth: int
    first: int
    count: int
    transitions: int
    taken: list[int]
    missing: list[int]
    seconds: float


def place_of(key: str) -> Path:
    """Where the search of that key is put aside."""
    return cache_directory() / "searches" / key


def save(key: str, level: Level, storage: Storage) -> Path:
    """Put a search aside; what was there of the same key is replaced."""
    directory = place_of(key)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / DESCRIPTION).unlink(missing_ok=True)
    digests = {}
    for name, array in ((STATES, storage.states), (PARENTS, storage.parents)):
        with open(directory / name, "wb") as file:
            np.save(file, array[: level.count], allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        digests[name] = _digest(directory / name)
    write_whole(directory / DESCRIPTION, json.dumps({**asdict(level), "digests": digests}).encode())
    return directory


def load(key: str, storage: Storage) -> Level | None:
    """Fill the storage with a search put aside; None when there is none. ValueError for one that is damaged."""
    directory = place_of(key)
    try:
        text = (directory / DESCRIPTION).read_bytes()
    except FileNotFoundError:
        return None
    try:
        described = json.loads(text)
        digests = described.pop("digests")
        level = Level(**described)
        for name in (STATES, PARENTS):
            if _digest(directory / name) != digests[name]:
                raise ValueError(f"{name} has another digest")
        states = np.load(directory / STATES, mmap_mode="r", allow_pickle=False)
        parents = np.load(directory / PARENTS, mmap_mode="r", allow_pickle=False)
        if len(states) != level.count or len(parents) != level.count:
            raise ValueError(f"it does not hold {level.count} states")
        storage.states[: level.count] = states
        storage.parents[: level.count] = parents
    except (AttributeError, EOFError, KeyError, OSError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{directory} is damaged: {error!r:.200}; remove it and search anew") from error
    storage.count = level.count
    return level


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def forget(key: str) -> None:
    """Remove a search that was put aside, if there is one."""
    directory = place_of(key)
    for name in (DESCRIPTION, STATES, PARENTS):
        (directory / name).unlink(missing_ok=True)
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
