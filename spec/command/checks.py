"""Run the checks a user asks for: a machine in a family of scopes, and every variant in the scope that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..engines import choice as engines
from ..engines import symmetry
from ..engines.choice import Options
from ..engines.reference import Search, Verdict
from ..language.machine import Machine, Variant
from ..machines.catalogue import all_variants, scopes_named
from ..machines.scopes import Pinned
from . import counterexample


@dataclass
class ScopeResult:
    """One search of one scope, and whether its counts are the pinned ones (None: nothing is pinned for it)."""

    scope: str
    search: Search
    pinned: Pinned | None
    orbits: bool = False
    """Whether one state of each orbit was searched."""

    @property
    def drift(self) -> str:
        """How a complete enumeration differs from its pinned counts; empty when it does not."""
        if self.pinned is None or not self.search.complete:
            return ""
        counted = Pinned(self.search.states, self.search.transitions, self.search.depth)
        if counted == self.pinned:
            return ""
        return f"counts drift in {self.scope}: counted {counted.written}, pinned {self.pinned.written}"


@dataclass
class MachineResult:
    """A machine searched in every scope asked for."""

    machine: Machine
    variants: tuple[str, ...]
    scopes: list[ScopeResult] = field(default_factory=list)
    counterexample: Path | None = None

    @property
    def failed(self) -> ScopeResult | None:
        """The scope that shows a violation."""
        return next((s for s in self.scopes if s.search.violation), None)

    @property
    def properties(self) -> dict[str, Verdict]:
        """Each property's verdict over all the scopes. One whose premise never occurred is inconclusive, not held.

        One about actions that none of these scopes has says nothing here and is left out.
        """
        names = [n for s in self.scopes[:1] for n in s.search.properties]
        return {name: self._verdict_of(name) for name in names if self._is_looked_at(name)}

    def _is_looked_at(self, name: str) -> bool:
        known = self.machine.properties.get(name)
        return known is None or any(claim.at is None or claim.at in self.offered for claim in known.claims)

    @property
    def offered(self) -> set[str]:
        """The actions that some of the scopes have: the others are of features that all of them switch off."""
        return {action.name for s in self.scopes for action, _ in s.search.model.instances}

    def _verdict_of(self, name: str) -> Verdict:
        # By orbits there is a property more, which a scope that was searched whole does not have.
        seen = {s.search.properties[name] for s in self.scopes if name in s.search.properties}
        if "fails" in seen:
            return "fails"
        if seen != {"holds"}:
            return "bounded" if "bounded" in seen else "inconclusive"
        return "inconclusive" if any(label.split(" at ")[0] == name for label in self.unwitnessed) else "holds"

    @property
    def unwitnessed(self) -> set[str]:
        """The claims whose premise occurs in none of the scopes, but those about actions that none of them has."""
        never = set.intersection(*(set(s.search.unwitnessed) for s in self.scopes))
        places = {label: label.partition(" at ")[2] for label in never}
        return {label for label, at in places.items() if not at or at in self.offered}

    @property
    def untaken(self) -> set[str]:
        """The actions that some of the scopes have, and that can be taken in none."""
        taken = {name for s in self.scopes for name, times in s.search.taken.items() if times}
        return self.offered - taken

    @property
    def why(self) -> str:
        """Why the verdict is neither `holds` nor `fails`."""
        reasons = [f"{s.scope}: {s.search.why}" for s in self.scopes if s.search.why]
        reasons += [s.drift for s in self.scopes if s.drift]
        if not self.failed:
            reasons += [f"the premise of {name} never occurs in these scopes" for name in sorted(self.unwitnessed)]
            if len(self.scopes) > 1 and all(s.search.complete for s in self.scopes):
                reasons += [f"the action {name} is never taken in these scopes" for name in sorted(self.untaken)]
        return "; ".join(reasons)

    @property
    def verdict(self) -> Verdict:
        """`holds` only when every scope was enumerated completely, with the pinned counts and every premise met."""
        if self.failed:
            return "fails"
        if any(s.search.verdict == "bounded" for s in self.scopes):
            return "bounded"
        return "inconclusive" if self.why else "holds"

    def document(self) -> dict[str, Any]:
        """The result as the JSON object of the contract."""
        searches = [s.search for s in self.scopes]
        return {
            "machine": self.machine.name,
            "variants": list(self.variants),
            "verdict": self.verdict,
            "complete": all(s.complete for s in searches),
            "states": sum(s.states for s in searches),
            "transitions": sum(s.transitions for s in searches),
            "depth": max(s.depth for s in searches),
            "seconds": round(sum(s.seconds for s in searches), 3),
            "properties": self.properties,
            "counterexample": str(self.counterexample) if self.counterexample else None,
            "why": self.why,
            "scopes": [
                {
                    "scope": s.scope,
                    "verdict": s.search.verdict,
                    "complete": s.search.complete,
                    "states": s.search.states,
                    "transitions": s.search.transitions,
                    "depth": s.search.depth,
                    "seconds": round(s.search.seconds, 3),
                    "unwitnessed": list(s.search.unwitnessed),
                    "symmetry": s.orbits,
                }
                for s in self.scopes
            ],
        }


def check_machine(
    machine: Machine,
    scope: str,
    variants: tuple[str, ...],
    directory: Path,
    options: Options | None = None,
    searched: Callable[[ScopeResult], None] = lambda result: None,
) -> MachineResult:
    """Search a machine in every scope of the name; stop at the first scope that shows a violation and write its trace.

    With variants, a whole family may hold in its smallest members and fail in a larger one, so all are tried. A scope
    that declares no symmetry is searched whole, whatever is asked for. `searched` is told of every scope that has been
    searched.
    """
    result = MachineResult(machine, variants)
    options = options or Options()
    for name, (bounds, pinned) in scopes_named(machine, scope).items():
        orbits = options.symmetry and symmetry.declared(machine, bounds)
        found = engines.search(machine, bounds, variants, pinned, replace(options, symmetry=orbits))
        result.scopes.append(ScopeResult(name, found, None if variants or orbits else pinned, orbits))
        searched(result.scopes[-1])
        if found.violation:
            result.counterexample = counterexample.save(found, name, directory)
        if found.violation or found.why.startswith("interrupted"):
            break
    return result


@dataclass
class VariantResult:
    """A variant searched for the property that must catch it, in the smallest scope that shows it."""

    machine: Machine
    variant: Variant
    search: Search
    counterexample: Path | None

    @property
    def length(self) -> int | None:
        """Steps of the shortest counterexample, None when the variant was not caught."""
        return self.search.violation.length if self.search.violation else None

    @property
    def as_pinned(self) -> bool:
        """Caught by the named property at the pinned length."""
        return self.length == self.variant.length

    def document(self) -> dict[str, Any]:
        """The result as one item of the JSON list of the contract."""
        return {
            "variant": self.variant.name,
            "with_variants": list(self.variant.with_variants),
            "machine": self.machine.name,
            "scope": f"small/{self.variant.scope}",
            "verdict": self.search.verdict,
            "property": self.variant.breaks,
            "length": self.length,
            "pinned_length": self.variant.length,
            "caught": self.as_pinned,
            "table_length": self.variant.table_length,
            "why_length_differs": self.variant.why_length_differs,
            "counterexample": str(self.counterexample) if self.counterexample else None,
        }


def check_variant(machine: Machine, variant: Variant, directory: Path, options: Options | None = None) -> VariantResult:
    """Search one variant for its property alone: other properties may break sooner and are not what is asked."""
    ((scope, (bounds, pinned)),) = scopes_named(machine, variant.scope).items()
    names = (*variant.with_variants, variant.name)
    found = engines.search(machine, bounds, names, pinned, options or Options(), [variant.breaks])
    path = counterexample.save(found, scope, directory) if found.violation else None
    return VariantResult(machine, variant, found, path)


def check_all_variants(
    directory: Path,
    options: Options | None = None,
    next_one: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> list[VariantResult]:
    """Every variant of every machine; `next_one` is told how many are done, of how many, and which comes next."""
    everything = list(all_variants())
    results: list[VariantResult] = []
    for machine, variant in everything:
        next_one(len(results), len(everything), variant.name)
        results.append(check_variant(machine, variant, directory, options))
    return results
