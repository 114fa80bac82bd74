"""What the checkpointer asks of each part of a run: to be read in the window, and to be replaced by a restore.

Reading is synchronous and cheap: each part hands out something that will not change (a frozen record, a copy of an
index of frozen records). What was handed out is turned into files later, on the writer thread.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..arguments import require_abilities, require_count, require_flag
from ..errors import UsageError

if TYPE_CHECKING:
    from ..barrier import Cut
    from ..keys import GroupId
    from ..rows.plane import DataPlane
    from ..run.ledger import LedgerSnapshot
    from ..run.slots import BufferSnapshot, Slot
    from ..run.spare_pool import Spare


@dataclass(frozen=True)
class Counters:
    """The trainer's version and step, and the budgets that a restart must not refill.

    `version` counts the train steps that are done; `step` names the checkpoint. Budgets are plain numbers under names
    that their owner chooses.
    """

    version: int
    step: int
    budgets: Mapping[str, int] = field(default_factory=dict)
    #: "controller" where the budgets are those of a `Controller`, whose names a look at a directory knows.
    budgets_of: str | None = None


class LedgerPart(Protocol):
    """The owner of every prompt that is handed out and not yet buffered, and of the accounts."""

    def snapshot(self, cut: Cut, owned_elsewhere: Container[GroupId]) -> LedgerSnapshot:
        """Its entries without those the buffer owns, its id counters and its accounts."""
        ...

    def load(self, cut: Cut, snapshot: LedgerSnapshot) -> None:
        """Replace everything; the cut is exclusive."""
        ...


class StatePart(Protocol):
    """A part whose whole state is one record of plain values: the loader, the sampler.

    `check_state(state)`, if there is one, raises what `load_state` would and changes nothing; a restore asks it first.
    """

    def state(self) -> Any:
        """The state, immutable: a frozen dataclass, a msgspec struct or a dictionary of plain values."""
        ...

    def load_state(self, state: Any) -> None:
        """Replace the state by one that `state` returned, in this process or in an earlier one."""
        ...


class SamplerPart(StatePart, Protocol):
    """The sampler: its state, and what makes it the same sampler."""

    @property
    def name(self) -> str: ...
    def parameters(self) -> Mapping[str, Any]: ...


class PoolPart(Protocol):
    """The owner of the prompts that are held back as replacements."""

    def snapshot(self, cut: Cut) -> tuple[Spare, ...]: ...
    def load(self, cut: Cut, spares: Iterable[Spare]) -> None: ...


class NoPool:
    """The pool of a run without one: written as empty, and restored from a checkpoint whose pool is empty only."""

    def snapshot(self, cut: Cut) -> tuple[Spare, ...]:
        """Empty."""
        return ()

    def load(self, cut: Cut, spares: Iterable[Spare]) -> None:
        """Nothing; a restore has refused spares before."""


class BufferPart(Protocol):
    """The index of finished groups over a data plane."""

    @property
    def plane(self) -> DataPlane: ...
    @property
    def capacity(self) -> int: ...
    @property
    def claim_open(self) -> bool: ...
    @property
    def dispatch_open(self) -> bool: ...
    def snapshot(self, cut: Cut) -> BufferSnapshot: ...
    def check_fits(self, count: int) -> None: ...
    def load(self, cut: Cut, slots: Iterable[Slot]) -> None: ...


class CountersPart(Protocol):
    """Whoever moves the trainer's version: the controller.

    `check_counters(counters)`, if there is one, raises what `load` would and changes nothing; a restore asks it first.
    """

    def read(self, cut: Cut) -> Counters: ...
    def load(self, cut: Cut, counters: Counters) -> None: ...


class HeldCounters:
    """The version of a run without a controller: the program that drives it moves `version` itself, between steps."""

    def __init__(self) -> None:
        self.version = 0

    def read(self, cut: Cut) -> Counters:
        """The version; the step has the same number."""
        return Counters(self.version, self.version)

    def load(self, cut: Cut, counters: Counters) -> None:
        """Replace the version by a saved one."""
        self.version = counters.version


@dataclass(frozen=True)
class Participants:
    """The parts of one run.

    `generations` is the size of a group, part of the identity where the run knows it. `accept_dataset`: a checkpoint
    made with other content of the dataset may be restored. Without `recovery` a save reads
    the counters alone.
    """

    ledger: LedgerPart
    loader: StatePart
    sampler: SamplerPart
    buffer: BufferPart
    counters: CountersPart
    generations: int | None = None
    recovery: bool = True
    pool: PoolPart = field(default_factory=NoPool)
    accept_dataset: bool = False

    def require_good(self) -> None:
        """Refuse a part that lacks what a save or a restore asks of it, and settings that are none."""
        if self.generations is not None:
            require_count("generations", self.generations, least=1)
        require_flag("recovery", self.recovery)
        require_flag("accept_dataset", self.accept_dataset)
        for name, wanted in (
            ("ledger", LedgerPart),
            ("loader", StatePart),
            ("sampler", SamplerPart),
            ("buffer", BufferPart),
            ("pool", PoolPart),
            ("counters", CountersPart),
        ):
            abilities = sorted(ability for part in wanted.__mro__ for ability in vars(part) if ability[0] != "_")
            require_abilities(name, getattr(self, name), abilities, f"a {wanted.__name__}")

    def require_barrier(self, barrier: object) -> None:
        """Refuse a part whose writers another barrier lets in."""
        for name in ("ledger", "buffer", "pool"):
            if getattr(getattr(self, name), "barrier", None) not in (None, barrier):
                raise UsageError(
                    f"{name} belongs to another barrier than the checkpointer, so its writers would not be kept out of "
                    "the window. Make both with the same barrier."
                )
