"""The swap for NeMo-RL: its data-plane checkpoint barrier, by its names, over the barrier of this library.

    from impl.nemo import DataPlaneCheckpointBarrier, DataPlaneMutationCut    # instead of the ones in replay_buffer.py

Every name in `__all__` is one that NeMo-RL's controller, ledger, samplers and replay buffer import. Needs neither torch
nor ray. What is the same and what differs stands in docs/swap-nemo-rl.md; what the originals do was read off the public
NVIDIA-NeMo/RL, pull requests 3480, 3923, 3924 and 3925.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from sys import _getframe
from types import FrameType, TracebackType
from typing import ClassVar, Final, Literal, TypeVar, get_args

from .barrier import UNSET, CheckpointBarrier, CheckpointSection, Cut, ImmediateSection, MutationSection, Tracer, Unset
from .barrier.admission import ENDED, NEW, Ticket
from .barrier.arguments import seconds
from .barrier.asyncio_sections import AsyncioSection
from .barrier.front_end import Inherited
from .barrier.section import Section as AnySection
from .errors import BarrierReentered, StaleCut, UsageError
from .waiting import Wakeup

__all__ = [
    "CHECKPOINT_MUTATION_KINDS",
    "CheckpointMutationKind",
    "DataPlaneCheckpointBarrier",
    "DataPlaneCheckpointBarrierTelemetry",
    "DataPlaneMutationCut",
]

CheckpointMutationKind = Literal[
    "advantage_writeback",
    "group_commits",
    "group_removals",
    "gym_acknowledgements",
    "gym_restart_cleanup",
    "other",
    "prompt_reservations",
    "recovery_restore",
    "recovery_retries",
    "sample_clears",
    "sibling_seals",
]
CHECKPOINT_MUTATION_KINDS: Final[tuple[CheckpointMutationKind, ...]] = get_args(CheckpointMutationKind)

KEPT_WAITS = 10_000
"""How many of the newest waits one reading gives, as in NeMo-RL. Counts are of all."""


@dataclass(frozen=True)
class DataPlaneCheckpointBarrierTelemetry:
    """One reading of a barrier.

    Since the reading before: `blocked_by_kind`, mutations whose wait has ended, let in or cancelled, with an entry for
    every kind; `wait_durations_s`, how long they waited in seconds, the newest 10,000; `max_waiting_mutations`. At this
    instant: `active_mutations`, `waiting_mutations`, and `checkpoint_active`: a checkpoint drains or is open.
    """

    blocked_by_kind: dict[str, int]
    wait_durations_s: tuple[float, ...]
    active_mutations: int
    waiting_mutations: int
    max_waiting_mutations: int
    checkpoint_active: bool


class DataPlaneMutationCut(Cut):
    """The token of one section: `require_live` for NeMo-RL's own parts, `require(barrier)` for those of this library.

    Made by sections alone. Live from enter to exit, in whichever task or thread it is looked at.
    """

    __slots__ = ()

    def require_live(self) -> None:
        """Raise StaleCut, a RuntimeError, unless the section is open. Does not say of which barrier it is."""
        try:
            self.require(self.barrier)
        except StaleCut as error:
            if self.standing is not ENDED:
                raise
            raise StaleCut(f"this cut is no longer active: {error}") from None


@contextmanager
def _said_as_nemo_rl_does() -> Iterator[None]:
    """Let the error of a nested section say, besides its own words, those that callers of NeMo-RL look for."""
    try:
        yield
    except BarrierReentered as error:
        raise BarrierReentered(
            f"this task, or the one that started it, already holds a data-plane barrier section: {error}"
        ) from None


class DataPlaneMutation(MutationSection, DataPlaneMutationCut):
    """A shared section: `async with barrier.mutation(kind) as cut`."""

    __slots__ = ()

    async def __aenter__(self) -> DataPlaneMutationCut:
        with _said_as_nemo_rl_does():
            await super().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        _tell_ended(self.barrier)


class ImmediateDataPlaneMutation(ImmediateSection, DataPlaneMutationCut):
    """A shared section that never waits: `with barrier.mutation_nowait(kind) as cut`."""

    __slots__ = ()

    def __enter__(self) -> DataPlaneMutationCut:
        with _said_as_nemo_rl_does():
            super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        _tell_ended(self.barrier)


class DataPlaneCheckpoint(CheckpointSection, DataPlaneMutationCut):
    """The exclusive section: `async with barrier.checkpoint() as cut`."""

    __slots__ = ()

    async def __aenter__(self) -> DataPlaneMutationCut:
        with _said_as_nemo_rl_does():
            await super().__aenter__()
        return self


Section = TypeVar("Section", bound=AsyncioSection)


class DataPlaneCheckpointBarrier(CheckpointBarrier):
    """NeMo-RL's barrier by name and use, and a `CheckpointBarrier`, so that parts of this library can join it.

    Without arguments it waits for ever, as NeMo-RL's does, and logs no long holds: a slot may span an RPC. Give
    `drain_timeout` (seconds, more than the slowest RPC made inside a slot) to have a hanging holder named instead, and
    `hold_warning` to have slow ones logged. `extra_kinds` are admitted beside CHECKPOINT_MUTATION_KINDS; telemetry and
    messages list them as well.
    """

    #: The kinds that every barrier of this class takes.
    known_kinds: ClassVar[tuple[str, ...]] = CHECKPOINT_MUTATION_KINDS

    def __init__(
        self,
        name: str = "data_plane",
        drain_timeout: float | None = None,
        hold_warning: float | None = None,
        trace: Tracer | None = None,
        *,
        extra_kinds: Iterable[str] = (),
        inherited: Inherited = "refuse",
    ) -> None:
        super().__init__(name, drain_timeout, hold_warning, trace, inherited=inherited)
        self._kinds: tuple[str, ...] = tuple(dict.fromkeys((*self.known_kinds, *_checked_kinds(extra_kinds))))
        self._ended = Wakeup()
        self._blocked_since_reading = dict.fromkeys(self._kinds, 0)
        self._waits_since_reading: deque[float] = deque(maxlen=KEPT_WAITS)
        self._most_waiting_since_reading = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that `mutation` takes."""
        return self._kinds

    @property
    def active_mutations(self) -> int:
        """How many mutations are open; that of `drain_telemetry`, without a reading."""
        return self._core.active_mutations

    #: As the original calls it.
    _active_mutations = active_mutations

    async def wait_for_mutation(self, version: int, timeout_s: float | None) -> None:
        """Wait until `mutation_version` is another than `version`, at most so many seconds; None waits for ever.

        Returns in either case, at once if a mutation has ended since `version` was read. Outside any section.
        """
        limit = seconds("timeout_s", timeout_s)
        try:
            async with asyncio.timeout(limit):
                while self.mutation_version == version:
                    await self._ended.wait()
        except TimeoutError:
            pass

    def mutation(self, kind: str = "other") -> DataPlaneMutation:
        """A shared section, as an async context manager; UsageError, a ValueError too, for a kind not in `kinds`."""
        return self._asked_for(DataPlaneMutation(), self._known(kind), _getframe(1))

    def mutation_nowait(self, kind: str = "other") -> ImmediateDataPlaneMutation:
        """A shared section, as a plain context manager; entering raises WouldBlock instead of waiting."""
        return self._asked_for(ImmediateDataPlaneMutation(), self._known(kind), _getframe(1))

    def checkpoint(self, timeout: float | Unset | None = UNSET) -> DataPlaneCheckpoint:
        """The exclusive section, as an async context manager; for `timeout` see CheckpointBarrier."""
        section = self._asked_for(DataPlaneCheckpoint(), "checkpoint", _getframe(1))
        section.timeout = self._drain_timeout if isinstance(timeout, Unset) else seconds("timeout", timeout)
        return section

    async def drain_telemetry(self) -> DataPlaneCheckpointBarrierTelemetry:
        """Read the telemetry, and begin a new interval with the waits that go on. Needs no section and awaits nothing.

        To be read by one consumer: what it takes, another does not see. `statistics` is for everybody else.
        """
        waiting = self._core.waiting_mutations
        reading = DataPlaneCheckpointBarrierTelemetry(
            blocked_by_kind=dict(self._blocked_since_reading),
            wait_durations_s=tuple(self._waits_since_reading),
            active_mutations=self._core.active_mutations,
            waiting_mutations=waiting,
            max_waiting_mutations=self._most_waiting_since_reading,
            checkpoint_active=self._core.cut is not None or self._core.draining is not None,
        )
        self._blocked_since_reading = dict.fromkeys(self._kinds, 0)
        self._waits_since_reading.clear()
        self._most_waiting_since_reading = waiting
        return reading

    def _left(self, section: AnySection, let_in: Sequence[Ticket]) -> None:
        """Also for a section that another thread or a late callback has given back."""
        super()._left(section, let_in)
        self._ended.wake()

    async def _wait(self, section: AsyncioSection) -> None:
        """Wait as the base does, and note how long a mutation waited, whatever ends the wait."""
        if section.exclusive:
            await super()._wait(section)
            return
        self._most_waiting_since_reading = max(self._most_waiting_since_reading, self._core.waiting_mutations)
        asked = self._time()
        try:
            await super()._wait(section)
        finally:
            self._blocked_since_reading[section.kind] += 1
            self._waits_since_reading.append(self._time() - asked)

    def _known(self, kind: str) -> str:
        if kind not in self._kinds:
            raise UsageError(
                f"unknown checkpoint mutation kind {kind!r}: it is none of {', '.join(self._kinds)}. The set is "
                "closed, so that a misspelt kind does not vanish from the telemetry; name a new one in extra_kinds "
                "where the barrier is made."
            )
        return kind

    def _asked_for(self, section: Section, kind: str, asked_in: FrameType) -> Section:
        section.barrier = self
        section.kind = kind
        section.standing = NEW
        section.code = asked_in.f_code
        section.instruction = asked_in.f_lasti
        return section


def _tell_ended(barrier: object) -> None:
    """Let those in `wait_for_mutation` look again. A section of another kind of barrier has none."""
    if isinstance(barrier, DataPlaneCheckpointBarrier):
        barrier._ended.wake()


def _checked_kinds(extra_kinds: Iterable[str]) -> tuple[str, ...]:
    """`extra_kinds` as a tuple; UsageError unless each is a name."""
    named = isinstance(extra_kinds, Iterable) and not isinstance(extra_kinds, str | bytes)
    kinds = tuple(extra_kinds) if named else ()
    if not named or not all(isinstance(kind, str) and kind for kind in kinds):
        raise UsageError(f"extra_kinds is {extra_kinds!r}, but must be a collection of names, like ['weight_syncs'].")
    return kinds
