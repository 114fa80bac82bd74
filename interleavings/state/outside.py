"""What lies outside of a run and outlives it: settings of the process, and what modules keep.

It is no part of a state, so a search that met a change of it would take different states for one. At the start of a
search it is noted; wherever a state is read it is looked at again, and a change raises `Unwalkable` with its name: the
verdict is then bounded. What is changed and put back within one step does no harm. Functions of the operating system
are refused at the call instead (`forbidden.py`), since what they change cannot be looked at.

What the program's own modules keep is compared by identity, in every state: the pointers are one piece of memory,
compared at once. So are settings of the process in the first `_WHOLE` states of a search and at its end, and in between
in one state of `_IN_TURN`. What has to be asked for (the locale, loggers, generators of random numbers) is asked as
often, but one thing at a time.
"""

from __future__ import annotations

import abc
import asyncio
import builtins
import contextvars
import ctypes
import decimal
import functools
import gc
import itertools
import locale
import logging
import os
import stat
import sys
import threading
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import Unwalkable
from ..runtime.frames import KNOWN_GLOBALS
from .fingerprint import fingerprint
from .kept import Thing, WhatModulesKeep, functions_of, logger_items
from .walkers import registered_kinds

_WHOLE = 40
_IN_TURN = 8
_MOST_REBUILDS = 200
# How many of the first calls of a question are watched whole; a declared state is there to be fast.
_WATCHED = {"observe": 1_000, "invariant": 1_000, "state": 20, "durable": 20}
_ADVICE = "which is no part of a state; make it inside of the program, or say with state= what a state is"
_SHOW_TRACEBACKS = frozenset({
    "__traceback__", "exc_info", "extract_tb", "format_exc", "format_exception", "format_tb", "print_exc",
    "print_exception", "TracebackException", "walk_tb", "with_traceback",
})  # fmt: skip
_ATOMS = frozenset({int, str, bytes, bool, float, complex, type(None), type(...)})


class Outside:
    """What is outside of every run of one search, as it was when the search began."""

    def __init__(self, *programs: Any) -> None:
        self._programs = programs
        self.thread = frozenset(vars(threading.main_thread()))
        for program in programs:
            for function in functions_of(program):
                KNOWN_GLOBALS.setdefault(id(function.__globals__), function.__globals__)
        self._files: dict[str, tuple[int, ...]] = {}
        self._looked = 0
        self._rebuilt = 0
        self._declared = False
        self._asked: dict[str, int] = {}
        self._note_the_process()
        self._note_what_modules_keep()

    def in_a_worker(self) -> None:
        """Take the settings of this process, a fork of the one that began, for those that were there before."""
        self._note_the_process()

    def _note_the_process(self) -> None:
        # Streams, handlers of logs and the built-in names: read by nobody, each by a number of its own.
        outer: list[Any] = [one for one in _streams() if _is_of_the_process(one)]
        outer += [vars(builtins), logging.lastResort, logging.root.manager, *_handlers_of_the_process()]
        self._outer = outer  # so that no address is used twice
        self.constants = {id(one): -number for number, one in reversed(list(enumerate(outer, 1))) if one is not None}
        self._note_settings()

    def _note_settings(self) -> None:
        self._modules = frozenset(sys.modules)
        self._settings = _Noted([*_settings()])
        self._asked_for = _Noted([*_asked_for(), *_generators_of_libraries()])

    def _note_what_modules_keep(self) -> None:
        kept = WhatModulesKeep()
        self._unreadable: Unwalkable | None = None
        try:
            kept.follow(self._programs)
            for handler in _handlers():
                kept.follow_object(f"handler {type(handler).__qualname__} of a logger", handler)
        except Unwalkable as error:
            self._unreadable = error
        self._kept = _Noted(kept.things())
        self._kept_by_reading = _NotedReadings(kept.read) if kept.read else None
        self._functions = _Noted(kept.functions())
        self._caches = kept.caches
        self.tracebacks = not _SHOW_TRACEBACKS.isdisjoint(kept.all_names)

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
        if len(sys.modules) != len(self._modules):
            self._modules_came()
        if self._looked <= _WHOLE:
            self.refuse_any_change()
            return
        if not self._looked % _IN_TURN:
            self._settings.compare()
            self._asked_for.compare_one(self._looked // _IN_TURN)
            if not declared:
                self._functions.compare()
        if not declared:
            self._compare_kept()

    def refuse_any_change(self) -> None:
        """Look at everything."""
        for path, noted in self._files.items():
            if _about(path) != noted:
                raise Unwalkable(None, f"file {path!r} was changed, which is no part of a state")
        self._settings.compare()
        self._asked_for.compare_each()
        if not self._declared:
            self._compare_kept()
            self._functions.compare()

    def _compare_kept(self) -> None:
        if self._unreadable is not None:
            raise Unwalkable(None, self._unreadable.reason)
        self._kept.compare()
        if self._kept_by_reading:
            self._kept_by_reading.compare_each()
        grown = False
        for name, cache, noted in self._caches:
            now = cache.cache_info()
            # What a cache remembers stays, so it may fill up. Emptied, what it remembers depends on the run.
            if now.misses < noted.misses or now.currsize < noted.currsize or now.hits < noted.hits:
                raise Unwalkable(None, f"the cache of {name} was emptied, {_ADVICE}")
            grown |= now.misses > noted.misses
        if grown:
            self._rebuilt += 1
            if self._rebuilt > _MOST_REBUILDS:
                raise Unwalkable(None, f"the caches of functions are filled again and again, {_ADVICE}")
            self._note_what_modules_keep()

    def _modules_came(self) -> None:
        """Note the settings anew: modules put warnings off, and set loggers and more, when they are imported."""
        new = sorted(sys.modules.keys() - self._modules)
        if all(getattr(sys.modules.get(name), "__spec__", None) is None for name in new):  # nothing was imported
            raise Unwalkable(None, f"sys.modules was changed ({', '.join(new) or 'a module left'}), {_ADVICE}")
        self._asked_for.compare_each(_GENERATOR)
        self._note_settings()

    def reading(self, run: Any) -> bytes | None:
        """Return the identity of the state that a run is in; None where it cannot be read."""
        try:
            return fingerprint(run)
        except Unwalkable:
            return None

    def reads(self, path: Any) -> bool:
        """Note a file that the program opens to read, and say whether nobody who only reads it changes anything."""
        try:
            name = os.fspath(path)
            about = os.stat(name)
        except (TypeError, OSError, ValueError):
            return not isinstance(path, int)
        if not stat.S_ISREG(about.st_mode):
            return bool(name == os.devnull)
        self._files.setdefault(os.path.abspath(os.fsdecode(name)), _about(name))
        return True


def _about(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


# ------------------------------------------------------------------------------------------- what was noted

_POINTER = ctypes.sizeof(ctypes.c_void_p)


def _pointers(values: tuple[Any, ...]) -> bytes:
    return ctypes.string_at(id(values) + tuple.__basicsize__, len(values) * _POINTER)


class _Noted:
    """Things with names, as they were. All of them are compared at once, by where their parts are."""

    def __init__(self, things: list[Thing]) -> None:
        self._things = things
        self._looks = [look for _, look, _ in things]
        self._note()

    def _note(self) -> None:
        self._before = [tuple(look()) for look in self._looks]
        self._names = [tuple(names()) if names is not None else () for _, _, names in self._things]
        self._all = tuple(itertools.chain.from_iterable(self._before))
        self._where = _pointers(self._all)

    def compare(self) -> None:
        """Raise when a thing is not as it was."""
        now = tuple(itertools.chain.from_iterable([look() for look in self._looks]))
        if len(now) == len(self._all) and _pointers(now) == self._where:
            return
        self.compare_each()
        self._note()  # equal, by other objects

    def compare_each(self, named: str = "") -> None:
        """The same, one thing after the other, and perhaps only those that have this in their name."""
        for place, (name, _, _) in enumerate(self._things):
            if named in name:
                self.compare_one(place)

    def compare_one(self, number: int) -> None:
        """The same for one of the things."""
        place = number % len(self._things)
        before, (name, look, names) = self._before[place], self._things[place]
        now = tuple(look())
        if len(now) == len(before) and all(map(_alike, now, before)):
            return
        if names is not None:
            held = dict(zip(names(), now, strict=True))
            known = dict(zip(self._names[place], before, strict=True))
            parts = [part for part in {**held, **known} if not _alike(held.get(part, known), known.get(part, known))]
            name += ("" if name.endswith(" ") else ".") + parts[0] if parts else ""
        raise Unwalkable(None, f"{name} was changed, {_ADVICE}")


def _alike(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if type(one) is tuple:
        return len(one) == len(other) and all(map(_alike, one, other))
    return type(one) in _ATOMS and bool(one == other)


class _NotedReadings(_Noted):
    """Things noted by reading. When the program registers how to read a type, what was noted is read anew."""

    def _note(self) -> None:
        self._kinds = registered_kinds()
        super()._note()

    def compare_one(self, number: int) -> None:
        if self._kinds != registered_kinds():
            self._note()
        super().compare_one(number)


# ------------------------------------------------------------------------------------------- settings of the process


def _settings() -> Iterator[Thing]:
    """List what a program may change of the process and what is compared by identity."""
    for module in (sys, builtins, warnings):
        yield module.__name__, vars(module).values, vars(module).keys
    for name in ("path", "argv", "meta_path", "path_hooks", "warnoptions"):
        yield f"sys.{name}", functools.partial(_listed, sys, name), None
    yield "warnings.filters", functools.partial(_listed, warnings, "filters"), None
    yield "gc.callbacks", lambda: gc.callbacks, None
    yield "the policy of event loops", lambda: (asyncio.events._event_loop_policy,), None  # type: ignore[attr-defined]
    yield "logging.disable", lambda: (logging.root.manager.disable, logging.raiseExceptions), None
    for held in contextvars.copy_context().values():
        if type(held) is decimal.Context:
            yield "a context of decimal", functools.partial(_settings_of_decimal, held), None


def _settings_of_decimal(context: decimal.Context) -> Iterable[Any]:
    return (context.prec, context.rounding, context.capitals, context.clamp)


def _asked_for() -> Iterator[Thing]:
    """List the settings that a call has to be asked for."""
    environment = os.environ._data  # type: ignore[attr-defined]
    yield "os.environ", lambda: (*environment, *environment.values(), *vars(os.environ)), None
    yield "a setting of sys", lambda: (sys.getrecursionlimit(), sys.gettrace(), sys.getprofile()), None
    yield "a setting of sys", lambda: (sys.getswitchinterval(), sys.get_int_max_str_digits()), None
    yield "a setting of gc", lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug()), None
    yield "the locale", lambda: (locale.setlocale(locale.LC_ALL),), None
    yield "the working directory", lambda: (os.getcwd(),), None
    yield "the registry of an abstract class", lambda: (abc.get_cache_token(),), None
    contexts = [decimal.DefaultContext, decimal.BasicContext, decimal.ExtendedContext]
    yield "a context of decimal", functools.partial(map, decimal.Context.__repr__, contexts), None
    noted = [logger for logger in _loggers() if logger is not None]
    known = frozenset(map(id, noted))
    for logger in noted:
        yield f"logger {logger.name!r}", functools.partial(logger_items, logger), None

    def new() -> list[str]:
        return [repr(one.name) for one in _loggers() if id(one) not in known and _is_set(one)]

    yield "logger ", new, new


def _loggers() -> list[logging.Logger]:
    found = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    return [logging.root, *found]


_AS_MADE = frozenset({*vars(logging.Logger("")), "manager"})


def _is_set(logger: logging.Logger) -> bool:
    """Say whether something was set on a logger that did not exist when the search began: it outlives the run."""
    return bool(
        logger.level
        or logger.handlers
        or logger.filters
        or logger.disabled
        or not logger.propagate
        or not _AS_MADE.issuperset(vars(logger))
    )


def _handlers() -> list[logging.Handler]:
    """Return the handlers of all loggers that some program may look at."""
    found = [handler for logger in _loggers() for handler in logger.handlers]
    found += [ref() for ref in logging._handlerList if ref() is not None]  # type: ignore[attr-defined]
    return [handler for handler in dict.fromkeys(found) if not _is_a_handler_of_the_process(handler)]


def _handlers_of_the_process() -> list[logging.Handler]:
    found = [ref() for ref in logging._handlerList]  # type: ignore[attr-defined]
    return [handler for handler in found if handler is not None and _is_a_handler_of_the_process(handler)]


def _is_a_handler_of_the_process(handler: Any) -> bool:
    """Say whether a handler writes to where no program looks: to the streams of the process, or for pytest."""
    kind = type(handler)
    if kind in (logging.StreamHandler, logging._StderrHandler):  # type: ignore[attr-defined]
        return _is_of_the_process(handler.stream)
    return kind is logging.NullHandler or kind.__module__.partition(".")[0] in ("_pytest", "ray")


def _streams() -> list[Any]:
    return [sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__]


def _is_of_the_process(stream: Any) -> bool:
    """Say whether a stream leads out of the process; text that is kept in memory does not."""
    try:
        return stream is not None and stream.fileno() >= 0
    except Exception:
        return type(stream).__module__.partition(".")[0] == "_pytest"  # standard input, while pytest captures


def _listed(module: types.ModuleType, name: str) -> Iterable[Any]:
    held: Iterable[Any] = getattr(module, name)
    return held


_GENERATOR = "generator of random numbers"


def _generators_of_libraries() -> Iterator[Thing]:
    """List the generators of random numbers that numpy and torch share among all who ask, where they are loaded."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numbers: Any = numpy.random  # numpy loads it when it is first asked for: not in a run

        def of_numpy() -> tuple[Any, ...]:
            _, keys, *place = numbers.get_state()
            return (keys.tobytes(), *place)

        yield f"numpy's {_GENERATOR}", of_numpy, None
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        yield f"torch's {_GENERATOR}", lambda: (torch.get_rng_state().numpy().tobytes(),), None
