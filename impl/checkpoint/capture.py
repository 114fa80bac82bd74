"""The window: everything a restart needs, read in one stretch with nothing in between.

No await, no I/O, no copy of payload: each part hands out a record that will not change, and the data plane hands out
references. What is read here is turned into files on the writer thread, long after the window is over.

A run without recovery opens the same window and reads the trainer's version alone: what is left is the price of the
window itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..store.manifest import Kind
from .participants import Counters, Participants
from .pending import SnapshotSkipped

if TYPE_CHECKING:
    from ..barrier import CheckpointBarrier, Cut
    from ..rows.plane import Capture, DataPlane
    from ..run.ledger import LedgerSnapshot
    from ..run.slots import BufferSnapshot
    from ..run.spare_pool import Spare


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
    #: Seconds of the window that each artifact took.
    seconds: Mapping[str, float]

    def drop(self) -> None:
        """Forget the rows, on the thread that has written them."""
        self.rows.drop()

    def release(self, plane: DataPlane) -> None:
        """Tell the plane that the rows are not read any more."""
        plane.release(self.rows)


@dataclass(frozen=True, slots=True)
class CapturedTrainer:
    """What a save without recovery knows of an instant: the trainer's version. No prompt has an owner in it."""

    counters: Counters
    cursor: int | None
    seconds: Mapping[str, float]

    def drop(self) -> None:
        """Nothing was captured by reference."""

    def release(self, plane: DataPlane) -> None:
        """Nothing of the plane is held."""


@dataclass(slots=True)
class _Laps:
    """Measures the reads of one window, each from the end of the one before."""

    clock: Callable[[], float]
    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = 0.0

    def begin(self) -> None:
        self._last = self.clock()

    def lap(self, artifact: str) -> None:
        now = self.clock()
        self.seconds[artifact] = now - self._last
        self._last = now


def read_cut(
    barrier: CheckpointBarrier,
    parts: Participants,
    cut: Cut,
    kind: Kind,
    anchor: Anchor | None,
    clock: Callable[[], float],
    number: tuple[int | None, int | None] = (None, None),
) -> Captured | CapturedTrainer | SnapshotSkipped:
    """Read every part inside the open window. Synchronous on purpose: an await would let another part move on.

    A save of the trainer while a claim is open is refused; a rollout snapshot that the trainer has outrun is skipped.
    `clock` measures what each read takes. `number`, sequence and fence, is what the last event tells
    of the checkpoint that this becomes.
    """
    cut.require(barrier, exclusive=True)
    laps = _Laps(clock)
    if kind != "rollout":
        if parts.buffer.claim_open:
            raise UsageError(
                "a full save was asked for while a train step has claimed groups. The trainer's state is then between "
                "two versions. Save between steps, after finish; or call begin_snapshot(), which takes rollouts only."
            )
    elif (reason := _no_snapshot(parts, cut, anchor)) is not None:
        barrier.emit("skip_snapshot", reason=reason)
        return SnapshotSkipped(reason)
    laps.begin()
    if kind == "trainer":
        counters = parts.counters.read(cut)
        cursor = getattr(parts.sampler, "cursor", None)
        barrier.emit("read_trainer", sequence=number[0], fence=number[1])
        laps.lap("trainer")
        return CapturedTrainer(counters, cursor, laps.seconds)
    sampler = parts.sampler.state()
    barrier.emit("read_sampler")
    laps.lap("sampler")
    loader = parts.loader.state()
    barrier.emit("read_loader")
    laps.lap("loader")
    spares = parts.pool.snapshot(cut)
    barrier.emit("read_pool")
    laps.lap("spares")
    buffer = parts.buffer.snapshot(cut)
    barrier.emit("read_buffer")
    laps.lap("buffer")
    # The subtraction of what the buffer owns: on disk a group never has two owners.
    ledger = parts.ledger.snapshot(cut, buffer)
    barrier.emit("read_ledger")
    laps.lap("ledger")
    counters = parts.counters.read(cut)
    barrier.emit("read_trainer", sequence=number[0], fence=number[1])
    laps.lap("trainer")
    rows = parts.buffer.plane.capture(cut, (group for group, slot in buffer.slots.items() if slot.ready))
    laps.lap("rows")
    return Captured(sampler, loader, spares, buffer, ledger, counters, rows, laps.seconds)


def _no_snapshot(parts: Participants, cut: Cut, anchor: Anchor | None) -> str | None:
    """Why a rollout snapshot cannot be taken now: a restore would count work the restored trainer has not done."""
    if not parts.recovery:
        return "recovery is off, so no prompt in flight is saved"
    counters = parts.counters.read(cut)
    if anchor is None:
        return "no full save is durable yet, so there is no trainer state that the snapshot could belong to"
    if counters.version != anchor.version:
        return (
            f"the trainer is at version {counters.version} and the newest durable full save, {anchor.name}, holds "
            f"version {anchor.version}"
        )
    return None
