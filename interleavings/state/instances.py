"""Decides once per type how its objects are read: constants, C objects, and instances of Python classes.

An instance is read as its type of C reads itself, by that type's own methods and not by what a class overrides, and
beside it the slots and the attributes. Whatever a type of C does not show, and nobody here knows of, raises
`Unwalkable`: the verdict is then bounded, and names it.

With a declared state, instances of the user's classes are opaque: they are told apart by type and by the order in
which they are met, and what they hold is what `state()` says.
"""

from __future__ import annotations

import _random
import asyncio
import concurrent.futures
import ctypes
import datetime
import decimal
import enum
import fractions
import functools
import io
import logging
import pathlib
import queue
import re
import sys
import threading
import types
import typing
import uuid
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Unwalkable
from ..runtime.frames import code_record
from .iterators import read_rebuilt, read_reduced
from .readers import (
    BUILT_IN,
    Handler,
    constant,
    only_atoms,
    read_exception,
    read_future,
    read_handle,
    read_lock,
    read_referents,
    read_step,
    read_task,
    read_text,
    read_timer,
    read_tuple,
    read_weak,
)
from .statics import (
    attributes_of,
    c_base_of,
    dictionary_getter,
    finalizers_of,
    has_nothing_of_its_own,
    is_a_class_of_the_run,
    is_python_class,
    module_of,
    mro_of,
    namespace_of,
    qualname_of,
    read_cache,
    read_class,
    read_finalizer,
    read_module,
    read_named,
)
from .tensors import reader_for

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
_DESCRIPTORS = (
    types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
# Classes of Python, or of C that cannot be inherited from, whose repr says everything.
_TEXTS: frozenset[type] = frozenset({
    datetime.date, datetime.timedelta, pathlib.PurePath, pathlib.PurePosixPath, pathlib.PureWindowsPath,
    type(pathlib.Path()),
})  # fmt: skip
# Values: read in a declared state too, although the classes are not asyncio's own.
_VALUES = (fractions.Fraction, pathlib.PurePath, uuid.UUID, datetime.tzinfo)
# Standard-library classes whose instances are read even when the state is declared: they are asyncio's own.
# Iterators of the built-in types among them: a frame's place in its loop is no part of what a user declares.
_READ_WHEN_DECLARED = (
    "asyncio", "builtins", "collections", "contextlib", "contextvars", "functools", "itertools", "types",
)  # fmt: skip


def _pattern(walk: Walk, value: re.Pattern[Any]) -> None:
    walk.out.append(("pattern", value.pattern, value.flags))  # its repr is cut short


def _match(walk: Walk, value: re.Match[Any]) -> None:
    walk.out.append((value.pos, value.endpos, value.lastindex, value.regs))
    walk.stack.extend((value.string, value.re))


def _code(walk: Walk, value: types.CodeType) -> None:
    walk.out.append(code_record(value)[1])


def _number(convert: Callable[[Any], Any]) -> Handler:
    """Make a handler for what one call of the type's own turns into an atom."""

    def handle(walk: Walk, value: Any) -> None:
        walk.out.append(convert(value))

    return handle


def _pushed(convert: Callable[[Any], Any]) -> Handler:
    """Make a handler for what the type's own method says of an object: a value that is read in its place."""

    def handle(walk: Walk, value: Any) -> None:
        try:
            shown = convert(value)
        except Exception as error:
            raise Unwalkable(value, f"{type(value).__qualname__} does not show its content ({error})") from None
        walk.stack.append(walk.made(shown))

    return handle


def _simple_queue(walk: Walk, value: Any) -> None:
    walk.out.append(queue.SimpleQueue.qsize(value))
    read_referents(walk, value)


def _ctypes_data(walk: Walk, value: Any) -> None:
    """Memory that nobody shares. Views of other memory, and pointers, cannot be followed."""
    if type(value) is _FIELD:
        walk.out.append(("field", repr(value)))
        return
    if not issubclass(type(value), _CTYPES_DATA):
        raise Unwalkable(value, f"{qualname_of(type(value))} does not show its content")
    if value._b_base_ is not None or value._objects or not value._b_needsfree_:
        raise Unwalkable(value, "memory of ctypes that something else may share")
    read_rebuilt(walk, value)


_CTYPES_DATA: Any = ctypes.Structure.__base__
_FIELD = type(type("Fields", (ctypes.Structure,), {"_fields_": [("field", ctypes.c_int)]}).__dict__["field"])


# How the hidden part of an object is read, by the type of C that holds it. The methods are that type's own: what a
# subclass overrides is not asked.
CONTENT: dict[type, Handler] = {
    **{kind: handler for kind, handler in BUILT_IN.items() if not is_python_class(kind)},
    tuple: read_tuple,
    int: _number(int.__int__),
    float: _number(float.__float__),
    complex: _number(complex.__complex__),
    str: _number(str.__str__),
    bytes: _number(lambda value: bytes.__getitem__(value, slice(None))),
    asyncio.Task: read_task,
    asyncio.Future: read_future,
    weakref.ref: read_weak,
    type: read_class,
    types.ModuleType: read_module,
    types.CodeType: _code,
    re.Pattern: _pattern,
    re.Match: _match,
    functools._lru_cache_wrapper: read_cache,
    property: read_referents,
    classmethod: read_referents,
    staticmethod: read_referents,
    super: read_referents,
    types.GenericAlias: read_referents,
    types.UnionType: read_referents,
    type(threading.Lock()): read_lock,
    type(threading.RLock()): read_lock,
    queue.SimpleQueue: _simple_queue,
    _random.Random: _number(_random.Random.getstate),
    decimal.Decimal: _pushed(lambda value: tuple(decimal.Decimal.as_tuple(value))),
    datetime.timedelta: _pushed(datetime.timedelta.__reduce__),
    datetime.date: _pushed(datetime.date.__reduce__),
    datetime.time: _pushed(lambda value: datetime.time.__reduce_ex__(value, 3)),
    datetime.datetime: _pushed(lambda value: datetime.datetime.__reduce_ex__(value, 3)),
    datetime.timezone: _pushed(datetime.timezone.__getinitargs__),  # type: ignore[attr-defined]
    datetime.tzinfo: constant(("tzinfo",)),
    io.StringIO: _pushed(io.StringIO.__getstate__),
    io.BytesIO: _pushed(io.BytesIO.__getstate__),
    types.SimpleNamespace: _pushed(attributes_of),
    threading.local: _pushed(lambda value: threading.local.__getattribute__(value, "__dict__")),
    **dict.fromkeys(_VIEWS, read_referents),
    **dict.fromkeys(_STEPS, read_step),
    **dict.fromkeys(_DESCRIPTORS, read_named),
}
# Classes of Python that are read in a way of their own, with all that inherit from them.
_BY_CLASS: tuple[tuple[type, Handler], ...] = (
    (asyncio.TimerHandle, read_timer), (asyncio.Handle, read_handle), (weakref.finalize, read_finalizer),
)  # fmt: skip
# What their readers ask by name: a class that overrides one of these would answer in the object's place.
_ASKED = frozenset({
    "_args", "_callback", "_callbacks", "_cancel_message", "_cancelled", "_context", "_exception", "_fut_waiter",
    "_log_traceback", "_must_cancel", "_result", "_scheduled", "_state", "_when", "__getattribute__", "get_coro",
    "peek",
})  # fmt: skip
# Attributes that count on from run to run, or lead to what all runs share.
_LEFT_OUT: tuple[tuple[type, frozenset[str]], ...] = (
    (logging.Logger, frozenset({"manager", "_cache"})),
    (threading.Thread, frozenset({"_ident", "_native_id", "_tstate_lock", "_handle", "_invoke_excepthook", "_stderr"})),
)
_COUNTED_ON = re.compile(r"(Thread|ThreadPoolExecutor|Dummy)-\d+.*")


def handler_for(kind: type, declared: bool) -> Handler:
    """Return how to read objects of this type; it is asked once per type."""
    if kind in _TEXTS:
        return read_text
    if issubclass(kind, enum.Enum):
        return _member_handler(kind)
    return _instance_handler(kind, declared)


def _content_of(kind: type) -> Handler | None:
    """Return how to read what an object of this type hides; None when it hides nothing."""
    base = c_base_of(kind)
    for known, handler in _BY_CLASS:
        if issubclass(kind, known):
            return _unless_overridden(kind, known, handler)
    if base is object:
        return None
    if issubclass(base, BaseException):
        return read_exception
    if issubclass(base, type):
        return read_class
    of_base: Handler | None = CONTENT.get(base)
    if of_base in (read_task, read_future):
        return _unless_overridden(kind, base, of_base)
    if of_base is not None:
        return of_base
    package = module_of(base).partition(".")[0]
    if package in ("_ctypes", "ctypes"):
        return _ctypes_data
    if package in sys.stdlib_module_names:
        return read_reduced if kind is base else read_rebuilt
    of_tensors = reader_for(base)
    if of_tensors is not None:
        return of_tensors
    if kind is not base and has_nothing_of_its_own(base):
        return None
    return _refused("is an object of C whose content nobody has explained; `register_walker` can")


def _refused(why: str) -> Handler:
    def refuse(walk: Walk, value: Any) -> None:
        raise Unwalkable(value, f"{qualname_of(type(value))} {why}")

    return refuse


def _unless_overridden(kind: type, known: type, handler: Handler) -> Handler:
    for base in mro_of(kind):
        if base is known:
            return handler
        overridden = _ASKED & namespace_of(base).keys() if base.__module__.partition(".")[0] != "interleavings" else ()
        if overridden:
            return _refused(f"overrides {', '.join(sorted(overridden))}, by which its state is read")
    return handler


def _member_handler(kind: type) -> Handler:
    """A member of an enumeration by its name, its value and what else was put on it."""
    own, its_attributes = is_a_class_of_the_run(kind), dictionary_getter(kind)
    content = _content_of(kind)
    tag = ("member", module_of(kind), qualname_of(kind))
    slots = _slots_of(kind)

    def handle(walk: Walk, value: Any) -> None:
        attributes = its_attributes(value)
        held = {name: one for name, one in attributes.items() if name not in ("_name_", "__objclass__", "_sort_order_")}
        walk.out.append((tag, attributes.get("_name_"), tuple(held)))
        walk.stack.extend(held.values())
        _read_slots(walk, value, slots)
        if own:
            walk.stack.append(kind)
        if content is not None:
            content(walk, value)

    return handle


def _instance_handler(kind: type, declared: bool) -> Handler:
    """Compose the reading of an instance: its C base's content, its slots, its `__dict__`."""
    content = _content_of(kind)
    opaque = declared and _is_the_users(kind) and c_base_of(kind) is object
    if opaque and not issubclass(kind, (*_VALUES, asyncio.Handle, weakref.finalize)):
        return constant(("opaque", module_of(kind), qualname_of(kind)))
    if not is_python_class(kind) and content is not None and content is not read_exception:
        return content  # an object of C as it is, without a class of Python around it
    slots, its_attributes = _slots_of(kind), dictionary_getter(kind)
    if content in (read_exception, read_future, read_task) or issubclass(kind, (type, types.ModuleType)):
        its_attributes = None  # their readers do that
    tag = ("instance", module_of(kind), qualname_of(kind))
    of_the_run, watched = is_a_class_of_the_run(kind), vars(type)["__weakrefoffset__"].__get__(kind) != 0
    left_out = next((names for base, names in _LEFT_OUT if issubclass(kind, base)), None)
    counted = left_out is not None or issubclass(kind, concurrent.futures.Executor)

    def handle(walk: Walk, value: Any) -> None:
        stack = walk.stack
        if of_the_run:
            stack.append(kind)
        if its_attributes is not None:
            attributes = its_attributes(value)
            if counted:
                attributes = _without(attributes, left_out or frozenset())
            held = tuple(attributes.values())
            if only_atoms(map(type, held)):
                walk.out.append((tag, tuple(attributes), held))
            else:
                walk.out.append((tag, tuple(attributes)))
                stack.extend(held[::-1])
        else:
            walk.out.append(tag)
        if slots:
            _read_slots(walk, value, slots)
        if watched and weakref.getweakrefcount(value):
            finalizers = finalizers_of(value)
            if finalizers:
                walk.out.append(("finalizers", len(finalizers)))
                stack.extend(finalizers)
        if content is not None:
            content(walk, value)

    return handle


def _without(attributes: dict[str, Any], left_out: frozenset[str]) -> dict[str, Any]:
    """Return attributes but for those named, and for names that are made of a number which runs on."""
    return {
        name: None if type(held) is str and _COUNTED_ON.fullmatch(held) else held
        for name, held in attributes.items()
        if name not in left_out
    }


_Slots = list[tuple[str, types.MemberDescriptorType]]


def _read_slots(walk: Walk, value: Any, slots: _Slots) -> None:
    unset = []
    for name, member in slots:
        try:
            walk.stack.append(member.__get__(value))
        except AttributeError:
            unset.append(name)
    walk.out.append(tuple(unset))


def _slots_of(kind: type) -> _Slots:
    """The slots of Python classes, and the fields of exceptions: the file of an `OSError` is not among its `args`."""
    return [
        (name, member)
        for base in mro_of(kind)
        for name, member in namespace_of(base).items()
        if type(member) is types.MemberDescriptorType
        and member.__objclass__ is base
        and (is_python_class(base) or issubclass(base, BaseException))
    ]


def _is_the_users(kind: type) -> bool:
    package = module_of(kind).partition(".")[0]
    return package not in _READ_WHEN_DECLARED and kind is not object
