"""One file made durable: written new, or put in the place of an old one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import suppress

from . import names
from .direct_io import address_of, aligned_room
from .files import Buffer, Files

#: Bytes that go to the file system, or through a digest, in one call: enough to keep a disk busy past the page cache.
CHUNK_BYTES = 4 << 20
#: From here on a copy takes longer than it takes to let other threads run meanwhile.
_LONG_COPY_BYTES = 64 << 10


def in_chunks(pieces: Iterable[Buffer]) -> Iterator[memoryview]:
    """The same bytes in chunks of one size, each a copy: whoever digests and writes one does both to the same bytes.

    Small pieces come together and large ones apart, so a file takes few calls and none of them copies much. A chunk is
    good until the next one is asked for: all are made in the same memory, since fresh memory for each costs several
    times as much as the copy, while every other thread waits.
    """
    room = aligned_room(CHUNK_BYTES)
    filled = 0
    for piece in pieces:
        rest = memoryview(piece).cast("B")
        while rest:
            taken = min(len(rest), len(room) - filled)
            _copy(rest[:taken], room[filled : filled + taken])
            rest = rest[taken:]
            filled += taken
            if filled == len(room):
                yield room
                filled = 0
    if filled:
        yield room[:filled]


def _copy(source: memoryview, target: memoryview) -> None:
    """Copy all of `source` into memory of the same length; a long copy keeps no other thread from the interpreter."""
    if len(source) < _LONG_COPY_BYTES or source.readonly:
        target[:] = source
    else:
        ctypes.memmove(address_of(target), address_of(source), len(source))


def write_durably(files: Files, path: str, chunks: Iterable[Buffer]) -> None:
    """Create a file and make its bytes durable; its name is durable only after an fsync of the directory."""
    handle = files.open_new(path)
    try:
        for chunk in chunks:
            files.write(handle, chunk)
        files.fsync(handle)
    finally:
        files.close(handle)


def replace_whole(files: Files, root: str, name: str, data: bytes, token: str) -> None:
    """Replace a small file by way of a temporary one, so that a reader sees the old or the new contents in full.

    That holds after a power cut too; which of the two is found then is open until somebody syncs the directory.
    """
    temporary = f"{root}/{names.TEMPORARY_PREFIX}{name}-{token}"
    write_durably(files, temporary, (data,))
    files.replace(temporary, f"{root}/{name}")


def replace_durably(files: Files, root: str, name: str, data: bytes, token: str) -> None:
    """As `replace_whole`, and the new contents are found after a power cut."""
    replace_whole(files, root, name, data, token)
    files.fsync_dir(root)


def make_directory(files: Files, path: str) -> None:
    """Make a directory and its parents, each made durable in the directory above; an existing one is left alone."""
    missing: list[str] = []
    probe = path
    while probe not in ("", "/"):
        try:
            files.stat(probe)
            break
        except FileNotFoundError:
            missing.append(probe)
            probe = probe.rpartition("/")[0]
    for directory in reversed(missing):
        try:
            files.mkdir(directory)
        except FileExistsError:  # another process came first, which is as good
            continue
        files.fsync_dir(directory.rpartition("/")[0] or "/")


def remove_tree(files: Files, path: str) -> None:
    """Remove a directory and what is in it, or a single name; links are removed, not followed.

    What is gone already is as good: two writers may remove one leftover at a time.
    """
    with suppress(FileNotFoundError):
        if files.stat(path).kind != "directory":
            files.unlink(path)
            return
        for name in files.listdir(path):
            remove_tree(files, f"{path}/{name}")
        files.rmdir(path)
