"""`python -m spec`: check machines, catch variants. Exit 0 holds · 1 violation · 2 wrong use · 3 not complete."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from cleancut_leaf.terminal import (
    CannotWrite,
    HowFar,
    Parser,
    Screen,
    complain,
    complete_files,
    how_far,
    require_folder,
    require_writable,
    write_file,
)

from ..engines import choice as engines
from ..engines.choice import Options, memory_in_bytes, workers_in
from ..engines.symmetry import NotSymmetric
from ..language.machine import Machine
from ..machines.catalogue import MACHINES, UnknownName, machine_named, scopes_named, variants_named
from ..mutation import command_line as mutation_command
from . import counterexample
from . import export as export_command
from .checks import MachineResult, ScopeResult, VariantResult, check_all_variants, check_machine

HOLDS, VIOLATION, WRONG_USE, NOT_COMPLETE = 0, 1, 2, 3
EXIT_STATUS = {"holds": HOLDS, "fails": VIOLATION, "bounded": NOT_COMPLETE, "inconclusive": NOT_COMPLETE}
EXAMPLES = """examples:
  python -m spec check                                      every machine, scope small
  python -m spec check --machine cut --scope small/two_batches
  python -m spec check --variant cursor_ahead               a shortest counterexample as a table
  python -m spec check --scope large --device cuda          with the torch engine, on a GPU
  python -m spec variants --json variants.json              every variant must be caught
  python -m spec check --scope large --workers 2            tens of millions of states
  python -m spec check --scope medium --ray local --workers 2
  python -m spec mutate --sample 200 --seed 1               wrong edits of the machines, and what notices them
  python -m spec export promela --machine cut -o cut.pml    the text of one scope, for Spin
  python -m spec export tla --machine cut -o cut.tla        the same for TLC, with cut.cfg beside it
"""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        completes=True,
        prog="python -m spec",
        description="State machines of the checkpoint protocol, enumerated exhaustively.",
        epilog=EXAMPLES,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser("check", help="enumerate machines and check every property")
    check.add_argument("--machine", help="barrier or cut; all of them when left out")
    check.add_argument("--scope", default="small", help="small, medium, large, or one member: small/two_batches")
    check.add_argument("--variant", help="a named variant, or several joined by +")
    check.add_argument("--engine", help="reference, compiled or torch; left out: compiled above 100,000 states")
    check.add_argument("--device", default="cpu", help="of the torch engine: cpu, or cuda for a GPU")
    check.add_argument(
        "--workers", metavar="N", help="threads; left out: compiled one a processor, torch one. Same result"
    )
    check.add_argument(
        "--ray", metavar="ADDRESS|local", help="share the states among actors of a Ray cluster, --workers of them"
    )
    check.add_argument("--memory", metavar="SIZE", help="limit of the compiled and the torch engine, such as 8G")
    check.add_argument(
        "--resume", action="store_true", help="go on where a compiled search was interrupted or ran out of memory"
    )
    check.add_argument(
        "--symmetry",
        action="store_true",
        help="search one state for all that differ only in which of several alike prompts or writers is which",
    )
    _add_outputs(check)
    variants = commands.add_parser("variants", help="search every variant for the property that must catch it")
    variants.add_argument("--engine", help="reference, compiled or torch; left out: reference, as all scopes are small")
    variants.add_argument("--device", default="cpu", help="of the torch engine: cpu, or cuda for a GPU")
    _add_outputs(variants)
    export_command.add_arguments(commands.add_parser("export", help="the text of a machine for another model checker"))
    mutation_command.add_arguments(
        commands.add_parser("mutate", help="derive every small wrong edit of the machines; a property must notice it")
    )
    complete_files(parser)
    return parser


def _add_outputs(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", metavar="FILE", help="also write the result as JSON")
    command.add_argument(
        "--output", metavar="DIR", default="build/counterexamples", help="where counterexamples are written"
    )


def _write_json(path: str | None, document: Any) -> None:
    if path is not None:
        write_file(path, json.dumps(document, indent=2) + "\n")


def _combined(results: list[MachineResult]) -> dict[str, Any]:
    """Several machines as one object: sums, the worst verdict, and the machines themselves."""
    documents = [result.document() for result in results]
    worst = next(
        (v for v in ("fails", "inconclusive", "bounded") if any(d["verdict"] == v for d in documents)), "holds"
    )
    return {
        "verdict": worst,
        "complete": all(d["complete"] for d in documents),
        "states": sum(d["states"] for d in documents),
        "transitions": sum(d["transitions"] for d in documents),
        "depth": max(d["depth"] for d in documents),
        "seconds": round(sum(d["seconds"] for d in documents), 3),
        "properties": {f"{d['machine']}.{name}": v for d in documents for name, v in d["properties"].items()},
        "counterexample": next((d["counterexample"] for d in documents if d["counterexample"]), None),
        "machines": documents,
    }


def _print_machine(result: MachineResult, console: Console) -> None:
    failed = result.failed
    if failed is not None:
        assert failed.search.violation is not None
        counterexample.print_table(failed.search.model, failed.search.violation, console)
    title = f"{result.machine.name}{' with ' + '+'.join(result.variants) if result.variants else ''}"
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for heading in ("scope", "verdict", "states", "transitions", "depth", "seconds"):
        table.add_column(heading, justify="left" if heading in ("scope", "verdict") else "right")
    for item in result.scopes:
        found = item.search
        verdict = f"{found.verdict}, complete" if found.complete else found.verdict
        verdict += ", by orbits" if item.orbits else ""
        if found.violation:
            verdict = f"fails: {found.violation.property}"
        table.add_row(
            item.scope.partition("/")[2],
            verdict,
            f"{found.states:,}",
            f"{found.transitions:,}",
            str(found.depth),
            f"{found.seconds:.2f}",
        )
    console.print(table)
    if result.why:
        console.print(f"{result.verdict}: {result.why}" if result.verdict != "fails" else result.why)
    if any(item.drift for item in result.scopes):
        console.print(
            "if the change of the protocol is meant, pin the new counts in spec/machines/scopes.py, and say why"
        )
    if result.counterexample:
        console.print(f"trace: {result.counterexample}", soft_wrap=True)
        console.print(
            f"as a page: python -m interleavings explain {result.counterexample} -o page.html", soft_wrap=True
        )
        console.print(
            f"as a pytest: python -m interleavings emit {result.counterexample} -o test_counterexample.py",
            soft_wrap=True,
        )


@dataclass
class _HowFarSearched:
    """Adds up the states of several searches; `expected` is how many there will be, None if nobody knows."""

    shown: HowFar
    expected: int | None
    machine: str = ""
    words: str = ""
    before: int = 0

    def said(self, words: str) -> None:
        """How far the search under way is, in words."""
        self.words = words

    def counted(self, states: int) -> None:
        """The search under way has so many states."""
        self.shown.at(self.before + states, self.expected, f"{self.machine}: {self.words}")

    def searched(self, result: ScopeResult) -> None:
        """A search has ended."""
        self.before += result.search.states
        self.shown.at(self.before, self.expected)


def _expected(machines: list[Machine], scope: str, variants: tuple[str, ...]) -> int | None:
    """The states that are pinned for all that is to be searched; variants end as soon as they are caught."""
    pins = [pinned for machine in machines for _, pinned in scopes_named(machine, scope).values()]
    return None if variants or None in pins else sum(pinned.states for pinned in pins if pinned is not None)


def _check(arguments: argparse.Namespace, console: Console) -> int:
    variants: tuple[str, ...] = ()
    if arguments.variant:
        machine, variants = variants_named(arguments.variant)
        if arguments.machine and machine_named(arguments.machine) is not machine:
            raise UnknownName(f"{arguments.variant} changes the machine {machine.name!r}, not {arguments.machine!r}")
        machines = [machine]
    elif arguments.machine:
        machines = [machine_named(arguments.machine)]
    elif "/" in arguments.scope:
        raise UnknownName(f"the scope {arguments.scope!r} belongs to one machine; name it with --machine")
    else:
        machines = list(MACHINES.values())
    require_writable(arguments.json)
    require_folder(arguments.output)
    results: list[MachineResult] = []
    memory_limit = memory_in_bytes(arguments.memory) if arguments.memory else None
    workers = workers_in(arguments.workers) if arguments.workers else None
    with how_far(console, "searching …", "states") as shown:
        far = _HowFarSearched(shown, _expected(machines, arguments.scope, variants))
        options = Options(
            arguments.engine,
            memory_limit,
            arguments.resume,
            workers,
            far.said,
            far.counted,
            arguments.symmetry,
            arguments.device,
            arguments.ray,
        )
        with engines.connected(options):
            for machine in machines:
                far.machine = machine.name
                found = check_machine(machine, arguments.scope, variants, Path(arguments.output), options, far.searched)
                results.append(found)
                if any(s.search.why.startswith("interrupted") for s in found.scopes):
                    break
    for result in results:
        _print_machine(result, console)
    document = results[0].document() if len(results) == 1 else _combined(results)
    _write_json(arguments.json, document)
    console.print(
        f"spec check: {document['verdict']}, {document['states']:,} states in {len(results)} "
        f"machine{'s' if len(results) > 1 else ''}, scope {arguments.scope}, {document['seconds']:.1f} s"
    )
    return EXIT_STATUS[document["verdict"]]


def _variant_row(result: VariantResult) -> tuple[str, ...]:
    variant = result.variant
    caught = "caught" if result.as_pinned else f"NOT as pinned ({result.length}, pinned {variant.length})"
    if result.length is None:
        caught = "NOT caught"
    table_length = "" if variant.table_length is None else f" ({variant.table_length})"
    return (
        "+".join((*variant.with_variants, variant.name)),
        variant.breaks,
        f"{'none' if result.length is None else result.length}{table_length}",
        caught,
    )


def _variants(arguments: argparse.Namespace, console: Console) -> int:
    require_writable(arguments.json)
    require_folder(arguments.output)
    with how_far(console, "searching variants …", "variants") as shown:
        results = check_all_variants(
            Path(arguments.output),
            Options(arguments.engine, device=arguments.device),
            lambda done, total, name: shown.at(done, total, f"{name} …"),
        )
    table = Table(title="variants, each with the property that must catch it", title_justify="left", box=SIMPLE)
    for heading in ("variant", "property", "length (table)", "verdict"):
        table.add_column(heading, overflow="fold", justify="left")
    for result in results:
        table.add_row(*_variant_row(result))
    console.print(table)
    _write_json(arguments.json, [result.document() for result in results])
    caught = sum(result.as_pinned for result in results)
    console.print(f"spec variants: {caught} of {len(results)} caught as pinned")
    return HOLDS if caught == len(results) else VIOLATION


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    chosen = _parser().parse_args(arguments)
    console = Screen(highlight=False)
    try:
        if chosen.command == "check":
            return _check(chosen, console)
        if chosen.command == "variants":
            return _variants(chosen, console)
        if chosen.command == "mutate":
            return mutation_command.run(chosen, console)
        return export_command.run(chosen)
    except (UnknownName, NotSymmetric, CannotWrite) as fault:
        complain("python -m spec", fault)
        return WRONG_USE
    except KeyboardInterrupt:
        complain("python -m spec", "interrupted before a result")
        return NOT_COMPLETE
