"""What a barrier is given: limits in seconds, and a tracer."""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

from ..errors import UsageError


class Unset(Enum):
    """The type of UNSET, which is told apart from None (no limit)."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET


class Tracer(Protocol):
    """Is called for every event, in the stretch of code that changes the state. It must neither raise nor await.

    Fields are plain values; tuples and lists are not changed afterwards. A tracer that has `begin_run(identity)` or
    `close()` is told of the run's beginning and end by a Controller.
    """

    def __call__(self, action: str, /, **fields: object) -> None: ...


def label(name: str, value: object) -> str:
    """`value` as a label in statistics and messages; UsageError when it is no text."""
    if isinstance(value, str):
        return value
    raise UsageError(f"{name} is {value!r}, but must be a text: it is a label in statistics and messages.")


def seconds(name: str, value: float | None) -> float | None:
    """`value` as a limit, None for no limit; UsageError when it cannot be one."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise UsageError(f"{name} is {value!r}, but must be a number of seconds, zero or more, or None for no limit.")
    return float(value)


def positive(name: str, value: float) -> float:
    """`value` as a time in seconds; UsageError when it is none, or no time at all."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise UsageError(f"{name} is {value!r}, but must be a number of seconds greater than zero.")
    return float(value)
