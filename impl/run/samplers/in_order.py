"""Trains batches in the order they were read, with a fixed number of steps generated ahead.

An admission is stamped with the train step it is for, and that step takes exactly its own groups. Nothing is ever too
old, so nothing is evicted; a slow group holds back its step and, `lookahead` admissions later, the gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleancut_leaf.words import counted

from ...arguments import require_count
from ...errors import InvariantViolated
from .protocol import SlotView
from .step_sampler import StepSampler, require_selection

if TYPE_CHECKING:
    from ...keys import GroupId


class InOrderSampler(StepSampler):
    """Gate shut while dispatch cursor ≥ version + lookahead; a step takes the groups stamped with it.

    `lookahead` 0 admits a step only when the trainer is at it; 1 generates one step while the one before trains.
    """

    name = "in_order"
    stamped = True

    def __init__(self, lookahead: int) -> None:
        super().__init__()
        self.lookahead = require_count("lookahead", lookahead, least=0)

    @property
    def gate_open(self) -> bool:
        return self._cursor < self._version + self.lookahead

    def select(self, slots: Mapping[GroupId, SlotView], version: int, target: int) -> tuple[GroupId, ...]:
        """The ready groups stamped with `version` once all `target` of them are there."""
        require_selection(version, target)
        chosen = tuple(
            slot.group for slot in slots.values() if slot.step == version and slot.ready and not slot.claimed
        )
        if len(chosen) > target:
            raise InvariantViolated(
                f"step {version} needs {counted(target, 'group')} and "
                f"{counted(len(chosen), 'ready one carries', 'ready ones carry')} its stamp. A step was admitted twice "
                "or a shortfall credited too often."
            )
        return chosen if len(chosen) == target else ()

    def stale(self, slots: Mapping[GroupId, SlotView], version: int) -> tuple[GroupId, ...]:
        """Ready groups of steps that have passed; a group in flight is never given up."""
        require_count("version", version, least=0)
        return tuple(
            slot.group
            for slot in slots.values()
            if slot.step is not None and slot.step < version and slot.ready and not slot.claimed
        )

    def capacity_needed(self, groups_per_step: int) -> int:
        return require_count("groups_per_step", groups_per_step, least=1) * (self.lookahead + 1)

    def parameters(self) -> Mapping[str, int | str]:
        return {"lookahead": self.lookahead}
