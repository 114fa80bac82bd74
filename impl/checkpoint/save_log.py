"""What became of the saves so far: their figures, told to whoever listens, and the one failure nobody may know of."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .pending import PHASES, CheckpointInfo, PendingSave, SaveStatistics

if TYPE_CHECKING:
    from ..barrier import CheckpointBarrier

#: How many saves the statistics remember.
REMEMBERED = 256

_log = logging.getLogger("cleancut.checkpointer")


@dataclass(frozen=True, slots=True)
class CheckpointerStatistics:
    """A snapshot: the newest saves, oldest first, and counts since the start.

    `capture_mode` is the data plane's: "blocking" means that it writes inside the window.
    """

    saves: tuple[SaveStatistics, ...]
    completed: int
    failed: int
    skipped: int
    in_flight: bool
    capture_mode: str
    #: Seconds by phase and bytes of all durable saves, those forgotten included.
    seconds: Mapping[str, float]
    bytes: int


class SaveLog:
    """Settles pending saves, and keeps a failure until it has been raised somewhere."""

    def __init__(self) -> None:
        self._saves: deque[SaveStatistics] = deque(maxlen=REMEMBERED)
        self._completed = 0
        self._failed = 0
        self._skipped = 0
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._bytes = 0
        self._last_failed: PendingSave | None = None

    def succeeded(self, pending: PendingSave, info: CheckpointInfo, figures: SaveStatistics) -> None:
        """The save is durable."""
        self._completed += 1
        self._saves.append(figures)
        for phase, taken in figures.seconds.items():
            self._seconds[phase] += taken
        self._bytes += figures.bytes
        pending.succeed(info)

    def failed(self, pending: PendingSave, error: BaseException, *, in_doubt: bool) -> None:
        """The save published nothing, or with `in_doubt` what it published may be lost at a power cut."""
        self._failed += 1
        self._last_failed = pending
        pending.fail(error, in_doubt=in_doubt)

    def not_begun(self) -> None:
        """A save failed before its window was over, as at the drain limit; whoever asked for it is told."""
        self._failed += 1

    def skipped(self) -> None:
        """A rollout snapshot was not taken."""
        self._skipped += 1

    def raise_unseen_failure(self) -> None:
        """Raise the error of the last save that failed, unless somebody has got it from `durable` or from here."""
        failed = self._last_failed
        if failed is None or failed.asked_for:
            return
        self._last_failed = None
        if (failure := failed.take_failure()) is not None:
            failure.add_note(f"Raised here because {failed.name} failed in the background and nobody had asked.")
            raise failure

    def statistics(self, *, in_flight: bool, capture_mode: str) -> CheckpointerStatistics:
        """A snapshot."""
        return CheckpointerStatistics(
            saves=tuple(self._saves),
            completed=self._completed,
            failed=self._failed,
            skipped=self._skipped,
            in_flight=in_flight,
            capture_mode=capture_mode,
            seconds=dict(self._seconds),
            bytes=self._bytes,
        )


def report_save(barrier: CheckpointBarrier, figures: SaveStatistics) -> None:
    """Tell the figures of a durable save: in one line of the log, and in one event, which is no action."""
    _log.info("durable: %s", figures)
    holder = figures.slowest_holder
    barrier.emit(
        "report_save",
        name=figures.name,
        kind=figures.kind,
        queue_seconds=figures.queue_seconds,
        drain_seconds=figures.drain_seconds,
        window_seconds=figures.window_seconds,
        stage_seconds=figures.stage_seconds,
        persist_seconds=figures.persist_seconds,
        bytes=figures.bytes,
        artifacts=dict(figures.artifacts),
        slowest_holder=None
        if holder is None
        else {"task": holder.task, "kind": holder.kind, "age": holder.age, "place": holder.place},
        blocked=dict(figures.blocked),
    )
