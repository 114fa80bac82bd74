"""The report of a check as one self-contained page: what was checked, at which scope, and what is not complete."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #c4291c; --open: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --good: #4ac26b; --bad: #ff7b72; --open: #d4a72c; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.holds { color: var(--good); } .fails { color: var(--bad); font-weight: 600; }
.inconclusive, .bounded { color: var(--open); font-weight: 600; }
code { font-size: .92em; }
"""


def page(report: Mapping[str, Any]) -> str:
    """The whole page as text."""
    body = [
        f"<h1>Cleancut check: {_verdict(report['verdict'])}</h1>",
        f"<p>Scope <code>{escape(str(report['scope']))}</code>, {report['seconds']:.1f} s. A bounded or inconclusive "
        "result is never shown as one that holds.</p>",
        *_machines(report.get("spec")),
        *_variants(report.get("variants")),
        *_interleavings(report.get("interleavings")),
        *_proofs(report.get("proofs")),
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Cleancut check</title><style>{_STYLE}</style><body>{''.join(body)}</body></html>\n"
    )


def _verdict(word: object) -> str:
    text = escape(str(word))
    return f'<span class="{text}">{text}</span>'


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: frozenset[int] = frozenset()) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(f"<{tag}{' class=n' if i in numbers else ''}>{cell}</{tag}>" for i, cell in enumerate(row))

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{cells("th", headings)}</tr>{lines}</table></div>'


def _number(value: object) -> str:
    return "not counted" if value is None else f"{value:,}"


def _missing(title: str) -> list[str]:
    return [f"<h2>{title}</h2><p>{_verdict('inconclusive')}: the command gave no result.</p>"]


def _machines(spec: Any) -> list[str]:
    if not isinstance(spec, dict):
        return _missing("State machines")
    parts = ["<h2>State machines</h2>"]
    for machine in spec.get("machines", [spec]):
        rows = [
            (
                f"<code>{escape(s['scope'])}</code>",
                _verdict(s["verdict"]),
                "yes" if s["complete"] else "no",
                _number(s["states"]),
                _number(s["transitions"]),
                _number(s["depth"]),
            )
            for s in machine["scopes"]
        ]
        why = f" {escape(machine['why'])}" if machine["why"] else ""
        parts.append(f"<p><b>{escape(machine['machine'])}</b>: {_verdict(machine['verdict'])}.{why}</p>")
        headings = ("scope", "verdict", "complete", "states", "transitions", "depth")
        parts.append(_table(headings, rows, frozenset({3, 4, 5})))
        claims = ", ".join(f"<code>{escape(n)}</code> {_verdict(v)}" for n, v in machine["properties"].items())
        parts.append(f"<p>Properties: {claims}.</p>")
    return parts


def _variants(variants: Any) -> list[str]:
    if not isinstance(variants, list):
        return _missing("Variants")
    rows = [
        (
            f"<code>{escape(' + '.join([*v['with_variants'], v['variant']]))}</code>",
            f"<code>{escape(v['property'])}</code>",
            _number(v["length"]),
            '<span class="holds">caught</span>' if v["length"] == v["pinned_length"] else _verdict("fails"),
            f"<code>{escape(str(v['counterexample']))}</code>" if v["counterexample"] else "",
        )
        for v in variants
    ]
    return [
        "<h2>Variants: one small change each, and the property that must catch it</h2>",
        _table(("variant", "property", "steps", "verdict", "counterexample"), rows, frozenset({2})),
    ]


def _interleavings(scenarios: Any) -> list[str]:
    if not isinstance(scenarios, list):
        return _missing("Interleavings of the real coroutines")
    rows = [
        (
            f"<code>{escape(s['scenario'])}</code>",
            _verdict(s["verdict"]) + (f" {escape(str(s['why']))}" if s.get("why") else ""),
            "yes" if s["complete"] else "no",
            _number(s["states"]),
            _number(s["schedules"]),
            ", ".join(f"<code>{escape(name)}</code>" for name in s["actions_never_taken"]) or "none",
        )
        for s in scenarios
    ]
    headings = ("scenario", "verdict", "complete", "states", "schedules", "machine actions never taken")
    return ["<h2>Interleavings of the real coroutines</h2>", _table(headings, rows, frozenset({3, 4}))]


def _proofs(proofs: Any) -> list[str]:
    if not isinstance(proofs, dict):
        return _missing("Proofs for any size")
    rows = [
        (
            escape(o["obligation"]),
            _verdict(o["verdict"]),
            escape(o["assumes"]),
            escape(o["excludes"]),
        )
        for o in proofs["obligations"]
    ]
    return [
        "<h2>Proofs for any number of prompts</h2>",
        _table(("obligation", "verdict", "assumes", "does not cover"), rows),
    ]
