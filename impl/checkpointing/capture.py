"""The window: everything a restart needs, read in one stretch with nothing in between.

No await, no I/O, no copy of payload: each part hands out a record that will not change, and the data plane hands out
references. What is read here is turned into files on the writer thread, long after the window is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..store.manifest import Kind
from .participants import Counters, Participants
from .pending import SnapshotSkipped

if TYPE_CHECKING:
    from ..barrier import CheckpointBarrier, Cut
    from ..ledger import LedgerSnapshot
    from ..plane import Capture
    from ..slots import BufferSnapshot
    from ..spare_pool import Spare


@dataclass(frozen=True, slots=True)
class Anchor:
    """The full save that is newest and durable, and the trainer version it holds."""

    name: str
    version: int


@dataclass(frozen=True, slots=True)
class Captured:
    """One instant of the run, by reference."""

    sampler: Any
    loader: Any
    spares: tuple[Spare, ...]
    buffer: BufferSnapshot
    ledger: LedgerSnapshot
    counters: Counters
    rows: Capture


def read_cut(
    barrier: CheckpointBarrier, parts: Participants, cut: Cut, kind: Kind, anchor: Anchor | None
) -> Captured | SnapshotSkipped:
    """Read every part inside the open window. Synchronous on purpose: an await would let another part move on.

    A full save while a claim is open is refused; a rollout snapshot that the trainer has outrun is skipped.
    """
    cut.require(barrier, exclusive=True)
    if kind == "full":
        if parts.buffer.claim_open:
            raise UsageError(
                "a full save was asked for while a train step has claimed groups. The trainer's state is then between "
                "two versions. Save between steps, after finish; or call begin_snapshot(), which takes rollouts only."
            )
    elif (reason := _outrun(parts.counters.read(cut), anchor)) is not None:
        barrier.emit("skip_snapshot", reason=reason)
        return SnapshotSkipped(reason)
    sampler = parts.sampler.state()
    barrier.emit("read_sampler")
    loader = parts.loader.state()
    barrier.emit("read_loader")
    spares = parts.pool.snapshot(cut)
    barrier.emit("read_pool")
    buffer = parts.buffer.snapshot(cut)
    barrier.emit("read_buffer")
    # The subtraction of what the buffer owns: on disk a group never has two owners.
    ledger = parts.ledger.snapshot(cut, buffer)
    barrier.emit("read_ledger")
    counters = parts.counters.read(cut)
    barrier.emit("read_trainer")
    rows = parts.buffer.plane.capture(cut, (group for group, slot in buffer.slots.items() if slot.ready))
    return Captured(sampler, loader, spares, buffer, ledger, counters, rows)


def _outrun(counters: Counters, anchor: Anchor | None) -> str | None:
    """Why a rollout snapshot cannot be taken now: a restore would count work the restored trainer has not done."""
    if anchor is None:
        return "no full save is durable yet, so there is no trainer state that the snapshot could belong to"
    if counters.version != anchor.version:
        return (
            f"the trainer is at version {counters.version} and the newest durable full save, {anchor.name}, holds "
            f"version {anchor.version}"
        )
    return None
