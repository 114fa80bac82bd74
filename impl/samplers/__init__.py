"""Samplers: who may be admitted next, and which groups a train step takes."""

from .in_order import InOrderSampler
from .protocol import Occupants, Sampler, SamplerState, SlotView, TransactionalSampler
from .windowed import WindowedSampler

__all__ = [
    "InOrderSampler",
    "Occupants",
    "Sampler",
    "SamplerState",
    "SlotView",
    "TransactionalSampler",
    "WindowedSampler",
]
