"""What a search is asked: which properties, on which generated text, and how its functions look at states for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...language.machine import Machine
from ...language.model import Model
from ..symmetry import Reduction
from .expansion import Watch
from .orbits import Orbits
from .source import Generated


@dataclass(frozen=True)
class Question:
    """One question; whoever searches expands states with a `watch` for it."""

    generated: Generated
    model: Model
    names: Sequence[str]
    """The properties wanted, that of progress last."""
    progress: bool
    """Whether that of progress is among them."""
    reduction: Reduction | None
    """Where one state of each orbit is searched: which."""

    @property
    def initial(self) -> list[int]:
        """The words of the initial state."""
        return self.generated.packing.packed([element.initial for element in self.generated.form.elements])

    def watch(self, functions: Any) -> Watch:
        """How states are expanded and looked at, with nothing met yet."""
        form, wanted = self.generated.form, set(self.names)
        return Watch(
            functions,
            sum(1 << i for i, name in enumerate(self.generated.properties) if name in wanted),
            self.progress,
            any(not c.in_states for c in form.claims),
            np.array([i.progress for i in form.instances] or [False]).astype(np.int64),
            np.zeros(max(1, len(form.instances)), np.int64),
            np.array([w.property in wanted for w in form.witnesses] or [False]).astype(np.int64),
            None if self.reduction is None else Orbits(form, self.generated.packing, self.reduction),
        )


def question(
    machine: Machine, generated: Generated, wanted: Sequence[str] | None, reduction: Reduction | None
) -> Question:
    """Ask for the properties of these names; None for all."""
    form = generated.form
    model = machine.model(form.scope, form.variants)
    names = [name for name in model.machine.properties if wanted is None or name in wanted]
    progress = model.machine.progress
    of_progress = progress is not None and (wanted is None or progress.name in wanted)
    if progress is not None and of_progress:
        names.append(progress.name)
    return Question(generated, model, names, of_progress, reduction)
