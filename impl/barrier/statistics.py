"""What a barrier tells about itself: a snapshot, and the recorder behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import Holder

KEPT = 1024
"""How many of the newest durations percentiles are made of. No random choice among all: same run, same figures."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds: how many were seen in all, and the spread of the newest 1,024 of them."""

    count: int
    p50: float
    p90: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class Waits:
    """How often mutations of one kind had to wait and were then let in, and for how long, in seconds."""

    count: int
    total: float
    longest: float


@dataclass(frozen=True, slots=True)
class BarrierStatistics:
    """One instant of a barrier. Later changes of the barrier do not show in it.

    `blocked` counts, per kind, the mutations that found the gate shut, withdrawn ones included; `waits` those of them
    that were let in. `window` is how long cuts were open, `drain` how long they waited at the head of the queue.
    """

    name: str
    mutation_version: int
    active_mutations: int
    waiting_mutations: int
    most_waiting_mutations: int
    checkpoint_active: bool
    waiting_checkpoints: int
    expired_checkpoints: int
    blocked: dict[str, int]
    waits: dict[str, Waits]
    window: Durations
    drain: Durations
    holders: tuple[Holder, ...]
    closed_because: str | None


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """What one checkpoint cost the others, told when its window has ended.

    `slowest_holder` is the shared section whose end opened the window, the one that the drain waited for longest; None
    where nothing was open. Its age is that at its end. `blocked` counts, per kind, the mutations that found the gate
    shut while this checkpoint headed the queue or was open.
    """

    slowest_holder: Holder | None
    blocked: Mapping[str, int]


class DurationRecorder:
    """Counts durations and keeps the newest ones; bounded, whatever the length of the run."""

    __slots__ = ("_count", "_newest")

    def __init__(self) -> None:
        self._count = 0
        self._newest: deque[float] = deque(maxlen=KEPT)

    def add(self, seconds: float) -> None:
        """Record one duration."""
        self._count += 1
        self._newest.append(seconds)

    def summary(self) -> Durations:
        """The spread so far; all zero when nothing was recorded."""
        values = sorted(self._newest)
        if not values:
            return Durations(0, 0.0, 0.0, 0.0, 0.0)
        p50, p90, p99 = (_quantile(values, fraction) for fraction in (0.5, 0.9, 0.99))
        return Durations(self._count, p50, p90, p99, values[-1])


class Recorder:
    """What the barrier's front end notes beside the admission core; touched only when somebody had to wait."""

    __slots__ = ("_blocked_now", "_waited_for", "blocked", "drain", "expired", "last_window", "waits", "window")

    def __init__(self) -> None:
        self.blocked: dict[str, int] = {}
        self.last_window: WindowFigures | None = None
        # Of the checkpoint that heads the queue or is open now; `WindowFigures` once it has ended.
        self._blocked_now: dict[str, int] = {}
        self._waited_for: Holder | None = None
        self.waits: dict[str, Waits] = {}
        self.window = DurationRecorder()
        self.drain = DurationRecorder()
        self.expired = 0

    def mutation_blocked(self, kind: str) -> None:
        """A mutation of this kind found the gate shut."""
        self.blocked[kind] = self.blocked.get(kind, 0) + 1
        self._blocked_now[kind] = self._blocked_now.get(kind, 0) + 1

    def checkpoint_begins(self) -> None:
        """A checkpoint heads the queue from here on; what one before it has counted and given up is forgotten."""
        self._blocked_now = {}
        self._waited_for = None

    def drain_ended_with(self, holder: Holder) -> None:
        """The last section that the checkpoint at the head of the queue waited for has ended."""
        self._waited_for = holder

    def window_ended(self, seconds: float) -> None:
        """The open window has ended after so long."""
        self.window.add(seconds)
        self.last_window = WindowFigures(self._waited_for, self._blocked_now)
        self.checkpoint_begins()

    def mutation_waited(self, kind: str, seconds: float) -> None:
        """A mutation of this kind was let in after a wait."""
        before = self.waits.get(kind, Waits(0, 0.0, 0.0))
        self.waits[kind] = Waits(before.count + 1, before.total + seconds, max(before.longest, seconds))


def _quantile(ordered: list[float], fraction: float) -> float:
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def named(holders: Iterable[Holder], at_most: int = 16) -> str:
    """Holders as one clause of a message; a long list is cut and counted."""
    listed = list(holders)
    text = "; ".join(str(holder) for holder in listed[:at_most])
    return text if len(listed) <= at_most else f"{text}; and {len(listed) - at_most} more"
