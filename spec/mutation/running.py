"""Judges many mutants: in several processes, each result kept by a digest of all that it depends on."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from .judging import ALIKE, Judge
from .mutants import PROPERTY, SYSTEM, Mutant, digest, mutants_of
from .resting import Resting

KEPT: Final = Path("build/mutants")
_judge: Judge | None = None
_resting: Resting | None = None


def judged(
    mutants: Sequence[Mutant],
    processes: int = 1,
    told: Callable[[int, int, str], None] = lambda done, total, which: None,
    kept: Path | None = KEPT,
) -> list[dict[str, Any]]:
    """The judgement of each mutant as a document, in their order; those that are known are not judged again."""
    results: dict[str, dict[str, Any]] = {}
    done = 0
    for machine in dict.fromkeys(m.machine for m in mutants):
        store = None if kept is None else kept / f"{machine}-{digest(machine)}.json"
        known = json.loads(store.read_text(encoding="utf-8")) if store is not None and store.exists() else {}
        own = [m for m in mutants if m.machine == machine]
        missing = [m for m in own if m.key not in known]
        done += len(own) - len(missing)
        # Those of the guards and effects first: on them the conjuncts of the properties rest.
        for kind in (SYSTEM, PROPERTY):
            for found in _each(machine, [m.key for m in missing if m.kind == kind], processes, known):
                known[found["mutant"]] = found
                done += 1
                told(done, len(mutants), found["mutant"])
            if store is not None:
                store.parent.mkdir(parents=True, exist_ok=True)
                store.write_text(json.dumps(known, indent=1), encoding="utf-8")
        results |= {m.key: known[m.key] for m in own}
    return [results[m.key] for m in mutants]


def _each(machine: str, keys: Sequence[str], processes: int, known: dict[str, dict[str, Any]]) -> Iterator[Any]:
    """The documents of these mutants, which are all of one kind. Processes share what was enumerated before."""
    global _judge, _resting
    if not keys:
        return
    if _judge is None or _judge.machine != machine:
        _judge = Judge(machine)
    _resting = Resting(_judge, known)
    if processes == 1:
        yield from map(_judged, keys)
        return
    # Before the processes part, so that they share it.
    _judge.family.enumerate()
    _judge.wider.enumerate()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(_judged, keys)


def _judged(key: str) -> dict[str, Any]:
    assert _judge is not None
    assert _resting is not None
    mutant = next(m for m in mutants_of(_judge.machine) if m.key == key)
    if mutant.kind == PROPERTY:
        return _resting.judge(mutant).document()
    found = _judge.judge(mutant)
    return ((found.verdict == ALIKE and _resting.remembers(mutant)) or found).document()
