"""The scenarios: programs over the real `impl`, followed by a machine of `spec` at every step where one speaks of them.

Importing this package imports `impl` and `spec`; the explorer itself does not need it.
"""

from __future__ import annotations

import logging
import re

from ..correspondence.follower import Coverage
from ..runtime.subject import Program
from . import abort as _abort
from . import barrier as _barrier
from . import commit as _commit
from . import device as _device
from . import epoch as _epoch
from . import gate as _gate
from . import misuse as _misuse
from . import open_step as _open_step
from . import restart as _restart
from . import retries as _retries
from . import samplers as _samplers
from . import saves as _saves
from . import snapshots as _snapshots
from . import spares as _spares
from . import watchdog as _watchdog
from .crash_images import Directory as Directory
from .crash_images import Tree as Tree
from .crash_images import crash_trees as crash_trees
from .crash_images import planted as planted
from .device import Run as Run
from .fake_disk import Call as Call
from .fake_disk import FakeDisk as FakeDisk
from .lives import EMPTY as EMPTY
from .lives import Model as Model
from .readings import register_barrier as register_barrier
from .readings import register_tensors as register_tensors
from .scenario import RUN, Pinned, Scenario
from .simulated_device import COPIES as COPIES
from .simulated_device import MAIN as MAIN
from .simulated_device import POISON as POISON
from .simulated_device import UNWRITTEN as UNWRITTEN
from .simulated_device import SimulatedDevice as SimulatedDevice
from .survivors import Survivors as Survivors
from .survivors import checkpoints_in as checkpoints_in
from .whole_run import DIRECTORY as DIRECTORY
from .whole_run import untraced

# Runs that are searched without a tracer too: sections then end by shorter ways.
_UNTRACED = (
    (_commit.SCENARIO, Pinned(states=2_792, schedules=492_678_285_576)),
    (_commit.CANCELLED, Pinned(states=20_316, schedules=1_767_275_728_746)),
    (_spares.SPARES, Pinned(states=1_076, schedules=1_552_936_044)),
    (_gate.GATE, Pinned(states=2_790, schedules=31_029_848_748)),
    (_retries.SCENARIO, Pinned(states=2_334, schedules=1_466_047_156_734)),
)
SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        *(_barrier.BARRIER, _barrier.QUEUE, _misuse.SCENARIO),
        *(_commit.SCENARIO, _commit.CANCELLED, _commit.LATE, _spares.SPARES, _spares.BORROW, _spares.DRAIN),
        *(_gate.GATE, _gate.LIMIT, _retries.SCENARIO, _retries.CANCELLED, _abort.SCENARIO, _abort.CANCELLED),
        *(_watchdog.WATCHDOG, _watchdog.STALL),
        *(_samplers.BY_WEIGHT, _samplers.FIRST_READY, _samplers.IN_A_WINDOW, _samplers.FAILING),
        _device.SCENARIO,
        *(_open_step.SCENARIO, _epoch.SCENARIO, _saves.SCENARIO, _restart.SCENARIO),
        *(_snapshots.SNAPSHOTS, _snapshots.DAMAGED),
        *(_barrier.DRAIN_LIMIT, _barrier.BARRIER_UNTRACED, _barrier.QUEUE_UNTRACED, _barrier.DRAIN_LIMIT_UNTRACED),
        *(untraced(scenario, pinned) for scenario, pinned in _UNTRACED),
    )
}
# What has to fail: each shows that the explorer finds the fault that it is about. Asked for by name only.
CONTROLS: dict[str, Scenario] = {scenario.name: scenario for scenario in (_gate.IN_SLOT,)}


# A scenario in which groups fail warns of it in each of its thousands of runs; where nobody has set up logging, as in a
# worker on Ray, each warning would be written out.
logging.getLogger("cleancut").addHandler(logging.NullHandler())


class UnknownScenario(KeyError):
    """No scenario of that name."""


def scenario_named(name: str) -> Scenario:
    """The scenario of that name; `NAME_with_2_crashes` is one with another number of them."""
    named = {**SCENARIOS, **CONTROLS}
    other = re.fullmatch("(.+)_with_([0-9]{1,6})_crashes", name)
    if other is not None and other[1] in named and (with_crashes := named[other[1]].with_crashes) is not None:
        return with_crashes(int(other[2]))
    if name not in named:
        raise UnknownScenario(f"no scenario {name!r}; there are: {', '.join(named)}")
    return named[name]


def __getattr__(name: str) -> Program:
    """`run_NAME`: a function that makes a fresh run of the scenario NAME, by which generated pytests refer to it."""
    try:
        return scenario_named(name.removeprefix(RUN) if name.startswith(RUN) else "").program(Coverage())
    except UnknownScenario:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
