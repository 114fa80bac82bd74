"""The table of spec/README.md: each property, where its premise first occurs, and the variants that break it.

python -m spec.command.property_table        prints it; a test compares it with the README
"""

from __future__ import annotations

from ..engines.reference import search
from ..language.machine import Machine
from ..machines.catalogue import MACHINES
from ..machines.scopes import SMALL

HEADING = "| machine | property | premise first occurs in | broken by (scope, steps) |\n|---|---|---|---|"


def first_scopes(machine: Machine) -> dict[str, str]:
    """For each claim (`property`, or `property at action`) the first scope in which its premise occurs."""
    missing = {
        name if claim.at is None else f"{name} at {claim.at}"
        for name, known in machine.properties.items()
        for claim in known.claims
    }
    found: dict[str, str] = {}
    for member, (bounds, _) in SMALL[machine.name].items():
        if not missing:
            break
        seen = missing - set(search(machine.model(bounds)).unwitnessed)
        found |= dict.fromkeys(seen, member)
        missing -= seen
    return found


def rows(machine: Machine) -> list[str]:
    """One row a property, in the order of the text; the claim about progress, which needs no premise, comes last."""
    scopes = first_scopes(machine)
    names = [*machine.properties, *([machine.progress.name] if machine.progress else [])]
    lines = []
    for name in names:
        claims = [label for label in scopes if label.split(" at ")[0] == name]
        where = ", ".join(f"`{scopes[label]}`{label.removeprefix(name)}" for label in sorted(claims)) or "every state"
        breakers = [v for v in machine.variants.values() if v.breaks == name]
        broken = ", ".join(f"`{' + '.join((*v.with_variants, v.name))}` ({v.scope}, {v.length})" for v in breakers)
        lines.append(f"| {machine.name} | `{name}` | {where} | {broken or 'variants of the cut'} |")
    return lines


def table() -> str:
    """The whole table as Markdown."""
    return "\n".join([HEADING, *(line for machine in MACHINES.values() for line in rows(machine))])


if __name__ == "__main__":
    print(table())
