"""How much of the machines' text rests on a property: every single-edit mutant of guards, effects and properties.

    python bench/mutation.py [--json FILE] [--quick]

The whole run judges some three thousand mutants. What was judged is kept in `build/mutants` by the digest of the texts,
so that a machine that is done is not judged again. Quick, only the barrier's are judged. The
wrong machine that each conjunct of a property rests on is written to `spec/mutation/rests.json`, from which a sample
finds it again (`python -m spec mutate --sample 20`); the survivors with their reasons stand beside it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from parts.figures import Row, at_least, at_most, only_shown, options_of, reported

from spec.machines import MACHINES
from spec.mutation.command_line import chosen, survives, tallies
from spec.mutation.mutants import PROPERTY, SYSTEM
from spec.mutation.resting import RESTS
from spec.mutation.running import judged

NOTICED_AT_LEAST = 0.97
SAID = {SYSTEM: "guards and effects", PROPERTY: "properties"}


def rows(quick: bool) -> Iterator[Row]:
    """Every figure, by kind of mutant."""
    machines = ["barrier"] if quick else list(MACHINES)
    documents = judged(chosen(machines, None, 0), os.cpu_count() or 1)
    for tally in tallies(documents):
        said = SAID[tally.kind]
        yield only_shown(f"mutants of {said}", tally.mutants)
        yield only_shown(f"noticed, of {said}", tally.noticed)
        yield only_shown(f"the same protocol, of {said}", tally.alike + tally.equivalent)
        if tally.kind == SYSTEM:
            yield at_least(
                f"noticed of those that are another protocol, {said}", round(tally.share, 3), NOTICED_AT_LEAST
            )
        yield at_most(f"survivors without a reason, of {said}", tally.unaccounted, 0)
    if not quick:
        rests = {d["mutant"]: d["rests"] for d in documents if d["rests"] and not d["rests"].startswith("variant ")}
        RESTS.write_text(json.dumps(rests, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for document in documents:
        if survives(document):
            print(f"{document['place']}: {document['mutant']}", file=sys.stderr)


def main(arguments: list[str]) -> int:
    options = options_of("How much of the machines' text rests on a property.", "the barrier only").parse_args(
        arguments
    )
    os.chdir(Path(__file__).resolve().parent.parent)  # what was judged is kept in build/
    return reported("mutation", list(rows(options.quick)), options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
