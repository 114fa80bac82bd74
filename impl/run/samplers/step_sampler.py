"""The state every shipped sampler shares: dispatch cursor, trainer version, shortfalls, drops, and the gate.

A concrete sampler says when its gate is open, whether an admission is stamped, which groups a step takes and which
are stale. Everything that has to survive a restart is in `state()`; the trainer version is not, because the trainer
owns it: `advance` tells it again after a restore.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from cleancut_leaf.words import counted

from ...arguments import require_count, require_cut, require_kind
from ...errors import CheckpointCorrupt, CheckpointIncompatible, InvariantViolated, UsageError
from ...waiting import Wakeup
from .protocol import Occupants, SamplerState, SlotView

if TYPE_CHECKING:
    from ...barrier import Cut
    from ...keys import GroupId


def require_selection(version: int, target: int) -> None:
    """Raise UsageError unless these are a trainer version, and how many groups a step takes; none for 0 and below."""
    require_count("version", version, least=0)
    require_kind("target", target, int, "a whole number")


class StepSampler(ABC):
    """Base of the shipped samplers; satisfies `TransactionalSampler`."""

    # Set on the class by each sampler, and no ClassVar: the protocol reads them from an object, where a sampler of the
    # user's may have a property, and pyright takes a ClassVar for neither.
    name: str
    stamped: bool
    #: Whether an admission moves the dispatch cursor. Without that nothing tells that there was one.
    counts_admissions: ClassVar[bool] = True

    # Invariant cursor_covers_stamps: no group carries a stamp above `_cursor`.
    _cursor: int
    # Invariant stamps_complete: for a step in [version, cursor] the living groups and `_shortfalls[step]` make a whole
    # step together, so a shortfall is credited in the section that takes the group away.
    _shortfalls: dict[int, int]

    def __init__(self) -> None:
        self._cursor = -1
        self._shortfalls = {}
        self._dropped = 0
        self._version = 0
        self._groups_per_step: int | None = None
        self._occupants: Occupants | None = None
        self._gate = Wakeup()

    # -- what a concrete sampler decides --------------------------------------------------------------------------

    @property
    @abstractmethod
    def gate_open(self) -> bool:
        """Whether one more admission may be committed now."""

    @abstractmethod
    def select(self, slots: Mapping[GroupId, SlotView], version: int, target: int) -> tuple[GroupId, ...]: ...

    @abstractmethod
    def stale(self, slots: Mapping[GroupId, SlotView], version: int) -> tuple[GroupId, ...]: ...

    @abstractmethod
    def capacity_needed(self, groups_per_step: int) -> int: ...

    @abstractmethod
    def parameters(self) -> Mapping[str, int | str]: ...

    # -- shared ---------------------------------------------------------------------------------------------------

    def bind(self, groups_per_step: int, occupants: Occupants | None = None) -> None:
        """Tell the sampler the size of a whole step, and how to see which groups a step has already."""
        if occupants is not None and not callable(occupants):
            raise UsageError(f"occupants is {occupants!r}; it must be a function of a step, or None.")
        self._groups_per_step = require_count("groups_per_step", groups_per_step, least=1)
        self._occupants = occupants

    @property
    def bound(self) -> int | None:
        """The size of a whole step; None before anybody has told it."""
        return self._groups_per_step

    @property
    def groups_per_step(self) -> int:
        """The size of a whole step."""
        if self._groups_per_step is None:
            raise UsageError(
                f"the {self.name} sampler does not know how many groups make a step. A Controller binds it; "
                "without one call sampler.bind(groups_per_step) first."
            )
        return self._groups_per_step

    @property
    def cursor(self) -> int:
        return self._cursor

    @property
    def version(self) -> int:
        """The trainer version as of the last `advance`."""
        return self._version

    @property
    def dropped(self) -> int:
        """Groups recorded by `record_drop`, over all restarts."""
        return self._dropped

    async def wait_until_admissible(self) -> None:
        """Return once the gate is open. Event-driven; a cancelled wait leaves no trace."""
        while not self.gate_open:
            await self._gate.wait()

    @property
    def waiting(self) -> int:
        """How many admitters wait at the gate."""
        return self._gate.waiting

    def commit_admission(self, cut: Cut) -> int | None:
        """Move the dispatch cursor by one and return the stamp (None for a sampler that does not stamp)."""
        require_cut(cut)
        if not self.gate_open:
            raise InvariantViolated(
                f"the {self.name} sampler was asked to admit while its gate is shut: dispatch cursor {self._cursor}, "
                f"trainer version {self._version}. Probably there are two admitters; there must be one, and it waits "
                "with wait_until_admissible() before it asks for the slot."
            )
        step = self._cursor + 1
        if self.stamped and not self.step_is_free(step):
            occupants = self._occupants(step) if self._occupants is not None else ()
            raise InvariantViolated(
                f"step {step} is to be admitted, but {counted(len(occupants), 'group is', 'groups are')} stamped with "
                f"it already. The dispatch cursor ({self._cursor}) is behind the buffer or the ledger, as after a "
                "checkpoint whose parts were read at different instants. Nothing was discarded; restore an earlier "
                "checkpoint."
            )
        return self._admit_step(step)

    def _admit_step(self, step: int) -> int | None:
        self._cursor = step
        return step if self.stamped else None

    async def admit(self, cut: Cut) -> int | None:
        """Commit at once if the gate is open, else refuse: a sampler with the split never waits inside a slot."""
        return self.commit_admission(cut)

    def default_capacity(self, groups_per_step: int) -> int:
        """The buffer that a controller makes where the user names no capacity."""
        return self.capacity_needed(groups_per_step)

    def step_is_free(self, step: int) -> bool:
        """Whether no living group carries this stamp."""
        return self._occupants is None or not self._occupants(step)

    def advance(self, version: int) -> None:
        self._version = require_count("version", version, least=0)
        self._shortfalls = {step: missing for step, missing in self._shortfalls.items() if step >= version}
        self._gate.wake()

    def target(self, step: int) -> int:
        return self.groups_per_step - self._shortfalls.get(require_count("step", step, least=0), 0)

    def credit(self, step: int, missing: int) -> None:
        require_count("step", step, least=0)
        require_count("missing", missing, least=0)
        total = self._shortfalls.get(step, 0) + missing
        if total > self.groups_per_step:
            raise InvariantViolated(
                f"step {step} would fall short by {total} of {counted(self.groups_per_step, 'group')}. A lost group "
                "was credited twice; each is credited once, in the section that drops it."
            )
        if total:
            self._shortfalls[step] = total

    def record_drop(self) -> None:
        self._dropped += 1
        self._gate.wake()

    def state(self) -> SamplerState:
        return SamplerState(self.name, self._cursor, tuple(sorted(self._shortfalls.items())), self._dropped)

    def check_state(self, state: SamplerState) -> None:
        """Raise, and change nothing, unless `load_state` would take this state.

        CheckpointIncompatible when it is of another sampler, CheckpointCorrupt when none can be in it.
        """
        require_kind("state", state, SamplerState, "a SamplerState, as `state` returned it")
        if state.name != self.name:
            raise CheckpointIncompatible(
                f"the checkpoint was saved with the '{state.name}' sampler and this run uses '{self.name}'. Their "
                f"dispatch cursors mean different things; resume with the '{state.name}' sampler, or start a new "
                "directory."
            )
        check_counts(state)

    def load_state(self, state: SamplerState) -> None:
        """Replace the state by a saved one; the version comes with the next `advance`. A refusal changes nothing."""
        self.check_state(state)
        self._cursor = state.cursor
        self._shortfalls = {step: missing for step, missing in state.shortfalls if missing}
        self._dropped = state.dropped
        self._gate.wake()


def check_counts(state: SamplerState) -> None:
    """CheckpointCorrupt unless a sampler can have these counts."""
    good = {
        "cursor": _is_count(state.cursor, -1),
        "dropped": _is_count(state.dropped, 0),
        "shortfalls": isinstance(state.shortfalls, tuple | list) and all(map(_is_shortfall, state.shortfalls)),
    }
    for field, holds in good.items():
        if not holds:
            raise CheckpointCorrupt(
                f"the saved sampler has {field} {getattr(state, field)!r}, which no sampler has. The checkpoint was "
                "damaged or edited; restore an older one."
            )


def _is_count(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def _is_shortfall(pair: object) -> bool:
    return isinstance(pair, tuple | list) and len(pair) == 2 and all(_is_count(number, 0) for number in pair)
