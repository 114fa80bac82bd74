"""Trains the oldest groups first, and lets none overtake an older one that is still generating.

A group's weight is the trainer version at its dispatch. A train step takes ready groups by ascending weight, up to and
including the lowest weight that has an unready slot: groups of that very weight may go before their slower siblings,
younger ones may not. Taking the bare minimum weight alone stalls as soon as fewer than a step of that weight are left
(`fifo_bare_minimum` in `spec`, 28 steps).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...arguments import require_count
from .counted_gate import CountedGateSampler
from .protocol import SlotView
from .step_sampler import require_selection

if TYPE_CHECKING:
    from ...keys import GroupId


class WeightFifoSampler(CountedGateSampler):
    """Counted gate, no stamps; a step takes ready groups by ascending weight, none older than `staleness` steps."""

    name = "weight_fifo"

    def select(self, slots: Mapping[GroupId, SlotView], version: int, target: int) -> tuple[GroupId, ...]:
        """The first `target` ready groups with weight in [max(0, version − staleness), version], oldest first.

        None is younger than the oldest group that still generates; among equals the earlier arrival goes first.
        """
        require_selection(version, target)
        lowest = max(0, version - self.staleness)
        highest = min((slot.weight for slot in slots.values() if not slot.ready), default=version)
        eligible = [
            slot
            for slot in slots.values()
            if slot.ready and not slot.claimed and lowest <= slot.weight <= min(highest, version)
        ]
        if target < 1 or len(eligible) < target:
            return ()
        return tuple(slot.group for slot in sorted(eligible, key=lambda slot: slot.weight)[:target])

    def stale(self, slots: Mapping[GroupId, SlotView], version: int) -> tuple[GroupId, ...]:
        """Ready groups older than the staleness. One in flight is never given up: it holds back the younger ones."""
        require_count("version", version, least=0)
        return tuple(
            slot.group
            for slot in slots.values()
            if slot.ready and not slot.claimed and slot.weight < version - self.staleness
        )
