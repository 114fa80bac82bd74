"""Whose a leftover is: what a writer of this directory has made, or what somebody put under such a name by hand.

A name alone never shows it. What holds no whole manifest is part of an attempt or of a removal, if the name has the
form of one. What holds one could be somebody's only copy of a checkpoint, so the manifest has to say that it was made
there:

    .staging-<sequence>-<token>      the token is the manifest's `attempt`, the sequence its own
    .deleting-<checkpoint>           it is that checkpoint, which is under its own name no more
    .deleting-.staging-…             as for what was put away
"""

from __future__ import annotations

from ..errors import CheckpointCorrupt, CheckpointIncompatible
from . import names
from .files import Files, read_front
from .manifest import MANIFEST_LIMIT, Manifest, decode_unnamed


def is_from_a_writer(files: Files, root: str, name: str) -> bool:
    """Whether a writer has made what is under this name. OSError if that cannot be found out."""
    kind = files.stat(f"{root}/{name}").kind
    origin = name.removeprefix(names.DELETING_PREFIX)
    if origin.startswith(names.TEMPORARY_PREFIX):
        own = (f"{names.TEMPORARY_PREFIX}{target}-" for target in (names.WRITER, names.LATEST))
        return kind == "file" and origin.startswith(tuple(own))
    staged = names.parse_staging_name(origin)
    published = names.parse_checkpoint_name(origin) if origin != name else None
    if kind != "directory" or (staged is None and published is None):
        return False
    try:
        manifest = _sealed(files, f"{root}/{name}")
    except (CheckpointCorrupt, CheckpointIncompatible):
        return False  # whole, and not to be understood: somebody's, for all that can be told
    if manifest is None:
        return True
    if staged is not None:
        return (manifest.sequence, manifest.attempt) == staged
    return published == (manifest.step, manifest.sequence) and not _is_there(files, f"{root}/{origin}")


def manifest_in(files: Files, path: str) -> Manifest | None:
    """The manifest of a directory, whatever its name; None where there is no whole one that can be understood."""
    try:
        return _sealed(files, path)
    except (CheckpointCorrupt, CheckpointIncompatible, OSError):
        return None


def _sealed(files: Files, path: str) -> Manifest | None:
    """The manifest of a directory that has one beside its digest; None where one of the two is missing or in part."""
    try:
        sizes = [files.stat(f"{path}/{name}").size for name in (names.MANIFEST, names.MANIFEST_DIGEST)]
        if max(sizes) > MANIFEST_LIMIT:
            return None
        data, digest_line = (
            _read(files, f"{path}/{name}", size + 1)
            for name, size in zip((names.MANIFEST, names.MANIFEST_DIGEST), sizes, strict=True)
        )
    except FileNotFoundError:
        return None
    return decode_unnamed(data, digest_line, path)


def _read(files: Files, path: str, size: int) -> bytes:
    handle = files.open_read(path)
    try:
        return read_front(files, handle, size)
    finally:
        files.close(handle)


def _is_there(files: Files, path: str) -> bool:
    try:
        files.stat(path)
    except FileNotFoundError:
        return False
    return True
