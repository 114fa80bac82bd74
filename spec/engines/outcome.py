"""What every engine makes of a search that ended: how far it is, and the result with the verdict of each property."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..language.model import Model
from ..language.scalar_form import ScalarModel
from .reference import Search, Verdict, Violation


@dataclass(frozen=True)
class Progress:
    """How far a search is."""

    depth: int
    states: int
    frontier: int
    rate: float
    memory: int

    def __str__(self) -> str:
        return (
            f"depth {self.depth}, {self.states:,} states, frontier {self.frontier:,}, "
            f"{self.rate / 1e6:.2f} million states/s, {self.memory / 2**20:,.0f} MiB"
        )


@dataclass(frozen=True)
class Counts:
    """What a search has counted."""

    states: int
    transitions: int
    depth: int
    seconds: float
    taken: Sequence[int]
    """How often each instance was taken."""
    missing: Sequence[int]
    """For each premise, whether it has not occurred."""


def outcome(
    model: Model, form: ScalarModel, names: Sequence[str], counts: Counts, violation: Violation | None, why: str
) -> Search:
    """The result of a search over scalars; `why` says why it ended early, and is empty when it did not."""
    why = "" if violation else why
    complete = violation is None and not why
    verdict: Verdict = "fails" if violation else "bounded" if why else "holds"
    verdicts: dict[str, Verdict] = dict.fromkeys(names, "holds" if complete else "bounded")
    if violation:
        verdicts = dict.fromkeys(names, "inconclusive")
        verdicts[violation.property] = "fails"
    taken = dict.fromkeys(model.machine.actions, 0)
    for instance, times in zip(form.instances, counts.taken, strict=False):
        if times:  # the text may have actions of other variants
            taken[instance.action] += times
    labels = [w.property if w.at is None else f"{w.property} at {w.at}" for w in form.witnesses]
    never = tuple(label for label, still in zip(labels, counts.missing, strict=False) if still)
    return Search(
        model=model,
        verdict=verdict,
        complete=complete,
        states=counts.states,
        transitions=counts.transitions,
        depth=counts.depth,
        seconds=counts.seconds,
        properties=verdicts,
        unwitnessed=never if complete else (),
        taken=taken,
        violation=violation,
        why=f"{why}, all of depth {counts.depth} seen" if why else "",
    )
