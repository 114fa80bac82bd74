"""Figures of the schedule explorer: complete searches, its rate, a peer, several processes, the scenarios.

    python bench/explorer.py [--json FILE] [--quick]

The program is a shared and exclusive barrier on `asyncio.Condition`: M mutators of K writes with an await between, and
one checkpoint (M x K). Searches in one process are measured in processor time, the median of several turns, so that
what else the machine does does not count. The peer is detangle 0.1.0, installed for this run into a temporary folder;
where it cannot be had its rows say so and are not ok.

How many times two workers are faster is wall time, in alternating pairs, when the machine is idle. When it is not, the
row says so and takes processor time instead: that of one process, by half of what two workers and their coordinator
need together, which is how long two processors that do nothing else would be busy.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parts.condition_barrier import gathered, side_by_side
from parts.figures import Row, at_least, at_most, only_shown, options_of, reported, truth

from interleavings import Result, Subject, explore

ROOT = Path(__file__).resolve().parent.parent
PEER = "detangle==0.1.0"
IDLE_LOAD = 0.5  # processes that want a processor, beside this one, for a wall time to mean something
SCHEDULES_3X3, SCHEDULES_4X4 = 71_352, 11_660_889_264


def processor() -> float:
    """Seconds of processor time of this process and of those it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measured(program: Callable[[], Any], turns: int, **options: Any) -> tuple[Result, float]:
    """Explore several times; the last result and the median of the processor seconds."""
    seconds = []
    for _ in range(turns):
        begin = processor()
        result = explore(program, **options)
        seconds.append(processor() - begin)
    return result, statistics.median(seconds)


def mutators(count: int) -> list[str]:
    return [f"mutate-{number + 1}" for number in range(count)]


def complete_searches(turns: int, large: bool) -> list[Row]:
    """Every schedule of the barrier, without and with cancellations."""
    rows = []
    for size, declared, folded, schedules, bound in (
        (3, False, False, SCHEDULES_3X3, 1.0),
        (3, True, False, SCHEDULES_3X3, 0.3),
        (3, True, True, SCHEDULES_3X3, 0.1),
        *([(4, False, False, SCHEDULES_4X4, 15.0)] if large else []),
        (4, True, True, SCHEDULES_4X4, 0.5),
    ):
        how = "state= and identical=" if folded else "state=" if declared else "generic"
        program = side_by_side(size, size, declared=declared)
        result, seconds = measured(program, turns, identical=mutators(size) if folded else [])
        name = f"{size}x{size}"
        rows.append(at_most(f"{name} complete, {how} (s)", seconds, bound))
        rows.append(truth(f"{name} {how}: holds in exactly {schedules:,} schedules", right(result, schedules)))
        rows.append(only_shown(f"{name} {how}: states", result.states or 0))
    result, seconds = measured(side_by_side(3, 3), min(turns, 3), cancels=1, keep_going=True)
    rows.append(at_most("3x3 with one cancellation anywhere, complete (s)", seconds, 5.0))
    found = result.complete and result.failure is not None and result.failure.kind == "deadlock"
    rows.append(truth("3x3 with one cancellation: complete, and its deadlock is found", found))
    return rows


def right(result: Result, schedules: int) -> bool:
    return result.verdict == "holds" and result.complete and result.schedules == schedules


def rate(turns: int) -> list[Row]:
    """Runs of real tasks each second, in the search that compares states.

    A run is what it is in other searches by state: from the start until it comes to an end or into a state that is
    known. There are as many as transitions beyond those that found a state. Ours starts the program less often,
    because a run that came into a known state goes on from there.
    """
    program = side_by_side(3, 3, declared=True)
    runs, starts, transitions = [], [], []
    for _ in range(4 * turns):
        result, seconds = measured(program, 1)
        runs.append((result.transitions - (result.states or 0) + 1) / seconds)
        starts.append(result.runs / seconds)
        transitions.append(result.transitions / seconds)
    enumerated, seconds = measured(program, 1, prune=False, max_states=5_000)
    return [
        at_least("runs per second, real tasks, state=", statistics.median(runs), 5_000),
        only_shown("starts of the program per second, real tasks, state=", statistics.median(starts)),
        only_shown("transitions per second, real tasks, state=", statistics.median(transitions)),
        only_shown("whole schedules per second, nothing compared", enumerated.runs / seconds),
    ]


# --------------------------------------------------------------------------------------------------------- the peer


def against_the_peer(seconds: float) -> list[Row]:
    """The exhaustive search of detangle on the same program: its verdicts, and how far it comes."""
    with tempfile.TemporaryDirectory() as folder:
        why = install(PEER, folder)
        if why:
            return [not_run(f"{PEER}: {why}", "same verdicts on 2x2"), not_run(f"{PEER}: {why}", ">= 100")]
        same = True
        for seeded in (False, True):
            theirs = peer_search(folder, 2, 2, seeded, 600.0)
            ours = explore(gathered(2, 2, waits_once=seeded))
            same = same and (theirs["verdict"], theirs["complete"]) == (ours.verdict, True)
        stopped = peer_search(folder, 3, 3, False, seconds)
    ours = explore(gathered(3, 3))
    bounded = seconds >= 60.0
    ratio = stopped["runs"] / ours.runs
    name = f"3x3: {PEER}'s runs when stopped after {seconds:g} s, times ours to the end"
    return [
        truth(f"2x2: {PEER}'s exhaustive search has our verdicts, with and without a fault", same),
        truth("3x3: our search is complete", ours.verdict == "holds" and ours.complete),
        at_least(name, ratio, 100.0) if bounded else only_shown(name, ratio),
        only_shown(f"3x3: {PEER} came to its end", float(stopped["complete"])),
        only_shown(f"3x3: {PEER}, runs per second", stopped["runs"] / seconds),
    ]


def not_run(figure: str, to_reach: str) -> Row:
    return Row(f"not run: {figure}", 0.0, to_reach, ok=False)


def install(package: str, folder: str) -> str:
    """Install a package into a folder of its own; what went wrong, or nothing."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"pip ended with status {done.returncode}")


def peer_search(folder: str, mutators: int, writes: int, seeded: bool, seconds: float) -> dict[str, Any]:
    script = [sys.executable, str(ROOT / "bench/parts/detangle_run.py")]
    arguments = [str(mutators), str(writes), str(int(seeded)), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, str(ROOT)])}
    done = subprocess.run([*script, *arguments], env=environment, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


# ------------------------------------------------------------------------------------------------ several processes


@dataclasses.dataclass(frozen=True)
class Turn:
    wall: float
    cpu: float
    result: Result


def turn(program: Callable[[], Subject], **options: Any) -> Turn:
    cpu, wall = processor(), time.perf_counter()
    result = explore(program, **options)
    return Turn(time.perf_counter() - wall, processor() - cpu, result)


def two_workers(program: Callable[[], Subject], pairs: int, bounded: bool) -> list[Row]:
    """The same search by one process and by two workers, one after the other."""
    idle = os.getloadavg()[0] < IDLE_LOAD + 1
    ones, twos = [], []
    for _ in range(pairs):
        ones.append(turn(program))
        twos.append(turn(program, workers=2))
    facts = {(t.result.verdict, t.result.states, t.result.schedules, t.result.depth) for t in [*ones, *twos]}
    if idle:
        how, gains = "wall time", [one.wall / two.wall for one, two in zip(ones, twos, strict=True)]
    else:
        how = "processor time, the machine is not idle"
        gains = [one.cpu / (two.cpu / 2) for one, two in zip(ones, twos, strict=True)]
    name = f"two workers, times faster than one process ({how})"
    gain = statistics.median(gains)
    cost = statistics.median(one.cpu for one in ones)
    return [
        at_least("two workers: a search that takes one process so many seconds", cost, 10.0)
        if bounded
        else only_shown("two workers: seconds of the search in one process", cost),
        at_least(name, gain, 1.5) if bounded else only_shown(name, gain),
        truth("two workers: the same states, schedules, verdict and depth", len(facts) == 1),
    ]


# ------------------------------------------------------------------------------------------------------ scenarios


def scenarios(name: str, arguments: list[str], bound: float) -> list[Row]:
    """The scenarios over the real library, as the command runs them."""
    command = [sys.executable, "-m", "interleavings", "check", *arguments]
    begin = processor()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results.json")
        done = subprocess.run([*command, "--json", str(file)], cwd=ROOT, capture_output=True, text=True, check=False)
        seconds = processor() - begin
        items = json.loads(file.read_text()) if file.exists() else []
    held = bool(items) and all(item["verdict"] == "holds" and item["complete"] for item in items)
    return [
        at_most(f"{name}, {len(items)} scenarios together (s)", seconds, bound),
        truth(f"{name}: every one holds, complete", held and done.returncode == 0),
    ]


def measure(options: argparse.Namespace) -> list[Row]:
    if options.quick:
        return [
            *complete_searches(1, large=False),
            *rate(1),
            *against_the_peer(3.0),
            *two_workers(side_by_side(4, 3), 1, bounded=False),
        ]
    return [
        *complete_searches(5, large=True),
        *rate(5),
        *against_the_peer(60.0),
        *two_workers(side_by_side(5, 3), 3, bounded=True),
        *scenarios("make check", ["--quick"], 25.0),
        *scenarios("the full set", [], 600.0),
    ]


def main(arguments: list[str]) -> int:
    parser = options_of(
        "Figures of the schedule explorer.", quick="a minute, without the scenarios; the values are not for quoting"
    )
    options = parser.parse_args(arguments)
    heading = f"schedule explorer, CPython {sys.version.split()[0]}, {os.cpu_count()} processors"
    return reported(heading, measure(options), options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
