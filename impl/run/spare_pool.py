"""The spare pool: prompts held back to take the place of groups that failed for good.

    unread --divert--> spare --take--> ADMITTED, in the place of a group that was given up
                             --take_many--> RESERVED at the end of the data, or dropped (`remainder`)

Whole loader batches are diverted into it; they burn no stamp. A spare has no group yet: it gets an id in the section
that takes it out. The pool is part of every checkpoint, and an empty one is written as empty, so that a missing file is
never taken for "no spares".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cleancut_leaf.words import counted

from ..arguments import (
    require_count,
    require_cut,
    require_items,
    require_key,
    require_keys,
    require_kind,
    require_payloads,
)
from ..errors import CheckpointCorrupt, InvariantViolated, UsageError
from ..keys import Key
from ..loaders.prompt_loader import Batch
from .ledger import Ledger

if TYPE_CHECKING:
    from ..barrier import Cut
    from ..barrier.cut import Named


class Unread:
    """The prompt of a spare that came out of a checkpoint: to be read from its dataset again."""

    def __repr__(self) -> str:
        return "UNREAD"


UNREAD = Unread()


@dataclass(frozen=True, slots=True)
class Spare:
    """One prompt held back. `payload` None means that the prompt is the dataset's row of that key, as in the ledger.

    `prompt` is what the loader read, so that it is not read a second time; no part of a checkpoint.
    """

    key: Key
    payload: object = None
    prompt: Any = field(default=UNREAD, compare=False, repr=False)


class SparePool:
    """First in, first out. Every write wants a live cut, and is synchronous; a refusal changes nothing.

    Belongs to the barrier of its ledger, or without one to that of the first cut it was given.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        # Invariant one_owner: no key occurs twice in here, nor in the ledger or its accounts as well.
        # `_keys` are those of `_spares`.
        self._spares: deque[Spare] = deque()
        self._keys: set[Key] = set()
        self._ledger: Ledger | None = None
        self._barrier: Named | None = None
        if ledger is not None:
            self.bind_ledger(ledger)

    def bind_ledger(self, ledger: Ledger) -> None:
        """Let the pool check ownership against `ledger`. A Controller always does this."""
        require_kind("ledger", ledger, Ledger, "the Ledger of the run")
        if self._ledger is not None and self._ledger is not ledger:
            raise UsageError("the spare pool is bound to another ledger already. One run has one ledger.")
        if self._barrier is not None and self._barrier is not ledger.barrier:
            raise UsageError(
                "spare pool and ledger belong to different barriers. A checkpoint is one cut of all of them; use the "
                "pool under the ledger's barrier only."
            )
        self._ledger = ledger
        self._barrier = ledger.barrier

    @property
    def barrier(self) -> Named | None:
        """The barrier whose cuts this pool takes; None until it is known."""
        return self._barrier

    def __len__(self) -> int:
        return len(self._spares)

    @property
    def spares(self) -> tuple[Spare, ...]:
        """What is in the pool, the next one to be taken first."""
        return tuple(self._spares)

    @property
    def next(self) -> Spare | None:
        """The one that `take` would take; None when the pool is empty."""
        return self._spares[0] if self._spares else None

    # -- actions

    def divert(self, cut: Cut, batch: Batch, payloads: Sequence[object] | None = None) -> tuple[Spare, ...]:
        """Own a whole loader batch as spares, in the section that moved the loader; the action `divert_batch`.

        Payloads are copied; without them the prompts are the dataset's rows. When it may happen, never before the
        first admission for one, is the caller's to decide.
        """
        self._require(cut)
        require_kind("batch", batch, Batch, "a Batch, as the loader returned it")
        keys = require_keys("batch.keys", batch.keys)
        if not keys:
            raise UsageError("batch has no prompts; a batch that is diverted has at least one.")
        if not isinstance(batch.prompts, tuple) or len(batch.prompts) != len(keys):
            raise UsageError(
                f"batch.prompts is {batch.prompts!r} for {counted(len(keys), 'key')}; give one prompt each."
            )
        require_payloads(payloads, keys)
        fresh: set[Key] = set()
        for key in keys:
            self._require_nobodys(key, fresh)
            fresh.add(key)
        diverted = tuple(
            Spare(key, None if payloads is None else deepcopy(payloads[place]), batch.prompts[place])
            for place, key in enumerate(keys)
        )
        self._spares.extend(diverted)
        self._keys |= fresh
        cut.barrier.emit("divert_batch", keys=keys)
        return diverted

    def take(self, cut: Cut) -> Spare:
        """The oldest spare; it is the caller's from here on, and must have another owner in the same section."""
        (spare,) = self.take_many(cut, 1)
        return spare

    def take_many(self, cut: Cut, count: int) -> tuple[Spare, ...]:
        """The `count` oldest spares; they must have another owner, or an account, in the same section."""
        self._require(cut)
        require_count("count", count, least=1)
        if len(self._spares) < count:
            raise InvariantViolated(
                f"{counted(count, 'spare was', 'spares were')} to be taken from a pool of {len(self._spares)}. Another "
                "section took the others; look at the pool inside the section that takes."
            )
        taken = tuple(self._spares.popleft() for _ in range(count))
        self._keys.difference_update(spare.key for spare in taken)
        return taken

    # -- checkpoints

    def snapshot(self, cut: Cut) -> tuple[Spare, ...]:
        """The pool at this instant, by reference: spares are immutable."""
        self._require(cut)
        return tuple(self._spares)

    def load(self, cut: Cut, spares: Iterable[Spare]) -> None:
        """Replace everything; refused by CheckpointCorrupt when a key comes twice."""
        self._require(cut, exclusive=True)
        loaded = require_items("spares", spares, "spares, as `snapshot` returned them")
        for spare in loaded:
            require_kind("one of spares", spare, Spare, "a Spare, as `snapshot` returned it")
            require_key("the key of one of spares", spare.key)
        keys = {spare.key for spare in loaded}
        if len(keys) != len(loaded):
            raise CheckpointCorrupt(
                f"the saved spare pool holds {counted(len(loaded), 'spare')} with "
                f"{counted(len(keys), 'different key')}. It was damaged or edited; restore an older checkpoint."
            )
        self._spares = deque(loaded)
        self._keys = keys

    def _require(self, cut: Cut, exclusive: bool = False) -> None:
        require_cut(cut, self._barrier, exclusive)
        self._barrier = cut.barrier

    def _require_nobodys(self, key: Key, fresh: set[Key]) -> None:
        owner = "is a spare already" if key in self._keys or key in fresh else None
        if owner is None and self._ledger is not None:
            group = self._ledger.group_of(key)
            settled = self._ledger.accounts.settled(key)
            owner = settled if group is None else f"is group {group} already"
        if owner is not None:
            raise InvariantViolated(
                f"{key} was to be diverted, but it {owner}. Two owners of one prompt; the "
                "likely cause is a loader whose cursor was set back without the ledger or the pool. Restore all of "
                "them from one checkpoint."
            )
