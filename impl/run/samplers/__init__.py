"""Samplers: who may be admitted next, and which groups a train step takes."""

from .counted_gate import CountedGateSampler as CountedGateSampler
from .in_order import InOrderSampler
from .protocol import Occupants, Sampler, SamplerState, SlotView, TransactionalSampler
from .ready_first import ReadyFirstSampler
from .step_sampler import StepSampler
from .weight_fifo import WeightFifoSampler
from .windowed import WindowedSampler

__all__ = [
    "InOrderSampler",
    "Occupants",
    "ReadyFirstSampler",
    "Sampler",
    "SamplerState",
    "SlotView",
    "StepSampler",
    "TransactionalSampler",
    "WeightFifoSampler",
    "WindowedSampler",
]
