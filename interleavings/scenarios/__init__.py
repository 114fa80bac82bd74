"""The scenarios: programs over the real `impl`, followed by a machine of `spec` at every step where one speaks of them.

Importing this package imports `impl` and `spec`; the explorer itself does not need it.
"""

from __future__ import annotations

from ..follower import Coverage
from ..subject import Subject
from . import barrier as _barrier
from . import commit as _commit
from . import device as _device
from . import samplers as _samplers
from . import spares as _spares
from .scenario import Scenario

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        *(_barrier.BARRIER, _barrier.QUEUE, _commit.SCENARIO, _spares.SPARES, _spares.BORROW),
        _spares.DRAIN,
        *(_samplers.BY_WEIGHT, _samplers.FIRST_READY, _samplers.IN_A_WINDOW),
        _device.SCENARIO,
    )
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
    return _commit.SCENARIO.program_of(Coverage())


def run_spares() -> Subject:
    """A fresh run of the scenario `spares`, for a generated pytest."""
    return _spares.SPARES.program_of(Coverage())


def run_borrow() -> Subject:
    """A fresh run of the scenario `borrow`, for a generated pytest."""
    return _spares.BORROW.program_of(Coverage())


def run_drain() -> Subject:
    """A fresh run of the scenario `drain`, for a generated pytest."""
    return _spares.DRAIN.program_of(Coverage())


def run_weight_fifo() -> Subject:
    """A fresh run of the scenario `weight_fifo`, for a generated pytest."""
    return _samplers.BY_WEIGHT.program_of(Coverage())


def run_ready_first() -> Subject:
    """A fresh run of the scenario `ready_first`, for a generated pytest."""
    return _samplers.FIRST_READY.program_of(Coverage())


def run_windowed() -> Subject:
    """A fresh run of the scenario `windowed`, for a generated pytest."""
    return _samplers.IN_A_WINDOW.program_of(Coverage())


def run_device() -> Subject:
    """A fresh run of the scenario `device`, for a generated pytest."""
    return _device.program_of(Coverage())
