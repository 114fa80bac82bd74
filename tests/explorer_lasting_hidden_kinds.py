"""Kinds of objects that hide something (`explorer_hidden_kinds.py`): functions, classes, logs, what lasts."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import datetime
import decimal
import enum
import functools
import io
import ipaddress
import itertools
import logging
import random
import weakref
from collections.abc import Callable
from typing import Any

from explorer_hidden_kinds import KINDS, Thing, kind
from explorer_more_hidden_kinds import putting

# ------------------------------------------------------------------------------------- functions, classes


def _function() -> Any:
    kept = [0]

    def made(first: Any = 0, *, second: Any = 0) -> Any:
        return first, second, kept[0]

    return made


putting(
    "default_of_a_function", _function, lambda made, value: setattr(made, "__defaults__", (value,)), lambda made: made()
)
putting(
    "keyword_of_a_function",
    _function,
    lambda made, value: setattr(made, "__kwdefaults__", {"second": value}),
    lambda made: made(),
)
putting(
    "keyword_in_its_dictionary",
    _function,
    lambda made, value: made.__kwdefaults__.update(second=value),
    lambda made: made(),
)
putting(
    "code_of_a_function",
    lambda: lambda: 1,
    lambda made, value: setattr(made, "__code__", (lambda: 2).__code__),
    lambda made: made(),
)
putting(
    "cell_of_a_function",
    lambda: _function(),
    lambda made, value: setattr(made.__closure__[0], "cell_contents", [value]),
    lambda made: made(),
)
putting(
    "name_of_a_function",
    lambda: _function(),
    lambda made, value: setattr(made, "__name__", "other"),
    lambda made: made.__name__,
)
putting(
    "module_of_a_function",
    lambda: _function(),
    lambda made, value: setattr(made, "__module__", "other"),
    lambda made: made.__module__,
)
putting(
    "annotations_of_a_function",
    lambda: _function(),
    lambda made, value: setattr(made, "__annotations__", {"a": value}),
    lambda made: made.__annotations__.get("a"),
)
putting(
    "name_of_a_class",
    lambda: type("Local", (), {}),
    lambda made, value: setattr(made, "__name__", "Other"),
    lambda made: made.__name__,
)
putting(
    "long_name_of_a_class",
    lambda: type("Local", (), {}),
    lambda made, value: setattr(made, "__qualname__", "Other"),
    lambda made: made.__qualname__,
)
putting(
    "module_of_a_class",
    lambda: type("Local", (), {}),
    lambda made, value: setattr(made, "__module__", "other"),
    lambda made: made.__module__,
)
putting(
    "bases_of_a_class",
    lambda: type("Local", (type("First", (), {}),), {}),
    lambda made, value: setattr(made, "__bases__", (type("Second", (), {"kept": 1}),)),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "class_of_an_object",
    lambda: type("First", (), {})(),
    lambda made, value: setattr(made, "__class__", type("Second", (), {})),
    lambda made: type(made).__name__,
)
putting(
    "dictionary_of_an_object",
    lambda: type("Local", (), {})(),
    lambda made, value: setattr(made, "__dict__", {"kept": value}),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "subclasses_of_a_class",
    lambda: (type("Local", (), {}), []),
    lambda made, value: made[1].append(type("Other", (made[0],), {})),
    lambda made: len(made[0].__subclasses__()),
)
putting(
    "instances_that_a_metaclass_counts",
    lambda: type("Meta", (type,), {"made": []})("Local", (), {}),
    lambda made, value: type(made).made.append(value),
    lambda made: len(type(made).made),
)
putting(
    "cache_of_a_function",
    lambda: functools.lru_cache(lambda number: [number]),
    lambda made, value: made(1).append(value),
    lambda made: made(1),
)
putting(
    "cache_that_was_emptied",
    lambda: _filled(),
    lambda made, value: made.cache_clear(),
    lambda made: made.cache_info().currsize,
)
putting(
    "property_that_is_cached",
    lambda: type("Local", (), {"kept": functools.cached_property(lambda self: [])})(),
    lambda made, value: made.__dict__.update(kept=[value]),
    lambda made: made.__dict__.get("kept"),
)
putting(
    "dispatch_by_type",
    lambda: functools.singledispatch(lambda value: 0),
    lambda made, value: made.register(int, lambda value: 1),
    lambda made: made(1),
)
putting(
    "partial",
    lambda: functools.partial(print, []),
    lambda made, value: made.args[0].append(value),
    lambda made: made.args[0],
)
putting(
    "keywords_of_a_partial",
    lambda: functools.partial(print),
    lambda made, value: made.keywords.update(a=value),
    lambda made: dict(made.keywords),
)
putting("method", lambda: [1].append, lambda made, value: made(value), lambda made: made.__self__)
putting(
    "slot_of_a_list",
    lambda: type("Local", (list,), {"__slots__": ("kept",)})(),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "slot_of_a_dictionary",
    lambda: type("Local", (dict,), {"__slots__": ("kept",)})(),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "slot_of_an_error",
    lambda: type("Local", (ValueError,), {"__slots__": ("kept",)})(),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "slot_of_a_base",
    lambda: type("Local", (type("Base", (), {"__slots__": ("kept",)}),), {})(),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "number_that_is_a_member",
    lambda: enum.IntEnum("Colour", "RED").RED,  # type: ignore[attr-defined]
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "text_that_is_a_member",
    lambda: enum.StrEnum("Colour", "RED").RED,  # type: ignore[attr-defined]
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "address",
    lambda: type("Local", (ipaddress.IPv4Address,), {})("1.2.3.4"),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "number_of_an_address",
    lambda: ipaddress.IPv4Address("1.2.3.4"),
    lambda made, value: setattr(made, "_ip", 7),
    lambda made: str(made),
)
putting(
    "stack_of_exits",
    contextlib.ExitStack,
    lambda made, value: made.callback(print, value),
    lambda made: len(made._exit_callbacks),
)
putting(
    "registry_of_numbers",
    lambda: type("Local", (abc.ABC,), {}),
    lambda made, value: made.register(Thing),
    lambda made: issubclass(Thing, made),
)
putting(
    "zone_with_an_attribute",
    lambda: type("Zone", (datetime.tzinfo,), {})(),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)


def _filled() -> Any:
    made = functools.lru_cache(lambda number: number)
    made(1)
    return made


# ------------------------------------------------------------------------------------- weak references


@kind(lambda made, value: made[0].__setitem__("a", made[1]), lambda made: len(made[0]))
def table_of_weak_values() -> Any:
    return weakref.WeakValueDictionary(), Thing()


@kind(lambda made, value: made[0].__setitem__(made[1], value), lambda made: len(made[0]))
def table_of_weak_keys() -> Any:
    return weakref.WeakKeyDictionary(), Thing()


@kind(lambda made, value: made[0].add(made[1]), lambda made: len(made[0]))
def set_of_weak_members() -> Any:
    return weakref.WeakSet(), Thing()


@kind(lambda made, value: made.append(weakref.ref(made[0], lambda ref: value)), lambda made: len(made))
def callback_of_a_weak_reference() -> Any:
    return [Thing()]


@kind(lambda made, value: setattr(made[1](), "kept", value), lambda made: getattr(made[1](), "kept", 0))
def weak_method() -> Any:
    thing = Thing()
    return thing, weakref.ref(thing)


# ------------------------------------------------------------------------------------- logs


putting(
    "logger_that_is_disabled",
    lambda: logging.Logger("a"),
    lambda made, value: setattr(made, "disabled", True),
    lambda made: made.disabled,
)
putting(
    "logger_that_keeps_to_itself",
    lambda: logging.Logger("a"),
    lambda made, value: setattr(made, "propagate", False),
    lambda made: made.propagate,
)
putting(
    "filter_of_a_logger",
    lambda: logging.Logger("a"),
    lambda made, value: made.addFilter(lambda record: True),
    lambda made: len(made.filters),
)
putting(
    "record_of_a_log",
    lambda: logging.makeLogRecord({"created": 0, "msecs": 0, "relativeCreated": 0}),
    lambda made, value: setattr(made, "kept", value),
    lambda made: getattr(made, "kept", 0),
)
putting(
    "adapter_of_a_logger",
    lambda: logging.LoggerAdapter(logging.Logger("a"), {}),
    lambda made, value: made.extra.update(a=value),
    lambda made: dict(made.extra),
)
putting(
    "handler_of_a_stream",
    lambda: logging.StreamHandler(io.StringIO()),
    lambda made, value: made.stream.write("a"),
    lambda made: made.stream.getvalue(),
)
putting(
    "buffer_of_a_handler",
    lambda: __import__("logging.handlers").handlers.MemoryHandler(9),
    lambda made, value: made.buffer.append(value),
    lambda made: len(made.buffer),
)


# ------------------------------------------------------------------------------------- what outlives the run


def counted(first: Any = 0, *, second: Any = 0) -> Any:
    """A function that its module names: what is put on it stays there."""
    return first, second


class Kept:
    """A class that its module names."""

    kept: Any = 0


class Members(enum.Enum):
    """An enumeration that its module names."""

    ONE = 1


@functools.cache
def remembered(number: int) -> list[int]:
    return [number]


def _counter() -> Callable[[], int]:
    number = 0

    def count(reset: bool = False) -> int:
        nonlocal number
        number = 0 if reset else number + 1
        return number

    return count


count = _counter()
numbers = itertools.count()
table: dict[str, Any] = {}
sieve = random.Random(1)


def _outliving(name: str, reset: Callable[[], object], put: Callable[[Any], object], look: Callable[[], Any]) -> None:
    KINDS[name] = (lambda: reset() and None, lambda made, value: put(value), lambda made: look())


def _set_numbers(start: int) -> None:
    global numbers
    numbers = itertools.count(start)


_outliving(
    "context_of_decimal_of_a_task",
    lambda: setattr(decimal.getcontext(), "prec", 28),
    lambda value: setattr(decimal.getcontext(), "prec", 7),
    lambda: decimal.getcontext().prec,
)
_outliving(
    "default_of_a_named_function",
    lambda: setattr(counted, "__defaults__", (0,)),
    lambda value: setattr(counted, "__defaults__", (value,)),
    lambda: counted(),
)
_outliving(
    "keyword_of_a_named_function",
    lambda: counted.__kwdefaults__.update(second=0),  # type: ignore[union-attr]
    lambda value: counted.__kwdefaults__.update(second=value),  # type: ignore[union-attr]
    lambda: counted(),
)
_outliving(
    "attribute_of_a_named_function",
    lambda: counted.__dict__.clear(),
    lambda value: setattr(counted, "kept", value),
    lambda: getattr(counted, "kept", 0),
)
_outliving(
    "attribute_of_a_named_class",
    lambda: setattr(Kept, "kept", 0),
    lambda value: setattr(Kept, "kept", value),
    lambda: Kept.kept,
)
_outliving(
    "attribute_of_a_named_member",
    lambda: setattr(Members.ONE, "kept", 0),
    lambda value: setattr(Members.ONE, "kept", value),
    lambda: Members.ONE.kept,  # type: ignore[attr-defined]
)
_outliving("cell_of_a_named_function", lambda: count(True), lambda value: count(), lambda: count())  # type: ignore[call-arg]
_outliving("table_of_a_module", lambda: table.clear(), lambda value: table.update(a=value), lambda: dict(table))
_outliving("iterator_of_a_module", lambda: _set_numbers(0), lambda value: next(numbers), lambda: next(numbers))
_outliving(
    "cache_of_a_named_function",
    lambda: remembered.cache_clear(),
    lambda value: remembered(1),
    lambda: remembered.cache_info().currsize,
)
_outliving(
    "what_a_named_function_remembers",
    lambda: remembered(1).clear(),
    lambda value: remembered(1).append(1),
    lambda: list(remembered(1)),
)
_outliving("random_numbers_of_a_module", lambda: sieve.seed(1), lambda value: sieve.random(), lambda: sieve.random())
_outliving(
    "attribute_of_a_library",
    lambda: asyncio.__dict__.pop("kept", None),
    lambda value: setattr(asyncio, "kept", value),
    lambda: getattr(asyncio, "kept", 0),
)
_outliving(
    "attribute_of_a_class_of_a_library",
    lambda: hasattr(asyncio.Queue, "kept") and delattr(asyncio.Queue, "kept"),  # type: ignore[func-returns-value]
    lambda value: setattr(asyncio.Queue, "kept", value),
    lambda: getattr(asyncio.Queue, "kept", 0),
)
_outliving(
    "level_of_a_named_logger",
    lambda: logging.getLogger("hidden").setLevel(0),
    lambda value: logging.getLogger("hidden").setLevel(30),
    lambda: logging.getLogger("hidden").level,
)
_outliving(
    "attribute_of_a_named_logger",
    lambda: setattr(logging.getLogger("hidden"), "kept", 0),
    lambda value: setattr(logging.getLogger("hidden"), "kept", value),
    lambda: logging.getLogger("hidden").kept,  # type: ignore[attr-defined]
)
_outliving(
    "name_of_a_level",
    lambda: logging.raiseExceptions,
    lambda value: setattr(logging, "raiseExceptions", False),
    lambda: (logging.raiseExceptions, setattr(logging, "raiseExceptions", True)),  # type: ignore[func-returns-value]
)
