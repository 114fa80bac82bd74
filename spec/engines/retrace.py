"""From a finding of the generated code to a violation that the reference model confirms, with its path and its states.

Nothing that generated code says is reported as it stands: the path is taken again on plain states, and the claim is
evaluated there. If the two do not agree, that is a fault of the engine and is said so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from ..language.machine import ModelFault
from ..language.model import Model, Step
from ..language.packing import Packing
from ..language.scalar_form import ScalarModel
from .reference import Violation
from .symmetry import Reduction


class Kept(Protocol):
    """The states that were met, by number, and the number of the parent of each."""

    states: Any
    parents: Any


class EnginesDisagree(Exception):
    """The generated code and the reference model say different things about one state: a fault of this engine."""


@dataclass(frozen=True)
class Finding:
    """What the generated code found: the number of a state, and the instance that is forbidden there, if one is."""

    length: int
    row: int
    instance: int | None
    of_progress: bool
    """Whether it is the claim about progress that breaks."""


class Retrace:
    """Takes paths again on the reference model."""

    def __init__(
        self, model: Model, form: ScalarModel, packing: Packing, kept: Kept, reduction: Reduction | None = None
    ) -> None:
        self.model = model
        self.reduction = reduction
        self.form, self.packing = form, packing
        self.kept = kept

    def path(self, row: int) -> tuple[list[tuple[str, int | None]], list[Any]]:
        """The steps from the initial state to a state, and all states on the way."""
        rows = [row]
        while rows[-1] != 0:
            rows.append(int(self.kept.parents[rows[-1]]))
        rows.reverse()
        steps: list[tuple[str, int | None]] = []
        states = [self.model.initial]
        for target in rows[1:]:
            step = self._step_to(states[-1], self.packing.unpacked(self.kept.states[target].tolist()))
            steps.append((step.action.name, step.index))
            states.append(step.state)
        return steps, states

    def kept_for(self, state: Any) -> Any:
        """The state that is kept for this one: of its orbit, where orbits are searched."""
        return self.reduction.canonical(state) if self.reduction else state

    def _step_to(self, state: Any, elements: tuple[int, ...]) -> Step:
        for step in self.model.steps(state):
            if self.form.flat(self.kept_for(step.state)) == elements:
                return step
        raise EnginesDisagree(f"no step of {state} leads to {elements}, which the generated code reached from it")

    def violation(self, finding: Finding, names: Sequence[str]) -> Violation:
        """The violation as the reference engine reports it."""
        steps, states = self.path(finding.row)
        last: Step | None = None
        if finding.instance is not None:
            instance = self.form.instances[finding.instance]
            met = self.kept_for(states[-1])
            last = self.model.step_named(met, instance.action, instance.index)
            if last is None:
                raise EnginesDisagree(f"{instance.label} is not enabled in {met}")
            if self.reduction:
                last = self.reduction.step_into(self.model, states[-1], last.state, instance.action)
        at = last.action.name if last is not None else None
        if finding.of_progress:
            name, sentence, indexes = self._stall(states[-1], last)
        else:
            name, sentence, indexes = self._broken(states[-1], last, names)
        if last is not None:
            steps.append((last.action.name, last.index))
            states.append(last.state)
        return Violation(name, sentence, indexes, tuple(steps), tuple(states), at)

    def _broken(self, state: Any, last: Step | None, names: Sequence[str]) -> tuple[str, str, tuple[int | None, ...]]:
        for known in self.model.machine.properties.values():
            if known.name in names and (indexes := self.model.broken_indexes(known, state, last)):
                return known.name, known.sentence, indexes
        raise EnginesDisagree(f"the reference model finds nothing broken in {state}")

    def _stall(self, state: Any, last: Step | None) -> tuple[str, str, tuple[int | None, ...]]:
        progress = self.model.machine.progress
        assert progress is not None
        if last is None:
            confirmed = not self.model.finished(state) and not any(s.action.progress for s in self.model.steps(state))
        else:
            confirmed = not progress.rank(last.state) > progress.rank(state)
        if not confirmed:
            raise EnginesDisagree(f"the reference model goes on from {state}")
        return progress.name, progress.sentence, (None,)

    def fault(self, row: int, instance: int) -> NoReturn:
        """Raise what the reference model raises where the generated code saw a fault of the text."""
        _, states = self.path(row)
        for step in self.model.steps(self.kept_for(states[-1])):
            self.model.check_ranges(step.state, step.action.name)
        label = self.form.instances[instance].label if instance >= 0 else "a guard or claim"
        raise ModelFault(f"{label} reads a vector outside its bounds, or leaves a range, in {states[-1]}")
