"""Writing past the page cache: the same bytes, whatever the system and the file system make of it."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from impl.store import ALIGNMENT, LEAST_BYTES, PosixFiles, aligned_room, write_past_the_cache

SIZES = [LEAST_BYTES, LEAST_BYTES + 1, LEAST_BYTES + ALIGNMENT, 3 * LEAST_BYTES - 1, 17]


def filled(size: int) -> memoryview:
    room = aligned_room(size)
    room[:] = (bytes(range(251)) * (size // 251 + 1))[:size]
    return room


def written(path: Path, *pieces: memoryview) -> bytes:
    files = PosixFiles()
    handle = files.open_new(str(path))
    for piece in pieces:
        files.write(handle, piece)
    files.fsync(handle)
    assert not fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DIRECT, "what comes next may go through the cache"
    files.close(handle)
    return path.read_bytes()


def direct_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each call has written that was to be a direct one, from now on; the flag is not passed on.

    So it does not matter whether the file system of the tests can do it.
    """
    calls: list[int] = []
    direct = [False]
    plain_write, plain_fcntl = os.write, fcntl.fcntl

    def write(descriptor: int, data: Any) -> int:
        done = plain_write(descriptor, data)
        if direct[0]:
            calls.append(done)
        return done

    def control(descriptor: int, command: int, flags: int = 0) -> int:
        if command == fcntl.F_SETFL:
            direct[0] = bool(flags & os.O_DIRECT)
        return plain_fcntl(descriptor, command, flags & ~os.O_DIRECT)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(fcntl, "fcntl", control)
    return calls


@pytest.mark.parametrize("size", SIZES)
def test_every_length_is_written_whole(tmp_path: Path, size: int) -> None:
    """The end of a file is seldom a multiple of anything."""
    piece = filled(size)
    assert written(tmp_path / "file", piece) == bytes(piece)


def test_pieces_after_an_odd_one_are_in_their_place(tmp_path: Path) -> None:
    """A place in the file that is no multiple is none for a direct write."""
    pieces = [filled(size) for size in (LEAST_BYTES, 17, LEAST_BYTES, 2 * LEAST_BYTES)]
    assert written(tmp_path / "file", *pieces) == b"".join(pieces)


def test_memory_that_is_not_aligned_goes_through_the_cache(tmp_path: Path) -> None:
    odd = filled(2 * LEAST_BYTES)[3 : LEAST_BYTES + 3 + ALIGNMENT]
    assert written(tmp_path / "file", odd) == bytes(odd)
    assert written(tmp_path / "other", memoryview(bytes(odd))) == bytes(odd)


def test_large_pieces_do_not_pass_through_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the digests wait for the copies."""
    calls = direct_bytes(monkeypatch)
    piece = filled(2 * LEAST_BYTES + 5)
    assert written(tmp_path / "file", piece) == bytes(piece)
    assert sum(calls) == 2 * LEAST_BYTES


@pytest.mark.parametrize("refused", ["the flag", "the first write", "the second write"])
def test_a_file_system_that_refuses_gets_the_bytes_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """Such as one in memory, or one whose blocks are larger."""
    plain_write, plain_fcntl, calls = os.write, fcntl.fcntl, []

    def write(descriptor: int, data: Any) -> int:
        if plain_fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            calls.append(len(data))
            if refused == "the first write" or len(calls) == 2:
                raise OSError(errno.EINVAL, "refused")
            return plain_write(descriptor, data[:LEAST_BYTES])
        return plain_write(descriptor, data)

    def control(descriptor: int, command: int, flags: int = 0) -> int:
        if refused == "the flag" and command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "refused")
        return plain_fcntl(descriptor, command, flags)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(fcntl, "fcntl", control)
    piece = filled(3 * LEAST_BYTES)
    assert written(tmp_path / "file", piece) == bytes(piece)
    assert len(calls) == {"the flag": 0, "the first write": 1, "the second write": 2}[refused]


def test_an_error_of_the_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is not a file system that cannot do it."""
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)

    def write(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="full"):
        write_past_the_cache(descriptor, filled(LEAST_BYTES))
    assert not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT
    os.close(descriptor)
