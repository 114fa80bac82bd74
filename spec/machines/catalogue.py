"""Which machines, scopes and variants there are, and how a user's words name them."""

from __future__ import annotations

from collections.abc import Sequence

from ..language.machine import Machine, Variant
from .barrier import barrier
from .barrier import rule_variants as barrier_rule_variants
from .barrier import variants as barrier_variants
from .combined import combined
from .cut import cut, lease_variants, save_variants, trouble_variants
from .cut import rule_variants as cut_rule_variants
from .cut import variants as cut_variants
from .scopes import FAMILIES, Pinned, Scope
from .store import properties as store_properties
from .store import variants as store_variants
from .store.actions import store

# The variants and properties register themselves when their modules are imported.
REGISTERED_BY = (
    barrier_variants,
    barrier_rule_variants,
    cut_variants,
    trouble_variants,
    save_variants,
    lease_variants,
    cut_rule_variants,
    store_properties,
    store_variants,
)

MACHINES: dict[str, Machine] = {"barrier": barrier, "cut": cut, "store": store, "combined": combined}


class UnknownName(Exception):
    """The user named something that does not exist, or is not built yet. The message is one clear line."""


def machine_named(name: str) -> Machine:
    """The machine of that name."""
    if name not in MACHINES:
        raise UnknownName(f"no machine {name!r}; there are: {', '.join(MACHINES)}")
    return MACHINES[name]


def scopes_named(machine: Machine, name: str) -> dict[str, tuple[Scope, Pinned]]:
    """The scopes a name stands for: `small` is a family, `small/two_batches` (or `two_batches`) one member of it."""
    families = {size: family[machine.name] for size, family in FAMILIES.items()}
    if name in families:
        return {f"{name}/{member}": pinned for member, pinned in families[name].items()}
    size, _, member = name.rpartition("/")
    for known in [size] if size else list(families):
        if member in families.get(known, {}):
            return {f"{known}/{member}": families[known][member]}
    members = ", ".join(f"{size}/{member}" for size, family in families.items() for member in family)
    there = f"{', '.join(families)}, {members}"
    raise UnknownName(f"no scope {name!r} for the machine {machine.name!r}; there are: {there}")


def variant_named(name: str) -> tuple[Machine, Variant]:
    """The variant of that name and the machine it changes."""
    for machine in MACHINES.values():
        if name in machine.variants:
            return machine, machine.variants[name]
    names = ", ".join(v for machine in MACHINES.values() for v in machine.variants)
    raise UnknownName(f"no variant {name!r}; there are: {names}")


def variants_named(names: str) -> tuple[Machine, tuple[str, ...]]:
    """The variants of `A+B+…`, which must change one machine, and that machine."""
    found = [variant_named(name) for name in names.split("+")]
    machines = {machine.name for machine, _ in found}
    if len(machines) > 1:
        raise UnknownName(f"the variants {names!r} change different machines ({', '.join(sorted(machines))})")
    return found[0][0], tuple(variant.name for _, variant in found)


def all_variants() -> Sequence[tuple[Machine, Variant]]:
    """Every variant with its machine, in the order of the text."""
    return [(machine, variant) for machine in MACHINES.values() for variant in machine.variants.values()]
