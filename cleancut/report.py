"""The report of a check as one self-contained page: what was checked, at which scope, and what is not complete.

Only what the commands said is shown, so a part without a result is shown as one that has none. `pages` names the page
of each trace, relative to this one. What is counted stands here, the markup in `templates/report.html.jinja`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interleavings.report.markup import rendered

TEMPLATES = Path(__file__).parent / "templates"
SECTIONS = {
    "machines": "State machines",
    "variants": "Variants",
    "interleavings": "Interleavings of the real coroutines",
    "coverage": "Coverage of the correspondence",
    "proofs": "Proofs for any size",
    "bounded": "What is bounded",
}


def page(report: Mapping[str, Any]) -> str:
    """The whole page as text."""
    spec, proofs = (_of_kind(report, name, dict) for name in ("spec", "proofs"))
    variants, scenarios = (_of_kind(report, name, list) for name in ("variants", "interleavings"))
    machines = None if spec is None else spec.get("machines", [spec])
    return rendered(
        "report.html.jinja",
        TEMPLATES,
        report=report,
        sections=SECTIONS,
        pages=report.get("pages") or {},
        parts=report.get("parts") or {},
        machines=machines,
        scopes=[scope for machine in machines or () for scope in machine["scopes"]],
        variants=variants,
        caught=sum(v["length"] == v["pinned_length"] for v in variants or ()),
        scenarios=scenarios,
        coverage=_coverage(scenarios or ()),
        proofs=proofs,
        groups=_groups(proofs),
        without_result=[name for name in ("spec", "variants", "interleavings", "proofs") if report.get(name) is None],
    )


def _of_kind(report: Mapping[str, Any], name: str, kind: type) -> Any:
    """A part of the report, or None where a command has written something else or nothing."""
    found = report.get(name)
    return found if isinstance(found, kind) else None


@dataclass(frozen=True)
class Coverage:
    """Every action, how many steps took it and in which scenarios, the rarest first; and events that move nothing."""

    actions: Sequence[tuple[str, int, Sequence[str]]]
    stutters: Sequence[tuple[str, int]]

    @property
    def never(self) -> list[str]:
        """The actions that no step took."""
        return sorted(name for name, count, _ in self.actions if not count)


def _coverage(scenarios: Sequence[Mapping[str, Any]]) -> Coverage:
    taken: Counter[str] = Counter()
    by: dict[str, list[str]] = {}
    stutters: Counter[str] = Counter()
    for scenario in scenarios:
        for name, count in scenario.get("actions_taken", {}).items():
            taken[name] += count
            by.setdefault(name, []).append(scenario["scenario"])
        for name in scenario.get("actions_never_taken", ()):
            taken[name] += 0
        stutters.update(scenario.get("stutters", {}))
    ordered = sorted(taken, key=lambda name: (taken[name], name))
    return Coverage([(name, taken[name], by.get(name, ())) for name in ordered], stutters.most_common())


def _groups(proofs: Mapping[str, Any] | None) -> list[list[Mapping[str, Any]]]:
    """Obligations that assume and leave out the same."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for obligation in proofs["obligations"] if proofs is not None else ():
        groups.setdefault((obligation["assumes"], obligation["excludes"]), []).append(obligation)
    return list(groups.values())
