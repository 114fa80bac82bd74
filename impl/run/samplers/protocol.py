"""What the controller asks of a sampler: who may be admitted, and which groups a train step takes.

A sampler decides on values only. It reads slots through `SlotView`, never changes a buffer, and moves its own state in
one place, `commit_admission`, inside a mutation slot. Waiting for the trainer is apart from it:

    wait_until_admissible()      outside any slot, changes nothing, may take as long as it likes
    commit_admission(cut)        inside a slot, synchronous, looks at the gate again

The trainer's own save waits for the slots, so a sampler that waited for the trainer inside one would never return. A
`Sampler` without the split is accepted all the same: its `admit` runs inside a slot, which is right only if it never
needs the trainer. The drain limit of the barrier names it when it does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ...barrier import Cut
    from ...keys import GroupId


class SlotView(Protocol):
    """The part of a buffer slot that a sampler may look at."""

    @property
    def group(self) -> GroupId: ...
    @property
    def step(self) -> int | None:
        """The stamp: the train step this group was admitted for, or None if the sampler does not stamp."""

    @property
    def weight(self) -> int:
        """The trainer version when the group was dispatched."""

    @property
    def ready(self) -> bool: ...
    @property
    def claimed(self) -> bool: ...


#: Which groups carry a stamp now, wherever they live: `occupants(step)`.
Occupants = Callable[[int], Collection["GroupId"]]


@dataclass(frozen=True)
class SamplerState:
    """What a checkpoint keeps of a sampler. Plain values: the store writes the fields by name."""

    name: str
    cursor: int
    shortfalls: tuple[tuple[int, int], ...] = ()
    dropped: int = 0


@runtime_checkable
class Sampler(Protocol):
    """The least a sampler offers. `admit` runs inside a mutation slot and must not wait for the trainer there."""

    @property
    def name(self) -> str:
        """The identity written into a checkpoint; a run resumes only with the sampler that saved."""

    @property
    def stamped(self) -> bool:
        """Whether an admission belongs to one train step (a failed group then shortens that very step)."""

    @property
    def cursor(self) -> int:
        """The dispatch cursor: the step stamped last, -1 at first."""

    def bind(self, groups_per_step: int, occupants: Occupants | None = None) -> None: ...
    async def admit(self, cut: Cut) -> int | None:
        """Wait for the gate and commit, in one; the stamp, or None."""

    def advance(self, version: int) -> None:
        """The trainer is at `version` now; called inside the slot of finish_step. Wakes whoever waits at the gate."""

    def target(self, step: int) -> int:
        """How many groups train step `step` needs."""

    def credit(self, step: int, missing: int) -> None:
        """Step `step` needs `missing` groups fewer: a short batch, or a group that failed for good."""

    def record_drop(self) -> None:
        """A group of an unstamped sampler will not come: failed, evicted or aborted, or its short batch lacks it."""

    def select(self, slots: Mapping[GroupId, SlotView], version: int, target: int) -> tuple[GroupId, ...]:
        """Exactly `target` groups for the train step `version`, or () while there are not enough."""

    def stale(self, slots: Mapping[GroupId, SlotView], version: int) -> tuple[GroupId, ...]:
        """Groups too old to be trained at `version` or later: ready ones are evicted, the others aborted."""

    def capacity_needed(self, groups_per_step: int) -> int:
        """The smallest buffer with which this sampler cannot stall."""

    def parameters(self) -> Mapping[str, int | str]: ...
    def state(self) -> SamplerState: ...
    def load_state(self, state: SamplerState) -> None: ...


@runtime_checkable
class TransactionalSampler(Sampler, Protocol):
    """A sampler whose wait for the gate is apart from the admission it leads to."""

    async def wait_until_admissible(self) -> None:
        """Return once the gate is open. Changes nothing, so that any number of cancelled waits cost nothing."""

    def commit_admission(self, cut: Cut) -> int | None:
        """Move the dispatch cursor and return the stamp, or None. Synchronous; refuses when the gate is shut."""
