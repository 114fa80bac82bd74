"""Trains whatever is ready and young enough, whichever batch it came from.

A group's weight is the trainer version at its dispatch. A train step at version v takes ready groups of weight v minus
`staleness` or more; older ones are given up, ready or not. Admission is never held back: the buffer's permits are the
only brake. Age is counted in train steps: a group that never comes is too old only while steps pass without it, which
takes a buffer of more than one step, a staleness of 1 or more, and more data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from ...arguments import require_count
from .protocol import SlotView
from .step_sampler import StepSampler, require_selection

if TYPE_CHECKING:
    from ...keys import GroupId


class WindowedSampler(StepSampler):
    """Gate always open, no stamps; a step takes ready groups with weight in [max(0, v − staleness), v]."""

    name = "windowed"
    stamped = False
    counts_admissions: ClassVar[bool] = False

    def __init__(self, staleness: int) -> None:
        super().__init__()
        self.staleness = require_count("staleness", staleness, least=0)

    @property
    def gate_open(self) -> bool:
        return True

    def _admit_step(self, step: int) -> int | None:
        return None

    def select(self, slots: Mapping[GroupId, SlotView], version: int, target: int) -> tuple[GroupId, ...]:
        """The oldest `target` ready groups inside the window, earlier arrivals first among equals.

        Oldest first, because they are the ones the next version would give up.
        """
        require_selection(version, target)
        lowest = max(0, version - self.staleness)
        inside = [
            slot for slot in slots.values() if slot.ready and not slot.claimed and lowest <= slot.weight <= version
        ]
        if target < 1 or len(inside) < target:
            return ()
        return tuple(slot.group for slot in sorted(inside, key=lambda slot: slot.weight)[:target])

    def stale(self, slots: Mapping[GroupId, SlotView], version: int) -> tuple[GroupId, ...]:
        require_count("version", version, least=0)
        return tuple(
            slot.group for slot in slots.values() if slot.weight < version - self.staleness and not slot.claimed
        )

    def capacity_needed(self, groups_per_step: int) -> int:
        return require_count("groups_per_step", groups_per_step, least=1)

    def default_capacity(self, groups_per_step: int) -> int:
        """A step for each version in the window.

        With `capacity_needed` alone one group that never comes would keep the step from being whole, so the version
        from moving, so the group from ever being too old. With more than this a group that is ready at once would be
        too old when its turn comes.
        """
        return self.capacity_needed(groups_per_step) * (self.staleness + 1)

    def parameters(self) -> Mapping[str, int | str]:
        return {"staleness": self.staleness}
