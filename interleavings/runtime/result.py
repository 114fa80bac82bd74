"""What a search says: the verdict, what it covered, and the shortest way to a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from cleancut_leaf.words import counted

if TYPE_CHECKING:
    from interleavings.runtime.trace import Trace

Verdict: TypeAlias = Literal["holds", "fails", "bounded", "inconclusive"]
Stock: TypeAlias = Literal["yes", "no", "unknown"]


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: its kind, the property it breaks, a sentence, and what a reader needs to understand it."""

    kind: str
    property: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def same_as(self, other: Failure | None) -> bool:
        """Say whether another failure is of the same kind and breaks the same property."""
        return other is not None and (self.kind, self.property) == (other.kind, other.property)

    def __str__(self) -> str:
        head = self.kind if self.kind == self.property else f"{self.kind}: {self.property}"
        return f"{head}: {self.message}" if self.message else head


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on a program and what it rests on.

    `holds` means every schedule was covered. `bounded` means that no failure was met before a bound, named in `why`,
    ended the search. `schedules` is the exact number of schedules; None when the search was not complete, when it
    stopped at a failure, or when the states form a cycle, which `spin` then names.
    `outcomes` says how the schedules ended, each text once, as far as the search came.
    """

    verdict: Verdict
    complete: bool
    states: int | None
    transitions: int
    depth: int
    schedules: int | None
    runs: int
    seconds: float
    counterexample: Trace | None
    why: str | None
    spin: str | None = None
    outcomes: frozenset[str] = frozenset()

    @property
    def failure(self) -> Failure | None:
        """The failure at the end of the counterexample."""
        return None if self.counterexample is None else self.counterexample.failure

    def assert_holds(self) -> None:
        """Raise AssertionError unless every schedule was covered and none failed."""
        if self.verdict == "holds" and self.complete:
            return
        text = self.summary()
        if self.counterexample is not None:
            text = f"{text}\n{self.counterexample.describe()}"
        raise AssertionError(text)

    def summary(self) -> str:
        """Return the one-line form of the verdict. A bounded search is never printed as a proof."""
        if self.verdict == "holds":
            return f"holds (complete: {self._covered()})"
        if self.verdict == "bounded":
            return f"holds (bounded: {self.why}; covered {self._covered()})"
        if self.verdict == "inconclusive":
            return f"inconclusive ({self.why})"
        trace = self.counterexample
        if trace is None:
            return f"fails ({self.why})"
        return f"fails ({trace.failure}; {counted(len(trace.steps), 'step')}, stock: {trace.stock})"

    def _covered(self) -> str:
        parts = [] if self.states is None else [counted(self.states, "state")]
        if self.schedules is not None:
            parts.append(counted(self.schedules, "schedule"))
        elif self.spin is not None:
            parts.append(f"schedules without end: {self.spin}")
        if self.states is None:
            parts.append("not pruned")
        return ", ".join(parts)
