"""Surveys a checkpoint directory: every checkpoint in it, what else lies there, and what a resume would take.

Takes no lock and changes nothing, so it may run beside a live run: a checkpoint that retention removes meanwhile is
left out, not called damaged.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from cleancut_leaf.words import counted, none_valid

from ..errors import UsageError
from ..store import names
from ..store.catalogue import Catalogue, listing
from ..store.failures import READING, store_error
from ..store.files import Files, read_front
from .examine import Examined, Readers, examine, unchanged
from .lock_state import LockState, lock_state

_LATEST_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Resume:
    """What a restore of the newest checkpoint does here. `name` is None if it takes none; `refused`: it is an error."""

    name: str | None
    why: str
    refused: bool


@dataclass(frozen=True, slots=True)
class Leftover:
    """A directory or file of an attempt or a removal that did not end, or that is under way in a live run."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Survey:
    """All that was found; checkpoints with the highest sequence first. `at` is the time of the survey, Unix seconds."""

    root: str
    at: float
    seconds: float
    checkpoints: tuple[Examined, ...]
    resume: Resume
    lock: LockState
    latest: str | None
    leftovers: tuple[Leftover, ...]
    ignored: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]
    notices: tuple[str, ...]
    not_checked: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """`fails` on any trouble, `inconclusive` if something could not be read, else `holds`."""
        if self.problems:
            return "fails"
        return "inconclusive" if self.not_checked else "holds"


def survey(
    files: Files,
    root: str,
    *,
    digests: bool,
    note: Callable[[str], None] = lambda text: None,
    known: Mapping[str, Examined] = MappingProxyType({}),
) -> Survey:
    """Look at everything. UsageError if this is no directory of checkpoints; OSError if it cannot be listed.

    `note` is told what is looked at next: reading every byte of a large directory takes its time. `known` are
    checkpoints by name as an earlier survey found them, which are not read again if nothing of them has changed.
    """
    began = time.perf_counter()
    now = time.time()
    _require_checkpoint_directory(root)
    catalogue = listing(files, root)
    problems = [] if catalogue.clash is None else [catalogue.clash]
    found: list[Examined] = []
    readers = Readers(files, root)
    for candidate in catalogue.candidates:
        note(f"{candidate.name}, {len(found) + 1} of {len(catalogue.candidates)}")
        earlier = known.get(candidate.name)
        if earlier is None or not unchanged(root, earlier):
            earlier = examine(readers, candidate, digests=digests)
        found.append(earlier)
    present = [each for each in found if each.state != "removed"]
    notices = [notice for each in present for notice in each.notices]
    notices += [f"{each.name} was removed while it was looked at, as retention of a live run does."
                for each in found if each.state == "removed"]  # fmt: skip
    for each in present:
        if each.state != "unreadable":
            problems += each.problems
    resume = _resume(present, catalogue)
    taken = next((each.candidate.sequence for each in present if each.name == resume.name), 0)
    # Of a resume that is refused, everything may be newer than what the next one takes.
    problems += [
        f"{entry.name}: {entry.reason}. It is newer than what a resume takes ({resume.name or 'nothing'}), which "
        "passes over it. Bring the directory itself back under its name, or move this elsewhere."
        for entry in catalogue.ignored_above(taken)
    ]
    latest = _latest(files, root)
    lock = lock_state(files, root)
    notices += _remarks(present, latest)
    leftovers = tuple(Leftover(name, bytes_below(f"{root}/{name}")) for name in catalogue.leftovers)
    if leftovers and lock.state == "free":
        notices.append(
            f"{counted(len(leftovers), 'leftover')} of a save that did not end; the next save removes what is left."
        )
    return Survey(
        root=root,
        at=now,
        seconds=time.perf_counter() - began,
        checkpoints=tuple(present),
        resume=resume,
        lock=lock,
        latest=latest,
        leftovers=leftovers,
        ignored=tuple((entry.name, entry.reason) for entry in catalogue.ignored if not names.is_leftover(entry.name)),
        problems=tuple(problems),
        notices=tuple(notices),
        not_checked=tuple(text for each in present if each.state == "unreadable" for text in each.problems),
    )


def _resume(checkpoints: list[Examined], catalogue: Catalogue) -> Resume:
    """As `restoring.read_plan` chooses: the highest sequence that is not damaged."""
    if catalogue.clash is not None:
        return Resume(None, catalogue.clash, refused=True)
    passed_over: list[str] = []
    for each in checkpoints:
        if each.state == "damaged":
            passed_over.append(each.name)
            continue
        if each.state != "whole":
            return Resume(None, f"a resume stops at {each.name}, which is {each.state}: {each.problems[0]}", True)
        reason = "it has the highest sequence and every file is as it was written"
        if not each.digests_checked:
            reason = "it has the highest sequence and every file has its length; digests were not compared"
        if passed_over:
            reason = f"the newer ones are damaged and are passed over ({', '.join(passed_over)})"
        if ignored := catalogue.ignored_above(each.candidate.sequence):
            reason += f"; what is no directory is passed over ({', '.join(entry.name for entry in ignored)})"
        if each.manifest is not None and each.manifest.kind == "trainer":
            reason += "; but it holds the trainer alone, so only a run with recovery=False does"
        return Resume(each.name, reason, False)
    passed_over += [entry.name for entry in catalogue.ignored_above(0)]
    if passed_over:
        return Resume(None, f"{none_valid(len(passed_over))}, so a resume is refused", True)
    return Resume(None, "there is no checkpoint yet; a run begins anew", False)


def _remarks(checkpoints: list[Examined], latest: str | None) -> list[str]:
    """What is odd and no trouble: a pointer that is behind, a parent that is gone from the middle."""
    remarks = []
    newest = checkpoints[0].name if checkpoints else None
    if newest is not None and latest != newest:
        said = "is missing" if latest is None else f"names {latest}"
        remarks.append(f"{names.LATEST} {said}, and the newest is {newest}. It is a hint that nothing reads.")
    return remarks


def lineage(each: Examined, there: frozenset[str]) -> str:
    """The parent of a checkpoint in words: the one that was newest in the run that wrote it."""
    if each.manifest is None:
        return "?"
    parent = each.manifest.parent
    if parent is None:
        return "first of its run"
    return parent if parent in there else f"{parent} (gone)"


def _require_checkpoint_directory(root: str) -> None:
    if not os.path.isdir(root):
        raise UsageError(f"{root} is not a directory; give the directory of a run's checkpoints")
    try:
        found = os.listdir(root)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise store_error(error, f"{READING}{root}") from error
    ours = {names.LOCK, names.WRITER, names.LATEST}
    if not any(name in ours or names.is_leftover(name) or names.parse_checkpoint_name(name) for name in found):
        if names.MANIFEST in found:
            raise UsageError(f"{root} is one checkpoint; give the directory it lies in, {os.path.dirname(root) or '.'}")
        below = next((name for name in sorted(found) if os.path.lexists(f"{root}/{name}/{names.LOCK}")), None)
        hint = f"; {root}/{below} is one" if below else ""
        raise UsageError(f"{root} holds no checkpoints and no sign of a run that saves{hint}")


def _latest(files: Files, root: str) -> str | None:
    try:
        handle = files.open_read(f"{root}/{names.LATEST}")
    except OSError:
        return None
    try:
        return read_front(files, handle, _LATEST_LIMIT).decode("utf-8", "replace").strip()
    except OSError:
        return None
    finally:
        files.close(handle)


def bytes_below(path: str, wanted: Callable[[str], object] = lambda name: True) -> int:
    """The bytes below a path, in those of its entries that are `wanted`; a live writer may remove some meanwhile.

    Not what links lead to, nor what cannot be looked at.
    """
    total = 0
    waiting = [path]
    while waiting:
        directory = waiting.pop()
        with suppress(OSError):
            if not stat.S_ISDIR((found := os.lstat(directory)).st_mode):
                total += found.st_size
                continue
            waiting += (f"{directory}/{name}" for name in os.listdir(directory) if directory != path or wanted(name))
    return total
