"""A picture as a property: every action named in it moves a variable along its arrow, and from nowhere else.

The pictures stand in the heads of the machines' modules, for people: `SOUND --fall_silent--> SILENT`. Written once more
as a table they are looked at as each action is taken, at the index that it is taken for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .expression import Value
from .machine import Claim, Machine, Property

STAYS: Final = -9
"""For the end of an arrow: the value stays what it was."""
ANY: Final = -8
"""For either end: nothing is asked of it."""


@dataclass(frozen=True)
class Arrow:
    """Where a variable may be before an action, and where it is after it."""

    begins: int | tuple[int, ...]
    ends: int

    def holds(self, before: Value, after: Value) -> Value:
        """Whether a step goes along this arrow."""
        ended = True if self.ends == ANY else after == (before if self.ends == STAYS else self.ends)
        if self.begins == ANY:
            return ended
        places = self.begins if isinstance(self.begins, tuple) else (self.begins,)
        began: Value = before == places[0]
        for place in places[1:]:
            began = (before == place) | began
        return began & ended


Table = Mapping[str, tuple[int | tuple[int, ...], int]]


def picture(machine: Machine, name: str, variable: str, sentence: str, table: Table) -> None:
    """Register a picture of a variable as a property of steps. The premise of each arrow is that it is taken."""
    over = machine.variables[variable].over
    claims = tuple(claim(machine, variable, sentence, action, Arrow(*ends)) for action, ends in table.items())
    machine.properties[name] = Property(name, over, claims)


def claim(machine: Machine, variable: str, sentence: str, action: str, arrow: Arrow) -> Claim:
    """The claim that an action goes along its arrow."""
    return Claim(
        action, _Claimed(variable, machine.variables[variable].over is not None, sentence, arrow), _taken, True
    )


def _taken(s: Value) -> Value:
    return True


class _Claimed:
    """What a claim asks of a step; it keeps its arrow, so that a weaker one can be made of it."""

    def __init__(self, variable: str, indexed: bool, sentence: str, arrow: Arrow) -> None:
        self.variable, self.indexed, self.arrow = variable, indexed, arrow
        self.__doc__ = sentence
        self.__name__ = f"{variable}_along_its_arrow"

    def __call__(self, s: Value, after: Value, *index: Value) -> Value:
        before, then = getattr(s, self.variable), getattr(after, self.variable)
        return self.arrow.holds(before[index[0]], then[index[0]]) if self.indexed else self.arrow.holds(before, then)


def arrow_of(function: Callable[..., Any]) -> Arrow | None:
    """The arrow that a claim asks for, None where it is no picture's."""
    return function.arrow if isinstance(function, _Claimed) else None


def with_arrow(known: Claim, arrow: Arrow) -> Claim:
    """The same claim with another arrow."""
    asked = known.function
    assert isinstance(asked, _Claimed)
    return Claim(known.at, _Claimed(asked.variable, asked.indexed, asked.__doc__ or "", arrow), known.witness, True)
