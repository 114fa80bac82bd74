"""The tensors of a trainer copied to the CPU while the event loop goes on and training does not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import torch

from cleancut_leaf.words import counted

from ..errors import UsageError
from ..waiting import wait_shielded
from .torch_cuda_device import current_streams, done_on

Parts = Mapping[str, Mapping[str, torch.Tensor]]

#: Less than this in host memory is copied at once: it takes no longer than to hand it to a thread and back.
LEAST_BYTES = 1 << 20


async def copied_to_the_cpu(parts: Parts) -> Parts:
    """Copies that nothing else refers to, by part and path; UsageError if one of the tensors was changed meanwhile.

    Work that this thread has put on its current CUDA streams comes before the copy. A cancellation passes out only when
    the copy is over, since whoever is cancelled might go on with training.
    """
    tensors = [tensor for part in parts.values() for tensor in part.values()]
    streams = current_streams(tensors)
    # However little it is, a copy from a device takes as long as all the work that stands before it.
    if not streams and sum(tensor.nbytes for tensor in tensors) < LEAST_BYTES:
        return _copied(parts)
    before = _changes(parts)
    copying = asyncio.ensure_future(asyncio.to_thread(done_on, streams, lambda: _copied(parts)))
    cancellation = await wait_shielded(copying)
    copies = copying.result()
    if cancellation is not None:
        raise cancellation
    _require_unchanged(parts, before)
    return copies


def _copied(parts: Parts) -> Parts:
    with torch.no_grad():
        # `to("cpu")` alone copies nothing that is there already.
        return {
            part: {path: tensor.detach().to("cpu", copy=True) for path, tensor in tensors.items()}
            for part, tensors in parts.items()
        }


def _changes(parts: Parts) -> dict[tuple[str, str], int]:
    """How often each tensor was changed in place; of inference tensors torch does not count it."""
    return {
        (part, path): tensor._version
        for part, tensors in parts.items()
        for path, tensor in tensors.items()
        if not tensor.is_inference()
    }


def _require_unchanged(parts: Parts, before: Mapping[tuple[str, str], int]) -> None:
    changed = [place for place, count in _changes(parts).items() if before[place] != count]
    if changed:
        part, path = changed[0]
        others = f", and with it {counted(len(changed) - 1, 'other')}" if len(changed) > 1 else ""
        raise UsageError(
            f"{path!r} of the trainer's {part} was changed while it was copied for a checkpoint{others}. "
            "Training went on before begin_save() had returned, most likely because it was not awaited; await it "
            "before the next optimizer step. Nothing was published."
        )
