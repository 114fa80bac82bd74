"""Where a generated program keeps what it hides, how it changes that, and what pruning has lost of it.

    python tests/explorer_hidden_places.py [number of pairs of a place and a change for each kind]

goes through more of them than the tests do: left out, through all.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import itertools
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import explorer_lasting_hidden_kinds  # noqa: F401  # puts its kinds into the table
from explorer_hidden_kinds import KINDS, Thing
from explorer_outcomes import Cell

from interleavings import explore

Place = Callable[[Any], Callable[[], Any]]
PLACES: dict[str, Place] = {}


def place(function: Place) -> Place:
    """Put a place into the table: it takes an object and returns how to get it back."""
    PLACES[function.__name__] = function
    return function


@place
def closure(made: Any) -> Callable[[], Any]:
    return lambda: made


@place
def attribute(made: Any) -> Callable[[], Any]:
    holder = types.SimpleNamespace(held=made)
    return lambda: holder.held


@place
def containers(made: Any) -> Callable[[], Any]:
    held = {"a": [(made,)]}
    return lambda: held["a"][0][0]


@place
def context(made: Any) -> Callable[[], Any]:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")
    variable.set(made)
    return variable.get


@place
def queue(made: Any) -> Callable[[], Any]:
    held: asyncio.Queue[Any] = asyncio.Queue()
    held.put_nowait(made)
    return lambda: held._queue[0]  # type: ignore[attr-defined]


@place
def task(made: Any) -> Callable[[], Any]:
    current: Any = asyncio.current_task()
    current.held = made
    return lambda: current.held


@place
def default(made: Any) -> Callable[[], Any]:
    def look(held: Any = made) -> Any:
        return held

    return look


@place
def local(made: Any) -> Callable[[], Any]:
    """A local of the coroutine itself, which `hiding` keeps."""
    return lambda: None


@place
def attribute_of_a_class(made: Any) -> Callable[[], Any]:
    holder = type("Holder", (), {})
    holder.held = [made]  # type: ignore[attr-defined]
    return lambda: holder.held[0]  # type: ignore[attr-defined]


KEPT: list[Any] = []


@place
def global_of_a_module(made: Any) -> Callable[[], Any]:
    KEPT[:] = [made]
    return lambda: KEPT[0]


@place
def attribute_of_a_function(made: Any) -> Callable[[], Any]:
    def look() -> Any:
        return look.held  # type: ignore[attr-defined]

    look.held = made  # type: ignore[attr-defined]
    return look


@place
def generator(made: Any) -> Callable[[], Any]:
    def holding() -> Any:
        held = made
        while True:
            yield held

    return holding().__next__  # type: ignore[no-any-return]


@place
def result(made: Any) -> Callable[[], Any]:
    held = asyncio.get_running_loop().create_future()
    held.set_result(made)
    return held.result


@place
def argument(made: Any) -> Callable[[], Any]:
    return functools.partial(lambda held: held, made)


CHANGES: dict[str, Callable[[], Any]] = {
    "a number": lambda: 1,
    "a list": lambda: [1],
    "an object": Thing,
    "a function": lambda: lambda: 1,
    "a nested table": lambda: {"a": {"b": [2]}},
}


def hiding(kind: str, place: str, change: str) -> Callable[[], Coroutine[Any, Any, str]]:
    """A program that hides something by what it sees for one turn, and shows it turns later."""
    make, put, look = KINDS[kind]

    async def main() -> str:
        cell = Cell()

        async def keep() -> str:
            made = make()
            get = PLACES[place](made)
            if place != "local":
                made = None
            if cell.value:
                put(get() if made is None else made, CHANGES[change]())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return re.sub(r" at 0x\w+", "", repr(look(get() if made is None else made)))

        shown, _ = await asyncio.gather(keep(), cell.pulse())
        return shown

    return main


def lost(kind: str, place: str, change: str) -> str | None:
    """Say what pruning has lost although the verdict is complete; None when nothing is lost, or it was not complete."""
    program = hiding(kind, place, change)
    pruned = explore(program, keep_going=True)
    if not pruned.complete:
        assert pruned.verdict in ("bounded", "inconclusive"), pruned.summary()
        assert pruned.why
        return None
    missing = explore(program, keep_going=True, prune=False).outcomes - pruned.outcomes
    return f"{kind}, {place}, {change}: {sorted(missing)}" if missing else None


def combinations(each: int) -> list[tuple[str, str, str]]:
    """Every kind with so many pairs of a place and a change, spread so that every pair comes as often."""
    pairs = list(itertools.product(PLACES, CHANGES))
    return [
        (kind, *pairs[(number * 7 + step * 11) % len(pairs)])
        for number, kind in enumerate(KINDS)
        for step in range(min(each, len(pairs)))
    ]


def main() -> int:
    """Go through combinations and say what is lost."""
    chosen = combinations(int(sys.argv[1]) if len(sys.argv) > 1 else len(PLACES) * len(CHANGES))
    found = [one for combination in chosen if (one := lost(*combination))]
    print("\n".join(found))
    by_kind = Counter(kind for kind, _, _ in chosen)
    of = f"{len(by_kind)} kinds, {len(PLACES)} places, {len(CHANGES)} changes"
    print(f"{len(chosen)} combinations of {of}: {len(found)} lost")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
