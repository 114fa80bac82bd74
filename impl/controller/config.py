"""The settings of a run, checked when they are made.

Everything here is about one process: what must be the same in the run that resumes is the identity in the checkpoint,
which the loader, the sampler and `generations` make up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..errors import UsageError

Cause = Literal["transient", "data"]
Resume = Literal["auto", "must", "never"]
Remainder = Literal["train", "drop"]


def classify_failure(error: BaseException) -> Cause:
    """Say whether trying again may help: I/O and time limits are transient, anything else lies in the data."""
    return "transient" if isinstance(error, OSError | TimeoutError) else "data"


@dataclass(frozen=True, kw_only=True)
class ControllerConfig:
    """How a run saves, retries and ends. Frozen; a wrong value raises UsageError naming the field."""

    #: Whether a checkpoint holds the prompts. Without, a save opens the same window and holds the trainer alone: what
    #: is in flight is not recoverable, and a run that resumes begins the data anew.
    recovery: bool = True
    #: "auto" resumes from the newest checkpoint if there is one, "must" wants one, "never" wants an empty directory.
    resume: Resume = "auto"
    #: Whether the rows in the checkpoint are used; without them every buffered group is generated again.
    load_buffer: bool = True
    #: Whether a checkpoint is restored whose dataset had other content, with as many rows. Each manifest from then on
    #: names the change, so leave it False again once a checkpoint was made.
    accept_dataset: bool = False
    #: Generations in a group: the first dimension of every tensor that `generate` returns. None: not checked.
    generations: int | None = None
    #: Slots of the replay buffer that the controller makes. None: what the sampler needs; with the windowed sampler a
    #: step for each version in its window, so that one generation that hangs does not keep it from moving.
    capacity: int | None = None
    #: How many generations run at once, those included that were given up and work on in their thread.
    max_in_flight: int = 64
    #: The run ends when this many train steps have been done, over all its restarts. None: at the end of the data.
    max_steps: int | None = None
    #: What becomes of a batch that is shorter than the others, the last of an epoch: trained in a step with fewer
    #: groups, or dropped as it is read, with reason `remainder`.
    remainder: Remainder = "train"
    #: Prompts held back to take the place of groups that fail for good, so that train steps keep their size. While the
    #: pool holds fewer, a whole batch of the loader goes into it, though never before the first admission. What is left
    #: at the end of the data is trained in whole steps; the rest is dropped, with reason `remainder`. 0: no pool is
    #: kept, and a step is one smaller for each group that fails.
    spares: int = 0
    #: With a sampler that stamps: fill the hole of a failed group with a ready group of the furthest later step, and
    #: let the spare take that one's place, which is needed later. False: the spare always fills the hole itself.
    borrow: bool = True
    #: A full save after this many steps. None: only by deadline and at the end.
    save_period: int | None = 10
    #: A full save when this many seconds have gone by since the last, at the next moment between steps.
    save_deadline: float | None = None
    #: A rollout snapshot (the groups that are finished, without the trainer) after this many seconds, while the trainer
    #: is in the step after a full save that is durable; a crash then repeats less generation. None: none are taken.
    snapshot_period: float | None = None
    #: How many saves in a row may fail before the next failure ends the run; snapshots are counted apart. What would do
    #: harm ends it at once: another owner of the directory, committed rows that were changed, a broken rule. A save is
    #: tried again when the next is due, and not before `backoff` seconds, which double with each failure; the last
    #: save of a run as soon as these are over. 0: the first failure ends the run.
    failed_saves_tolerated: int = 3
    #: How often a group is tried again after a transient failure, and after one that lies in its data.
    transient_retries: int = 5
    data_retries: int = 1
    #: Seconds before the first retry, of a group or of a save; doubles with each failure, up to `backoff_limit`.
    backoff: float = 1.0
    backoff_limit: float = 60.0
    #: Seconds an attempt may take from its beginning; then it counts as a transient failure. A `generate` in a thread
    #: cannot be interrupted: the thread works on, keeps its place in `max_in_flight`, and its result is not used. None:
    #: no limit.
    attempt_timeout: float | None = None
    #: Tells transient failures from those that lie in the data.
    classify: Callable[[BaseException], Cause] = classify_failure
    #: Seconds without any change after which what everybody waits for is logged, or raised as RunStalled.
    #: Longer than the longest train step and the longest generation. None: never.
    stall_warning: float | None = 300.0
    stall_timeout: float | None = None

    def __post_init__(self) -> None:
        for name in ("recovery", "load_buffer", "accept_dataset", "borrow"):
            self._require(name, isinstance(getattr(self, name), bool), "True or False")
        self._choice("resume", ("auto", "must", "never"))
        self._choice("remainder", ("train", "drop"))
        for name in ("generations", "capacity", "max_steps", "save_period"):
            self._whole(name, least=1, optional=True)
        self._whole("max_in_flight", least=1)
        for name in ("transient_retries", "data_retries", "spares", "failed_saves_tolerated"):
            self._whole(name, least=0)
        for name in ("backoff", "backoff_limit"):
            self._seconds(name, optional=False, positive=False)
        for name in ("save_deadline", "snapshot_period", "attempt_timeout", "stall_warning", "stall_timeout"):
            self._seconds(name, optional=True, positive=True)
        if not self.recovery:
            self._require(
                "snapshot_period", self.snapshot_period is None, "None without recovery, since a snapshot is of prompts"
            )
        self._require("classify", callable(self.classify), "a function of an exception")

    def delay_before(self, failures: int) -> float:
        """Seconds to wait before the next attempt of a group, or of a save, that failed `failures` times."""
        # The exponent is bounded so that a long series of failures cannot overflow.
        return min(self.backoff * float(2 ** min(failures - 1, 32)), self.backoff_limit)

    def retries(self, cause: Cause) -> int:
        """How often a group is tried again after failures of this cause."""
        return self.transient_retries if cause == "transient" else self.data_retries

    def _require(self, name: str, holds: bool, wanted: str) -> None:
        if not holds:
            raise UsageError(f"ControllerConfig: {name} is {getattr(self, name)!r}; it must be {wanted}.")

    def _choice(self, name: str, choices: tuple[str, ...]) -> None:
        self._require(name, getattr(self, name) in choices, "one of " + ", ".join(map(repr, choices)))

    def _whole(self, name: str, *, least: int, optional: bool = False) -> None:
        value = getattr(self, name)
        good = isinstance(value, int) and not isinstance(value, bool) and value >= least
        wanted = f"a whole number of at least {least}" + (", or None" if optional else "")
        self._require(name, good or (optional and value is None), wanted)

    def _seconds(self, name: str, *, optional: bool, positive: bool) -> None:
        value = getattr(self, name)
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        good = number and (value > 0 if positive else value >= 0)
        wanted = f"a number of seconds {'above' if positive else 'of at least'} 0" + (", or None" if optional else "")
        self._require(name, good or (optional and value is None), wanted)
