"""The checkpoint barrier: a pure admission core, cut tokens, and the asyncio front end."""

from __future__ import annotations

from .admission import AdmissionCore, Ticket
from .arguments import UNSET, Tracer, Unset
from .asyncio_barrier import CheckpointBarrier
from .cut import Cut
from .sections import CheckpointSection, ImmediateSection, MutationSection
from .statistics import BarrierStatistics, Durations, Waits

__all__ = [
    "UNSET",
    "AdmissionCore",
    "BarrierStatistics",
    "CheckpointBarrier",
    "CheckpointSection",
    "Cut",
    "Durations",
    "ImmediateSection",
    "MutationSection",
    "Ticket",
    "Tracer",
    "Unset",
    "Waits",
]
