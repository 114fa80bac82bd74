"""The scenarios: programs over the real `impl`, followed by a machine of `spec` at every step where one speaks of them.

Importing this package imports `impl` and `spec`; the explorer itself does not need it.
"""

from __future__ import annotations

from ..follower import Coverage
from ..subject import Subject
from . import barrier as _barrier
from . import commit as _commit
from . import device as _device
from .scenario import Scenario

SCENARIOS: dict[str, Scenario] = {
    s.name: s for s in (_barrier.BARRIER, _barrier.QUEUE, _commit.SCENARIO, _device.SCENARIO)
}


class UnknownScenario(KeyError):
    """No scenario of that name."""


def scenario_named(name: str) -> Scenario:
    """The scenario of that name."""
    if name not in SCENARIOS:
        raise UnknownScenario(f"no scenario {name!r}; there are: {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def run_barrier() -> Subject:
    """A fresh run of the scenario `barrier`, for a generated pytest."""
    return _barrier.BARRIER.program_of(Coverage())


def run_queue() -> Subject:
    """A fresh run of the scenario `queue`, for a generated pytest."""
    return _barrier.QUEUE.program_of(Coverage())


def run_commit() -> Subject:
    """A fresh run of the scenario `commit`, for a generated pytest."""
    return _commit.program_of(Coverage())


def run_device() -> Subject:
    """A fresh run of the scenario `device`, for a generated pytest."""
    return _device.program_of(Coverage())
