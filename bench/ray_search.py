"""Searches on a local Ray: what two workers gain over one process, in the explorer and in the compiled engine.

    python bench/ray_search.py [--json FILE] [--quick]

The same search by one process and by two workers, in turns, with everything that it claims compared. How many times
faster is wall time when the machine is idle. When it is not, the row says so and takes processor time instead: that of
one process, by half of what two workers and their coordinator need together, which is how long two processors that do
nothing else would be busy; Ray's own processes are not in it. Ray is started before anything is measured; starting the
workers is in the wall time.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import time
from typing import Any

from parts.figures import Row, at_least, only_shown, options_of, reported, truth

from interleavings import Result, explore
from interleavings.scenarios import scenario_named
from spec.engines import Options
from spec.engines import choice as engines
from spec.engines.compiled import engine
from spec.machines import machine_named, scopes_named

NOT_RUN = 3
IDLE_LOAD = 0.5  # processes that want a processor, beside this one, for a wall time to mean something


def turn(name: str, **options: Any) -> tuple[Result, float, float]:
    """One search of a scenario: its result, wall and processor seconds."""
    from parts import searched_on_ray

    scenario = scenario_named(name)
    program = getattr(searched_on_ray, name)
    cpu, wall = time.process_time(), time.perf_counter()
    result = explore(program, cancels=scenario.cancels, timers=scenario.timers, **options)
    wall = time.perf_counter() - wall
    return result, wall, time.process_time() - cpu + program.collected.seconds


def explorer(name: str, pairs: int, bounded: bool) -> list[Row]:
    """A scenario over the real library."""
    idle = os.getloadavg()[0] < IDLE_LOAD + 1
    ones, twos = [], []
    for _ in range(pairs):
        ones.append(turn(name))
        twos.append(turn(name, ray="local", workers=2))
    facts = {(r.verdict, r.complete, r.states, r.transitions, r.depth, r.schedules) for r, _, _ in [*ones, *twos]}
    if idle:
        how, gains = "wall time", [one[1] / two[1] for one, two in zip(ones, twos, strict=True)]
    else:
        how = "processor time, the machine is not idle"
        gains = [one[2] / (two[2] / 2) for one, two in zip(ones, twos, strict=True)]
    cost, gain = statistics.median(one[2] for one in ones), statistics.median(gains)
    shown = f"{name}: two workers on Ray, times faster than one process ({how})"
    return [
        at_least(f"{name}: processor seconds in one process", cost, 60.0)
        if bounded
        else only_shown(f"{name}: processor seconds in one process", cost),
        at_least(shown, gain, 1.5) if bounded else only_shown(shown, gain),
        only_shown(f"{name}: wall seconds in one process", statistics.median(one[1] for one in ones)),
        only_shown(f"{name}: wall seconds of two workers on Ray", statistics.median(two[1] for two in twos)),
        truth(f"{name}: the same states, transitions, depth, schedules and verdict", len(facts) == 1),
    ]


def machines(member: str, pairs: int) -> list[Row]:
    """A scope of the cut machine by one thread and by two owners: without a bound, since owners are for memory."""
    machine = machine_named("cut")
    ((scope, pinned),) = scopes_named(machine, member).values()
    alone, owned = Options(engine="compiled", workers=1), Options(ray="local", workers=2)
    engine.search(machine, scope, max_states=1_000, workers=1)  # compiles what there is to compile
    seconds: dict[str, list[float]] = {"one thread": [], "two owners on Ray": []}
    facts = set()
    for _ in range(pairs):
        for how, options in zip(seconds, (alone, owned), strict=True):
            found = engines.search(machine, scope, (), pinned, options)
            seconds[how].append(found.seconds)
            facts.add((found.verdict, found.complete, found.states, found.transitions, found.depth))
    rates = {how: pinned.states / statistics.median(each) / 1e6 for how, each in seconds.items()}
    wanted = {("holds", True, pinned.states, pinned.transitions, pinned.depth)}
    return [
        *(only_shown(f"cut {member}: {how}, million states/s", rate) for how, rate in rates.items()),
        truth(f"cut {member}: the pinned states, transitions and depth", facts == wanted),
    ]


def measure(options: argparse.Namespace) -> list[Row]:
    if options.quick:
        return [*explorer("barrier", 1, bounded=False), *machines("medium/features", 1)]
    return [*explorer("commit_cancelled", 1, bounded=True), *machines("large/epochs", 1)]


def main(arguments: list[str]) -> int:
    options = options_of("Searches on Ray.", quick="a minute; the values are not for quoting").parse_args(arguments)
    if importlib.util.find_spec("ray") is None:
        print("not run: Ray is not installed; install it with: pip install 'cleancut[ray]'", file=sys.stderr)
        return NOT_RUN
    import ray

    # Ray makes its workers nice, and what they are compared with is not: on a busy machine that would decide.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - it is how Ray spells it
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        rows = measure(options)
    finally:
        ray.shutdown()
    python = f"CPython {sys.version.split()[0]}, {os.cpu_count()} processors"
    heading = f"searches on Ray {ray.__version__}, one machine, {python}"
    return reported(heading, rows, options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
