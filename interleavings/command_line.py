"""`python -m interleavings`: explore scenarios, replay and emit traces.

Exit status: 0 holds, 1 fails, 2 wrong use, 3 not complete (bounded, inconclusive, stale).
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from cleancut_leaf.extras import why_missing
from cleancut_leaf.terminal import (
    CannotWrite,
    Parser,
    Screen,
    complain,
    complete_files,
    how_far,
    plain,
    require_folder,
    require_writable,
    write_file,
)
from cleancut_leaf.words import counted

from .errors import ExplorerUsageError, TraceUnreadable
from .exploring import check_arguments, explore
from .runtime.result import Result
from .runtime.subject import Program
from .runtime.trace import Trace, read_document, require_known_budgets

HOLDS, FAILS, WRONG_USE, OPEN = 0, 1, 2, 3
EXIT_STATUS = {"holds": HOLDS, "fails": FAILS, "bounded": OPEN, "inconclusive": OPEN}
EXAMPLES = """examples:
  python -m interleavings check                      every scenario; --quick: what make check runs
  python -m interleavings check barrier --cancels 2
  python -m interleavings check spares --ray local --workers 4
  python -m interleavings replay TRACE.json          walk a counterexample again; of a program of yours: --trust
  python -m interleavings emit TRACE.json -o test_x.py
  python -m interleavings explain TRACE.json -o page.html
  python -m interleavings validate RUN.jsonl         a production trace: at which line does no action fit
"""


class WrongUse(Exception):
    """The user asked for something that is not there; the message is one clear line."""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        completes=True,
        prog="python -m interleavings",
        description="Runs the real coroutines of impl through every schedule, each step checked against the machine.",
        epilog=EXAMPLES,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="the scenarios")
    check = commands.add_parser("check", help="explore scenarios through every schedule")
    check.add_argument("scenario", nargs="*", help="all of them when left out")
    check.add_argument("--quick", action="store_true", help="without names: only those that take a few seconds")
    check.add_argument("--cancels", type=int, help="cancellations anywhere; each scenario has its own default")
    check.add_argument("--crashes", type=int, help="crashes anywhere; without names, only of what can crash")
    check.add_argument("--no-prune", action="store_true", help="enumerate schedules instead of states")
    check.add_argument("--max-seconds", type=float, help="stop each scenario after this time; the verdict is bounded")
    check.add_argument("--workers", type=int, metavar="N", help="processes that share each search; the same is found")
    check.add_argument(
        "--ray", metavar="ADDRESS|local", help="they are actors of a Ray cluster; left out N: one a processor of it"
    )
    check.add_argument("--json", metavar="FILE", help="also write the results as JSON")
    check.add_argument("--output", metavar="DIR", default="build/counterexamples", help="where traces are written")
    replay = commands.add_parser("replay", help="walk a trace again")
    replay.add_argument("trace")
    emit = commands.add_parser("emit", help="write a trace as a self-contained pytest")
    emit.add_argument("trace")
    emit.add_argument("-o", "--output", required=True, metavar="FILE")
    for command in (replay, emit):
        command.add_argument(
            "--trust",
            action="store_true",
            help="import and run the program that the trace names, if it is none of the scenarios",
        )
    explain = commands.add_parser("explain", help="write a trace as a page for the browser")
    explain.add_argument("trace")
    explain.add_argument("-o", "--output", required=True, metavar="FILE")
    validate = commands.add_parser("validate", help="follow the trace of a production run through the machines")
    validate.add_argument("trace", nargs="+", help="JSONL files of one run, in the order of its processes")
    validate.add_argument("--json", metavar="FILE", help="also write the result as JSON")
    complete_files(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    chosen = _parser().parse_args(arguments)
    console = Screen(highlight=False, soft_wrap=True)
    # A scenario in which groups fail warns of it in each of its thousands of runs; where nobody has set up logging,
    # that would go to the screen.
    logging.getLogger("cleancut").addHandler(logging.NullHandler())
    try:
        if chosen.command == "list":
            return _list(console)
        if chosen.command == "check":
            return _check(chosen, console)
        if chosen.command == "replay":
            return _replay(chosen.trace, chosen.trust, console)
        if chosen.command == "emit":
            return _emit(chosen.trace, chosen.output, chosen.trust, console)
        if chosen.command == "explain":
            return _explain(chosen.trace, chosen.output, console)
        return _validate(chosen, console)
    except (WrongUse, TraceUnreadable, ExplorerUsageError, CannotWrite) as fault:
        complain("python -m interleavings", fault)
        return WRONG_USE


def _list(console: Console) -> int:
    from .scenarios import CONTROLS, SCENARIOS

    for scenario in SCENARIOS.values():
        console.print(f"{scenario.name:16} {scenario.sentence} ({scenario.budgets()})")
    for scenario in CONTROLS.values():
        console.print(f"{scenario.name:16} {scenario.sentence} (a control, which has to fail)")
    return HOLDS


# ------------------------------------------------------------------------------------------------------ check


def _check(chosen: argparse.Namespace, console: Console) -> int:
    from .scenarios import SCENARIOS, UnknownScenario, scenario_named

    try:
        every = [s for s in SCENARIOS.values() if s.quick or not chosen.quick]
        scenarios = [scenario_named(name) for name in chosen.scenario] or every
    except UnknownScenario as fault:
        raise WrongUse(fault.args[0]) from None
    if chosen.crashes is not None:
        scenarios = _crashing(scenarios, chosen.crashes, named=bool(chosen.scenario))
    require_writable(chosen.json)
    require_folder(chosen.output)
    for scenario in scenarios:
        cancels = scenario.cancels if chosen.cancels is None else chosen.cancels
        check_arguments(
            cancels=cancels,
            crashes=scenario.crashes,
            max_seconds=chosen.max_seconds,
            workers=chosen.workers,
            ray=chosen.ray,
            prune=not chosen.no_prune,
        )
    items, worst = [], HOLDS
    with _connected(chosen):
        for scenario in scenarios:
            item, status = _check_one(scenario, chosen, console)
            items.append(item)
            worst = FAILS if FAILS in (worst, status) else max(worst, status)
    if chosen.json:
        write_file(chosen.json, json.dumps(items, indent=2) + "\n")
    held = sum(item["verdict"] == "holds" for item in items)
    seconds = sum(item["seconds"] for item in items)
    of_all = counted(len(items), "scenario holds", "scenarios hold")
    console.print(f"interleavings check: {held} of {of_all}, {seconds:.1f} s")
    return worst


def _connected(chosen: argparse.Namespace) -> AbstractContextManager[Any]:
    """One Ray for all scenarios: its start takes seconds."""
    if not chosen.ray:
        return nullcontext()
    from .search.parallel.on_ray import cluster

    return cluster(chosen.ray, chosen.workers)


def _crashing(scenarios: Sequence[Any], crashes: int, *, named: bool) -> list[Any]:
    """The same with another number of crashes; one that says nothing about what survives has none."""
    if crashes < 0:
        raise WrongUse(f"--crashes {crashes}: it is a number of times, 0 or more")
    found = []
    for scenario in scenarios:
        if scenario.with_crashes is not None:
            found.append(scenario.with_crashes(crashes))
        elif not crashes:
            found.append(scenario)
        elif named:
            raise WrongUse(f"--crashes {crashes}: {scenario.name} does not say what survives a crash; leave it out")
    return found


def _check_one(scenario: Any, chosen: argparse.Namespace, console: Console) -> tuple[dict[str, Any], int]:
    from .correspondence.follower import Coverage

    cancels = scenario.cancels if chosen.cancels is None else chosen.cancels
    coverage = Coverage()
    program = scenario.program(coverage)
    expected = scenario.pinned.states if scenario.pinned and cancels == scenario.cancels else None
    if expected is not None and chosen.no_prune:
        expected = scenario.pinned.schedules
    with how_far(console, f"{scenario.name} …", "schedules" if chosen.no_prune else "states") as shown:
        result = explore(
            program,
            cancels=cancels,
            crashes=scenario.crashes,
            timers=scenario.timers,
            prune=not chosen.no_prune,
            max_seconds=chosen.max_seconds,
            workers=chosen.workers,
            ray=chosen.ray,
            progress=lambda number, transitions, depth, seconds: shown.at(
                number, expected, f"{scenario.name}, depth {depth} …"
            ),
        )
    drift = _drift(scenario, result, cancels, chosen)
    verdict = "inconclusive" if drift else result.verdict
    console.print(f"{scenario.name}: {drift or result.summary()}")
    budgets = scenario.budgets(cancels)
    never = [name for name in scenario.actions() if not coverage.actions[name]]
    console.print(f"  {scenario.sentence}; {budgets}, {counted(result.runs, 'run')}, {result.seconds:.1f} s")
    if never and result.complete:
        console.print(f"  machine actions that no step took: {', '.join(never)}")
    path = _save_counterexample(scenario, result, Path(chosen.output), console)
    return {
        "scenario": scenario.name,
        "verdict": verdict,
        "complete": result.complete,
        "states": result.states,
        "transitions": result.transitions,
        "depth": result.depth,
        "schedules": result.schedules,
        "runs": result.runs,
        "seconds": round(result.seconds, 3),
        "properties": _properties(scenario, result),
        "counterexample": str(path) if path else None,
        "why": drift or result.why,
        "cancels": cancels,
        "crashes": scenario.crashes,
        "actions_taken": dict(coverage.actions),
        "actions_never_taken": never,
        "stutters": dict(coverage.stutters),
    }, EXIT_STATUS[verdict]


def _drift(scenario: Any, result: Result, cancels: int, chosen: argparse.Namespace) -> str:
    """A complete search that counts something else than is pinned is no pass: the program or the explorer changed."""
    pinned = scenario.pinned
    if not result.complete or pinned is None or cancels != scenario.cancels or chosen.no_prune:
        return ""
    if (result.states, result.schedules) == (pinned.states, pinned.schedules):
        return ""
    return (
        f"inconclusive: complete, but it counts {result.states:,} states and {result.schedules} schedules where "
        f"{pinned.states:,} and {pinned.schedules} are pinned; if the change is meant, pin the new counts"
    )


def _properties(scenario: Any, result: Result) -> dict[str, str]:
    if result.verdict != "fails":
        return dict.fromkeys(scenario.claims, result.verdict)
    failure = result.failure
    verdicts = dict.fromkeys(scenario.claims, "inconclusive")
    if failure is not None:
        verdicts[failure.property] = "fails"
    return verdicts


def _save_counterexample(scenario: Any, result: Result, directory: Path, console: Console) -> Path | None:
    if result.counterexample is None:
        return None
    from .report.emitting import emit

    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"interleaving-{scenario.name}.json"
    result.counterexample.save(path)
    test = directory / f"test_interleaving_{scenario.name}.py"
    write_file(test, emit(result.counterexample, scenario.reference))
    console.print(result.counterexample.describe())
    console.print(f"  trace:  {path}")
    console.print(f"  pytest: {test}")
    console.print(f"  replay: python -m interleavings replay {path}")
    return path


# ----------------------------------------------------------------------------------------------------- traces


def _is_of_a_machine(document: Any) -> bool:
    """Whether a trace file holds a counterexample of `python -m spec`, not a schedule."""
    return isinstance(document, dict) and document.get("format") == "cleancut-spec-trace"


def _program_reference(trace: Trace, path: str, *, trusted: bool) -> str:
    """The program that a trace is of: a scenario, or with `--trust` whatever it names.

    A trace may come from anybody. To replay it is to import the module that it names, also from the folder where the
    command is called; so that has to be asked for.
    """
    from .scenarios import CONTROLS, SCENARIOS, UnknownScenario, scenario_named

    scenario, reference = trace.program.get("scenario"), trace.program.get("reference")
    if isinstance(scenario, str):
        try:
            return scenario_named(scenario).reference
        except UnknownScenario as fault:
            raise TraceUnreadable(f"{path}: {fault.args[0]}") from None
    if not isinstance(reference, str):
        raise TraceUnreadable(f"{path}: the trace does not name the program it is of")
    if not trusted and reference not in {each.reference for each in (*SCENARIOS.values(), *CONTROLS.values())}:
        raise WrongUse(
            f"{path} is a trace of {reference}, and to walk it is to import that module and to run it. Nothing was "
            "imported. If you know the trace, or have looked at that module, add --trust"
        )
    return reference


def _program(reference: str, path: str) -> Program:
    """Import a program. Its module may do anything, and fail in any way."""
    module, _, name = reference.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as fault:
        raise TraceUnreadable(
            f"{path}: its program {reference} cannot be imported ({type(fault).__name__}: {fault}): it is not there "
            "any more, or its folder is not on the path; go to that folder, or name it in PYTHONPATH"
        ) from None
    program: Program = found
    return program


def _replay(path: str, trusted: bool, console: Console) -> int:
    document = read_document(path)
    if _is_of_a_machine(document):
        return _replay_on_controller(document, path, console)
    from .replaying import replay

    trace = Trace.from_json(document, path)
    require_known_budgets(trace.budgets)
    program = _program(_program_reference(trace, path, trusted=trusted), path)
    try:
        result = replay(program, trace)
    except (TraceUnreadable, ExplorerUsageError):
        raise
    except Exception as fault:
        console.print(plain(f"inconclusive: the program could not be run: {type(fault).__name__}: {fault}"))
        return OPEN
    console.print(plain(result.describe()))
    return {"reproduced": FAILS, "failed": FAILS, "stale": OPEN}.get(result.outcome, HOLDS)


def _replay_on_controller(document: Any, path: str, console: Console) -> int:
    """A counterexample of a machine, driven on our own controller: it holds there, or the variant has become real."""
    from .conformance import FeatureMissing, NotConformant, SpecTrace, TraceStale, controller_named, drive
    from .conformance.spec_trace import DEFAULTS
    from .errors import Violation

    trace = SpecTrace.from_document(document, path)
    trace.require_drivable(path)
    try:
        trace.walked()
    except TraceStale as stale:
        # What the controller did then would be compared with a machine that does not do it either.
        console.print(f"inconclusive: the trace does not fit the machine any more: {stale}")
        return OPEN
    try:
        try:
            controller = controller_named(DEFAULTS[trace.machine], trace.bounds)
        except ValueError as fault:
            raise TraceUnreadable(f"{path}: is damaged: {fault}") from None
        drive(controller, [(action, index) for action, index, _ in trace.steps], property=trace.property)
    except (NotConformant, Violation) as broken:
        console.print(str(broken))
        return FAILS
    except FeatureMissing as missing:
        console.print(plain(f"inconclusive: {missing}"))
        return OPEN
    except ImportError as fault:
        if why_missing(fault) is None:
            raise
        console.print(f"inconclusive: {why_missing(fault)}")
        return OPEN
    variants = "+".join(trace.variants) or trace.machine
    console.print(plain(f"{trace.property} holds on impl after the {counted(len(trace.steps), 'step')} of {variants}"))
    return HOLDS


def _emit(path: str, output: str, trusted: bool, console: Console) -> int:
    document = read_document(path)
    if _is_of_a_machine(document):
        from .conformance import SpecTrace
        from .conformance import emit as emit_spec

        text = emit_spec(SpecTrace.from_document(document, path), Path(output).name)
    else:
        from .report.emitting import emit

        trace = Trace.from_json(document, path)
        text = emit(trace, _program_reference(trace, path, trusted=trusted))
    write_file(output, text)
    console.print(f"wrote {output}; run it: python -m pytest {output}")
    return HOLDS


def _explain(path: str, output: str, console: Console) -> int:
    from .conformance.pages import explain

    write_file(output, explain(read_document(path), path))
    console.print(f"wrote {output}; open it in a browser")
    return HOLDS


def _validate(chosen: argparse.Namespace, console: Console) -> int:
    from .correspondence.validation import TraceUnreadable as RunUnreadable
    from .correspondence.validation import validate
    from .correspondence.validation.in_words import lines_about

    require_writable(chosen.json)
    try:
        files = [_about_how_many_lines(path) for path in chosen.trace]
        expected = None if None in files else sum(filter(None, files))
        with how_far(console, "following …", "lines") as shown:
            result = validate(
                chosen.trace, lambda far: shown.at(far.lines, expected, f"following, {far.events:,} events …")
            )
    except RunUnreadable as fault:
        raise WrongUse(str(fault)) from None
    for line in lines_about(result):
        console.print(plain(line))
    if chosen.json:
        write_file(chosen.json, json.dumps(result.document(), indent=2) + "\n")
    return EXIT_STATUS[result.verdict]


def _about_how_many_lines(path: str) -> int | None:
    """The lines of a file, reckoned from the length of the first ones; None where that cannot be said."""
    try:
        with open(path, "rb") as file:
            beginning = file.read(1 << 16)
            size = file.seek(0, 2)
    except OSError as fault:
        # Asked of every file before the first is followed, which may take minutes.
        raise WrongUse(f"the trace {path} cannot be opened: {fault.strerror or fault}") from None
    lines = beginning.count(b"\n")
    return None if lines == 0 else size * lines // len(beginning)
