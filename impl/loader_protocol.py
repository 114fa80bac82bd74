"""What the controller asks of a loader: batches under a cut, a state that is one record, and prompts by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from .barrier import Cut
    from .keys import Key
    from .loader import Batch


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

        A frozen dataclass, a msgspec struct or a dictionary. No work is done: it is read in the window.
        """

    def load_state(self, state: Any) -> None:
        """Continue at the place of a saved state, or refuse it and change nothing."""
