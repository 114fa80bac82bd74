"""Which groups a choice of the library stands for in the machine, where both choose among groups that are alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spec.machines.cut.state import READY

from .prompts import Prompts
from .views import selects_by_weight


def alike(state: Any, one: int, other: int) -> bool:
    """Whether the machine tells two ready prompts apart by nothing but their numbers.

    They may be of different batches: the machine asks of a batch only whether it is behind the cursor, and both are.
    Failed attempts are history here, and so are weights where no rule looks at them (ready first). Nothing of either
    may be left to happen but what happens to every ready group.
    """
    rows = [state.slot, state.ledger, state.stamp, state.lingering, state.account, state.spare]
    if selects_by_weight(state):
        rows.append(state.weight)
    return state.slot[one] == READY and all(row[one] == row[other] for row in rows)


def swap_to_fit(prompts: Prompts, state: Any, machine: Iterable[int], library: Iterable[int]) -> None:
    """Swap numbers so that the machine's choice is the library's, as far as the two differ in like groups only.

    What is left different shows in the comparison of the states after the step.
    """
    mine, theirs = set(machine), set(library)
    ours = sorted(mine - theirs)
    for chosen in sorted(theirs - mine):
        like = next((number for number in ours if alike(state, number, chosen)), None)
        if like is not None:
            ours.remove(like)
            prompts.swap(like, chosen)
