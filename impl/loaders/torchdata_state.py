"""Where a loader over torchdata is: the record in a checkpoint, and what it must agree with to be taken up."""

from __future__ import annotations

from dataclasses import dataclass

from cleancut_leaf.words import counted

from ..errors import CheckpointCorrupt, CheckpointIncompatible
from .prompt_loader import same_identity


@dataclass(frozen=True, slots=True)
class TorchdataLoaderState:
    """Where the loader is, and which it is. Immutable, plain values.

    `leftover` are rows that the dataloader has drawn and nobody was handed; `own_batches` counts what it has drawn of
    this epoch. `dataloader` is its own state as JSON text: None where it is at the beginning or the end of an epoch.
    """

    epoch: int
    own_batches: int
    leftover: tuple[int, ...]
    exhausted: bool
    dataloader: str | None
    seed: int
    batch_size: int
    dataset_length: int
    dataset_digest: str
    own_batch_size: int | None
    workers: int


def check_place(state: TorchdataLoaderState, here: TorchdataLoaderState, own_batches: int, epochs: int) -> None:
    """Raise unless a loader that is at `here`, with so many batches an epoch, can go on at `state`.

    CheckpointIncompatible when that is of another loader, naming each difference; CheckpointCorrupt when no loader can
    be at that place.
    """
    differing = [
        f"{label} {getattr(state, name)!r} (saved) and {getattr(here, name)!r} (now)"
        for name, label in _IDENTITY.items()
        if not same_identity(name, getattr(state, name), getattr(here, name))
    ]
    if differing:
        raise CheckpointIncompatible(
            f"the saved loader is another one: {'; '.join(differing)}. Its place means nothing for this one. Resume "
            "with the dataset, seed, batch sizes and number of workers of the save, or begin a new run elsewhere."
        )
    check_place_anywhere(state, own_batches)
    if state.epoch >= epochs:
        raise CheckpointIncompatible(
            f"the saved loader is in epoch {state.epoch} (counted from 0), but this one has "
            f"{counted(epochs, 'epoch')}. Resume with epochs={state.epoch + 1} or more."
        )
    if state.dataloader is not None:
        # Here, so that whoever only looks at a checkpoint needs no torch.
        from .torch_loader_state import decode_state

        decode_state(state.dataloader, "the dataloader's state")


def check_place_anywhere(state: TorchdataLoaderState, own_batches: int | None = None) -> None:
    """CheckpointCorrupt unless some loader can be at `state`, with so many batches an epoch if that is known."""
    begun, rows = state.own_batches > 0, set(state.leftover)
    ended = not begun or state.dataloader is None
    if own_batches is not None:
        ended = state.own_batches in (0, own_batches)
    if not (
        type(state.epoch) is int
        and state.epoch >= 0
        and 0 <= state.own_batches <= (state.dataset_length if own_batches is None else own_batches)
        and ended == (state.dataloader is None)
        and len(rows) == len(state.leftover)
        and all(0 <= index < state.dataset_length for index in rows)
        and not (rows and not begun)
        and (begun and ended and not rows) == state.exhausted
    ):
        of = "" if own_batches is None else f" of {own_batches}"
        raise CheckpointCorrupt(
            f"the saved loader has drawn {counted(state.own_batches, 'batch', 'batches')}{of} of epoch {state.epoch} "
            f"and has {counted(len(state.leftover), 'row')} left over, "
            f"{'exhausted' if state.exhausted else 'not exhausted'}, where no loader can be. The checkpoint was "
            "damaged or edited; restore an older one."
        )


_IDENTITY = {
    "dataset_length": "dataset length",
    "dataset_digest": "dataset digest",
    "seed": "seed",
    "batch_size": "batch size",
    "own_batch_size": "batch size of the dataloader",
    "workers": "workers of the dataloader",
}
