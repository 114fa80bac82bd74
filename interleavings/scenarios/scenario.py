"""A scenario: a named program over the real `impl`, the machine it is followed by, and what the environment may do.

`machine` and `scope` are None for a program that is about something no machine speaks of, such as bytes on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..correspondence.follower import Coverage
from ..runtime.subject import Program, Subject

Timers: TypeAlias = Literal["idle", "anytime"]
RUN = "run_"
"""Before the name of a scenario: the attribute of this package that makes a fresh run of it."""


@dataclass(frozen=True)
class Pinned:
    """What a complete search of the scenario counts: states, and exact schedules."""

    states: int
    schedules: int | None


@dataclass(frozen=True)
class Scenario:
    """One entry of `python -m interleavings list`."""

    name: str
    sentence: str
    machine: Any
    scope: Any
    cancels: int
    program_of: Callable[[Coverage], Subject]
    claims: tuple[str, ...]
    """What holds when no schedule fails: the properties that the scenario can break."""
    pinned: Pinned | None = None
    quick: bool = True
    """Whether `make check` searches it at its default scope; the others take longer."""
    timers: Timers = "idle"
    """"anytime": a timer may fire although something could still run, as when a step takes long."""
    crashes: int = 0
    """Crashes anywhere."""
    with_crashes: Callable[[int], Scenario] | None = None
    """The same with another number of crashes; None where nothing says what survives one."""
    without_tracer: Callable[[], Scenario] | None = None
    """The same without a tracer; None where the run cannot be followed without its events."""
    told: bool = True
    """Whether the run tells its events, by which the machine is followed; without, by what shows alone."""
    variants: tuple[str, ...] = ()
    """Of a control, the variants of the machine that it is followed by."""

    def budgets(self, cancels: int | None = None) -> str:
        """What the environment may do, in words; `cancels` in place of its own."""
        crashes = f", crashes {self.crashes}" if self.crashes else ""
        return f"cancels {self.cancels if cancels is None else cancels}{crashes}"

    def actions(self) -> list[str]:
        """The actions that the machine has in this scope, where steps of the run can be told to take them."""
        if self.machine is None or not self.told:
            return []
        declared = self.machine.actions.values()
        return [action.name for action in declared if action.when is None or action.when(self.scope)]

    @property
    def reference(self) -> str:
        """The name by which any process can import a program of it."""
        return f"{__package__}:{RUN}{self.name}"

    def program(self, coverage: Coverage) -> Program:
        """The program to explore, named for traces by the scenario. Its runs collect in `coverage`, wherever."""

        def fresh() -> Subject:
            return self.program_of(coverage)

        fresh.trace_identity = {"scenario": self.name}  # type: ignore[attr-defined]
        fresh.reference = self.reference  # type: ignore[attr-defined]
        fresh.collected = coverage  # type: ignore[attr-defined]
        return fresh
