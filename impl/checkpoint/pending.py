"""What a save hands back: the pending save, what became of it, and its figures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ..errors import Holder
from ..store.manifest import Kind

if TYPE_CHECKING:
    from ..barrier import WindowFigures


Published = Literal["yes", "no", "unknown"]

#: The parts of a save in the order in which they come.
PHASES = ("queue", "drain", "window", "stage", "persist")


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A durable checkpoint. `notices` are faults after it became durable, such as an old one that could not go.

    Files of old ones are removed after this is told; what goes wrong there is in the log.
    """

    name: str
    step: int
    sequence: int
    kind: Kind
    bytes: int
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotSkipped:
    """A rollout snapshot that was not taken, and why. Not an error: the next full save covers its work."""

    reason: str


@dataclass(frozen=True, slots=True)
class SaveStatistics:
    """The figures of one save, in seconds and bytes.

    `queue`: waiting for the save before, and once for the lock; `drain`: from the request until the last open section
    had ended; `window`: how long everybody was shut out; `stage`: copying the trainer's state, while training waits;
    `persist`: writing and publishing, while training runs. `artifacts` is the part of the window that the reading of
    each artifact took. `slowest_holder` is the section that the drain waited for longest, None where nothing was open;
    `blocked` counts by kind the mutations that this save kept waiting.
    """

    name: str
    kind: Kind
    queue_seconds: float
    drain_seconds: float
    window_seconds: float
    stage_seconds: float = 0.0
    persist_seconds: float = 0.0
    bytes: int = 0
    artifacts: Mapping[str, float] = field(default_factory=dict)
    slowest_holder: Holder | None = None
    blocked: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_window(
        cls,
        name: str,
        kind: Kind,
        phases: tuple[float, float, float],
        artifacts: Mapping[str, float],
        cost: WindowFigures | None,
    ) -> SaveStatistics:
        """The figures at the end of the window: queue, drain and window in seconds, and what the barrier saw."""
        assert cost is not None, "a window has just ended"
        return cls(
            name, kind, *phases, artifacts=artifacts, slowest_holder=cost.slowest_holder, blocked=dict(cost.blocked)
        )

    @property
    def seconds(self) -> dict[str, float]:
        """The parts of the save by name, in order."""
        return {phase: getattr(self, f"{phase}_seconds") for phase in PHASES}

    def __str__(self) -> str:
        took = ", ".join(f"{phase} {taken * 1e3:.3g} ms" for phase, taken in self.seconds.items())
        blocked = ", ".join(f"{count} {kind}" for kind, count in self.blocked.items()) or "nothing"
        return (
            f"{self.name} ({self.kind}): {took}, {self.bytes:,} bytes; waited for {self.slowest_holder or 'nobody'}; "
            f"blocked {blocked}"
        )


class PendingSave:
    """A checkpoint whose window is over and whose writing goes on in the background.

    The state it will hold is fixed. `durable()` tells how it ended; cancelling that wait, or dropping this object,
    stops nothing.
    """

    def __init__(self, name: str, step: int, sequence: int, window_seconds: float) -> None:
        self.name = name
        self.step = step
        self.sequence = sequence
        self.window_seconds = window_seconds
        self._outcome: asyncio.Future[CheckpointInfo] = asyncio.get_running_loop().create_future()
        self._failure_seen = False
        self._in_doubt = False
        # Whoever asked for the save is still in the call that would raise its failure: nobody else is told meanwhile.
        self.asked_for = False

    async def durable(self) -> CheckpointInfo:
        """Wait until the checkpoint is durable, or raise what prevented it. May be awaited any number of times."""
        await self.wait_done()
        self._failure_seen = True
        return self._outcome.result()

    async def wait_done(self) -> None:
        """Wait until the checkpoint is durable or has failed; raises nothing of it."""
        # `wait` leaves the outcome alone when the waiting task is cancelled; awaiting it would cancel it.
        await asyncio.wait((self._outcome,))

    @property
    def done(self) -> bool:
        """Whether `durable` would return or raise at once."""
        return self._outcome.done()

    @property
    def published(self) -> Published | None:
        """What became of it: "yes": durable. "no". "unknown": it failed after its rename, so a restart may find it.

        None while it is not done.
        """
        if not self.done:
            return None
        if self._outcome.exception() is None:
            return "yes"
        return "unknown" if self._in_doubt else "no"

    @property
    def failure(self) -> BaseException | None:
        """What prevented the checkpoint; None while it is being written, and once it is durable."""
        return self._outcome.exception() if self._outcome.done() else None

    def watch(self) -> None:
        """The caller will look at `failure` itself: neither the next save nor `close()` raises it."""
        self._failure_seen = True

    # -- for the checkpointer

    def take_failure(self) -> BaseException | None:
        """The failure unless somebody has learnt of it; it counts as seen from here on."""
        failure = None if self._failure_seen else self.failure
        self._failure_seen = True
        return failure

    def succeed(self, info: CheckpointInfo) -> None:
        """The checkpoint is durable."""
        self._outcome.set_result(info)

    def fail(self, error: BaseException, *, in_doubt: bool = False) -> None:
        """Nothing was published, or it is `in_doubt`; the error is kept until somebody asks."""
        self._in_doubt = in_doubt
        self._outcome.set_exception(error)
        # Read here so that asyncio does not report it as forgotten: the checkpointer keeps it and raises it.
        self._outcome.exception()
