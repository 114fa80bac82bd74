"""`python -m impl fsck DIR` and `inspect DIR`: the survey as tables for people, and as JSON for programs.

Exit 0 fine · 1 corruption, lost or doubled prompts · 2 wrong use · 3 something could not be read.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from cleancut_leaf.terminal import CannotWrite, Screen, complain, how_far, require_writable, write_file
from cleancut_leaf.words import age_in_words, counted, size_in_words

from ..checkpoint.ownership import OWNERS, Keys
from ..errors import CleancutError, UsageError
from ..store import names
from ..store.files import Handle
from ..store.posix_files import PosixFiles
from .examine import Examined
from .plain_text import cell, fits, say, without_halves
from .probe import probe
from .survey import Survey, bytes_below, lineage, survey

HOLDS, TROUBLE, WRONG_USE, NOT_COMPLETE = 0, 1, 2, 3
_STATUS = {"holds": HOLDS, "fails": TROUBLE, "inconclusive": NOT_COMPLETE}


def run_fsck(directory: Path, json_to: str | None, probing: bool, console: Console) -> int:
    """Every byte and every owner; with `probing` what the file system itself does. The exit status."""
    return _run(_probe if probing else _fsck, directory, json_to, console)


def run_inspect(directory: Path, json_to: str | None, console: Console) -> int:
    """What there is, from manifests, lengths and indexes: the payload is not read. The exit status."""
    return _run(_inspect, directory, json_to, console)


def _run(
    command: Callable[[str, Console], dict[str, Any]], directory: Path, json_to: str | None, console: Console
) -> int:
    root = os.path.abspath(directory)
    to_standard_output = json_to == "-"
    try:
        require_writable(None if to_standard_output else json_to)
        document = command(root, Screen(file=sys.stderr) if to_standard_output else console)
        text = json.dumps(without_halves(document), indent=2) + "\n"
        if to_standard_output:
            # By way of the screen, which knows what a reader that has left means.
            console.out(text, end="", highlight=False)
        elif json_to is not None:
            write_file(json_to, text)
    except (UsageError, CannotWrite) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename or directory}: {error.strerror or error}")
    except CleancutError as error:
        complain("python -m impl", error)
        return NOT_COMPLETE
    return _STATUS[document["verdict"]]


def _refuse(message: str) -> int:
    complain("python -m impl", message)
    return WRONG_USE


def _fsck(root: str, console: Console) -> dict[str, Any]:
    found = _surveyed(root, console, digests=True)
    _print_checkpoints(found, console)
    _print_rest(found, console)
    return document(found)


def _inspect(root: str, console: Console) -> dict[str, Any]:
    found = _surveyed(root, console, digests=False)
    _print_checkpoints(found, console)
    shown = next((each for each in found.checkpoints if each.name == found.resume.name), None)
    if shown is not None:
        _print_contents(shown, console)
    _print_rest(found, console)
    return document(found, contents=True)


class _Counting(PosixFiles):
    """Files that count the bytes read, by whichever thread."""

    def __init__(self, counted: Callable[[int], None]) -> None:
        super().__init__()
        self._counted = counted

    def read_into(self, handle: Handle, room: memoryview) -> int:
        filled = super().read_into(handle, room)
        self._counted(filled)
        return filled


def _surveyed(root: str, console: Console, *, digests: bool) -> Survey:
    """The survey, shown on a terminal as it goes; an interruption says how far it had come."""
    last, read = "nothing", 0
    # What is there to be read; a survey without digests reads a little of it, nobody knows how much.
    total = bytes_below(root, names.parse_checkpoint_name) if digests and console.is_terminal else None

    def note(text: str) -> None:
        nonlocal last
        last = text
        shown.at(read / 1e6, known, text)

    def counted(size: int) -> None:
        nonlocal read
        read += size
        shown.at(read / 1e6, known)

    known = None if total is None else total / 1e6
    try:
        with how_far(console, "looking …", "MB") as shown:
            return survey(_Counting(counted), root, digests=digests, note=note)
    except KeyboardInterrupt:
        print(f"interrupted while {last} was looked at", file=sys.stderr)
        raise


def _probe(root: str, console: Console) -> dict[str, Any]:
    with how_far(console, "trying the file system …", "calls"):
        results = probe(PosixFiles(), root)
    table = Table(box=SIMPLE)
    for heading in ("needed by the store", "ok", "seen"):
        table.add_column(heading, overflow="fold")
    for each in results:
        table.add_row(each.needed, cell(console, "yes" if each.ok else "NO", bad=not each.ok), cell(console, each.seen))
    console.print(table)
    ok = all(each.ok for each in results)
    last = "does what the store needs" if ok else "does not do what the store needs; use another one for checkpoints"
    say(console, f"the file system of {root} {last}. What power cuts do to it no program can try out.")
    checks = [{"needed": each.needed, "ok": each.ok, "seen": each.seen} for each in results]
    return {"verdict": "holds" if ok else "fails", "complete": True, "directory": root, "checks": checks}


def _print_checkpoints(found: Survey, console: Console) -> None:
    """Two tables; where they do not fit, two lines for each checkpoint, which say the same."""
    if not found.checkpoints:
        return
    there = frozenset(each.name for each in found.checkpoints)
    about, owners = Table(box=SIMPLE), Table(box=SIMPLE, padding=0)  # nine columns, and often eighty characters
    for heading in ("checkpoint", *_ABOUT):
        about.add_column(heading)
    for heading in ("checkpoint", *_OWNED):
        owners.add_column(heading, justify="left" if heading == "checkpoint" else "right")
    for each in found.checkpoints:
        state, *rest = _about(each, found, there)
        about.add_row(each.name, cell(console, state, bad=state != "whole"), *(cell(console, text) for text in rest))
        owners.add_row(each.name, *_balance(each))
    if fits(console, about) and fits(console, owners):
        console.print(about)
        console.print(owners)
        return
    for each in found.checkpoints:
        state, kind, age, size, parent = _about(each, found, there)
        parent = parent if each.manifest is not None and each.manifest.parent is None else f"parent {parent}"
        say(console, f"{each.name}: {state}, {kind}, {age} old, {size}, {parent}")
        say(console, f"  {', '.join(f'{number} {what}' for what, number in zip(_OWNED, _balance(each), strict=True))}")


_ABOUT = ("state", "kind", "age", "size", "parent")
_OWNED = ("handed out", *OWNERS, "lost", "doubled")


def _about(each: Examined, found: Survey, there: frozenset[str]) -> list[str]:
    """What a checkpoint is, under the headings of `_ABOUT`."""
    kind = each.manifest.kind if each.manifest else "?"
    size = "?" if each.bytes is None else size_in_words(each.bytes)
    return [each.state, kind, age_in_words(each.written, found.at), size, lineage(each, there)]


def _balance(each: Examined) -> list[str]:
    owners = each.ownership
    if owners is None:
        return ["?"] * 8
    known = owners.handed_out is not None
    return [
        str(owners.handed_out) if known else "?",
        *(str(owners.owned[owner]) for owner in OWNERS),
        str(owners.lost.count) if known else "?",
        str(owners.doubled.count + owners.ahead.count),
    ]


def _print_contents(each: Examined, console: Console) -> None:
    manifest = each.manifest
    assert manifest is not None
    table = Table(box=SIMPLE)
    for heading in (f"file of {each.name}", "bytes", "tensors", "sha256"):
        table.add_column(heading, overflow="fold")
    for name, record in manifest.files.items():
        tensors = "" if record.tensors is None else str(len(record.tensors))
        table.add_row(cell(console, name), f"{record.length:,}", tensors, record.sha256[:16])
    console.print(table)
    sampler = manifest.identity.sampler
    parameters = ", ".join(f"{name}={value}" for name, value in sampler.parameters.items())
    counts = ", ".join(f"{name} {count.value} {count.unit}" for name, count in manifest.counts.items())
    identity = manifest.identity
    for line in (
        f"sequence {manifest.sequence}, step {manifest.step}, fencing number {manifest.fence}; {counts}",
        f"written for {counted(identity.dataset_length, 'prompt')} of seed {identity.seed} in batches of "
        f"{identity.batch_size}, sampler {sampler.name}({parameters})",
    ):
        say(console, line)


def _print_rest(found: Survey, console: Console) -> None:
    holder = f", last taken by {found.lock.holder}" if found.lock.holder else ""
    fence = f" with fencing number {found.lock.fence}" if found.lock.fence is not None else ""
    say(console, f"lock: {found.lock.state}{holder}{fence}")
    doing = "under way in the run that holds the lock, or left over" if found.lock.state == "held" else "left over"
    for leftover in found.leftovers:
        say(console, f"{doing}: {leftover.name}, {size_in_words(leftover.bytes)}")
    for name, reason in found.ignored:
        say(console, f"ignored: {name}: {reason}")
    for label, texts in (("notice", found.notices), ("not checked", found.not_checked), ("TROUBLE", found.problems)):
        for text in texts:
            say(console, f"{label}: {text}")
    taken = f"takes {found.resume.name}" if found.resume.name else "takes none"
    say(console, f"a resume {taken}: {found.resume.why}")
    lost = sum(each.ownership.lost.count for each in found.checkpoints if each.ownership)
    doubled = sum(each.ownership.doubled.count + each.ownership.ahead.count
                  for each in found.checkpoints if each.ownership)  # fmt: skip
    known = all(
        each.ownership and each.ownership.handed_out is not None
        for each in found.checkpoints
        if each.manifest is None or each.manifest.kind != "trainer"
    )
    account = f"{lost} lost, {doubled} doubled" if known else f"{doubled} doubled, lost unknown"
    say(
        console,
        f"{counted(len(found.checkpoints), 'checkpoint')}, {account}, {counted(len(found.problems), 'problem')}, "
        f"{len(found.not_checked)} not checked: {found.verdict}",
    )


def document(found: Survey, *, contents: bool = False) -> dict[str, Any]:
    """The survey as plain values; `contents` adds every file of every checkpoint."""
    return {
        "verdict": found.verdict,
        "complete": not found.not_checked,
        "directory": found.root,
        "seconds": round(found.seconds, 3),
        "resume": {"name": found.resume.name, "why": found.resume.why, "refused": found.resume.refused},
        "lock": {"state": found.lock.state, "holder": found.lock.holder, "fence": found.lock.fence},
        "latest": found.latest,
        "checkpoints": [_checkpoint(each, found, contents) for each in found.checkpoints],
        "leftovers": [{"name": each.name, "bytes": each.bytes} for each in found.leftovers],
        "ignored": [{"name": name, "reason": reason} for name, reason in found.ignored],
        "problems": list(found.problems),
        "notices": list(found.notices),
        "not_checked": list(found.not_checked),
    }


def _checkpoint(each: Examined, found: Survey, contents: bool) -> dict[str, Any]:
    manifest, owners = each.manifest, each.ownership
    entry: dict[str, Any] = {
        "name": each.name,
        "step": each.candidate.step,
        "sequence": each.candidate.sequence,
        "state": each.state,
        "problems": each.problems,
        "digests_checked": each.digests_checked,
        "written": each.written,
        "age_seconds": None if each.written is None else round(found.at - each.written, 3),
        "bytes": each.bytes,
        "kind": manifest.kind if manifest else None,
        "parent": manifest.parent if manifest else None,
        "anchor": manifest.anchor if manifest else None,
        "fence": manifest.fence if manifest else None,
        "owners": None,
    }
    if owners is not None:
        entry["owners"] = {
            "handed_out": owners.handed_out,
            **{owner: owners.owned[owner] for owner in OWNERS},
            "lost": None if owners.handed_out is None else _keys(owners.lost),
            "doubled": _keys(owners.doubled),
            "ahead_of_the_loader": None if owners.handed_out is None else _keys(owners.ahead),
        }
    if contents and manifest is not None:
        entry["counts"] = {name: {"value": count.value, "unit": count.unit} for name, count in manifest.counts.items()}
        entry["files"] = [
            {
                "name": name,
                "bytes": record.length,
                "sha256": record.sha256,
                "tensors": None
                if record.tensors is None
                else {key: {"dtype": said.dtype, "shape": list(said.shape)} for key, said in record.tensors.items()},
            }
            for name, record in manifest.files.items()
        ]
    return entry


def _keys(keys: Keys) -> dict[str, Any]:
    return {"count": keys.count, "examples": [{"key": list(key), "about": about} for key, about in keys.examples]}
