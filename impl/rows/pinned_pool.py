"""Host memory that device copies go through: kept from save to save, and bounded.

Pinned memory is dear: making it takes about as long as filling it several times, and the system cannot page it out. So
a piece that was given back is used again, the pool as a whole stays below a limit, and whoever asks for more waits
until something comes back. A request larger than the limit is met alone, and not kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, overload

from ..arguments import require_count

#: The smallest piece, where the limit allows it. Sizes are powers of two, so that a piece fits other files again.
_SMALLEST = 1 << 20


class Lease:
    """One piece of the pool in somebody's hands. Nobody else gets it before `give_back`."""

    def __init__(self, pool: PinnedPool, memory: Any, size: int) -> None:
        self.memory = memory
        self.size = size
        self._pool: PinnedPool | None = pool

    def give_back(self) -> None:
        """Return it: its bytes are durable, or nobody wants them any more. A second call does nothing."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool._take_back(self)

    def lose(self) -> None:
        """Never use it again: an accelerator that failed may still write to it."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool._lose(self)


class PinnedPool:
    """At most `limit` bytes, made by `allocate(nbytes)` when they are first needed. For any number of threads."""

    # Invariant: bytes in use and bytes kept together are within the limit, or one oversized piece is in use alone.

    def __init__(self, allocate: Callable[[int], Any], limit: int) -> None:
        self.limit = require_count("staging_bytes", limit, least=1)
        self._smallest = min(_SMALLEST, 1 << (max(1, limit // 2).bit_length() - 1))
        self._allocate = allocate
        self._returned = threading.Condition()
        self._free: list[tuple[int, Any]] = []
        self._lost: list[Any] = []
        self._in_use = 0
        self._peak = 0
        self._allocations = 0
        self._waits = 0
        self._oversized = 0

    @overload
    def take(self, nbytes: int) -> Lease: ...
    @overload
    def take(self, nbytes: int, *, wait: Literal[False]) -> Lease | None: ...

    def take(self, nbytes: int, *, wait: bool = True) -> Lease | None:
        """A piece of at least `nbytes`. Waits for one to come back; with `wait=False` returns None instead."""
        size = max(self._smallest, 1 << max(0, nbytes - 1).bit_length())
        with self._returned:
            waited = False
            while not self._has_room(size):
                if not wait:
                    return None
                self._waits += not waited
                waited = True
                self._returned.wait()
            size, memory = self._piece(size)
            self._in_use += size
            self._peak = max(self._peak, self._in_use)
        return Lease(self, memory, size)

    def _has_room(self, size: int) -> bool:
        return self._in_use == 0 or self._in_use + size <= self.limit or self._fitting(size) is not None

    def _fitting(self, size: int) -> tuple[int, Any] | None:
        return min((piece for piece in self._free if piece[0] >= size), key=lambda piece: piece[0], default=None)

    def _piece(self, size: int) -> tuple[int, Any]:
        """The smallest kept piece that is large enough, or a new one, in the place of kept ones if need be."""
        kept = self._fitting(size)
        if kept is not None:
            self._free = [piece for piece in self._free if piece is not kept]
            return kept
        while self._free and self._in_use + self._kept() + size > self.limit:
            self._free.pop()
        self._oversized += size > self.limit
        memory = self._allocate(size)
        self._allocations += 1
        return size, memory

    def _kept(self) -> int:
        return sum(size for size, _ in self._free)

    def _take_back(self, lease: Lease) -> None:
        with self._returned:
            self._in_use -= lease.size
            if self._in_use + self._kept() + lease.size <= self.limit:
                self._free.append((lease.size, lease.memory))
            self._returned.notify_all()

    def _lose(self, lease: Lease) -> None:
        with self._returned:
            self._in_use -= lease.size
            self._lost.append(lease.memory)
            self._returned.notify_all()

    def statistics(self) -> Mapping[str, int]:
        """Bytes in use, kept for the next file, and the most in use at once; how often new memory was made, somebody
        waited for room, a request was larger than the limit, and a piece was given up after a fault."""
        with self._returned:
            return {
                "staging_limit": self.limit,
                "staging_in_use": self._in_use,
                "staging_kept": self._kept(),
                "staging_peak": self._peak,
                "staging_allocations": self._allocations,
                "staging_waits": self._waits,
                "staging_oversized": self._oversized,
                "staging_lost": len(self._lost),
            }
