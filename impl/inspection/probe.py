"""Tries out whether a file system does what the store needs, in a directory of its own that is gone afterwards.

What can be tried: that a rename moves a whole directory and replaces a file atomically, that a taken name is refused,
that files and directories can be synced, that the lock shuts out a second opener and a second process and ends with a
killed one, and that a number written by one process is what another reads at once. What a power cut does cannot be
tried from inside; a file system that answers every fsync and keeps nothing looks right here.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from cleancut_leaf.words import counted

from ..errors import UsageError
from ..store.durable_file import remove_tree, replace_durably, write_durably
from ..store.files import Files, read_front
from ..store.names import STAGING_PREFIX
from .lock_state import lock_state

#: Takes the lock in another process, says so, and holds it until it is killed.
_HOLDER = (
    "import fcntl, os, sys, time\n"
    "handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
    "try:\n    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    "except BlockingIOError:\n    print('busy', flush=True)\n    sys.exit()\n"
    "print('held', flush=True)\n"
    "time.sleep(60)\n"
)
_REPLACER = (
    "import os, sys\n"
    "for number in range(300):\n"
    "    with open(sys.argv[1] + '.new', 'w') as file:\n        file.write(f'{number:05d}' * 200)\n"
    "    os.replace(sys.argv[1] + '.new', sys.argv[1])\n"
    "print(f'{299:05d}', flush=True)\n"
)


@dataclass(frozen=True, slots=True)
class Tried:
    """One property that the store relies on, and what was seen."""

    needed: str
    ok: bool
    seen: str


def probe(files: Files, root: str) -> tuple[Tried, ...]:
    """Try everything below `root`, which must be a directory that can be written; beside checkpoints it harms none."""
    if not os.path.isdir(root):
        raise UsageError(f"{root} is not a directory; give the one that checkpoints are to be written to")
    if lock_state(files, root).state == "held":
        # Its next save would clear the probe's directory away, and the probe would blame the file system.
        raise UsageError(f"a run is saving into {root}; probe another directory of the same file system")
    # A staging name: should this process be killed, the next save clears it away.
    place = f"{root}/{STAGING_PREFIX}probe-{os.getpid()}-{secrets.token_hex(6)}"
    try:
        files.mkdir(place)
    except OSError as error:
        raise UsageError(f"{root} cannot be written: {error.strerror}; give a directory that can") from error
    try:
        return tuple(_tried(needed, attempt, files, place) for needed, attempt in _ATTEMPTS)
    finally:
        remove_tree(files, place)


def _tried(needed: str, attempt: Callable[[Files, str], str | None], files: Files, place: str) -> Tried:
    try:
        fault = attempt(files, place)
    except OSError as error:
        fault = f"{error.strerror or error} (errno {error.errno})"
    except subprocess.TimeoutExpired:
        fault = "another process did not answer in time"
    return Tried(needed, fault is None, fault or "as needed")


def _content(files: Files, path: str) -> bytes:
    handle = files.open_read(path)
    try:
        return read_front(files, handle, 1 << 20)
    finally:
        files.close(handle)


def _syncs(files: Files, place: str) -> str | None:
    write_durably(files, f"{place}/synced", (b"payload",))
    files.fsync_dir(place)
    return None if _content(files, f"{place}/synced") == b"payload" else "what was written is not what is read"


def _renames_directory(files: Files, place: str) -> str | None:
    files.mkdir(f"{place}/staged")
    write_durably(files, f"{place}/staged/file", (b"whole",))
    files.fsync_dir(f"{place}/staged")
    files.rename(f"{place}/staged", f"{place}/published")
    files.fsync_dir(place)
    if "staged" in files.listdir(place):
        return "the old name is still there"
    return None if _content(files, f"{place}/published/file") == b"whole" else "the directory lost its contents"


def _keeps_a_taken_name(files: Files, place: str) -> str | None:
    for name in ("full", "other"):
        files.mkdir(f"{place}/{name}")
        write_durably(files, f"{place}/{name}/file", (name.encode(),))
    try:
        files.rename(f"{place}/other", f"{place}/full")
    except OSError:
        return None
    return "a directory took the name of another one that was not empty"


def _refuses_a_second_file(files: Files, place: str) -> str | None:
    for attempt in ("first", "second"):
        try:
            write_durably(files, f"{place}/exclusive", (attempt.encode(),))
        except FileExistsError:
            return None
    return "a file was made a second time under a taken name"


def _replaces_whole(files: Files, place: str) -> str | None:
    """Another process replaces a file again and again; whoever reads sees one version in full, never none."""
    path = f"{place}/replaced"
    replace_durably(files, place, "replaced", b"00000" * 200, "0")
    with subprocess.Popen([sys.executable, "-c", _REPLACER, path], stdout=subprocess.PIPE) as process:
        try:
            while process.poll() is None:
                content = _content(files, path)
                if len(content) != 1000 or content != content[:5] * 200:
                    return f"a reader saw {counted(len(content), 'byte')}, which is no whole version"
        except FileNotFoundError:
            return "a reader found no file while it was replaced"
        finally:
            process.kill()
    return None if _content(files, path)[:5] == b"00299" else "the last version is not the one that is read"


def _lock_excludes(files: Files, place: str) -> str | None:
    path = f"{place}/lock"
    handle = files.lock(path)
    try:
        try:
            files.unlock(files.lock(path))
            return "the lock was given twice in one process"
        except BlockingIOError:
            pass
        other = subprocess.run([sys.executable, "-c", _HOLDER, path], capture_output=True, timeout=30, check=False)
        if other.stdout.strip() != b"busy":
            return "the lock was given to a second process"
    except subprocess.TimeoutExpired:
        return "the lock was given to a second process"
    finally:
        files.unlock(handle)
    return None


def _lock_ends_with_its_holder(files: Files, place: str) -> str | None:
    path = f"{place}/lock"
    with subprocess.Popen([sys.executable, "-c", _HOLDER, path], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != b"held":
                return "another process could not take a free lock"
            try:
                files.unlock(files.lock(path))
                return "the lock was given away while another process held it"
            except BlockingIOError:
                pass
        finally:
            process.kill()
    try:
        files.unlock(files.lock(path))
    except BlockingIOError:
        return "the lock of a killed process was not given back"
    return None


def _fencing_is_seen(files: Files, place: str) -> str | None:
    """A number that another process has written is what this one reads next: no stale cache in between."""
    for number in range(5):
        text = f"{number}\n"
        program = "import os, sys; open(sys.argv[1] + '.new', 'w').write(sys.argv[2])\n"
        program += "os.replace(sys.argv[1] + '.new', sys.argv[1])"
        subprocess.run([sys.executable, "-c", program, f"{place}/fence", text], timeout=30, check=True)
        if _content(files, f"{place}/fence") != text.encode():
            return "a number that another process wrote was not seen at once"
    return None


_ATTEMPTS: tuple[tuple[str, Callable[[Files, str], str | None]], ...] = (
    ("files and directories can be synced", _syncs),
    ("one rename moves a directory with all it holds", _renames_directory),
    ("a rename never replaces a directory that is not empty", _keeps_a_taken_name),
    ("a name is taken by one creator only", _refuses_a_second_file),
    ("a file is replaced whole under a reader's eyes", _replaces_whole),
    ("the lock shuts out everybody else", _lock_excludes),
    ("the lock ends with its holder, also a killed one", _lock_ends_with_its_holder),
    ("a fencing number is seen by others at once", _fencing_is_seen),
)
