"""Reads any object graph into a flat list of atoms: two graphs give equal lists only if they are alike.

Objects are numbered by the order of first visit, never by address. A tag (a tuple, which no atom is) opens each
object, and what follows a tag has a fixed form, so the list can be read back in one way only. What cannot be read
raises `Unwalkable`: guessing would merge states that differ.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable
from typing import Any

from ..errors import ExplorerUsageError, Unwalkable
from ..runtime.identical import Naming
from .instances import handler_for
from .readers import ATOMS, BUILT_IN, Handler, only_atoms


class Walk:
    """One reading. `out` is the list of atoms, `stack` what is still to be read, last first."""

    __slots__ = (
        "base", "declared", "hashed", "horizon", "keep", "memo", "naming", "now", "out", "requests", "stack",
        "tracebacks",
    )  # fmt: skip

    def __init__(self, now: float, base: dict[Any, Any], declared: bool, horizon: float | None = None) -> None:
        self.out: list[Any] = []
        self.stack: list[Any] = []
        self.memo: dict[int, int] = {}
        self.keep: list[Any] = []  # keeps made objects alive, so that no address is used twice
        self.now = now
        self.base = base
        self.declared = declared
        self.hashed = False  # whether some future was hashed: then each has a number, by which sets go through them
        self.naming: Naming | None = None  # given when tasks are declared identical
        self.horizon = horizon
        self.tracebacks = False  # whether the program's code names what shows where an exception has passed
        self.requests = False  # whether the program asks tasks that have ended how often they were to be cancelled

    def run(self) -> None:
        """Read everything on the stack."""
        out, stack, memo = self.out, self.stack, self.memo
        append, pop = out.append, stack.pop
        handlers = _declared_handlers if self.declared else _handlers
        while stack:
            value = pop()
            kind = type(value)
            if kind in ATOMS:
                append(value)
            elif kind is tuple:
                if only_atoms(map(type, value)):
                    append(("tuple", value))
                else:
                    append(("tuple", len(value)))
                    stack.extend(value[::-1])
            else:
                address = id(value)
                if address in memo:
                    append((memo[address],))
                    continue
                memo[address] = len(memo)
                handler = handlers.get(kind)
                if handler is None:
                    if len(handlers) >= _KEPT_HANDLERS:  # classes that runs make would pile up
                        _forget_handlers(handlers)
                    handler = handlers[kind] = choose_handler(kind, self.declared)
                handler(self, value)

    def made(self, value: Any) -> Any:
        """Keep an object that was made for this reading, and return it."""
        self.keep.append(value)
        return value


_KEPT_HANDLERS = 2_000
_REGISTERED: dict[type, Callable[[Any], Any]] = {}
_handlers: dict[type, Handler] = dict(BUILT_IN)
_declared_handlers: dict[type, Handler] = dict(BUILT_IN)


def choose_handler(kind: type, declared: bool) -> Handler:
    """Find how to read a type that has not been met before: the nearest registered base goes first."""
    for base in kind.__mro__:
        if base in _REGISTERED:
            return _registered_handler(kind, base)
    return handler_for(kind, declared)


def _registered_handler(kind: type, base: type) -> Handler:
    tag = ("registered", kind.__module__, kind.__qualname__)

    def handle(walk: Walk, value: Any) -> None:
        walk.out.append(tag)
        walk.stack.append(walk.made(_REGISTERED[base](value)))

    return handle


def register_walker(kind: type, function: Callable[[Any], Any]) -> None:
    """Teach the explorer to read objects of a type (and its subtypes) that it cannot read by itself.

    `function(object)` returns their whole content as a value that can be read: atoms, tuples, other objects. It goes
    before everything the explorer knows itself, and holds for opaque objects of a declared state too.
    """
    if not isinstance(kind, type) or not callable(function):
        raise ExplorerUsageError("register_walker(type, function): the first is a class, the second a callable")
    known = kind in _REGISTERED
    _REGISTERED[kind] = function
    if known:  # programs may register in every run; the choice of handlers has not changed
        return
    for table in (_handlers, _declared_handlers):
        _forget_handlers(table)


def registered_kinds() -> int:
    """How many types the program says itself how to read."""
    return len(_REGISTERED)


def _forget_handlers(table: dict[type, Handler]) -> None:
    """Begin a table anew; a type with a registered base is asked for again."""
    table.clear()
    registered = tuple(_REGISTERED)
    table.update({known: handler for known, handler in BUILT_IN.items() if not issubclass(known, registered)})


def describe(value: Any) -> str:
    """Return a short text for an object in a message."""
    try:
        text = repr(value)
    except Exception:
        text = object.__repr__(value)
    return text if len(text) <= 120 else text[:117] + "..."


def find_path(walk: Walk, target: Any) -> str:
    """Read again, remembering from where each object was reached; return the way to `target`."""
    parents: dict[int, Any] = {}
    stack, memo = walk.stack, walk.memo
    for value in stack:
        parents[id(value)] = None
    while stack:
        value = stack.pop()
        if value is target:
            break
        if type(value) in ATOMS or id(value) in memo:
            continue
        memo[id(value)] = len(memo)
        before = len(stack)
        try:
            if type(value) is tuple:
                stack.extend(value)
            else:
                choose_handler(type(value), walk.declared)(walk, value)
        except Unwalkable as error:
            if error.subject is target:
                target = value
                break
        for child in stack[before:]:
            walk.keep.append(child)
            parents.setdefault(id(child), value)
    steps: list[str] = []
    current: Any = target
    while current is not None and len(steps) < 12:
        steps.append(_step_name(current))
        current = parents.get(id(current))
    return " <- ".join(step for step in steps if step)


def _step_name(value: Any) -> str:
    if isinstance(value, asyncio.Task):
        return f"task {getattr(value, 'label', value.get_name())}"
    if isinstance(value, (types.CoroutineType, types.AsyncGeneratorType, types.GeneratorType)):
        return f"frame of {value.__qualname__}"
    if type(value) in (tuple, types.CellType):
        return ""
    return type(value).__qualname__
