"""The effects of an action one statement after the other, where the machine sets all of them at once.

Every effect reads the state before the action, so a variable is written only when nobody reads its old value any more.
Where no order does that, as when two variables are exchanged, a new value is worked out first and kept aside.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

Target = TypeVar("Target", bound=Hashable)


def one_by_one(reads: Mapping[Target, frozenset[Target]]) -> tuple[list[Target], list[Target]]:
    """The targets to keep aside first, and the others in an order in which they may be written in place.

    `reads` says what the new value of each target depends on. The ones kept aside are written last of all.
    """
    aside: list[Target] = []
    waiting = list(reads)
    written: list[Target] = []
    while waiting:
        free = next((t for t in waiting if not any(t in reads[other] for other in waiting if other != t)), None)
        if free is not None:
            waiting.remove(free)
            written.append(free)
            continue
        # A circle: the one that holds up the most others is kept aside, the first of them in the order of the text.
        most = max(waiting, key=lambda t: (_holds_up(t, waiting, reads), -waiting.index(t)))
        waiting.remove(most)
        aside.append(most)
    return aside, written


def _holds_up(target: Target, waiting: list[Target], reads: Mapping[Target, frozenset[Target]]) -> int:
    others = [other for other in waiting if other != target]
    return sum(target in reads[other] for other in others) * sum(other in reads[target] for other in others)
