"""What the explorer raises. The type says who is at fault: the caller, the program, or a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class ExplorerUsageError(ValueError):
    """The explorer was called with arguments it cannot work with."""


class ForbiddenCall(RuntimeError):
    """The program did something no schedule can control: a socket, a thread, a clock, unseeded randomness.

    Raised at the call itself, so the traceback points at the line. It is also remembered by the run: a program
    that swallows the exception still ends as `inconclusive`.
    """

    def __init__(self, name: str, place: str, instead: str) -> None:
        super().__init__(
            f"{name} was called at {place}; a schedule cannot control it, so no replay would repeat it. "
            f"{instead} (or pass allow=({name!r},) if its result cannot influence the program)"
        )
        self.name = name
        self.place = place


class ToldApart(ForbiddenCall):
    """The program looked at the name of a task that is declared identical to others, so it can tell them apart."""

    def __init__(self, name: str, place: str) -> None:
        RuntimeError.__init__(
            self,
            f"{name} was called at {place}, and tasks are declared identical: their names tell them apart, so states "
            "that differ only in who is who are not one state. Leave out identical=, or do without the name",
        )
        self.name = name
        self.place = place


class Violation(Exception):
    """A property does not hold after this step. Raised by a subject's `observe`."""

    def __init__(self, property: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{property}: {message}")
        self.property = property
        self.message = message
        self.details: dict[str, Any] = dict(details or {})


class TraceUnreadable(ValueError):
    """A trace file is missing, is no trace, or was written by a newer version."""


class Diverged(Exception):
    """A replayed prefix did not enable what it enabled before: the program is not deterministic. Internal."""

    def __init__(
        self, step: int, asked: str, expected: tuple[str, ...], enabled: tuple[str, ...], reason: str = ""
    ) -> None:
        self.step = step
        self.asked = asked
        missing = sorted(set(expected) - set(enabled))
        extra = sorted(set(enabled) - set(expected))
        parts = []
        if asked:
            parts.append(f"asked for {asked!r}")
        if missing:
            parts.append(f"enabled before but not now: {', '.join(missing)}")
        if extra:
            parts.append(f"enabled now but not before: {', '.join(extra)}")
        super().__init__(f"program is not deterministic: step {step}: {reason or '; '.join(parts) or 'another order'}")

    @classmethod
    def worded(cls, text: str) -> Diverged:
        """Return one with a text that another process made."""
        error = cls.__new__(cls)
        Exception.__init__(error, text)
        error.step, error.asked = 0, ""
        return error


class WorkerLost(Exception):
    """A worker process was killed, again and again, while it had the same states to evaluate. Internal."""

    def __init__(self, how: str) -> None:
        super().__init__(
            f"worker processes ended {how} over the same states; likely cause: memory ran out, or the program ends its "
            "process. Use fewer workers, or one"
        )


class SeenLate(Exception):
    """The program looked at something that states leave out until it does: the search begins again. Internal."""

    def __init__(self, sights: Iterable[str]) -> None:
        super().__init__(" ".join(sorted(sights)))
        self.sights = frozenset(sights)


class Unwalkable(Exception):
    """An object whose content cannot be read, so two states cannot be told apart. Internal."""

    def __init__(self, subject: object, reason: str) -> None:
        super().__init__(reason)
        self.subject = subject
        self.reason = reason
