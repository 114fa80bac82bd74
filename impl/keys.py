"""Names of prompts and groups.

A *key* names a prompt for ever: the epoch in which it was handed out, and its place in the dataset. A *group* is one
prompt with its generations; its id comes from a counter that is part of every checkpoint, so an id is never given
twice, not across restarts either. Content is no name: equal texts in two rows, or in two epochs, are two prompts.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

GroupId: TypeAlias = int


class Key(NamedTuple):
    """One prompt of one epoch. `index` is the row in the dataset, not the place in the shuffled order."""

    epoch: int
    # Hides tuple.index, which nobody calls on a key.
    index: int  # type: ignore[assignment]
