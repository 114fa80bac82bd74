"""What became of the saves so far: their figures, and the one failure that nobody may have learnt of."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from .pending import CheckpointInfo, PendingSave, SaveStatistics

#: How many saves the statistics remember.
REMEMBERED = 256


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


class SaveLog:
    """Settles pending saves, and keeps a failure until it has been raised somewhere."""

    def __init__(self) -> None:
        self._saves: deque[SaveStatistics] = deque(maxlen=REMEMBERED)
        self._completed = 0
        self._failed = 0
        self._skipped = 0
        self._last_failed: PendingSave | None = None

    def succeeded(self, pending: PendingSave, info: CheckpointInfo, figures: SaveStatistics) -> None:
        """The save is durable."""
        self._completed += 1
        self._saves.append(figures)
        pending.succeed(info)

    def failed(self, pending: PendingSave, error: BaseException) -> None:
        """The save published nothing."""
        self._failed += 1
        self._last_failed = pending
        pending.fail(error)

    def skipped(self) -> None:
        """A rollout snapshot was not taken."""
        self._skipped += 1

    def raise_unseen_failure(self) -> None:
        """Raise the error of the last save that failed, unless somebody has got it from `durable` or from here."""
        failed, self._last_failed = self._last_failed, None
        failure = failed.take_failure() if failed is not None else None
        if failed is not None and failure is not None:
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
        )
