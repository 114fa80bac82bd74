"""What a run says when it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ..barrier.statistics import Durations
    from ..keys import GroupId, Key
    from ..store.catalogue import Skipped
    from .config import Cause

#: "exhausted": every prompt was trained or dropped. "steps_reached": max_steps are done, the rest is in the checkpoint.
Outcome = Literal["exhausted", "steps_reached"]
#: "full": with the trainer's state, where there is one. "rollout": a snapshot between full saves.
SaveKind = Literal["full", "rollout"]


@dataclass(frozen=True)
class Failure:
    """One failed attempt to generate a group."""

    group: GroupId
    key: Key
    cause: Cause
    error: str
    #: Whether the group was given up with it.
    final: bool


@dataclass(frozen=True)
class SaveFailure:
    """One save that published nothing. The run went on, unless this is the one that it ended with."""

    kind: SaveKind
    #: The trainer's version when the failure was learnt of.
    version: int
    error: str
    #: Whether the run ended with it.
    final: bool


@dataclass(frozen=True)
class RestoredFrom:
    """What the run resumed with."""

    name: str
    step: int
    #: Groups that were generated again: those admitted, and those only reserved.
    admitted: int
    reserved: int
    #: Groups whose rows came out of the checkpoint.
    buffered: int
    #: What was not restored, where recovery is off.
    notice: str = ""
    #: Prompts in the spare pool.
    spares: int = 0
    #: What is newer and was not taken, with the reason: damaged, or something else under the name of a checkpoint.
    passed_over: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class RunReport:
    """The end of a run. Counts are over all its restarts unless their name says otherwise.

    Without `recovery` the checkpoints hold no prompts: what was in flight at a save cannot be recovered from it, and
    after a restart the counts of prompts begin at 0, as the data does.
    """

    outcome: Outcome
    #: Train steps done, those without groups included; the trainer's version.
    steps: int
    trained: int
    dropped: Mapping[str, int]
    #: Groups trained since this process began or resumed.
    trained_now: int
    restored: RestoredFrom | None
    #: Saves this process published.
    saves: int
    #: How long the windows were in which all writers stood still, in seconds.
    windows: Durations
    failures: tuple[Failure, ...] = ()
    #: Rollout snapshots this process published.
    snapshots: int = 0
    recovery: bool = True
    #: Saves and snapshots of this process that failed. Its last save did not, or there would be no report.
    save_failures: tuple[SaveFailure, ...] = ()
