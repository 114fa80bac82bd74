"""A search put aside after a completed level, so that it can go on later.

Only whole levels are kept: what a half-expanded level had added is worked out again. Files are written beside and moved
into place, the description last; without it there is nothing to resume.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
    for name, array in ((STATES, storage.states), (PARENTS, storage.parents)):
        np.save(directory / name, array[: level.count], allow_pickle=False)
    _write(directory / DESCRIPTION, asdict(level))
    return directory


def _write(path: Path, document: Any) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(document), encoding="utf-8")
    os.replace(temporary, path)


def load(key: str, storage: Storage) -> Level | None:
    """Fill the storage with a search put aside; None when there is none."""
    directory = place_of(key)
    try:
        level = Level(**json.loads((directory / DESCRIPTION).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    states = np.load(directory / STATES, mmap_mode="r", allow_pickle=False)
    parents = np.load(directory / PARENTS, mmap_mode="r", allow_pickle=False)
    if len(states) != level.count or len(parents) != level.count:
        raise ValueError(f"{directory} is damaged: it does not hold {level.count} states; remove it and search anew")
    storage.states[: level.count] = states
    storage.parents[: level.count] = parents
    storage.count = level.count
    return level


def forget(key: str) -> None:
    """Remove a search that was put aside, if there is one."""
    directory = place_of(key)
    for name in (DESCRIPTION, STATES, PARENTS):
        (directory / name).unlink(missing_ok=True)
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
