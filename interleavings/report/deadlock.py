"""Explains blocked tasks: where each stands, what it waits for, who holds that, and the circle they form.

Holders of locks are not guessed: while a counterexample is run again, `HolderWatch` sees after each step which locks
became taken, and the task that made the step took them.
"""

from __future__ import annotations

import asyncio
import gc
import types
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, TypeAlias

from ..runtime.frames import describe_place, frames_inwards, is_internal, place_of
from ..runtime.run import Run
from ..runtime.tasks import exception_of
from ..runtime.waits import explained
from ..search.judging import raised_at

_DEPTH = 4
_BREADTH = 200
_ON = " -> "


class HolderWatch:
    """Who took each lock, found out step by step."""

    def __init__(self) -> None:
        self._locks: dict[int, tuple[asyncio.Lock, str]] = {}

    def after_step(self, run: Run, stepped: str) -> None:
        """Note the locks that are taken now; `stepped` is the label of the task that made the step, or ''."""
        for lock in _locks_in_sight(run):
            known = self._locks.get(id(lock))
            if not lock.locked():
                self._locks[id(lock)] = (lock, "")
            elif known is None or not known[1]:
                self._locks[id(lock)] = (lock, stepped)

    def holder(self, lock: Any) -> str:
        """Return the label of the task that holds a lock; '' when nobody does or it is unknown."""
        known = self._locks.get(id(lock))
        return known[1] if known is not None else ""


def _locks_in_sight(run: Run) -> Iterator[asyncio.Lock]:
    for task in run.living():
        for _, _, coroutine in frames_inwards(task.get_coro()):
            for value in gc.get_referents(coroutine):
                yield from _locks_below(value, _DEPTH, set())


def _locks_below(value: Any, depth: int, seen: set[int]) -> Iterator[asyncio.Lock]:
    if isinstance(value, asyncio.Lock):
        yield value
    if depth == 0 or id(value) in seen or len(seen) > _BREADTH:
        return
    seen.add(id(value))
    inner: list[Any] = []
    if isinstance(value, types.MethodType):
        inner = [value.__self__]
    elif isinstance(value, (list, tuple)):
        inner = list(value)
    elif isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, types.CellType):
        inner = gc.get_referents(value)
    elif hasattr(value, "__dict__") and not isinstance(value, (type, types.ModuleType, types.FunctionType)):
        inner = list(vars(value).values())
    for part in inner:
        yield from _locks_below(part, depth - 1, seen)


def blocked_tasks(run: Run, watch: HolderWatch) -> dict[str, Any]:
    """Return the details of a deadlock: every blocked task, the circle if there is one, failures nobody saw."""
    entries = []
    waits_on: dict[str, list[str]] = {}
    for task in sorted(run.living(), key=run.loop.label_of):
        label = run.loop.label_of(task)
        chain = list(frames_inwards(task.get_coro()))
        what, holders, at = _waits_for(run, task, watch, chain)
        waits_on[label] = holders
        entries.append(
            {
                "task": label,
                "at": at or place_of(task.get_coro()),
                "waits for": what,
                "held by": ", ".join(holders) if holders else None,
            }
        )
    details: dict[str, Any] = {"blocked": entries}
    circle = _circle(waits_on)
    if circle:
        details["circle"] = _ON.join(circle)
    failures = [
        f"{run.loop.label_of(task)}: {exception_of(task)!r} raised at {raised_at(error)}"
        for task in run.unseen
        if (error := exception_of(task)) is not None
    ]
    if failures:
        details["failed unseen"] = failures
    return details


Chain: TypeAlias = list[tuple[types.CodeType, Any, Any]]


def _waits_for(run: Run, task: Any, watch: HolderWatch, chain: Chain) -> tuple[str, list[str], str]:
    """Return what a task waits for, in words, the labels of the tasks that it waits on, and where, if that is known."""
    waiter = task._fut_waiter
    if waiter is None:
        return "its turn", [], ""
    if isinstance(waiter, asyncio.Task):
        label = run.loop.label_of(waiter)
        return f"task {label}", [label], ""
    for number in reversed(range(len(chain))):  # the innermost that says what it waits for
        code, frame, _ = chain[number]
        told = explained(code, frame.f_locals)
        if told is not None:
            return told.what, _labels(run, told.held_by), _caller(chain[:number])
    children = getattr(waiter, "_children", None)
    if children:
        labels = _pending(run, children)
        return f"gather of {', '.join(labels) or 'futures'}", labels, ""
    found = None
    for code, frame, _ in chain:
        if not is_internal(code):
            found = None
        elif found is None or isinstance(found[0], asyncio.Condition):  # a Condition waits for its lock as well
            found = _primitive(run, code, frame.f_locals, watch) or found
    if found is not None:
        owner, word, holders = found
        name = _name_of(owner, chain) if owner is not None else ""
        return f"{word} {name}".rstrip(), holders, ""
    name = _name_of(waiter, chain)
    return f"future {name}".rstrip(), [], ""


def _caller(chain: Chain) -> str:
    """Return where a function that says what it waits for was called: not in a context manager's own methods."""
    called = [(code, frame) for code, frame, _ in chain if not code.co_name.startswith("__")]
    return describe_place(called[-1][0], called[-1][1].f_lineno) if called else ""


def who_waits_for_whom(details: Mapping[str, Any]) -> str:
    """Return the circle of a deadlock as a sentence; '' without one."""
    circle = details.get("circle", "").split(_ON)
    return ", ".join(f"{one} waits for {other}" for one, other in pairwise(circle))


def _primitive(run: Run, code: types.CodeType, held: Any, watch: HolderWatch) -> tuple[Any, str, list[str]] | None:
    """Recognise asyncio's own waiting functions by their frames."""
    owner = held.get("self")
    if isinstance(owner, asyncio.TaskGroup):
        labels = _pending(run, owner._tasks)
        return None, f"its task group: {', '.join(labels)}", labels
    if isinstance(owner, asyncio.Lock):
        holder = watch.holder(owner)
        return owner, "Lock", [holder] if holder else []
    if isinstance(owner, asyncio.Condition):
        return owner, "a notification of Condition", []
    if isinstance(owner, asyncio.Queue):
        word = {"get": "an item of", "put": "room in", "join": "the tasks of"}.get(code.co_name, "")
        return owner, f"{word} {type(owner).__name__}".strip(), []
    if isinstance(owner, (asyncio.Event, asyncio.Semaphore, asyncio.Barrier)):
        return owner, type(owner).__name__, []
    if code.co_name in ("_wait", "wait_for", "shield") and "fs" in held:
        labels = _pending(run, held["fs"])
        return None, f"the first of {', '.join(labels) or 'several futures'}", labels
    if code.co_name == "wait_for" and isinstance(held.get("fut"), asyncio.Task):
        labels = _pending(run, [held["fut"]])
        return None, f"task {', '.join(labels)}", labels
    return None


def _labels(run: Run, holders: Iterable[Any]) -> list[str]:
    """The labels of those that live, whether they are given as tasks or by name."""
    named = [run.loop.labels.get(holder) if isinstance(holder, str) else holder for holder in holders]
    return [run.loop.label_of(task) for task in named if task is not None and not task.done()]


def _pending(run: Run, futures: Any) -> list[str]:
    tasks = [future for future in futures if isinstance(future, asyncio.Task) and not future.done()]
    return sorted(run.loop.label_of(task) for task in tasks)


def _name_of(value: Any, chain: Chain) -> str:
    """Return how the user's code calls an object: a variable, or an attribute reached from one."""
    for code, frame, _ in reversed(chain):
        if is_internal(code):
            continue
        for name, held in frame.f_locals.items():
            if held is value:
                return str(name)
        for name, held in frame.f_locals.items():
            path = _attribute_path(held, value, 3)
            if path is not None:
                return f"{name}{path}"
    return ""


def _attribute_path(holder: Any, value: Any, depth: int) -> str | None:
    attributes = getattr(holder, "__dict__", None)
    if not isinstance(attributes, dict) or isinstance(holder, (type, types.ModuleType)):
        return None
    for name, held in attributes.items():
        if held is value:
            return f".{name}"
    if depth > 1:
        for name, held in attributes.items():
            path = _attribute_path(held, value, depth - 1)
            if path is not None:
                return f".{name}{path}"
    return None


def _circle(waits_on: dict[str, list[str]]) -> list[str]:
    """Return tasks that wait on each other in a circle, the first named again at the end."""
    for start in waits_on:
        path = [start]
        while True:
            onwards = waits_on.get(path[-1], [])
            if not onwards:
                break
            following = onwards[0]
            if following in path:
                circle = path[path.index(following) :]
                return [*circle, following]
            path.append(following)
    return []
