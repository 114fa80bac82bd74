"""The trainer's version and the failures counted so far: what a checkpoint keeps of the controller itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arguments import require_cut
from ..checkpoint.participants import Counters
from ..errors import CheckpointCorrupt
from ..run.samplers import Sampler
from .config import Cause

if TYPE_CHECKING:
    from ..barrier import CheckpointBarrier, Cut
    from ..keys import GroupId


class Progress:
    """Moves the trainer's version, and tells the sampler in the same breath.

    The failures of a group are counted apart for each cause, and kept over restarts: a prompt that fails for good must
    not get a fresh budget from every crash. They are forgotten when the group is committed or given up.
    """

    # Invariant: the sampler's version equals `_version`, so its gate and the train pump never disagree.
    _version: int

    def __init__(self, barrier: CheckpointBarrier, sampler: Sampler) -> None:
        self._barrier = barrier
        self._sampler = sampler
        self._version = 0
        self._failures: dict[tuple[GroupId, Cause], int] = {}

    @property
    def version(self) -> int:
        """Train steps done, those without groups included."""
        return self._version

    def step_passed(self, cut: Cut) -> None:
        """Version + 1; what waits at the sampler's gate is woken."""
        require_cut(cut, self._barrier)
        self._version += 1
        self._sampler.advance(self._version)

    def count_failure(self, cut: Cut, group: GroupId, cause: Cause) -> int:
        """Count one more failure of `group`; return how many of this cause there are."""
        require_cut(cut, self._barrier)
        count = self._failures.get((group, cause), 0) + 1
        self._failures[group, cause] = count
        return count

    def forget_failures(self, cut: Cut, group: GroupId) -> None:
        """The group is committed or given up: its budget has served."""
        require_cut(cut, self._barrier)
        self._failures.pop((group, "transient"), None)
        self._failures.pop((group, "data"), None)

    def read(self, cut: Cut) -> Counters:
        """The counters for a checkpoint. The step of a full save is the version: it is taken between steps."""
        require_cut(cut, self._barrier)
        budgets = {f"{group}/{cause}": count for (group, cause), count in self._failures.items()}
        return Counters(version=self._version, step=self._version, budgets=budgets, budgets_of="controller")

    def check_counters(self, counters: Counters) -> None:
        """Raise CheckpointCorrupt, and change nothing, unless `load` would take these counters."""
        for name in counters.budgets:
            _parsed(name)

    def load(self, cut: Cut, counters: Counters) -> None:
        """Replace the counters by saved ones, and advance the sampler to the saved version."""
        failures = {_parsed(name): count for name, count in counters.budgets.items()}
        require_cut(cut, self._barrier, exclusive=True)
        self._failures = failures
        self._version = counters.version
        self._sampler.advance(self._version)


def _parsed(name: str) -> tuple[GroupId, Cause]:
    group, _, cause = name.partition("/")
    if group.isdecimal() and len(group) < 20:
        if cause == "transient":
            return int(group), "transient"
        if cause == "data":
            return int(group), "data"
    raise CheckpointCorrupt(
        f"the checkpoint counts failures under {name!r}, which names no group and cause. It was edited, or written by "
        "another version of this library; restore an earlier checkpoint."
    )
