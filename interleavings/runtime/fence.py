"""The fence: clocks, randomness, threads, sockets and processes raise at the call, by name, during a run.

The replacements are installed for one search and taken away exactly. They act only while a step of the program runs,
on the explorer's own thread, and only on calls that the program makes: an import that happens inside a run, logging,
and the numerical libraries are let through, because what they read cannot choose the next step.
"""

from __future__ import annotations

import _thread
import asyncio
import logging
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import ExplorerUsageError
from .loop import ExplorerLoop
from .refusals import DEFINING_MODULES
from .tasks import ExplorerTask

_CLOCK = "Use the loop's virtual time (asyncio.sleep, loop.time()) or pass the clock in"
_CHANCE = "Use random.Random(seed), or pass the value in"
_THREAD = "Hand the work to asyncio.to_thread or run_in_executor: there it becomes a choice"
_OUTSIDE = "Put a fake behind an interface of your own"

_CLOCKS = (
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
    "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "sleep",
)  # fmt: skip
# They ask the clock unless they are given a time, as an argument at this place.
_CLOCKS_BY_DEFAULT = {"time.localtime": 0, "time.gmtime": 0, "time.ctime": 0, "time.asctime": 0, "time.strftime": 1}
_MODULE_RANDOM = (
    "betavariate", "binomialvariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "getrandbits",
    "lognormvariate", "normalvariate", "paretovariate", "randbytes", "randint", "random", "randrange", "sample",
    "shuffle", "triangular", "uniform", "vonmisesvariate", "weibullvariate",
)  # fmt: skip
_SECRETS = ("choice", "randbelow", "randbits", "token_bytes", "token_hex", "token_urlsafe")
_GROUPS: tuple[tuple[Any, str, tuple[str, ...], str], ...] = (
    (time, "time", _CLOCKS, _CLOCK),
    (time, "time", tuple(name.removeprefix("time.") for name in _CLOCKS_BY_DEFAULT), _CLOCK),
    (random, "random", _MODULE_RANDOM, _CHANCE),
    (random.SystemRandom, "random.SystemRandom", ("random", "getrandbits", "randbytes"), _CHANCE),
    (secrets, "secrets", _SECRETS, _CHANCE),
    (uuid, "uuid", ("uuid1", "uuid4"), _CHANCE),
    (os, "os", ("urandom", "getrandom"), _CHANCE),
    (os, "os", ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"), _OUTSIDE),
    (signal, "signal", ("signal",), _OUTSIDE),
    (threading.Thread, "threading.Thread", ("start",), _THREAD),
    (_thread, "_thread", ("start_new_thread",), _THREAD),
    (threading.Condition, "threading.Condition", ("wait",), _THREAD),
    (asyncio, "asyncio", ("run_coroutine_threadsafe",), _THREAD),
)

# Callers whose clocks and random numbers cannot choose the program's next step.
_LET_THROUGH = frozenset({"asyncio", "importlib", "linecache", "logging", "numpy", "tempfile", "torch", "warnings"})
# What it calls makes a record of a log, whosever it is: Ray, once imported, notes the time in each.
_MAKES_RECORDS = logging.Logger.makeRecord.__code__


class Fence:
    """Installs the replacements for one search. `loop` is the run whose step is under way, None between steps."""

    _installed: Fence | None = None

    def __init__(self, allow: tuple[str, ...] = ()) -> None:
        self.loop: ExplorerLoop | None = None
        self.interrupted = False  # a KeyboardInterrupt came out of a step: the program's own, or somebody's Ctrl-C
        self._allow = frozenset(allow)
        self._thread = threading.get_ident()
        self._saved: list[tuple[Any, str, bool, Any]] = []
        self._random_state: Any = None
        known = {name for _, _, name, _ in _targets()} | {"random.seed", "random.Random"}
        unknown = sorted(self._allow - known)
        if unknown:
            raise ExplorerUsageError(
                f"allow= names {', '.join(unknown)}, which cannot be let through; these can: {', '.join(sorted(known))}"
            )

    def __enter__(self) -> Fence:
        if Fence._installed is not None:
            raise ExplorerUsageError(
                "another exploration is under way in this process, perhaps the one whose program asks for this; "
                "run one at a time"
            )
        Fence._installed = self
        self._random_state = random.getstate()
        try:
            self._install()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _install(self) -> None:
        for owner, attribute, name, instead in _targets():
            if name not in self._allow:
                self._replace(owner, attribute, self._guard(getattr(owner, attribute), name, instead))
        self._replace(ExplorerTask, "get_name", self._nameless("Task.get_name", asyncio.Task.get_name))
        self._replace(ExplorerTask, "__repr__", self._nameless("repr(task)", asyncio.Task.__repr__))
        self._replace(asyncio, "all_tasks", self._nameless("asyncio.all_tasks", asyncio.all_tasks))
        self._replace(asyncio, "as_completed", self._in_order(asyncio.as_completed))
        for shown in ("when", "__repr__"):
            self._replace(asyncio.Timeout, shown, self._showing_time(getattr(asyncio.Timeout, shown)))
        self._replace(random, "seed", self._seeding(random.seed))
        self._replace(random.Random, "seed", self._instance_seeding(random.Random.seed))

    def __exit__(self, *exception: object) -> None:
        for owner, attribute, own, value in reversed(self._saved):
            if own:
                setattr(owner, attribute, value)
            else:
                delattr(owner, attribute)
        self._saved.clear()
        random.setstate(self._random_state)
        Fence._installed = None

    def _replace(self, owner: Any, attribute: str, replacement: Any) -> None:
        own = attribute in vars(owner)
        self._saved.append((owner, attribute, own, vars(owner).get(attribute)))
        setattr(owner, attribute, replacement)

    def _guard(self, original: Callable[..., Any], name: str, instead: str) -> Callable[..., Any]:
        module_random = name.startswith("random.") and "Random" not in name
        given_at = _CLOCKS_BY_DEFAULT.get(name)

        def guarded(*args: Any, **options: Any) -> Any:
            loop = self.loop
            if (
                loop is not None
                and threading.get_ident() == self._thread
                and not (module_random and loop.random_seeded)
                and not (given_at is not None and len(args) > given_at and args[given_at] is not None)
                and _is_the_programs(sys._getframe(1))
            ):
                loop.refuse(name, instead)
            return original(*args, **options)

        guarded.__name__ = getattr(original, "__name__", name)
        guarded.__qualname__ = getattr(original, "__qualname__", name)
        guarded.__doc__ = original.__doc__
        return guarded

    def _in_order(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make `as_completed` start its coroutines in the order given; asyncio goes through a set of addresses."""

        def ordered(fs: Any, **options: Any) -> Any:
            if self.loop is None or not isinstance(fs, Iterable) or asyncio.isfuture(fs):
                return original(fs, **options)
            started = [asyncio.ensure_future(awaitable) for awaitable in dict.fromkeys(fs)]
            return original(started, **options)

        return ordered

    def _nameless(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Refuse what would tell tasks apart that are declared identical: their names, and the order they began in."""

        def asked(*args: Any, **options: Any) -> Any:
            loop = self.loop
            if loop is not None and loop.identical is not None and _is_the_programs(sys._getframe(1)):
                task = args[0] if args else None
                if not isinstance(task, ExplorerTask) or loop.identical.place(task.label) is not None:
                    loop.refuse_to_tell_apart(name)
            return original(*args, **options)

        return asked

    def _showing_time(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Note that the program has looked at a deadline, and with it at the clock."""

        def showing(*args: Any, **options: Any) -> Any:
            if self.loop is not None and not self.loop.relative:
                self.loop.sights.add("clock")
            return original(*args, **options)

        return showing

    def _seeding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`random.seed(value)` makes the module's functions repeatable: from here on they are allowed."""

        def seed(a: Any = None, version: int = 2) -> None:
            if self.loop is not None and _is_the_programs(sys._getframe(1)):
                if a is None and "random.seed" not in self._allow:
                    self.loop.refuse("random.seed", _CHANCE)
                self.loop.random_seeded = True
            original(a, version)

        return seed

    def _instance_seeding(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def seed(instance: Any, a: Any = None, version: int = 2) -> None:
            loop = self.loop
            if (
                a is None
                and loop is not None
                and "random.Random" not in self._allow
                and _is_the_programs(sys._getframe(1))
            ):
                loop.refuse("random.Random", _CHANCE)
            original(instance, a, version)

        return seed


def _targets() -> Iterator[tuple[Any, str, str, str]]:
    """List what is replaced: owner, attribute, the name in messages and in `allow`, and what to do instead."""
    for owner, prefix, names, instead in _GROUPS:
        for name in names:
            if hasattr(owner, name):  # not every platform and version has every one of them
                yield owner, name, f"{prefix}.{name}", instead
    yield socket.socket, "__init__", "socket.socket", _OUTSIDE
    yield subprocess.Popen, "__init__", "subprocess.Popen", _OUTSIDE


def _is_the_programs(frame: Any) -> bool:
    """Say whether this call comes from the program: not from a library let through, nor from within an import."""
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in DEFINING_MODULES:
            break
        frame = frame.f_back
    else:
        return False
    if package in _LET_THROUGH or (frame.f_back is not None and frame.f_back.f_code is _MAKES_RECORDS):
        return False
    while frame is not None:
        name: str = frame.f_globals.get("__name__", "")
        if name.startswith("importlib._bootstrap"):
            return False
        frame = frame.f_back
    return True
