"""What lies outside of a run and outlives it: settings of the process, and what modules keep.

It is no part of a state, so a search that met a change of it would take different states for one. At the start of a
search it is noted; wherever a state is read it is looked at again, and a change raises `Unwalkable` with its name: the
verdict is then bounded. What is changed and put back within one step does no harm. Functions of the operating system
are refused at the call instead (`forbidden.py`), since what they change cannot be looked at.

To look at all of it costs as much as to read a small state. The first `_WHOLE` states of a search look at everything,
each later one at one thing in turn, and the end of the search at everything again: a change that stays is found, one
that is taken back after a few steps is, in a long search, found when its turn comes.
"""

from __future__ import annotations

import _random
import array
import asyncio
import builtins
import collections
import contextvars
import decimal
import dis
import functools
import gc
import io
import locale
import logging
import operator
import os
import site
import sys
import sysconfig
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from .errors import Unwalkable
from .frames import KNOWN_GLOBALS
from .statics import c_base_of, dictionary_getter, is_python_class, module_of, mro_of, namespace_of

_ATOMS = frozenset({int, str, bytes, bool, float, complex, type(None), type(...)})
_MOST_OBJECTS = 2_000
_WHOLE = 40
# How many of the first calls of a question are watched whole; a declared state is there to be fast.
_WATCHED = {"observe": 1_000, "invariant": 1_000, "state": 20, "durable": 20}
_ADVICE = "which is no part of a state; make it inside of the program, or say with state= what a state is"
_LIBRARIES = tuple({
    *(path for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))),
    *site.getsitepackages(),
    os.path.dirname(os.__file__),
})  # fmt: skip

Look: TypeAlias = Callable[[], Iterable[Any]]
Thing: TypeAlias = tuple[str, Look, tuple[str, ...] | None]
"""A name in words, how to look at it, and a name for each part of what is seen."""


class Outside:
    """What is outside of every run of one search, as it was when the search began."""

    def __init__(self, *programs: Any) -> None:
        self._note_the_process()
        self.thread = frozenset(vars(threading.main_thread()))
        self.loggers: dict[logging.Logger, tuple[Any, ...]] = {}
        for program in programs:
            for function in _functions_of(program):
                KNOWN_GLOBALS.setdefault(id(function.__globals__), function.__globals__)
        kept = _WhatModulesKeep()
        kept.follow(programs)
        self._kept = [(thing, tuple(thing[1]())) for thing in (*kept.of_globals(), *kept.found)]
        self._looked = 0
        self._declared = False
        self._asked: dict[str, int] = {}

    def in_a_worker(self) -> None:
        """Take the settings of this process, a fork of the one that began, for those that were there before."""
        self._note_the_process()

    def _note_the_process(self) -> None:
        # Streams, handlers of logs and the built-in names: read by nobody, each by a number of its own.
        outer: list[Any] = [sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__]
        outer += [vars(builtins), logging.lastResort, logging.root.manager]
        outer += [ref() for ref in logging._handlerList]  # type: ignore[attr-defined]
        self._outer = outer  # so that no address is used twice
        self.constants = {id(one): -number for number, one in reversed(list(enumerate(outer, 1))) if one is not None}
        self._note_settings()

    def _note_settings(self) -> None:
        self._modules = len(sys.modules)
        settings = (*_settings(), *_generators_of_libraries())
        self._settings = [(thing, tuple(thing[1]())) for thing in settings]

    def is_to_be_watched(self, name: str, question: Any) -> bool:
        """Say whether it is to be seen to that a question changes nothing: the first times, and now and then later.

        It costs two readings of the state. Our own observers are trusted.
        """
        module = getattr(question, "__module__", None)
        if type(module) is str and module.startswith("interleavings."):
            return False
        times = self._asked[name] = self._asked.get(name, 0) + 1
        return times <= _WATCHED[name] or not times & (times - 1)

    def refuse_changes(self, *, declared: bool) -> None:
        """Raise when something outside is not as it was. A declared state says itself what modules keep."""
        self._looked += 1
        self._declared = declared
        if len(sys.modules) != self._modules:
            self._note_settings()  # modules put warnings off and change more when they are imported
        if self._looked <= _WHOLE:
            self.refuse_any_change()
            return
        settings = len(self._settings)
        place = self._looked % (settings if declared else settings + len(self._kept))
        _compare(*(self._settings[place] if place < settings else self._kept[place - settings]))

    def refuse_any_change(self) -> None:
        """Look at everything."""
        for logger, noted in self.loggers.items():
            _compare((f"logger {logger.name!r}", functools.partial(logged, logger), None), noted)
        for thing, before in self._settings if self._declared else [*self._settings, *self._kept]:
            _compare(thing, before)


def logged(logger: logging.Logger) -> tuple[Any, ...]:
    """Return what is set on a logger."""
    return (logger.level, logger.disabled, logger.propagate, *logger.handlers, None, *logger.filters)


def finalizers_since(index: int) -> list[Any]:
    """Return the finalizers that wait and were made since; functions, sets and tasks have them too."""
    registry = weakref.finalize._registry  # type: ignore[attr-defined]
    return [one for one, about in list(registry.items()) if about.index >= index] if registry else []


def next_finalizer() -> int:
    """Return the number that the next finalizer gets."""
    return int(weakref.finalize._index_iter.__reduce__()[1][0])  # type: ignore[attr-defined]


def _compare(thing: Thing, before: tuple[Any, ...]) -> None:
    name, look, parts = thing
    now = tuple(look())
    if len(now) == len(before):
        if all(map(operator.is_, now, before)) or all(map(_alike, now, before)):
            return
        if parts is not None:
            name += next(part for part, one, other in zip(parts, now, before, strict=True) if not _alike(one, other))
    raise Unwalkable(None, f"{name} was changed, {_ADVICE}")


def _alike(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if type(one) is tuple:
        return len(one) == len(other) and all(map(_alike, one, other))
    return type(one) in _ATOMS and bool(one == other)


# ------------------------------------------------------------------------------------------- settings of the process


def _settings() -> Iterator[Thing]:
    """List the settings that a program may change, and how to look at each."""
    environment = os.environ._data  # type: ignore[attr-defined]
    yield "os.environ", lambda: (*environment, *environment.values()), None
    for module in (sys, builtins, warnings):
        yield f"{module.__name__}.", vars(module).values, tuple(vars(module))
    for name in ("path", "argv", "meta_path", "path_hooks", "warnoptions"):
        yield f"sys.{name}", functools.partial(_listed, sys, name), None
    yield "warnings.filters", functools.partial(_listed, warnings, "filters"), None
    yield "a setting of sys", lambda: (sys.getrecursionlimit(), sys.gettrace(), sys.getprofile()), None
    yield "a setting of sys", lambda: (sys.getswitchinterval(), sys.get_int_max_str_digits()), None
    yield "a setting of gc", lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug(), *gc.callbacks), None
    yield "the locale", lambda: (locale.setlocale(locale.LC_ALL),), None
    yield "the working directory", lambda: (os.getcwd(),), None
    yield "logging.disable", lambda: (logging.root.manager.disable, logging.raiseExceptions), None
    yield "the policy of event loops", lambda: (asyncio.events._event_loop_policy,), None  # type: ignore[attr-defined]
    contexts = [decimal.DefaultContext, decimal.BasicContext, decimal.ExtendedContext]
    contexts += [held for held in contextvars.copy_context().values() if type(held) is decimal.Context]
    yield "a context of decimal", functools.partial(map, decimal.Context.__repr__, contexts), None


def _listed(module: types.ModuleType, name: str) -> Iterable[Any]:
    held: Iterable[Any] = getattr(module, name)
    return held


def _generators_of_libraries() -> Iterator[Thing]:
    """List the generators of random numbers that numpy and torch share among all who ask, where they are loaded."""
    numbers: Any = sys.modules.get("numpy.random")
    if numbers is not None:

        def of_numpy() -> tuple[Any, ...]:
            _, keys, *place = numbers.get_state()
            return (keys.tobytes(), *place)

        yield "numpy's generator of random numbers", of_numpy, None
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        yield "torch's generator of random numbers", lambda: (torch.get_rng_state().numpy().tobytes(),), None


# ------------------------------------------------------------------------------------------- what modules keep


def _functions_of(program: Any) -> list[types.FunctionType]:
    """Return the functions that a callable is made of: under partials, bound methods and objects that are called."""
    while hasattr(program, "func"):
        program = program.func
    program = getattr(program, "__func__", program)
    if type(program) is types.FunctionType:
        return [program]
    return [one for one in namespace_of(type(program)).values() if type(one) is types.FunctionType]


def _names_in(code: types.CodeType) -> Iterator[tuple[str, bool]]:
    """Yield the names that code refers to, and whether it may put a new one into its module."""
    stores = not _STORES.isdisjoint(code.co_code[::2])
    for name in code.co_names:
        yield name, stores
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from _names_in(constant)


_STORES = frozenset({dis.opmap["STORE_GLOBAL"], dis.opmap["DELETE_GLOBAL"]})


def _is_a_users(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    if type(file) is not str:
        return getattr(module, "__name__", "") == "__main__"
    return not file.startswith(_LIBRARIES) and not module.__name__.startswith("interleavings.")


class _WhatModulesKeep:
    """Follows a program's code by the names in it, as far as the user's own modules go, to all that they keep."""

    def __init__(self) -> None:
        self.found: list[Thing] = []
        self._names: dict[int, tuple[dict[str, Any], dict[str, None]]] = {}
        self._seen: dict[int, Any] = {}
        self._waiting: list[tuple[str, Any]] = []

    def follow(self, programs: Iterable[Any]) -> None:
        """Find all that the code of some callables can reach by name."""
        for program in programs:
            self._waiting += [(function.__qualname__, function) for function in _functions_of(program)]
        while self._waiting and len(self._seen) < _MOST_OBJECTS:
            where, value = self._waiting.pop()
            if type(value) not in _ATOMS and id(value) not in self._seen:
                self._seen[id(value)] = value
                self._look_into(where, value)

    def of_globals(self) -> Iterator[Thing]:
        """List the globals that were found, those of one module together."""
        for held, names in self._names.values():
            yield f"global {held.get('__name__')}.", functools.partial(_values_of, held.get, tuple(names)), tuple(names)

    def _look_into(self, where: str, value: Any) -> None:
        kind = type(value)
        if kind is types.FunctionType:
            self._function(value)
        elif kind in (staticmethod, classmethod, types.MethodType):
            self._waiting.append((where, value.__func__))
        elif kind is property:
            self._waiting += [(where, part) for part in (value.fget, value.fset, value.fdel)]
        elif issubclass(kind, type):
            self._class(value)
        elif issubclass(kind, (list, collections.deque, set, tuple, frozenset)):
            base: Any = c_base_of(kind)
            self._keep(where, functools.partial(base.__iter__, value), None)
            self._waiting += [(where, one) for one in base.__iter__(value)]
        elif issubclass(kind, dict):
            self._keep(where, lambda: (*dict.keys(value), *dict.values(value)), None)
            self._waiting += [(where, one) for one in (*dict.keys(value), *dict.values(value))]
        elif c_base_of(kind) in _BY_CONTENT:
            look = _BY_CONTENT[c_base_of(kind)]
            self._keep(where, lambda: (look(value),), None)
        package = module_of(kind).partition(".")[0]
        if is_python_class(kind) and not issubclass(kind, type) and package not in _NOT_FOLLOWED:
            getter = dictionary_getter(kind)
            if getter is not None:
                self._keep(where + ".", lambda: getter(value).values(), tuple(getter(value)))
                self._waiting += [(f"{where}.{name}", one) for name, one in getter(value).items()]
            slots = [(name, one) for base in mro_of(kind) for name, one in namespace_of(base).items()]
            members = [(name, one) for name, one in slots if type(one) is types.MemberDescriptorType]
            if members and c_base_of(kind) is object:
                shown = functools.partial(_slots, value, [member for _, member in members])
                self._keep(where + ".", shown, tuple(name for name, _ in members))
                self._waiting += [(where, one) for one in shown()]
            self._waiting.append((kind.__qualname__, kind))

    def _class(self, value: type) -> None:
        if is_python_class(value) and _is_a_users(sys.modules.get(module_of(value))):
            held = namespace_of(value)
            self._keep(f"class attribute {value.__qualname__}.", held.values, tuple(held))
            self._waiting += [(f"{value.__qualname__}.{name}", one) for name, one in held.items()]
            self._waiting += [(base.__qualname__, base) for base in mro_of(value)[1:]]

    def _function(self, function: types.FunctionType) -> None:
        held = function.__globals__
        module = sys.modules.get(held.get("__name__", ""))
        if module is not None and vars(module) is held and not _is_a_users(module):
            return
        if "<locals>" not in function.__qualname__:  # others can put attributes on it
            self._keep(f"attributes of {function.__qualname__}", lambda: function.__dict__.values(), None)
            self._waiting += [(f"{function.__qualname__}.{name}", one) for name, one in function.__dict__.items()]
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._waiting.append((f"a default of {function.__qualname__}", default))
        names = dict(_names_in(function.__code__))
        self._use(held, names)
        for name in names:
            found = held.get(name)
            if issubclass(type(found), types.ModuleType) and _is_a_users(found):
                self._use(vars(found), dict.fromkeys(names, True))

    def _use(self, held: dict[str, Any], names: dict[str, bool]) -> None:
        known = self._names.setdefault(id(held), (held, {}))[1]
        for name, may_come in names.items():
            if name not in known and (name in held or may_come):
                known[name] = None
                self._waiting.append((f"{held.get('__name__')}.{name}", held.get(name)))

    def _keep(self, name: str, look: Look, parts: tuple[str, ...] | None) -> None:
        self.found.append((name, look, parts))


# Instances of their classes keep what all of the process shares, or what never changes.
_NOT_FOLLOWED = frozenset({"logging", "typing", "importlib", "os", "abc", "numpy", "torch", "ray"})
_BY_CONTENT: dict[type, Callable[[Any], Any]] = {
    bytearray: lambda value: bytes(bytearray.copy(value)),
    array.array: array.array.tobytes,
    io.StringIO: io.StringIO.getvalue,
    io.BytesIO: io.BytesIO.getvalue,
    _random.Random: _random.Random.getstate,
}


def _slots(value: Any, members: list[Any]) -> tuple[Any, ...]:
    found = []
    for member in members:
        try:
            found.append(member.__get__(value))
        except AttributeError:
            found.append(_slots)  # unset
    return tuple(found)


def _values_of(get: Callable[[str], Any], names: tuple[str, ...]) -> Iterable[Any]:
    return map(get, names)
