"""Trains whatever is ready, in order of arrival, however old.

A slow group holds nobody back and is trained whenever it arrives, so there is no bound on its age; `staleness` bounds
how many groups are under way, not how old one may get. Nothing is ever given up for its age.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from ...arguments import require_count
from .counted_gate import CountedGateSampler
from .protocol import SlotView
from .step_sampler import require_selection

if TYPE_CHECKING:
    from ...keys import GroupId


class ReadyFirstSampler(CountedGateSampler):
    """Counted gate, no stamps; a step takes the groups that became ready first."""

    name = "ready_first"

    def select(self, slots: Mapping[GroupId, SlotView], version: int, target: int) -> tuple[GroupId, ...]:
        """The `target` ready groups that arrived first, none dispatched at a later version than this one."""
        require_selection(version, target)
        ready = (slot.group for slot in slots.values() if slot.ready and not slot.claimed and slot.weight <= version)
        chosen = tuple(islice(ready, max(target, 0)))
        return chosen if chosen and len(chosen) == target else ()

    def stale(self, slots: Mapping[GroupId, SlotView], version: int) -> tuple[GroupId, ...]:
        """None, ever."""
        require_count("version", version, least=0)
        return ()
