"""What lies in a checkpoint directory: candidates in numeric order, and everything else with the reason it is none.

A name alone never makes a checkpoint: a candidate is valid once its manifest and files have been read. The pointer
LATEST is a hint for people and is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import CheckpointCorrupt
from . import names
from .failures import DAMAGE, READING, translated
from .files import Files

_OWN_FILES = frozenset({names.LOCK, names.WRITER, names.LATEST})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A directory that is named like a checkpoint."""

    name: str
    step: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A name that was passed over, and why. `sequence` and `step` are those of its name, if it is a checkpoint's."""

    name: str
    reason: str
    sequence: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Candidates, the highest sequence first; what is no candidate; what is named like a leftover.

    `highest_sequence` is over all names that carry one, valid or not: a new checkpoint goes above it. `clash` says of
    two candidates that they carry one sequence; such a directory can be looked at, and neither read nor written.
    """

    candidates: tuple[Candidate, ...]
    ignored: tuple[Skipped, ...]
    leftovers: tuple[str, ...]
    highest_sequence: int
    clash: str | None = None

    def ignored_above(self, sequence: int, step: int | None = None) -> tuple[Skipped, ...]:
        """What stands under the name of a newer checkpoint and is none, the newest first; with `step`, of that step."""
        newer = [
            entry
            for entry in self.ignored
            if entry.sequence is not None and entry.sequence > sequence and step in (None, entry.step)
        ]
        return tuple(sorted(newer, key=lambda entry: entry.sequence or 0, reverse=True))


def scan(files: Files, root: str) -> Catalogue:
    """List a checkpoint directory; one that does not exist is empty.

    Two names with one sequence are an error, not a choice: one of them was put there by hand.
    """
    found = listing(files, root)
    if found.clash is not None:
        raise CheckpointCorrupt(found.clash)
    return found


def listing(files: Files, root: str) -> Catalogue:
    """As `scan`, for whoever only looks: two names with one sequence are both listed."""
    with translated(f"{READING}{root}"):
        try:
            found = files.listdir(root)
        except FileNotFoundError:
            found = []
        kinds = {name: kind for name in found if (kind := _kind(files, f"{root}/{name}")) is not None}
    candidates: dict[int, Candidate] = {}
    rivals: list[Candidate] = []
    clash: str | None = None
    ignored: list[Skipped] = []
    leftovers: list[str] = []
    highest = 0
    for name, kind in kinds.items():
        numbers = names.parse_checkpoint_name(name)
        highest = max(highest, numbers[1]) if numbers else highest
        if name in _OWN_FILES:
            continue
        if names.is_leftover(name):
            leftovers.append(name)
            ignored.append(Skipped(name, "left over from a save or a removal that did not end"))
        elif numbers is None:
            ignored.append(Skipped(name, "not named like a checkpoint"))
        elif kind != "directory":
            what = "a file" if kind == "file" else "a link, a fifo or a device, which is not followed"
            ignored.append(Skipped(name, f"named like a checkpoint, but no directory: {what}", numbers[1], numbers[0]))
        else:
            step, sequence = numbers
            candidate = Candidate(name, step, sequence)
            rival = candidates.setdefault(sequence, candidate)
            if rival is not candidate:
                rivals.append(candidate)
                clash = clash or (
                    f"{root}: {rival.name} and {name} both carry the sequence {sequence}. One of them was copied or "
                    "renamed by hand, and there is no telling which is meant; move one of them elsewhere."
                )
    ordered = sorted([*candidates.values(), *rivals], key=lambda candidate: candidate.sequence, reverse=True)
    return Catalogue(tuple(ordered), tuple(ignored), tuple(leftovers), highest, clash)


def _kind(files: Files, path: str) -> str | None:
    """What a listed name is; None if a live writer has removed it since.

    What the disk has lost counts as a directory: whoever reads it then finds it damaged, and it alone.
    """
    try:
        return files.stat(path).kind
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in DAMAGE:
            raise
        return "directory"
