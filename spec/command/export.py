"""`python -m spec export`: a machine within one scope as text for another model checker."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cleancut_leaf.terminal import write_file

from ..exports.promela import export_promela
from ..exports.tla import export_tla
from ..language.machine import Machine, ModelFault
from ..machines.catalogue import MACHINES, UnknownName, machine_named, scopes_named, variant_named, variants_named
from ..machines.scopes import Scope


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of `export`."""
    command.add_argument("format", choices=("promela", "tla"), help="promela, for Spin; tla, for TLC")
    command.add_argument("--machine", help="the machine; left out when --variant names one")
    command.add_argument(
        "--scope",
        help="one scope, such as small/two_batches; left out: where --variant is caught, or the first small one",
    )
    command.add_argument("--variant", help="a named variant, or several joined by +")
    command.add_argument("--property", help="check this property alone; left out: all of them")
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write to FILE instead of standard output; of tla the configuration goes beside it, as FILE with .cfg",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the text; return the exit status. `UnknownName` says what was named wrongly."""
    machine, variants = _machine_of(arguments)
    scope_name, scope = _scope_of(arguments.scope, machine, variants)
    properties = None if arguments.property is None else [arguments.property]
    output = None if arguments.output is None else Path(arguments.output)
    beside: dict[Path, str] = {}
    try:
        if arguments.format == "promela":
            text = export_promela(machine, scope, variants, properties=properties, scope_name=scope_name)
        else:
            name = None if output is None else output.stem
            export = export_tla(machine, scope, variants, properties=properties, scope_name=scope_name, name=name)
            text = export.module
            if output is not None:
                beside[output.with_suffix(".cfg")] = export.configuration
    except ModelFault as fault:
        raise UnknownName(str(fault)) from None
    if output is None:
        sys.stdout.write(text)
        return 0
    for path, content in {output: text, **beside}.items():
        write_file(path, content)
    return 0


def _machine_of(arguments: argparse.Namespace) -> tuple[Machine, tuple[str, ...]]:
    """The machine and the variants asked for."""
    if arguments.variant is None:
        if arguments.machine is None:
            raise UnknownName(f"name what to export with --machine ({', '.join(MACHINES)}) or --variant")
        return machine_named(arguments.machine), ()
    machine, variants = variants_named(arguments.variant)
    if arguments.machine and machine_named(arguments.machine) is not machine:
        raise UnknownName(f"{arguments.variant} changes the machine {machine.name!r}, not {arguments.machine!r}")
    return machine, variants


def _scope_of(name: str | None, machine: Machine, variants: tuple[str, ...]) -> tuple[str, Scope]:
    """The one scope asked for, with its full name."""
    if name is None:
        name = variant_named(variants[-1])[1].scope if variants else next(iter(scopes_named(machine, "small")))
    scopes = scopes_named(machine, name)
    if len(scopes) > 1:
        raise UnknownName(f"{name} is a family of scopes and a text is of one; name one of: {', '.join(scopes)}")
    ((full_name, (scope, _)),) = scopes.items()
    return full_name, scope
