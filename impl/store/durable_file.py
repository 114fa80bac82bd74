"""One file made durable: written new, or put in the place of an old one."""

from __future__ import annotations

from . import names
from .files import Buffer, Files


def write_durably(files: Files, path: str, data: Buffer) -> None:
    """Create a file and make its bytes durable; its name is durable only after an fsync of the directory."""
    handle = files.open_new(path)
    try:
        files.write(handle, data)
        files.fsync(handle)
    finally:
        files.close(handle)


def replace_durably(files: Files, root: str, name: str, data: bytes, token: str) -> None:
    """Replace a small file by way of a temporary one, so that a reader sees the old or the new contents in full."""
    temporary = f"{root}/{names.TEMPORARY_PREFIX}{name}-{token}"
    write_durably(files, temporary, data)
    files.replace(temporary, f"{root}/{name}")
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
    """Remove a directory and what is in it, or a single name; links are removed, not followed."""
    if files.stat(path).kind != "directory":
        files.unlink(path)
        return
    for name in files.listdir(path):
        remove_tree(files, f"{path}/{name}")
    files.rmdir(path)
