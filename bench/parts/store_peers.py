"""What the store is compared with: other ways to bring the same bytes to the disk."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed.checkpoint as torch_dcp

from impl import CheckpointBarrier, Checkpointer
from impl.checkpoint import read_cut, write_artifacts
from impl.store import CHUNK_BYTES, Draft, PosixFiles, aligned_room

from .store_situation import Situation

#: Not zeros: memory that was never written is one page for all, and there are disks that take zeros quicker.
_CONTENT = os.urandom(CHUNK_BYTES)


def save_with_torch(tensors: dict[str, torch.Tensor], place: Path) -> None:
    with (place / "torch.pt").open("wb") as file:
        torch.save(tensors, file)
        file.flush()
        os.fsync(file.fileno())
    PosixFiles().fsync_dir(str(place))


def save_with_dcp(tensors: dict[str, torch.Tensor], place: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch_dcp.save(tensors, checkpoint_id=place / "dcp", no_dist=True)  # type: ignore[attr-defined]


def write_direct(tensors: dict[str, torch.Tensor], place: Path) -> None:
    """The least that this disk takes: the same bytes past the page cache by four threads, nothing digested or named."""
    _write_past_the_cache(tensors, place, digested=False)


def write_digested(tensors: dict[str, torch.Tensor], place: Path) -> None:
    """As `write_direct`, each thread with a digest of what it writes: the least that any store with digests takes."""
    _write_past_the_cache(tensors, place, digested=True)


def _write_past_the_cache(tensors: dict[str, torch.Tensor], place: Path, *, digested: bool) -> None:
    share = sum(tensor.nbytes for tensor in tensors.values()) // 4
    files = PosixFiles()

    def write(number: int) -> None:
        room, digest = aligned_room(CHUNK_BYTES), hashlib.sha256()
        room[:] = _CONTENT
        handle = files.open_new(str(place / f"direct-{number}"))
        for begin in range(0, share, len(room)):
            chunk = room[: min(len(room), share - begin)]
            if digested:
                digest.update(chunk)
            files.write(handle, chunk)
        files.fsync(handle)
        files.close(handle)

    in_threads(write)


def in_threads(work: Callable[[int], None]) -> None:
    """Four at once."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def write_raw(tensors: dict[str, torch.Tensor], place: Path) -> None:
    """The same bytes without digests, names or an order: four threads, `writev`, one fsync a file."""
    pieces = [tensor.numpy().data.cast("B") for tensor in tensors.values()]

    def write(number: int) -> None:
        descriptor = os.open(place / f"raw-{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for begin in range(number, len(pieces), 64):
            rest = pieces[begin : begin + 64 : 4]
            while rest:
                done = os.writev(descriptor, rest)
                while rest and done >= len(rest[0]):
                    done -= len(rest.pop(0))
                if rest:
                    rest[0] = rest[0][done:]
        os.fsync(descriptor)
        os.close(descriptor)

    in_threads(write)
    PosixFiles().fsync_dir(str(place))


async def write_inside(run: Situation, directory: Path) -> float:
    """The peer: everything is written before the others may go on."""
    store = Checkpointer(directory, CheckpointBarrier(), verify="off")._store
    parts, identity = run.checkpointer._attached(), run.checkpointer._identity
    assert identity is not None
    store.open()
    async with run.barrier.checkpoint() as cut:
        opened = perf_counter()
        captured: Any = read_cut(run.barrier, parts, cut, "full", None, perf_counter)

        def fill(staged: Any) -> Any:
            counts, _ = write_artifacts(captured, identity, staged)
            run.plane.persist(captured.rows, staged.writer())
            return counts

        store.publish(Draft(0, store.take_sequence(), "full", None, None, identity), fill)
    seconds = perf_counter() - opened
    run.plane.release(captured.rows)
    store.close()
    shutil.rmtree(directory)
    return seconds


def seconds_of_restore(directory: Path) -> float:
    """How long this process takes to have the newest checkpoint back."""

    async def restored() -> float:
        run = Situation(directory)
        begin = perf_counter()
        await run.checkpointer.restore()
        seconds = perf_counter() - begin
        await run.checkpointer.close()
        return seconds

    return asyncio.run(restored())


def seconds_of_load(place: Path) -> float:
    """How long this process takes to have back what `save_with_torch` wrote."""
    begin = perf_counter()
    torch.load(place / "torch.pt", weights_only=True)
    return perf_counter() - begin
