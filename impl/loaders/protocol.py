"""What the controller asks of a loader: batches under a cut, a state that is one record, and prompts by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cleancut_leaf.words import counted

from ..arguments import is_key
from ..errors import UsageError
from .prompt_loader import Batch

if TYPE_CHECKING:
    from ..barrier import Cut
    from ..keys import Key


@runtime_checkable
class Loader(Protocol):
    """`PromptLoader`, or whatever stands in its place.

    A loader that has to wait for its data also has `async prepare()`: it is awaited outside of any section before each
    `next_batch`, and does the waiting. What it has read by then is part of the state: the controller may save in
    between, and nothing that was read may be lost or read twice.
    """

    @property
    def batch_size(self) -> int:
        """Prompts in a batch, and in a train step."""

    @property
    def exhausted(self) -> bool:
        """Whether the last batch was handed out; part of the state."""

    def next_batch(self, cut: Cut) -> Batch | None:
        """The next batch, all of one epoch, or None at the end of the data. Synchronous, inside a mutation slot."""

    def payload(self, key: Key) -> Any:
        """The prompt of a key again, for what was pending at a save."""

    def state(self) -> Any:
        """One immutable record of plain values; at least dataset_length, dataset_digest, seed and batch_size.

        A frozen dataclass, a msgspec struct or a new dictionary. No work is done: it is read in the window. One with
        the very fields of `LoaderState` is taken for a `PromptLoader`'s, and its prompts are counted by that.
        """

    def load_state(self, state: Any) -> None:
        """Continue at the place of a saved state, or refuse it and change nothing."""


def checked_batch(batch: object, at_most: int) -> Batch | None:
    """What `next_batch` returned, if it can be reserved; UsageError says what does not fit. Changes nothing.

    The keys themselves are checked by the ledger, which knows who owns each already.
    """
    if batch is None:
        return None
    if not isinstance(batch, Batch):
        raise UsageError(f"loader: next_batch returned a {type(batch).__name__}; it must return a Batch, or None.")
    wrong = [key for key in batch.keys if not is_key(key)]
    epochs = {key[0] for key in batch.keys if is_key(key)}
    if wrong:
        what = f"{wrong[0]!r} among its keys; a key is (epoch, row), two whole numbers of 0 or more"
    elif not 1 <= len(batch.keys) <= at_most:
        what = f"{counted(len(batch.keys), 'key')}; there must be 1 to {at_most}, the loader's batch_size"
    elif len(batch.prompts) != len(batch.keys):
        what = f"{counted(len(batch.prompts), 'prompt')} for {counted(len(batch.keys), 'key')}; each key has one"
    elif len(epochs) != 1:
        what = f"keys of the epochs {sorted(epochs)}; a batch is of one epoch, the last one of an epoch may be short"
    else:
        return batch
    raise UsageError(f"loader: next_batch returned a batch with {what}. Nothing of it was reserved.")
