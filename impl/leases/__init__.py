"""Slots for writers in other processes: a slot is a lease with heartbeats, an expiry and a fencing token.

`table` says who holds which lease and until when, `fence` which tokens a part takes: both pure, with the time given.
`host` opens the sections of a real barrier for holders elsewhere and ends those of silent ones; `hosted` has these
sections. Nothing here knows how messages travel: `impl.ray` adds that.
"""

from __future__ import annotations

from .fence import Fence, FenceOrder, Token
from .host import Guard, LeaseHost
from .hosted import HostedBarrier
from .table import Asking, Lease, LeaseCounts, LeaseTable

__all__ = [
    "Asking",
    "Fence",
    "FenceOrder",
    "Guard",
    "HostedBarrier",
    "Lease",
    "LeaseCounts",
    "LeaseHost",
    "LeaseTable",
    "Token",
]
