"""Mutation of the library: what notices a wrong line in the protocol part of `impl`.

Each mutant is one edit of one statement (`mutants/operators.py`), applied in a copy of the tree, never in the tree. It
is given to the scenarios that run its line, the quick ones of `make check` first, and then to the tests that do; the
first that fails ends it. A scenario notices when a schedule fails: when only its numbers of states and schedules move,
that is told apart, for whoever changes the program on purpose pins them anew. A hang is told apart too.

    python bench/library_mutants.py --sample 100 --seed 1
    python bench/library_mutants.py --list --module impl/run/permits.py
    python bench/library_mutants.py --resume build/mutants            the whole, going on where it stopped

Survivors are compared with `tests/library_survivors.md`, which says of each why it stays. On demand: a sample of a
hundred takes up to some hours of one processor, most of them for what survives.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from mutants.children import load
from mutants.groups import BY_SCENARIOS, GROUPS, edited_files, group_of
from mutants.judging import Court, Recorder
from mutants.operators import Mutant, mutants_of
from mutants.results import Judged, Store
from parts.figures import Row, at_least, at_most, only_shown, options_of, reported

ROOT = Path(__file__).resolve().parent.parent
SURVIVORS = "tests/library_survivors.md"
COLUMNS = ("scenarios", "tests", "timeout", "counts", "nothing")


def every_mutant(root: Path, module: str | None = None) -> list[Mutant]:
    """Every mutant of every edited file, or of those whose path or group is `module`."""
    files = [path for path in edited_files(root) if module is None or module in (path, group_of(path))]
    return [mutant for path in files for mutant in mutants_of(path, (root / path).read_text(encoding="utf-8"))]


def known_survivors(text: str) -> set[str]:
    """The keys in the table of survivors."""
    rows = (line.split("`") for line in text.splitlines() if line.startswith("| `impl/"))
    return {row[1] for row in rows if len(row) > 2}


def table_of(judged: Sequence[Judged]) -> str:
    """A line for each group: mutants, by scenarios, by `make check`, by tests, by neither."""
    groups: dict[str, list[Judged]] = defaultdict(list)
    for one in judged:
        groups[one.group].append(one)
    head = ("group", "mutants", *COLUMNS, "by check", "refusals")
    lines: list[tuple[str, ...]] = [head]
    for name in (*(name for name in GROUPS if name in groups), "all"):
        these = list(judged) if name == "all" else groups[name]
        by = [sum(one.noticed_by == column for one in these) for column in COLUMNS]
        check = sum(bool(one.check) for one in these)
        lines.append((name, *map(str, (len(these), *by, check, sum(one.refusal for one in these)))))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def rows_of(judged: Sequence[Judged], known: set[str]) -> list[Row]:
    """The figures, with what the project asks of them."""
    survived = [one for one in judged if not one.noticed]
    protocol = [one for one in judged if one.group in BY_SCENARIOS]
    acting = [one for one in protocol if not one.refusal]
    rows = [
        only_shown("mutants judged", len(judged)),
        at_most("survivors without a reason", sum(one.key not in known for one in survived), 0),
    ]
    for name, these in (("edits of what a correct run does", acting), ("with those of refusals", protocol)):
        if these:
            share = 100 * sum(one.noticed_by == "scenarios" for one in these) / len(these)
            figure = f"noticed by scenarios alone, %, {name} ({len(these)})"
            rows.append(at_least(figure, share, 60) if these is acting else only_shown(figure, share))
    for group in ("store", "leases"):
        these = [one for one in judged if one.group == group]
        if these:
            share = 100 * sum(one.noticed for one in these) / len(these)
            rows.append(only_shown(f"{group}: noticed, % ({len(these)})", share))
    return rows


def _arguments() -> argparse.Namespace:
    parser = options_of(__doc__ or "", quick="three mutants of the permits, by the tests of the pool alone")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--sample", type=int, metavar="N", help="judge N mutants, drawn at random (100)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    parser.add_argument("--module", metavar="M", help="only this file or group")
    parser.add_argument("--list", action="store_true", help="list the mutants and judge none")
    parser.add_argument("--resume", metavar="DIR", help="where everything is kept (build/mutants)")
    parser.add_argument("--all", action="store_true", help="judge every mutant")
    parser.add_argument("--minutes", type=float, default=240.0, help="begin nothing new after so long (240)")
    parser.add_argument(
        "--each", type=float, default=600.0, help="seconds that one mutant's scenarios may take, and tests"
    )
    parser.add_argument("--states", type=int, default=10_000, help="leave out scenarios that are larger (10,000)")
    parser.add_argument("--record", action="store_true", help="record what runs which line, and judge nothing")
    parser.add_argument("--files", nargs="*", help="with --record: these files of tests and scenarios only")
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Run the command line; return the exit status."""
    chosen = _arguments()
    mutants = every_mutant(ROOT, "permits" if chosen.quick else chosen.module)
    if not mutants:
        _say(f"--module {chosen.module}: no such file or group. Groups: {', '.join(GROUPS)}.")
        return 2
    if chosen.list:
        print("\n".join(mutant.key for mutant in mutants))
        return 0
    number = 3 if chosen.quick else chosen.sample or (len(mutants) if chosen.all else 100)
    random.Random(chosen.seed).shuffle(mutants)
    mutants = mutants[:number]
    until = time.monotonic() + 60 * chosen.minutes
    store = Store(Path(chosen.resume or ROOT / "build/mutants").resolve(), ROOT)
    load()
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        recorder = Recorder(store, Path(place), _say)
        files = ("test_buffer_permits.py",) if chosen.quick else chosen.files
        recorder.record(until, (lambda name: True) if files is None else (lambda name: name in files))
        if chosen.record:
            return 0
        judges = recorder.judges(0 if chosen.quick else chosen.states)
        if judges.missing and not chosen.quick:
            _say(f"not recorded, and so not asked: {', '.join(judges.missing)}")
        court = Court(store, Path(place), judges, chosen.each)
        judged = []
        for mutant in mutants:
            one = store.judged(mutant.key)
            if time.monotonic() < until:
                one = court.judge(mutant, one)
                store.keep_judged(one)
            if one is None:
                continue
            judged.append(one)
            who = one.scenario or one.test or one.timeout or one.counted
            _say(f"{len(judged)} {one.noticed_by} ({who}; {one.seconds} s): {one.key}")
    known = known_survivors((ROOT / SURVIVORS).read_text(encoding="utf-8"))
    print(table_of(judged))
    for one in judged:
        if not one.noticed:
            left = f", {len(one.not_asked)} more not asked" if one.not_asked else ""
            reason = "in the table" if one.key in known else "NEW"
            print(f"survivor ({one.noticed_by}, {len(one.asked)} let it pass{left}; {reason}): {one.key}")
    heading = f"mutants of the library: {len(judged)} of a sample of {number}, seed {chosen.seed}"
    return reported(heading, rows_of(judged, known), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
