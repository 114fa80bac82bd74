"""Committed rows on their way from an accelerator to files, by way of pinned memory.

While a file is written the next ones are copied. What makes it right, for each file:

    begin    memory from the pool; the copies wait for the events of those who wrote the rows
    finish   the event behind the copies has come to pass; the rows are compared with their commit; only now are the
             sources let go, so that a `clear` meanwhile could not give their memory to another tensor
    leave    the file is durable, or given up: only now may its memory be filled again

Rows that lie on the host are passed through as they are. Runs on the writer thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch

from .device import Device, Event, Where
from .pinned_pool import Lease, PinnedPool
from .torch_immutability import Watched

_log = logging.getLogger("cleancut.plane")

#: Each tensor begins at a multiple of this in pinned memory: the widest element, and what copy engines like.
_ALIGNMENT = 256
#: Files that are being copied while one is written, where there is memory for so many: the copy engine never waits for
#: the host to come back with more.
_AHEAD = 2


@dataclass(slots=True)
class Row:
    """One tensor of a captured record: its key in the file, the tensor, and the events behind which it is written.

    `watched` is given where the tensor is to be compared as soon as it is copied, and is let go then.
    """

    key: str
    tensor: torch.Tensor
    where: Where | None
    after: tuple[Any, ...]
    watched: Watched | None = None

    @property
    def room(self) -> int:
        """The bytes it takes: in pinned memory if it is on an accelerator, else its own."""
        return self.tensor.nbytes if self.where is None else _aligned(self.tensor.nbytes)


@dataclass(slots=True)
class RowsFile:
    """The rows of one file, where the host can read them inside a `with` block. Leave it when the file is durable.

    On any thread, and in any order among files.
    """

    name: str
    tensors: Mapping[str, torch.Tensor]
    _lease: Lease | None

    def __enter__(self) -> RowsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Let the memory be filled again."""
        self.tensors = {}
        if self._lease is not None:
            self._lease.give_back()


def staged_files(
    plans: Iterable[tuple[str, list[Row]]], device: Device, pool: PinnedPool
) -> Generator[RowsFile, None, None]:
    """The files of `plans` in order, each with its rows on the host; the next ones are being copied meanwhile.

    Close it, or run it to its end: what was begun and not handed out is waited for and given back then. A file that was
    handed out is its reader's to give back, whatever happens here. Raises CommittedTensorModified for a row that was
    changed since its commit.
    """
    begun: deque[_Begun] = deque()
    try:
        for name, rows in plans:
            upcoming = _Begun(name, rows)
            # Waiting for memory that lies here itself would be for ever.
            while not upcoming.take_memory(pool, wait=not begun):
                yield begun.popleft().finish()
            begun.append(upcoming)
            upcoming.begin(device)
            if len(begun) > _AHEAD:
                yield begun.popleft().finish()
        while begun:
            yield begun.popleft().finish()
    finally:
        for unwanted in begun:
            unwanted.give_up()


@dataclass(slots=True)
class _Begun:
    """A file whose copies are under way."""

    name: str
    rows: list[Row]
    lease: Lease | None = None
    #: Those behind the copies; each must have come to pass before sources or memory are let go.
    copied: list[Event] = field(default_factory=list)
    _on_host: dict[str, torch.Tensor] = field(default_factory=dict)

    def take_memory(self, pool: PinnedPool, *, wait: bool) -> bool:
        """Get memory for what lies on accelerators; False if there is none now."""
        needed = sum(row.room for row in self.rows if row.where is not None)
        if not needed:
            return True
        self.lease = pool.take(needed) if wait else pool.take(needed, wait=False)
        return self.lease is not None

    def begin(self, device: Device) -> None:
        """Give the copies to each accelerator; waits for nothing."""
        pairs: dict[Where, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        # By identity: rows of one group have their events in common.
        after: dict[Where, dict[int, Any]] = {}
        used = 0
        for row in self.rows:
            if row.where is None:
                continue
            assert self.lease is not None or not row.tensor.nbytes
            memory = self.lease.memory[used : used + row.tensor.nbytes] if self.lease else torch.empty(0).byte()
            used += row.room
            if row.tensor.nbytes:
                pairs.setdefault(row.where, []).append((row.tensor, memory))
                after.setdefault(row.where, {}).update((id(event), event) for event in row.after)
            self._on_host[row.key] = memory.view(row.tensor.dtype).reshape(row.tensor.shape)
        for where, mine in pairs.items():
            self.copied.append(device.copy(where, mine, after[where].values()))

    def finish(self) -> RowsFile:
        """Wait until everything can be read, compare it, and let the sources go."""
        try:
            self._wait()
            tensors = {}
            for row in self.rows:
                if row.where is None:
                    for event in row.after:
                        event.synchronize()
                on_host = tensors[row.key] = self._on_host.get(row.key, row.tensor)
                if row.watched is not None:
                    row.watched.check(row.tensor, on_host)
        except BaseException:
            self.give_up()
            raise
        finally:
            # Emptied, not replaced: whoever planned the file may still hold the list.
            self.rows.clear()
        return RowsFile(self.name, tensors, self.lease)

    def give_up(self) -> None:
        """Nobody wants the file: wait for the copies all the same, since they read sources and write memory."""
        try:
            self._wait()
        except Exception as error:
            _log.error("copies of %s cannot be waited for, their memory is not used again: %s", self.name, error)
            if self.lease is not None:
                self.lease.lose()
        else:
            if self.lease is not None:
                self.lease.give_back()

    def _wait(self) -> None:
        for event in self.copied:
            event.synchronize()


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
