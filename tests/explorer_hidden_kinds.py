"""Generated programs that hide one thing: in an object of some kind, kept at some place, changed in some way.

A kind says how to make an object, how to put something into it, and how to look at that again, by ways that its class
does not show or hides on purpose. `hiding` makes a program of three choices, whose outcome depends on the hidden thing
alone.
"""

from __future__ import annotations

import abc
import asyncio
import collections
import concurrent.futures
import ctypes
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import io
import itertools
import logging
import pathlib
import random
import re
import threading
import types
import uuid
import weakref
from collections.abc import Callable
from typing import Any

Kind = tuple[Callable[[], Any], Callable[[Any, Any], object], Callable[[Any], Any]]
KINDS: dict[str, Kind] = {}


class Thing:
    """An object with a name, as any module has them."""

    number = 0


def _set(made: Any, value: Any) -> None:
    made.kept = value


def _get(made: Any) -> Any:
    return getattr(made, "kept", "nothing")


def kind(
    put: Callable[[Any, Any], object] = _set, look: Callable[[Any], Any] = _get
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Put a kind into the table: what is decorated makes the object."""

    def add(make: Callable[[], Any]) -> Callable[[], Any]:
        KINDS[make.__name__] = (make, put, look)
        return make

    return add


def lying(base: type, **more: Any) -> type:
    """A class that inherits from `base` and answers every question about its content with a constant."""

    def nothing(self: Any, *_: Any, **__: Any) -> Any:
        return iter(())

    names = (
        "__iter__", "__reversed__", "keys", "values", "items", "copy", "__reduce__", "__reduce_ex__", "__getstate__",
        "__getnewargs__", "__sizeof__",
    )  # fmt: skip
    answers: dict[str, Any] = dict.fromkeys(names, nothing)
    answers |= {"__len__": lambda self: 0, "__eq__": lambda self, other: True, "__hash__": lambda self: 1}
    answers |= {"__repr__": lambda self: "lying", "__str__": lambda self: "lying", "__bool__": lambda self: False}
    answers |= {"__class__": property(lambda self: int)} | more
    return type("Lying", (base,), answers)


# ------------------------------------------------------------------------------------- what a run makes: classes, code


@kind()
def member_of_an_enumeration() -> Any:
    class Colour(enum.Enum):
        RED = 1

    return Colour.RED


@kind()
def member_of_flags() -> Any:
    class Bits(enum.Flag):
        ONE = 1
        TWO = 2

    return Bits.ONE | Bits.TWO


@kind(lambda made, value: made.value.append(value), lambda made: list(made.value))
def value_of_a_member() -> Any:
    class Lists(enum.Enum):
        ONE: list[Any] = []  # type: ignore[misc]  # noqa: RUF012

    return Lists.ONE


@kind()
def enumeration_itself() -> Any:
    class Colour(enum.Enum):
        RED = 1

    return Colour


@kind()
def class_of_the_run() -> Any:
    class Local:
        pass

    return Local


@kind(lambda made, value: setattr(type(made), "kept", value), lambda made: getattr(type(made), "kept", "nothing"))
def class_of_an_instance() -> Any:
    class Local:
        pass

    return Local()


@kind(lambda made, value: setattr(type(made), "kept", value), lambda made: getattr(type(made), "kept", "nothing"))
def metaclass() -> Any:
    class Meta(type):
        pass

    class Local(metaclass=Meta):
        pass

    return Local


@kind(lambda made, value: setattr(made.__mro__[1], "kept", value), lambda made: getattr(made, "kept", "nothing"))
def base_of_a_class() -> Any:
    class Base:
        pass

    class Local(Base):
        pass

    return Local


@kind(lambda made, value: made.__annotations__.update(kept=value), lambda made: made.__annotations__.get("kept"))
def annotations_of_a_class() -> Any:
    class Local:
        number: int

    return Local


@kind(lambda made, value: setattr(made, "__doc__", value), lambda made: made.__doc__)
def documentation_of_a_class() -> Any:
    class Local:
        """A class."""

    return Local


@kind()
def class_that_calls_itself_built_in() -> Any:
    return type("Local", (), {"__module__": "builtins"})


@kind()
def made_dataclass() -> Any:
    return dataclasses.make_dataclass("Made", [("number", int, 0)])


@kind(lambda made, value: made.register(type("Other", (), {})), lambda made: len(_registered(made)))
def registry_of_an_abstract_class() -> Any:
    class Abstract(abc.ABC):  # noqa: B024
        pass

    return Abstract


def _registered(made: Any) -> Any:
    return abc._get_dump(made)[0]  # type: ignore[attr-defined]


@kind()
def module_of_the_run() -> Any:
    return types.ModuleType("made_in_a_run")


@kind()
def function_of_the_run() -> Any:
    def function() -> None: ...

    return function


@kind(lambda made, value: setattr(made, "__doc__", value), lambda made: made.__doc__)
def documentation_of_a_function() -> Any:
    def function() -> None: ...

    return function


@kind(lambda made, value: made.__globals__.update(kept=value), lambda made: made())
def globals_of_executed_code() -> Any:
    names: dict[str, Any] = {"kept": "nothing"}
    exec("def look(): return kept", names)
    return names["look"]


@kind()
def attribute_of_executed_code() -> Any:
    names: dict[str, Any] = {}
    exec("def look(): ...", names)
    return names["look"]


@kind(lambda made, value: made.__globals__.update(kept=value), lambda made: made())
def function_with_other_globals() -> Any:
    def look() -> Any:
        return kept  # type: ignore[name-defined]  # noqa: F821

    return types.FunctionType(look.__code__, {"kept": "nothing"})


@kind(lambda made, value: made.fget.__dict__.update(kept=value), lambda made: made.fget.__dict__.get("kept"))
def function_of_a_property() -> Any:
    def look(self: Any) -> None: ...

    return property(look)


@kind(
    lambda made, value: made.cr_frame.f_locals["held"].append(value), lambda made: list(made.cr_frame.f_locals["held"])
)
def coroutine_that_waits() -> Any:
    @types.coroutine
    def turn() -> Any:
        yield

    async def waits() -> None:
        held: list[Any] = []
        await turn()
        held.clear()

    made = waits()
    made.send(None)
    return made


@kind(lambda made, value: setattr(made, "__name__", f"{value!r:.20}"), lambda made: made.__name__)
def name_of_a_generator() -> Any:
    return (number for number in (1, 2))


# ------------------------------------------------------------------------------------- subclasses of C types that lie


@kind(list.append, lambda made: list.copy(made))
def lying_list() -> Any:
    return lying(list)()


@kind(collections.deque.append, lambda made: list(collections.deque.__iter__(made)))
def lying_deque() -> Any:
    return lying(collections.deque, maxlen=property(lambda self: None))()


@kind(lambda made, value: dict.__setitem__(made, 1, value), lambda made: list(dict.items(made)))
def lying_dictionary() -> Any:
    return lying(dict)()


@kind(lambda made, value: dict.__setitem__(made, 1, value), lambda made: list(dict.items(made)))
def lying_ordered_dictionary() -> Any:
    return lying(collections.OrderedDict)()


@kind(lambda made, value: made.move_to_end("a"), lambda made: list(made))
def order_of_an_ordered_dictionary() -> Any:
    return collections.OrderedDict({"a": 1, "b": 1})


@kind(lambda made, value: dict.__setitem__(made, 1, value), lambda made: list(dict.items(made)))
def lying_default_dictionary() -> Any:
    return lying(collections.defaultdict)(list)


@kind()
def attribute_of_an_ordered_dictionary() -> Any:
    return collections.OrderedDict()


@kind()
def attribute_of_a_counter() -> Any:
    return collections.Counter()


@kind(lambda made, value: set.add(made, 7), lambda made: set.__len__(made))
def lying_set() -> Any:
    return lying(set)()


def _of_values(base: type, *values: Any, look: Callable[[Any], Any]) -> None:
    """A value that cannot change is one of two objects, which differ in what their class hides."""

    def make() -> Any:
        lie = {f"__{name}__": (lambda self: base()) for name in ("int", "float", "index", "complex", "bytes", "trunc")}
        of_class = lying(base, **lie)
        return [of_class(value) for value in values]

    make.__name__ = f"lying_{base.__name__}"
    KINDS[make.__name__] = (make, lambda made, value: made.reverse(), lambda made: look(made[0]))


_of_values(tuple, (1, 2), (2, 1), look=lambda one: tuple.__getitem__(one, slice(None)))
_of_values(int, 1, 2, look=lambda one: int.__add__(one, 0))
_of_values(float, 1.0, 2.0, look=lambda one: float.__add__(one, 0.0))
_of_values(complex, 1j, 2j, look=lambda one: complex.__add__(one, 0))
_of_values(str, "a", "b", look=lambda one: str.__str__(one))
_of_values(bytes, b"a", b"b", look=lambda one: bytes.__getitem__(one, slice(None)))
_of_values(frozenset, (1,), (2,), look=lambda one: list(frozenset.__iter__(one)))
_of_values(bytearray, b"a", b"b", look=lambda one: bytes(bytearray.copy(one)))
_of_values(decimal.Decimal, "1.0", "1.00", look=lambda one: decimal.Decimal.as_tuple(one))
_of_values(random.Random, 1, 2, look=lambda one: random.Random.getstate(one))


def _with_an_attribute(base: type, *arguments: Any) -> None:
    """A class of values has an instance with an attribute, as any other class of Python."""

    def make() -> Any:
        return lying(base)(*arguments)

    make.__name__ = f"attribute_of_a_{base.__name__.lower()}"
    KINDS[make.__name__] = (make, _set, _get)


for _base, *_arguments in (
    (datetime.date, 2024, 1, 1), (datetime.datetime, 2024, 1, 1), (datetime.timedelta, 1), (datetime.tzinfo,),
    (fractions.Fraction, 1, 2), (decimal.Decimal, 1), (type(pathlib.PurePosixPath("a")), "a"), (ValueError, 1),
    (OSError, 1, "a"), (int, 1), (str, "a"), (tuple, (1,)), (list,), (set,), (frozenset,), (bytearray,),
    (functools.partial, print), (types.SimpleNamespace,), (random.Random, 1), (io.StringIO,), (io.BytesIO,),
    (logging.Handler,), (logging.Formatter,), (threading.Event,), (collections.deque,), (itertools.count,),
    (asyncio.Event,), (asyncio.Queue,), (property,), (types.ModuleType, "made"),
    (BaseException,), (collections.UserDict,), (staticmethod, print), (concurrent.futures.Future,),
):  # fmt: skip
    _with_an_attribute(_base, *_arguments)


@kind(lambda made, value: object.__setattr__(made, "kept", value), lambda made: object.__getattribute__(made, "kept"))
def attribute_of_a_uuid() -> Any:
    class Marked(uuid.UUID):
        kept: Any

        def __init__(self) -> None:
            super().__init__(int=1)
            object.__setattr__(self, "kept", "nothing")

    return Marked()


@kind(lambda made, value: object.__setattr__(made.tzinfo, "kept", value), lambda made: made.tzinfo.kept)
def zone_of_a_time() -> Any:
    class Zone(datetime.tzinfo):
        kept: Any = "nothing"

        def __repr__(self) -> str:
            return "Zone()"

    return datetime.datetime(2024, 1, 1, tzinfo=Zone())  # type: ignore[abstract]


@kind(lambda made, value: setattr(made, "characters_written", 7), lambda made: getattr(made, "characters_written", 0))
def characters_that_an_error_counts() -> Any:
    return BlockingIOError(1, "would block")


# ------------------------------------------------------------------------------------- instances that hide something


@kind(lambda made, value: made.put(value), lambda made: made.look())
def attributes_behind_a_property() -> Any:
    class Local:
        kept: Any = "nothing"

        def put(self, value: Any) -> None:
            self.kept = value

        def look(self) -> Any:
            return self.kept

        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            return {}

    return Local()


@kind(lambda made, value: object.__setattr__(made, "kept", value), lambda made: object.__getattribute__(made, "kept"))
def attributes_behind_a_class_attribute() -> Any:
    class Local:
        kept: Any = "nothing"
        __dict__ = {}

    return Local()


@kind(lambda made, value: object.__setattr__(made, "kept", value), lambda made: object.__getattribute__(made, "kept"))
def attributes_behind_getattribute() -> Any:
    class Local:
        kept: Any = "nothing"

        def __getattribute__(self, name: str) -> Any:
            return {} if name == "__dict__" else None

    return Local()


@kind(lambda made, value: setattr(made, "__kept__", value), lambda made: getattr(made, "__kept__", "nothing"))
def slot_with_underscores() -> Any:
    class Local:
        __slots__ = ("__kept__",)

    return Local()


@kind(lambda made, value: made.slots[0].__set__(made, value), lambda made: made.slots[0].__get__(made))
def slot_behind_a_property() -> Any:
    class Local:
        __slots__ = ("kept",)

    slot = vars(Local)["kept"]
    of_class: Any = Local
    of_class.kept = property(lambda self: "nothing")
    of_class.slots = [slot]
    made = Local()
    slot.__set__(made, "nothing")
    return made


@kind(lambda made, value: object.__setattr__(made, "kept", value), lambda made: object.__getattribute__(made, "kept"))
def instance_whose_metaclass_lies() -> Any:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            return () if name in ("__mro__", "__slots__") else type.__getattribute__(cls, name)

    class Local(metaclass=Meta):
        kept: Any = "nothing"

    return Local()


# ------------------------------------------------------------------------------------- what collects beside the program


@kind(lambda made, value: made.handle(logging.makeLogRecord({"msg": f"{value!r:.9}"})), lambda made: len(made.records))
def handler_that_collects() -> Any:
    class Collecting(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.records: list[Any] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.records.append(1)

    return Collecting()


@kind(lambda made, value: made.handlers[0].records.append(value), lambda made: len(made.handlers[0].records))
def logger_that_collects() -> Any:
    made = logging.Logger("of a run")
    made.addHandler(handler_that_collects())
    return made


@kind(lambda made, value: made.setLevel(30), lambda made: made.level)
def level_of_a_logger() -> Any:
    return logging.Logger("of a run")


@kind()
def executor() -> Any:
    return concurrent.futures.ThreadPoolExecutor(1)


@kind(lambda made, value: made._work_queue.put(value), lambda made: made._work_queue.qsize())
def queue_of_an_executor() -> Any:
    return concurrent.futures.ThreadPoolExecutor(1)


@kind()
def thread_that_never_started() -> Any:
    return threading.Thread(target=print)


@kind(
    lambda made, value: setattr(asyncio.get_running_loop(), "kept", value),
    lambda made: _get(asyncio.get_running_loop()),
)
def the_loop() -> Any:
    _set(asyncio.get_running_loop(), "nothing")


@kind(lambda made, value: setattr(threading.main_thread(), "kept", value), lambda made: _get(threading.main_thread()))
def the_main_thread() -> Any:
    vars(threading.main_thread()).pop("kept", None)
    return None


@kind()
def a_future() -> Any:
    return asyncio.get_running_loop().create_future()


@kind(lambda made, value: made.write("a"), lambda made: made.getvalue())
def text_in_memory() -> Any:
    return io.StringIO()


@kind(lambda made, value: setattr(made, "value", 7), lambda made: made.value)
def number_of_ctypes() -> Any:
    return ctypes.c_int(1)


@kind(lambda made, value: made[1].__setitem__(0, 7), lambda made: bytes(made[0]))
def memory_that_is_shared() -> Any:
    held = bytearray(b"abc")
    return held, memoryview(held)


@kind()
def weak_reference_of_a_class_of_its_own() -> Any:
    return type("Ref", (weakref.ref,), {"__call__": lambda self: None})(threading.main_thread())


@kind(lambda made, value: weakref.finalize(made, str, value), lambda made: len(_finalizers()))
def finalizer_of_a_function() -> Any:
    return lambda: None


def _finalizers() -> list[Any]:
    return [one for one in list(weakref.finalize._registry) if one.peek()[1] is str]  # type: ignore[attr-defined]


@kind(lambda made, value: made.__setitem__(0, re.match("a|b", "b")), lambda made: made[0].group())
def match_of_a_pattern() -> Any:
    return [re.match("a|b", "a")]


@kind(lambda made, value: made.__setitem__(0, functools.partial(print, value)), lambda made: repr(made[0].args))
def partial_that_is_replaced() -> Any:
    return [functools.partial(print)]
