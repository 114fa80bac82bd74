"""What the user's functions are given: a request to generate one group, and the groups of one train step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..rows.plane import Rows
from ..run.slots import Claim, Slot

if TYPE_CHECKING:
    from ..keys import GroupId, Key

WriteBack = Callable[["GroupId", Rows], Awaitable[None]]


@dataclass(frozen=True)
class GenerationRequest:
    """One group to be generated: the argument of `generate`, which returns its rows."""

    group: GroupId
    key: Key
    prompt: Any
    #: Generations asked for; None when the configuration leaves it open.
    generations: int | None
    #: The train step the group is for; None with a sampler that does not stamp.
    step: int | None
    #: The trainer's version at dispatch.
    version: int
    #: 0 for the first attempt; counts failures, over restarts too.
    attempt: int


@dataclass(frozen=True)
class TrainGroup:
    """One group of a train step."""

    group: GroupId
    key: Key
    step: int | None
    #: The trainer's version when the group was dispatched.
    version: int
    _claim: Claim

    @property
    def rows(self) -> Rows:
        """The group's rows, with the columns written back so far. They are shared: train on them, do not write."""
        return self._claim.rows(self.group)


@dataclass(frozen=True)
class TrainBatch:
    """The groups of one train step: the argument of `train`, whose result is not used.

    `step` counts from 0; the run's version is `step` while it trains and `step` + 1 after.
    """

    step: int
    groups: tuple[TrainGroup, ...]
    _write_back: WriteBack

    @classmethod
    def of(cls, claim: Claim, slots: dict[GroupId, Slot], write_back: WriteBack) -> TrainBatch:
        """The batch of a claim; `slots` are its slots as of the claim."""
        groups = tuple(
            TrainGroup(group, slots[group].key, slots[group].step, slots[group].weight, claim) for group in claim.groups
        )
        return cls(claim.step, groups, write_back)

    def __iter__(self) -> Iterator[TrainGroup]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    async def write_back(self, group: GroupId, columns: Rows) -> None:
        """Add derived columns to a group's rows; they live as long as the train step. For an async `train` only."""
        await self._write_back(group, columns)
