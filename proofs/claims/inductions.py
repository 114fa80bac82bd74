"""Every argument there is: what is proved of which machine, and from which strengthening."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spec.language.machine import Machine
from spec.machines.barrier import barrier
from spec.machines.cut import cut

from ..solver.obligations import Induction, Obligation, obligations_of
from . import barrier_exclusion, barrier_progress, cut_bounds, cut_loader, cut_ownership, cut_progress, cut_stamps


def nothing(held: Induction) -> Iterator[Obligation]:
    """An induction alone."""
    yield from ()


@dataclass(frozen=True)
class Argument:
    """An induction of one machine, and what follows from its strengthening besides."""

    machine: Machine
    induction: Callable[[Machine], Induction]
    """Given a varied machine, it says the same of that."""
    besides: Callable[[Induction], Iterator[Obligation]] = nothing
    also_shows: tuple[str, ...] = ()
    """The properties that what follows besides is about."""

    def obligations(self, held: Induction | None = None) -> list[Obligation]:
        """All obligations, of the argument as it is or of a changed induction."""
        held = held or self.induction(self.machine)
        return [*obligations_of(held), *self.besides(held)]

    @property
    def shows(self) -> tuple[str, ...]:
        """The properties that are proved."""
        return (*self.induction(self.machine).properties, *self.also_shows)


ARGUMENTS: tuple[Argument, ...] = (
    Argument(barrier, barrier_exclusion.induction),
    Argument(cut, cut_ownership.induction),
    Argument(cut, cut_stamps.induction),
    Argument(barrier, barrier_progress.induction, barrier_progress.obligations_of_progress, ("no_deadlock",)),
    Argument(cut, cut_loader.induction),
    Argument(cut, cut_progress.induction, cut_progress.obligations_of_progress),
    Argument(cut, cut_bounds.induction, cut_bounds.obligations_of_bounds),
)


def foundations(held: Induction) -> list[Induction]:
    """The inductions that this one rests on: on the whole strengthening, or on what follows from it."""
    others = [argument.induction(argument.machine) for argument in ARGUMENTS]
    resting = set(held.rests_on)
    return [o for o in others if set(o.strengthening) <= resting or resting & set(o.follows)]
