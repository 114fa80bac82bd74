"""Decides once per type how its objects are read: constants, texts, C objects, and instances of Python classes.

With a declared state, instances of the user's classes are opaque: they are told apart by type and by the order in
which they are met, and what they hold is what `state()` says.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime
import decimal
import enum
import fractions
import functools
import logging
import pathlib
import re
import sys
import threading
import types
import typing
import uuid
import weakref
from typing import TYPE_CHECKING, Any

from ..runtime.frames import code_record
from .iterators import read_reduced
from .readers import (
    BUILT_IN,
    Handler,
    constant,
    only_atoms,
    read_exception,
    read_future,
    read_handle,
    read_lock,
    read_named,
    read_referents,
    read_step,
    read_task,
    read_text,
    read_timer,
    read_weak,
)
from .statics import finalizers_of, is_a_class_of_the_run, read_cache, read_class, read_finalizer, read_property

if TYPE_CHECKING:
    from interleavings.state.walkers import Walk


def _hidden_types() -> tuple[frozenset[type], frozenset[type]]:
    """C types without a public name: those whose referents are their whole content, and the steps of generators."""

    async def coroutine() -> None:
        return None

    async def generator() -> typing.AsyncIterator[None]:
        yield None

    made = coroutine()
    wrapper = type(made.__await__())
    made.close()
    made_generator: Any = generator()
    steps = (made_generator.asend(None), made_generator.athrow(RuntimeError), made_generator.aclose())
    found = frozenset(type(step) for step in steps)
    waited_for = anext(made_generator, None)
    for step in (*steps, waited_for):
        step.close()  # or it would complain that nobody has awaited it

    class Waiter(asyncio.AbstractEventLoop):
        def get_debug(self) -> bool:
            return False

    future: Any = asyncio.Future(loop=Waiter())  # type: ignore[abstract]
    views: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
    return frozenset((wrapper, type(waited_for), type(future.__await__()), *views)), found


_VIEWS, _STEPS = _hidden_types()
_NAMED = (
    types.ModuleType, types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
_TEXTS = (
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal, fractions.Fraction,
    pathlib.PurePath, uuid.UUID, types.GenericAlias, types.UnionType,
)  # fmt: skip
# What they hold cannot choose the program's next step, or is the outside world's.
_OPAQUE = (logging.Logger, logging.Handler, concurrent.futures.Executor, threading.Thread)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_REFERENTS = _VIEWS | {classmethod, staticmethod, super}
_HEAP_TYPE = 1 << 9
_POINTER = 8 if sys.maxsize > 2**32 else 4
# Standard-library classes whose instances are read even when the state is declared: they are asyncio's own.
# Iterators of the built-in types among them: a frame's place in its loop is no part of what a user declares.
_READ_WHEN_DECLARED = (
    "asyncio", "builtins", "collections", "contextlib", "contextvars", "functools", "itertools", "types",
)  # fmt: skip


def handler_for(kind: type, declared: bool) -> Handler:
    """Return how to read objects of this type; it is asked once per type."""
    if issubclass(kind, enum.Enum):
        return _enumeration
    if issubclass(kind, types.CodeType):
        return lambda walk, value: walk.out.append(code_record(value)[1])
    for group, handler in _BY_GROUP:
        if issubclass(kind, group):
            return handler
    if issubclass(kind, _OPAQUE) or kind.__module__ == "typing":
        return constant(("opaque", kind.__module__, kind.__qualname__))
    if kind in _REFERENTS:
        return read_referents
    if kind in _STEPS:
        return read_step
    return _instance_handler(kind, declared)


def _enumeration(walk: Walk, value: Any) -> None:
    walk.out.append(("member", type(value).__module__, type(value).__qualname__, str(value.name)))
    walk.out.append(value.value if isinstance(value, enum.Flag) else None)  # unknown bits have no name


def _pattern(walk: Walk, value: re.Pattern[Any]) -> None:
    walk.out.append(("pattern", value.pattern, value.flags))  # its repr is cut short


_BY_GROUP: tuple[tuple[Any, Handler], ...] = (
    (type, read_class), (_NAMED, read_named), (_TEXTS, read_text), (_LOCKS, read_lock), (property, read_property),
    (re.Pattern, _pattern), (functools._lru_cache_wrapper, read_cache), (weakref.finalize, read_finalizer),
)  # fmt: skip
# How the hidden part of an instance is read, by the C base that holds it. First match wins.
_CONTENT: tuple[tuple[type, Handler], ...] = (
    (asyncio.Task, read_task),
    (asyncio.Future, read_future),
    (asyncio.TimerHandle, read_timer),
    (asyncio.Handle, read_handle),
    (BaseException, read_exception),
    (weakref.ref, read_weak),
    *((kind, handler) for kind, handler in BUILT_IN.items() if kind.__module__ in ("builtins", "collections")),
    (tuple, lambda walk, value: walk.stack.append(tuple(value))),
    (int, lambda walk, value: walk.out.append(int(value))),
    (str, lambda walk, value: walk.out.append(str.__str__(value))),
    (bytes, lambda walk, value: walk.out.append(bytes(value))),
    (float, lambda walk, value: walk.out.append(float(value))),
)


def _instance_handler(kind: type, declared: bool) -> Handler:
    """Compose the reading of an instance: its C base's content, its slots, its `__dict__`."""
    content = next((handler for base, handler in _CONTENT if issubclass(kind, base)), None)
    if declared and content is None and _is_the_users(kind):
        return constant(("opaque", kind.__module__, kind.__qualname__))
    slots = _slots_of(kind)
    has_dict = kind.__dictoffset__ != 0
    if content is None and _hides_something(kind):
        content = read_reduced
    if content is None and not has_dict and not slots and not _is_python_class(kind) and kind is not object:
        content = read_reduced
    if content in (read_exception, read_future, read_task):
        has_dict = False  # their readers do that
    tag = ("instance", kind.__module__, kind.__qualname__)
    of_the_run, watched = is_a_class_of_the_run(kind), kind.__weakrefoffset__ != 0

    def handle(walk: Walk, value: Any) -> None:
        stack = walk.stack
        if of_the_run:
            stack.append(kind)
        if has_dict:
            attributes = value.__dict__
            held = tuple(attributes.values())
            if only_atoms(map(type, held)):
                walk.out.append((tag, tuple(attributes), held))
            else:
                walk.out.append((tag, tuple(attributes)))
                stack.extend(held[::-1])
        else:
            walk.out.append(tag)
        if slots:
            unset = []
            for name, member in slots:
                try:
                    stack.append(member.__get__(value))
                except AttributeError:
                    unset.append(name)
            walk.out.append(tuple(unset))
        if watched and weakref.getweakrefcount(value):
            finalizers = finalizers_of(value)
            if finalizers:
                walk.out.append(("finalizers", len(finalizers)))
                stack.extend(finalizers)
        if content is not None:
            content(walk, value)

    return handle


def _slots_of(kind: type) -> list[tuple[str, types.MemberDescriptorType]]:
    """The slots of Python classes, and the fields of exceptions: the file of an `OSError` is not among its `args`."""
    return [
        (name, member)
        for base in kind.__mro__
        for name, member in vars(base).items()
        if type(member) is types.MemberDescriptorType
        and (_is_python_class(base) or issubclass(base, BaseException))
        and (not name.startswith("__") or name == "__suppress_context__")
    ]


def _is_the_users(kind: type) -> bool:
    package = kind.__module__.partition(".")[0]
    return package not in _READ_WHEN_DECLARED and kind is not object


def _is_python_class(kind: type) -> bool:
    """Say whether a class statement made this type: C types have no `__module__` of their own, or no Python slots."""
    if not kind.__flags__ & _HEAP_TYPE:
        return False
    return (
        "__dict__" in vars(kind)
        or "__slots__" in vars(kind)
        or "__static_attributes__" in vars(kind)
        or (kind.__dictoffset__ != 0)
    )


def _hides_something(kind: type) -> bool:
    """Say whether some base keeps fields that neither slots nor `__dict__` show, by the size of its objects."""
    base: type | None = kind
    while base is not None and base is not object:
        parent = base.__base__ or object
        own = vars(base)
        members = sum(type(member) is types.MemberDescriptorType for member in own.values())
        explained = members + ("__dict__" in own) + ("__weakref__" in own)
        if base.__basicsize__ - parent.__basicsize__ > explained * _POINTER:
            return True
        base = base.__base__
    return False
