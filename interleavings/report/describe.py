"""Names the choices of a live run for a trace: which task, at which line, which callback."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from typing import Any

from ..runtime.crashing import CRASH, Crash
from ..runtime.frames import describe_place, place_of
from ..runtime.loop import ExplorerHandle, ExplorerTimer, Job, callback_name
from ..runtime.run import Run, Target
from ..runtime.tasks import stepped_task
from ..runtime.trace import Step


def describe_choice(run: Run, key: str, target: Target) -> Step:
    """Return the step that a choice of a live run is. Call it before the choice is done."""
    occurrence = 1 if isinstance(target, asyncio.Task) else _occurrence(key, target.key)
    if isinstance(target, Crash):
        return Step(CRASH, "", "", target.what, occurrence)
    if isinstance(target, ExplorerTimer):
        what = callback_name(target._callback, target._args or ())
        return Step("timer", target.owner, _place_of_owner(run, target.owner, target._callback), what, occurrence)
    if isinstance(target, Job):
        what = callback_name(target.function, target.args)
        return Step("job", target.owner, place_of_function(target.function, target.args), what, occurrence)
    if isinstance(target, ExplorerHandle):
        task = stepped_task(target._callback)
        if task is not None:
            return Step("task-step", run.loop.label_of(task), place_of(task.get_coro()), "", occurrence)
        args = target._args or ()
        what = callback_name(target._callback, args)
        owner = _owner(run, target._callback, args)
        return Step("callback", owner, place_of_function(target._callback, args), what, occurrence)
    return Step("cancel", run.loop.label_of(target), place_of(target.get_coro()), "", occurrence)


def _occurrence(key: str, own: str) -> int:
    """Return which of several equal names this is: `name`, `name #2`, `name #3`."""
    return 1 if key == own else int(key[len(own) + len(" #") :])


def _owner(run: Run, callback: Any, args: Sequence[Any]) -> str:
    for value in (getattr(callback, "__self__", None), *args):
        if isinstance(value, asyncio.Task):
            return run.loop.label_of(value)
        if isinstance(value, Job):
            return value.owner
    return ""


def _place_of_owner(run: Run, owner: str, callback: Any) -> str:
    task = run.loop.labels.get(owner)
    if task is not None and not task.done():
        return place_of(task.get_coro())
    return place_of_function(callback, ())


def place_of_function(function: Any, args: Sequence[Any]) -> str:
    """Return where a callback or an executor's function is defined."""
    while hasattr(function, "func"):
        args = (*function.args, *args)
        function = function.func
    bound = getattr(function, "__self__", None)
    if isinstance(bound, contextvars.Context) and args:
        return place_of_function(args[0], tuple(args[1:]))
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return str(getattr(function, "__qualname__", type(function).__qualname__))
    return describe_place(code, code.co_firstlineno)
