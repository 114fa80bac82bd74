"""The checkpoint barrier: a pure admission core, cut tokens, and the asyncio front end; trio's is in `impl.trio`."""

from __future__ import annotations

from .admission import AdmissionCore, Ticket
from .arguments import UNSET, Tracer, Unset
from .asyncio_barrier import CheckpointBarrier
from .asyncio_sections import CheckpointSection, ImmediateSection, MutationSection
from .cut import Cut
from .front_end import BarrierFrontEnd
from .statistics import BarrierStatistics, Durations, Waits, WindowFigures

__all__ = [
    "UNSET",
    "AdmissionCore",
    "BarrierFrontEnd",
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
    "WindowFigures",
]
