"""The gate that `weight_fifo` and `ready_first` share: it counts groups, since neither gives stamps.

An admission is held back while the groups admitted and still to come fill `staleness` steps beyond the trainer's.
Groups that will never come do not count: those that failed, were evicted or aborted, and what a short batch lacks of a
whole step. A gate that counted admissions alone would stay shut for ever after a few drops (`gate_ignores_drops` in
`spec`, 7 steps), which is where the rule departs from its model in the field.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...arguments import require_count
from .step_sampler import StepSampler


class CountedGateSampler(StepSampler):
    """Base of the samplers without stamps whose gate can shut.

    Gate shut while N · dispatch cursor − dropped ≥ N · (version + staleness), with N groups to a whole step.
    """

    stamped = False

    def __init__(self, staleness: int) -> None:
        super().__init__()
        self.staleness = require_count("staleness", staleness, least=0)

    @property
    def gate_open(self) -> bool:
        """Whether the groups still to come leave room for one more admission; needs `bind`."""
        whole = self.groups_per_step
        return whole * self._cursor - self._dropped < whole * (self._version + self.staleness)

    def capacity_needed(self, groups_per_step: int) -> int:
        return require_count("groups_per_step", groups_per_step, least=1) * (self.staleness + 1)

    def parameters(self) -> Mapping[str, int | str]:
        return {"staleness": self.staleness}
