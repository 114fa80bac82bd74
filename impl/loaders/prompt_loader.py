"""Hands out the prompts of a dataset, batch by batch, and can be put back to any place.

Each epoch has its own seeded order. The state is one small immutable record: the place in the epoch, and an explicit
bit that says that nothing is left. Nothing is drawn ahead, so nothing can be left outside the state: what a smaller
batch leaves over is simply what comes next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cleancut_leaf.words import counted

from ..arguments import require_count, require_cut, require_integer, require_key, require_kind
from ..errors import CheckpointCorrupt, CheckpointIncompatible, UsageError
from ..keys import Key
from .dataset_identity import Dataset, dataset_digest, same_dataset
from .permutation import EpochOrder

if TYPE_CHECKING:
    from ..barrier import Cut
    from ..barrier.cut import Named


@dataclass(frozen=True, slots=True)
class Batch:
    """Prompts that were handed out together, all of one epoch. `ends_epoch`: they are its last."""

    keys: tuple[Key, ...]
    prompts: tuple[Any, ...]
    ends_epoch: bool


@dataclass(frozen=True, slots=True)
class LoaderState:
    """Where a loader is, and which loader it is. Immutable: it can be read in a window and written later.

    `position` counts the prompts of `epoch` that were handed out. At the end of an epoch the state is the beginning
    of the next one; at the end of the last it stays there, with `exhausted`.
    """

    epoch: int
    position: int
    exhausted: bool
    seed: int
    batch_size: int
    dataset_length: int
    dataset_digest: str


class PromptLoader:
    """Batches of prompts in seeded order. `next_batch` wants a cut: the cursor and the ledger move in one section.

    The last batch of an epoch is short when the batch size does not divide the dataset; no batch spans two epochs.
    The loader belongs to the barrier of the first cut it was given. For the digest of the dataset, its cost, and
    `fingerprint`, see `dataset_identity`.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        seed: int,
        epochs: int = 1,
        *,
        fingerprint: str | None = None,
    ) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise UsageError(
                f"dataset is a {type(dataset).__name__}, but must have a length and rows by number, like a list: only "
                "then can a restore find its place. Put an iterable dataset into a list first."
            )
        if len(dataset) == 0:
            raise UsageError("dataset is empty; give at least one prompt.")
        self.dataset = dataset
        self.batch_size = require_count("batch_size", batch_size, least=1)
        self.epochs = require_count("epochs", epochs, least=1)
        require_integer("seed", seed)
        self._length = len(dataset)
        self._barrier: Named | None = None
        self._state = LoaderState(
            epoch=0,
            position=0,
            exhausted=False,
            seed=seed,
            batch_size=batch_size,
            dataset_length=self._length,
            dataset_digest=dataset_digest(dataset, fingerprint),
        )
        self._order = EpochOrder(self._length, seed, 0)

    @property
    def exhausted(self) -> bool:
        """The last batch of the last epoch was handed out. A fact of its own, so a save right after it keeps it."""
        return self._state.exhausted

    @property
    def epoch(self) -> int:
        """The epoch of the next batch; of the last one, when exhausted."""
        return self._state.epoch

    @property
    def position(self) -> int:
        """How many prompts of this epoch were handed out."""
        return self._state.position

    def next_batch(self, cut: Cut, limit: int | None = None) -> Batch | None:
        """The next batch, or None at the end of the data. With `limit`, at most so many prompts; the rest come next.

        Reserve the batch in the ledger under the same cut: the loader's cursor alone remembers nothing.
        """
        self._require(cut)
        if limit is not None:
            require_count("limit", limit, least=1)
        state = self._state
        if state.exhausted:
            return None
        size = self.batch_size if limit is None else min(limit, self.batch_size)
        end = min(state.position + size, self._length)
        rows = [self._order[place] for place in range(state.position, end)]
        # Rows are read before anything moves: a row that cannot be read leaves the loader where it is.
        prompts = tuple(self.dataset[row] for row in rows)
        batch = Batch(tuple(Key(state.epoch, row) for row in rows), prompts, ends_epoch=end == self._length)
        self._move_to(self._after(replace(state, position=end)))
        return batch

    def payload(self, key: Key) -> Any:
        """The prompt of a key, read from the dataset again; for pending prompts after a restore."""
        return self.dataset[row_of(key, self._length)]

    # -- checkpoints

    def state(self) -> LoaderState:
        """Where the loader is; immutable, and no work."""
        return self._state

    def check_state(self, state: LoaderState) -> None:
        """Raise, and change nothing, unless `load_state` would take this state.

        CheckpointIncompatible when it is of another loader, naming each difference; CheckpointCorrupt when no loader
        can be at that place.
        """
        require_kind("state", state, LoaderState, "a LoaderState, as `state` returned it")
        mine = self._state
        differing = [
            f"{label} {getattr(state, name)!r} (saved) and {getattr(mine, name)!r} (now)"
            for name, label in _IDENTITY.items()
            if not same_identity(name, getattr(state, name), getattr(mine, name))
        ]
        if differing:
            raise CheckpointIncompatible(
                f"the saved loader is another one: {'; '.join(differing)}. Its place means nothing for this one. "
                "Resume with the dataset, seed and batch size of the save, or begin a new run in another directory."
            )
        check_place(state)
        if state.epoch >= self.epochs:
            raise CheckpointIncompatible(
                f"the saved loader is in epoch {state.epoch} (counted from 0), but this one has "
                f"{counted(self.epochs, 'epoch')}. Resume with epochs={state.epoch + 1} or more."
            )

    def load_state(self, state: LoaderState, cut: Cut | None = None) -> None:
        """Continue at a saved place. A state that was exhausted goes on when there are more epochs now.

        Give the exclusive cut of the restore when there is one. A refusal changes nothing.
        """
        if cut is not None:
            self._require(cut, exclusive=True)
        self.check_state(state)
        # The digest is of the dataset that is here; an earlier version may have taken it in another form.
        mine = replace(state, exhausted=False, dataset_digest=self._state.dataset_digest)
        self._move_to(self._after(mine))

    def _after(self, state: LoaderState) -> LoaderState:
        """`state`, or at the end of its epoch the beginning of the next, or the end."""
        if state.position < self._length:
            return state
        if state.epoch + 1 < self.epochs:
            return replace(state, epoch=state.epoch + 1, position=0)
        return replace(state, exhausted=True)

    def _move_to(self, state: LoaderState) -> None:
        if state.epoch != self._state.epoch:
            self._order = EpochOrder(self._length, state.seed, state.epoch)
        self._state = state

    def _require(self, cut: Cut, exclusive: bool = False) -> None:
        require_cut(cut, self._barrier, exclusive)
        self._barrier = cut.barrier


def check_place(state: LoaderState) -> None:
    """CheckpointCorrupt unless a loader can be at that place of its dataset."""
    length, whole = state.dataset_length, type(state.position) is int and type(state.epoch) is int
    at_end = state.position == length
    if not (whole and 0 <= state.position <= length and state.epoch >= 0 and at_end == state.exhausted):
        raise CheckpointCorrupt(
            f"the saved loader is at position {state.position!r} of epoch {state.epoch!r} with "
            f"{counted(length, 'prompt')}, {'exhausted' if state.exhausted else 'not exhausted'}, where no loader can "
            "be. The checkpoint was damaged or edited; restore an older one."
        )


def same_identity(name: str, saved: object, here: object) -> bool:
    """Whether a loader's state and the loader itself agree on what names the data and its order."""
    if name == "dataset_digest" and isinstance(saved, str) and isinstance(here, str):
        return same_dataset(saved, here)
    return saved == here


def row_of(key: Key, length: int) -> int:
    """The row of a key; CheckpointIncompatible when a dataset of `length` rows does not have it."""
    row = key[1] if isinstance(key, tuple) and len(key) == 2 else None
    if type(row) is int and not 0 <= row < length:
        raise CheckpointIncompatible(
            f"the key {key} is row {row} of a dataset that has {counted(length, 'row')}. The dataset is another one "
            "than at the save; resume with the dataset the checkpoint was made with."
        )
    return require_key("key", key).index


_IDENTITY = {
    "dataset_length": "dataset length",
    "dataset_digest": "dataset digest",
    "seed": "seed",
    "batch_size": "batch size",
}
