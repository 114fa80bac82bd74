"""A search put aside after a completed level, so that it can go on later.

Only whole levels are kept: what a half-expanded level had added is worked out again. Files are written beside and moved
into place, the description last, with the digests of the others; without it there is nothing to resume, and what does
not fit it is refused. A search that went on from other states would hold for the wrong reason.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from .kept_code import write_whole
from .library import cache_directory
from .storage import Storage

DESCRIPTION, STATES, PARENTS = "search.json", "states.npy", "parents.npy"
_AT_ONCE = 1 << 20


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


class SearchDamaged(ValueError):
    """What was put aside is not what a search leaves; the message is one clear line."""


def load(key: str, storage: Storage, counters: Mapping[str, int]) -> Level | None:
    """Fill the storage with a search put aside; None when there is none.

    `counters` says how many numbers `taken` and `missing` hold. Compiled code reads what is loaded without a look at
    it, so every number is looked at here.
    """
    directory = place_of(key)
    try:
        level, digests = _level_in((directory / DESCRIPTION).read_text(encoding="utf-8"), counters)
        for name in (STATES, PARENTS):
            if _digest(directory / name) != digests[name]:
                raise ValueError(f"{name} has another digest")
        states = np.load(directory / STATES, mmap_mode="r", allow_pickle=False)
        parents = np.load(directory / PARENTS, mmap_mode="r", allow_pickle=False)
        _require_arrays(level, states, parents, storage)
    except FileNotFoundError as fault:
        if fault.filename == str(directory / DESCRIPTION):
            return None
        raise _damaged(directory, f"{fault.filename} is missing") from None
    except (ValueError, TypeError, EOFError, OSError, RecursionError) as fault:
        raise _damaged(directory, str(fault)) from None
    if level.count > storage.states.shape[0]:
        raise SearchDamaged(
            f"the search in {directory} holds {level.count:,} states, more than the limit of memory allows; raise "
            "--memory, or leave --resume out"
        )
    storage.states[: level.count] = states
    storage.parents[: level.count] = parents
    storage.count = level.count
    return level


def _damaged(directory: Path, why: str) -> SearchDamaged:
    return SearchDamaged(f"the search in {directory} is damaged: {why}; remove it and search anew, without --resume")


def _level_in(text: str, counters: Mapping[str, int]) -> tuple[Level, dict[str, str]]:
    document = json.loads(text)
    digests = document.pop("digests", None) if isinstance(document, dict) else None
    if digests is None or document.keys() != {each.name for each in fields(Level)}:
        raise ValueError(f"{DESCRIPTION} does not describe a level")
    if not isinstance(digests, dict) or digests.keys() != {STATES, PARENTS}:
        raise ValueError(f"{DESCRIPTION} has not the digests of {STATES} and {PARENTS}")
    level = Level(**document)
    numbers = [level.depth, level.first, level.count, level.transitions, *_listed(level.taken), *_listed(level.missing)]
    if not all(type(each) is int and 0 <= each < 1 << 63 for each in numbers):
        raise ValueError(f"{DESCRIPTION} counts with what is no count")
    if type(level.seconds) not in (int, float) or not 0 <= level.seconds < 1e12:
        raise ValueError(f"{DESCRIPTION} took {level.seconds!r} seconds")
    for name, length in counters.items():
        if len(getattr(level, name)) != length:
            raise ValueError(f"{DESCRIPTION} has not {length} numbers in {name!r}")
    if not level.first < level.count:
        raise ValueError(f"{DESCRIPTION} has nothing left to be expanded")
    return level, digests


def _listed(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


def _require_arrays(level: Level, states: Any, parents: Any, storage: Storage) -> None:
    """Refuse arrays of another kind or length than a search has, and a parent that is not an earlier state."""
    for name, array, like in ((STATES, states, storage.states), (PARENTS, parents, storage.parents)):
        if array.dtype != like.dtype or array.shape != (level.count, *like.shape[1:]):
            raise ValueError(f"{name} does not hold {level.count} states")
    for start in range(0, level.count, _AT_ONCE):
        part = np.asarray(parents[start : start + _AT_ONCE])
        if ((part < -1) | (part >= np.arange(start, start + len(part)))).any():
            raise ValueError(f"{PARENTS} names a parent that is no earlier state")


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
