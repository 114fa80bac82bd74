"""The checkpoint barrier: a pure admission core, cut tokens, and the asyncio front end; trio's is in `impl.trio`."""

from __future__ import annotations

from .admission import ENDED as ENDED
from .admission import AdmissionCore, Ticket
from .admission import ExclusiveTicket as ExclusiveTicket
from .admission import Standing as Standing
from .arguments import UNSET, Tracer, Unset
from .asyncio_barrier import CheckpointBarrier
from .asyncio_sections import CheckpointSection, ImmediateSection, MutationSection
from .cut import HELD as HELD
from .cut import Cut
from .cut import Detachment as Detachment
from .cut import Held as Held
from .cut import Named as Named
from .cut import chain as chain
from .cut import links as links
from .cut import outer_sections as outer_sections
from .front_end import BarrierFrontEnd
from .statistics import KEPT as KEPT
from .statistics import BarrierStatistics, Durations, Waits, WindowFigures
from .statistics import DurationRecorder as DurationRecorder

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
