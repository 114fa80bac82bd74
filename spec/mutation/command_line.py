"""`python -m spec mutate`: derives the mutants of the machines, judges them, and names whatever nothing notices."""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from cleancut_leaf.terminal import how_far

from ..machines.catalogue import MACHINES, UnknownName, machine_named
from .judging import ALIKE, NOTICED, SURVIVES, UNDECIDED
from .mutants import PROPERTY, SYSTEM, Mutant, mutants_of
from .running import judged

ACCOUNTED: Final = Path(__file__).with_name("survivors.json")
EQUIVALENT, POLICY, KEPT = "equivalent", "policy", "strengthening"
"""Why a survivor may survive: it is the same protocol, the rule is no promise, or the claim says more than needed."""


@dataclass(frozen=True)
class Tally:
    """What became of mutants of one kind."""

    kind: str
    mutants: int
    noticed: int
    alike: int
    """The same transitions in the pinned scopes and in the next larger ones."""
    equivalent: int
    """Survivors of which `survivors.json` says why they are the same protocol."""
    accounted: int
    """Survivors that have another reason there."""
    unaccounted: int
    undecided: int

    @property
    def share(self) -> float:
        """Noticed, of those that are not the same protocol."""
        different = self.mutants - self.alike - self.equivalent
        return self.noticed / different if different else 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `mutate`."""
    parser.add_argument("--machine", help="barrier, cut, store or combined; all of them when left out")
    parser.add_argument("--sample", metavar="N", help="judge only N of the mutants, drawn by --seed; left out: all")
    parser.add_argument("--seed", default="0", metavar="S", help="which sample (0 when left out)")
    parser.add_argument("--processes", default="1", metavar="P", help="how many judge at the same time")
    parser.add_argument("--json", metavar="FILE", help="also write every judgement as JSON")


def chosen(machines: Sequence[str], sample: int | None, seed: int) -> list[Mutant]:
    """The mutants of these machines, or a sample of them, in the order of the text."""
    everything = [mutant for machine in machines for mutant in mutants_of(machine)]
    if sample is None or sample >= len(everything):
        return everything
    drawn = set(random.Random(seed).sample(range(len(everything)), sample))
    return [mutant for number, mutant in enumerate(everything) if number in drawn]


def reasons() -> dict[str, tuple[str, str]]:
    """For each survivor that is accounted for, what kind of survivor it is, and why."""
    document = json.loads(ACCOUNTED.read_text(encoding="utf-8"))
    return {key: (kind, why) for kind, table in document.items() for why, keys in table.items() for key in keys}


def survives(document: dict[str, Any]) -> bool:
    """Whether nothing notices a mutant that is not the same in every scope looked at."""
    return document["verdict"] in (SURVIVES, UNDECIDED) or (document["verdict"], document["kind"]) == (ALIKE, PROPERTY)


def tallies(documents: Sequence[dict[str, Any]]) -> list[Tally]:
    """What became of the mutants of the guards and effects, and of those of the properties."""
    known = reasons()
    found = []
    for kind in (SYSTEM, PROPERTY):
        own = [d for d in documents if d["kind"] == kind]
        surviving = [d["mutant"] for d in own if survives(d)]
        kinds = [known.get(key, ("", ""))[0] for key in surviving]
        found.append(
            Tally(
                kind,
                len(own),
                sum(d["verdict"] == NOTICED for d in own),
                sum(d["verdict"] == ALIKE for d in own),
                kinds.count(EQUIVALENT),
                len([k for k in kinds if k not in ("", EQUIVALENT)]),
                kinds.count(""),
                sum(d["verdict"] == UNDECIDED and d["mutant"] not in known for d in own),
            )
        )
    return found


def number_in(text: str, least: int, what: str) -> int:
    """A whole number that was asked for."""
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise UnknownName(f"{text!r} is no {what}; write for instance {max(least, 2)}")
    return int(text)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Judge what was asked for; the exit status."""
    machines = [machine_named(arguments.machine).name] if arguments.machine else list(MACHINES)
    sample = None if arguments.sample is None else number_in(arguments.sample, 1, "number of mutants")
    seed = number_in(arguments.seed, 0, "seed")
    processes = number_in(arguments.processes, 1, "number of processes")
    mutants = chosen(machines, sample, seed)
    with how_far(console, "judging mutants …", "mutants") as shown:
        documents = judged(mutants, processes, lambda done, total, which: shown.at(done, total, which))
    _print(documents, console)
    counted = tallies(documents)
    if arguments.json is not None:
        document = {"machines": machines, "sample": sample, "seed": seed, "mutants": documents}
        try:
            Path(arguments.json).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as fault:
            raise UnknownName(f"cannot write {arguments.json}: {fault.strerror}") from None
    for tally in counted:
        what = "guards and effects" if tally.kind == SYSTEM else "properties"
        console.print(
            f"{what}: {tally.mutants} mutants, {tally.noticed} noticed, {tally.alike + tally.equivalent} the same "
            f"protocol, {tally.accounted} survive with a reason, {tally.unaccounted} without; {tally.share:.1%} noticed"
        )
    unaccounted = sum(tally.unaccounted for tally in counted)
    undecided = sum(tally.undecided for tally in counted)
    console.print(f"spec mutate: {len(documents)} mutants, {unaccounted} that nothing notices and nobody accounts for")
    return 3 if undecided and undecided == unaccounted else 1 if unaccounted else 0


def _print(documents: Sequence[dict[str, Any]], console: Console) -> None:
    """The survivors, each with its line and its reason."""
    known = reasons()
    surviving = [d for d in documents if survives(d)]
    if not surviving:
        return
    table = Table(title="mutants that nothing notices", title_justify="left", box=SIMPLE)
    for heading in ("where", "mutant", "differs in", "why it may"):
        table.add_column(heading, overflow="fold", justify="left")
    for document in surviving:
        kind, why = known.get(document["mutant"], ("", ""))
        table.add_row(
            document["place"],
            document["mutant"],
            f"{document['scope']}{', search not finished' if document['verdict'] == UNDECIDED else ''}",
            f"{kind}: {why}" if kind else "NOT ACCOUNTED FOR",
        )
    console.print(table)
