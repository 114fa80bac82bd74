"""Names in a checkpoint directory: what each looks like, and how it is read back.

    step_<step>-<sequence>/           a published checkpoint: manifest.json, manifest.sha256, the files it lists
    .staging-<sequence>-<token>/      a checkpoint being written, or what a killed writer left
    .deleting-<name>/                 a checkpoint, or what an attempt left, being removed
    .LOCK  WRITER  LATEST             the lock, who last held it, and the newest checkpoint (a hint for people)

Only code chooses names. Ids, prompts and tensor keys are data inside files and never become part of a path.
"""

from __future__ import annotations

import re

from ..errors import UsageError

MANIFEST = "manifest.json"
MANIFEST_DIGEST = "manifest.sha256"
LOCK = ".LOCK"
WRITER = "WRITER"
LATEST = "LATEST"
STAGING_PREFIX = ".staging-"
DELETING_PREFIX = ".deleting-"
TEMPORARY_PREFIX = ".temporary-"

#: More no name of a checkpoint can carry.
HIGHEST_SEQUENCE = 10**18 - 1
_STAGING = re.compile(r"\.staging-(?:([0-9]{1,18})|probe)-(.+)", re.ASCII | re.DOTALL)
_CHECKPOINT = re.compile(r"step_([0-9]{1,18})-([0-9]{1,18})", re.ASCII)
_PART_OF_OTHERS = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
_MOST_PARTS = 8
_MEMBER = re.compile(r"(?:[a-z0-9][a-z0-9_.-]{0,99}/){0,3}[a-z0-9][a-z0-9_.-]{0,99}", re.ASCII)


def checkpoint_name(step: int, sequence: int) -> str:
    """The directory name of a checkpoint; never reused, since no two have the same sequence."""
    return f"step_{step}-{sequence}"


def parse_checkpoint_name(name: str) -> tuple[int, int] | None:
    """The (step, sequence) of a directory name, by number whatever the padding; None if it is no such name."""
    match = _CHECKPOINT.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def staging_name(sequence: int, token: str) -> str:
    """The name of the directory in which one attempt at a checkpoint is built."""
    return f"{STAGING_PREFIX}{sequence}-{token}"


def parse_staging_name(name: str) -> tuple[int | None, str] | None:
    """The (sequence, token) of a staging directory, without a sequence for one of `fsck --probe`; None of another."""
    match = _STAGING.fullmatch(name)
    return (int(match[1]) if match[1] else None, match[2]) if match else None


def is_leftover(name: str) -> bool:
    """Whether a name looks like that of an attempt or a removal that did not end. Who made it is another question."""
    return name.startswith((STAGING_PREFIX, DELETING_PREFIX, TEMPORARY_PREFIX))


def is_member_name(name: str) -> bool:
    """Whether a file of a checkpoint may have this name: inside the directory, lower case, at most four parts.

    None ends in a dot, which some file systems take for the name without it.
    """
    return _MEMBER.fullmatch(name) is not None and ".." not in name and not name.endswith(".")


def is_listed_name(name: str) -> bool:
    """Whether a manifest may list this name: a member's, or one that another program chose for a file in a folder.

    torch's distributed checkpoint writes `.metadata` and `__0_0.distcp`. No part leads up, none is empty or ends in a
    dot; the first is of this program, since only it makes folders.
    """
    first, *parts = name.split("/")
    return is_member_name(name) or (
        is_member_name(first)
        and 0 < len(parts) < _MOST_PARTS
        and all(_PART_OF_OTHERS.fullmatch(part) and not part.endswith(".") for part in parts)
    )


def folder_of(name: str) -> str | None:
    """The folder in which a listed file lies whose name another program chose; None where the name does not tell."""
    parts = name.split("/")
    foreign = next((depth for depth, part in enumerate(parts) if not is_member_name(part)), None)
    if foreign is None and not is_member_name(name):
        foreign = len(parts) - 1  # more parts than a name of ours has
    return "/".join(parts[:foreign]) if foreign else None


def check_member_name(name: str) -> str:
    """Return a name chosen by a participant for one of its files, or refuse it."""
    if not is_member_name(name) or name in (MANIFEST, MANIFEST_DIGEST):
        raise UsageError(
            f"{name!r} cannot name a file of a checkpoint. Likely an id or a tensor key was used as a file name. "
            "Use a fixed name of lower-case letters, digits, '_', '-' and '.', such as 'rows-000.safetensors', "
            "and keep ids inside the file."
        )
    return name
