"""Moments of virtual time that know they are moments: only their distances may be looked at.

A program that reads the clock makes absolute time a part of its state, and one that looks at it for ever, such as a
watchdog, then has states without end. `Subject(horizon=...)` says that all it does with the clock is to take distances,
and to compare them with nothing above the horizon. The clock then gives moments: a state holds each by its age, and all
ages above the horizon are alike, as in the region graph of a timed automaton (Alur, Dill 1994). Whatever would show the
absolute time is refused by name. The horizon itself is trusted, as `state=` is: one below what the program compares
hides what comes later. What C code takes from a float without asking (`math.floor`) is not seen.
"""

from __future__ import annotations

from asyncio import events
from typing import Any, NoReturn

from ..errors import ExplorerUsageError

_INSTEAD = "Subject(horizon=...) declares that only distances of time are looked at: subtract another moment first"


class Moment(float):
    """A reading of the clock. Another moment may be subtracted and compared, a duration added; nothing else."""

    __slots__ = ()

    def __add__(self, other: Any) -> Moment:
        if isinstance(other, Moment):
            _refused("Moment + Moment")
        return Moment(float.__add__(self, other))

    def __radd__(self, other: Any) -> Moment:
        return self.__add__(other)

    def __sub__(self, other: Any) -> Any:
        distance = float.__sub__(self, other)
        return distance if isinstance(other, Moment) else Moment(distance)

    def __rsub__(self, other: Any) -> NoReturn:
        _refused("number - Moment")

    def __hash__(self) -> int:
        _refused("hash(Moment)")


def plain(value: Any) -> Any:
    """The number of a moment; anything else as it is."""
    return float.__add__(value, 0.0) if isinstance(value, Moment) else value


def _refused(what: str) -> NoReturn:
    loop: Any = events._get_running_loop()
    if loop is None or not hasattr(loop, "refuse"):
        raise ExplorerUsageError(f"{what}: {_INSTEAD}")
    loop.refuse(f"absolute time ({what})", _INSTEAD)
    raise AssertionError("a loop that refuses raises")


def _compared(name: str) -> Any:
    compare = getattr(float, name)

    def method(self: Moment, other: Any) -> Any:
        if isinstance(other, float | int) and not isinstance(other, Moment):
            _refused("Moment compared with a number")
        return compare(self, other)

    return method


def _shown(name: str) -> Any:
    def method(self: Moment, *arguments: Any) -> NoReturn:
        _refused(f"Moment.{name}")

    return method


for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
    setattr(Moment, _name, _compared(_name))
for _name in (
    *("__int__", "__float__", "__bool__", "__round__", "__trunc__", "__floor__", "__ceil__", "__neg__", "__abs__"),
    *("__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__"),
    *("__divmod__", "__rdivmod__", "__pow__", "__rpow__", "__str__", "__repr__", "__format__"),
    *("hex", "is_integer", "as_integer_ratio"),
):
    setattr(Moment, _name, _shown(_name))
