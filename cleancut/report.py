"""The report of a check as one self-contained page: what was checked, at which scope, and what is not complete.

Only what the commands said is shown, so a part without a result is shown as one that has none. `pages` names the page
of each trace, relative to this one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cleancut.report_style import STYLE
from interleavings.report.page import breakable, escaped

SECTIONS = (
    ("machines", "State machines"),
    ("variants", "Variants"),
    ("interleavings", "Interleavings of the real coroutines"),
    ("coverage", "Coverage of the correspondence"),
    ("proofs", "Proofs for any size"),
    ("bounded", "What is bounded"),
)
_TITLE = dict(SECTIONS)
Pages = Mapping[str, str]


def page(report: Mapping[str, Any]) -> str:
    """The whole page as text."""
    pages: Pages = report.get("pages") or {}
    links = "".join(f'<li><a href="#{anchor}">{title}</a></li>' for anchor, title in SECTIONS)
    body = [
        f"<h1>Cleancut check: {_verdict(report['verdict'])}</h1>",
        f'<p class="soft">Scope <code>{escaped(report["scope"])}</code>, {report["seconds"]:.1f} s. A bounded or '
        "inconclusive result is never shown as one that holds.</p>",
        _cards(report.get("parts") or {}),
        f'<nav aria-label="Sections"><ul>{links}</ul></nav><main>',
        *_machines(report.get("spec"), pages),
        *_variants(report.get("variants"), pages),
        *_interleavings(report.get("interleavings"), pages),
        *_coverage(report.get("interleavings")),
        *_proofs(report.get("proofs")),
        *_bounded(report),
        "</main>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Cleancut check</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


# -- words


def _verdict(word: object) -> str:
    text = escaped(word)
    return f'<span class="badge {text}">{text}</span>'


def _code(name: object) -> str:
    return f"<code>{breakable(name)}</code>"


def _number(value: object) -> str:
    return "not counted" if value is None else f"{value:,}"


def _heading(anchor: str, more: str = "") -> str:
    return f'<h2 id="{anchor}">{_TITLE[anchor]}{more}</h2>'


def _missing(anchor: str) -> list[str]:
    return [f"{_heading(anchor)}<p>{_verdict('inconclusive')}: the command gave no result.</p>"]


def _table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: frozenset[int] = frozenset(),
    zero: frozenset[int] = frozenset(),
) -> str:
    """A table; on a phone each row is a block, each cell under its name. Rows in `zero` stand out."""

    def kind(column: int) -> str:
        return " class=n" if column in numbers else ""

    def named(column: int) -> str:
        return f' data-name="{escaped(headings[column])}"' if column else ""

    head = "".join(f"<th{kind(i)}>{name}</th>" for i, name in enumerate(headings))
    lines = []
    for number, row in enumerate(rows):
        cells = "".join(f"<td{kind(i)}{named(i) if cell else ''}>{cell}</td>" for i, cell in enumerate(row))
        lines.append(f"<tr{' class=zero' if number in zero else ''}>{cells}</tr>")
    return f'<div class="wide"><table class="stack"><tr class="head">{head}</tr>{"".join(lines)}</table></div>'


def _trace(path: object, pages: Pages) -> str:
    """A trace with its page one click away, or its path where no page could be made."""
    if not path:
        return ""
    shown = pages.get(str(path))
    return _code(path) if shown is None else f'<a href="{escaped(shown)}">explained</a>'


def _cards(parts: Mapping[str, Any]) -> str:
    items = "".join(
        f'<li class="{escaped(part["verdict"])}"><b>{escaped(name)}</b>{_verdict(part["verdict"])} '
        f'<span class="soft">{part["seconds"]:.1f} s</span></li>'
        for name, part in parts.items()
    )
    return f'<ul class="cards">{items}</ul>' if items else ""


# -- sections


def _machines(spec: Any, pages: Pages) -> list[str]:
    if not isinstance(spec, dict):
        return _missing("machines")
    parts = [_heading("machines")]
    for machine in spec.get("machines", [spec]):
        rows = [
            (
                _code(s["scope"]),
                _verdict(s["verdict"]),
                "yes" if s["complete"] else "no",
                _number(s["states"]),
                _number(s["transitions"]),
                _number(s["depth"]),
            )
            for s in machine["scopes"]
        ]
        why = f"<p>{escaped(machine['why'])}</p>" if machine["why"] else ""
        trace = f" {_trace(machine['counterexample'], pages)}" if machine.get("counterexample") else ""
        parts.append(f"<h3>{escaped(machine['machine'])} {_verdict(machine['verdict'])}{trace}</h3>{why}")
        headings = ("scope", "verdict", "complete", "states", "transitions", "depth")
        parts.append(_table(headings, rows, frozenset({3, 4, 5})))
        parts += _claims(machine["properties"])
    return parts


def _claims(properties: Mapping[str, str]) -> list[str]:
    """Those that hold in one line; each other one with its verdict."""
    holding = ", ".join(_code(name) for name, verdict in properties.items() if verdict == "holds")
    others = ", ".join(f"{_code(name)} {_verdict(v)}" for name, v in properties.items() if v != "holds")
    lines = [f"<p>Not holding: {others}.</p>"] if others else []
    return [*lines, f'<p><span class="badge holds">hold</span> {holding}.</p>'] if holding else lines


def _variants(variants: Any, pages: Pages) -> list[str]:
    if not isinstance(variants, list):
        return _missing("variants")
    rows = [
        (
            _code(" + ".join([*v["with_variants"], v["variant"]])),
            escaped(v["machine"]),
            _code(v["property"]),
            _number(v["length"]),
            '<span class="badge holds">caught</span>' if v["length"] == v["pinned_length"] else _verdict("fails"),
            _trace(v["counterexample"], pages),
        )
        for v in variants
    ]
    caught = sum(v["length"] == v["pinned_length"] for v in variants)
    return [
        _heading("variants"),
        f"<p>One small change of the protocol each, and the property that must catch it: {caught} of {len(variants)} "
        "are caught at the pinned length. Each shortest counterexample is explained.</p>",
        _table(("variant", "machine", "property", "steps", "verdict", "trace"), rows, frozenset({3})),
    ]


def _interleavings(scenarios: Any, pages: Pages) -> list[str]:
    if not isinstance(scenarios, list):
        return _missing("interleavings")
    rows = [
        (
            _code(s["scenario"]),
            _verdict(s["verdict"]) + (f" {escaped(s['why'])}" if s.get("why") else ""),
            "yes" if s["complete"] else "no",
            _number(s["states"]),
            _number(s["schedules"]),
            _number(s.get("cancels", 0)),
            ", ".join(map(_code, s.get("properties", ()))),
            _trace(s.get("counterexample"), pages),
        )
        for s in scenarios
    ]
    headings = ("scenario", "verdict", "complete", "states", "schedules", "cancellations", "claims", "trace")
    # Only a scenario that fails has a trace.
    shown = len(headings) if any(row[-1] for row in rows) else len(headings) - 1
    return [
        _heading("interleavings"),
        "<p>Every schedule of the library's own tasks, each step followed by a machine where one speaks of it.</p>",
        _table(headings[:shown], [row[:shown] for row in rows], frozenset({3, 4, 5})),
    ]


def _coverage(scenarios: Any) -> list[str]:
    if not isinstance(scenarios, list):
        return _missing("coverage")
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
    zero = frozenset(number for number, name in enumerate(ordered) if not taken[name])
    rows = [(_code(name), _number(taken[name]), ", ".join(map(_code, by.get(name, ()))) or "none") for name in ordered]
    kinds = [(escaped(reason), _number(count)) for reason, count in stutters.most_common()]
    never = ", ".join(_code(ordered[number]) for number in sorted(zero)) or "none"
    return [
        _heading("coverage"),
        f"<p>Machine actions that no step of the real coroutines took in these scenarios: {never}.</p>",
        f"<details><summary>All {len(rows)} actions, by how often a step took them</summary>"
        f"{_table(('action', 'steps', 'scenarios'), rows, frozenset({1}), zero)}</details>",
        f"<details><summary>{len(kinds)} kinds of events that move nothing in the machine, each with its reason"
        f"</summary>{_table(('reason', 'events'), kinds, frozenset({1}))}</details>",
    ]


def _proofs(proofs: Any) -> list[str]:
    if not isinstance(proofs, dict):
        return _missing("proofs")
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for obligation in proofs["obligations"]:
        groups.setdefault((obligation["assumes"], obligation["excludes"]), []).append(obligation)
    parts = [_heading("proofs"), f"<p>{_verdict(proofs['verdict'])} {len(proofs['obligations'])} obligations.</p>"]
    for (assumes, excludes), obligations in groups.items():
        rows = [(escaped(o["obligation"]), escaped(o["machine"]), _verdict(o["verdict"])) for o in obligations]
        worst = next((o["verdict"] for o in obligations if o["verdict"] != "holds"), "holds")
        parts.append(
            f"<details{'' if worst == 'holds' else ' open'}><summary>{len(obligations)} obligations of "
            f"{escaped(obligations[0]['obligation'].partition(':')[0])}</summary>"
            f"<p>Assumes: {escaped(assumes) or 'nothing'}.</p><p>Does not cover: {escaped(excludes) or 'nothing'}.</p>"
            f"{_table(('obligation', 'machine', 'verdict'), rows)}</details>"
        )
    return parts


def _bounded(report: Mapping[str, Any]) -> list[str]:
    """The bounds of this check, read off its parts: what a reader must not take for more."""
    lines: list[str] = []
    spec, scenarios, proofs = (report.get(name) for name in ("spec", "interleavings", "proofs"))
    if isinstance(spec, dict):
        scopes = [s for machine in spec.get("machines", [spec]) for s in machine["scopes"]]
        open_ones = [s["scope"] for s in scopes if not s["complete"]]
        lines.append(f"The machines were enumerated in {len(scopes)} scopes; each is an exact bound on its size.")
        lines += [f"Not enumerated completely: {_code(name)}." for name in open_ones]
    if isinstance(scenarios, list):
        named = ", ".join(_code(s["scenario"]) for s in scenarios)
        lines.append(f"The real coroutines were searched in these programs only, as large as they are: {named}.")
        lines += [
            f"{_code(s['scenario'])} is {_verdict(s['verdict'])}: {escaped(s['why'])}"
            for s in scenarios
            if s["verdict"] != "holds"
        ]
    if isinstance(proofs, dict):
        excluded = dict.fromkeys(o["excludes"] for o in proofs["obligations"] if o["excludes"])
        lines += [f"The proofs do not cover {escaped(text)}." for text in excluded]
    missing = [name for name in ("spec", "variants", "interleavings", "proofs") if report.get(name) is None]
    lines += [f"Of <b>{name}</b> there is no result, so nothing is said." for name in missing]
    items = "".join(f"<li>{line}</li>" for line in lines)
    return [_heading("bounded"), f'<ul class="plain">{items}</ul>']
