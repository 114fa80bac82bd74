"""What a task waits for, in words, where it waits on a bare future: libraries and users say it of their own functions.

A deadlock's report knows asyncio's own primitives. Of a future that some class keeps it can say its name at most; who
holds what the future stands for, only that class knows.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import ExplorerUsageError


@dataclass(frozen=True)
class Wait:
    """`what` continues "waits for"; `held_by` are the tasks, or their names, that can end the wait."""

    what: str
    held_by: Iterable[asyncio.Task[Any] | str | None] = ()


Explain: TypeAlias = Callable[[Mapping[str, Any]], Wait]
"""Called with the local variables of the waiting function."""

_EXPLAINED: dict[types.CodeType, Explain] = {}


def register_wait(function: Callable[..., Any], explain: Explain) -> None:
    """Say what a task waits for that stands in `function`, a coroutine function that awaits a future of its own."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType) or not callable(explain):
        raise ExplorerUsageError("register_wait(function, explain): the first is a coroutine function, as is a method")
    _EXPLAINED[code] = explain


def explained(code: types.CodeType, held: Mapping[str, Any]) -> Wait | None:
    """What whoever stands in this code waits for, if anybody has said so."""
    explain = _EXPLAINED.get(code)
    return None if explain is None else explain(held)
