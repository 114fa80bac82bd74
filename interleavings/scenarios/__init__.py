"""The scenarios: programs over the real `impl`, followed by a machine of `spec` at every step where one speaks of them.

Importing this package imports `impl` and `spec`; the explorer itself does not need it.
"""

from __future__ import annotations

from collections.abc import Callable

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
RUN = "run_"


class UnknownScenario(KeyError):
    """No scenario of that name."""


def scenario_named(name: str) -> Scenario:
    """The scenario of that name."""
    if name not in SCENARIOS:
        raise UnknownScenario(f"no scenario {name!r}; there are: {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def __getattr__(name: str) -> Callable[[], Subject]:
    """`run_NAME`: a function that makes a fresh run of the scenario NAME, by which generated pytests refer to it."""
    scenario = SCENARIOS.get(name.removeprefix(RUN)) if name.startswith(RUN) else None
    if scenario is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return scenario.program(Coverage())
