"""Situations of the replay buffer: groups dispatched, ready or claimed, over a real tensor plane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from impl import Claim, Key, ReplayBuffer, TensorPlane
from impl.barrier import CheckpointBarrier


def new_buffer(capacity: int = 4) -> ReplayBuffer:
    """An empty buffer without a ledger, every row digested."""
    return ReplayBuffer(CheckpointBarrier(), capacity, TensorPlane(verify="digest"))


def rows_of(group: int) -> Mapping[str, torch.Tensor]:
    """Rows that tell which group they are of."""
    return {"tokens": torch.full((2, 3), group, dtype=torch.int64), "reward": torch.full((2,), float(group))}


async def dispatch(buffer: ReplayBuffer, *groups: int, step: int | None = None, weight: int = 0) -> None:
    """Give each group an unready slot."""
    for group in groups:
        permit = await buffer.acquire_permit()
        async with buffer.barrier.mutation() as cut:
            buffer.reserve(cut, group, Key(0, group), step, weight, permit)


async def commit(buffer: ReplayBuffer, *groups: int) -> None:
    """Make dispatched groups ready."""
    for group in groups:
        staged = await buffer.plane.stage(group, rows_of(group))
        async with buffer.barrier.mutation() as cut:
            buffer.commit(cut, group, staged)


async def make_ready(buffer: ReplayBuffer, *groups: int, step: int | None = None, weight: int = 0) -> None:
    """Dispatch and commit."""
    await dispatch(buffer, *groups, step=step, weight=weight)
    await commit(buffer, *groups)


async def claim(buffer: ReplayBuffer, groups: Iterable[int], step: int = 0) -> Claim:
    """Claim ready groups."""
    async with buffer.barrier.mutation() as cut:
        return buffer.claim(cut, groups, step)
