"""The fence: clocks, randomness, threads, sockets and processes raise at the call, by name, during a run.

The replacements are installed for one search and taken away exactly. They act only while a step of the program runs,
on the explorer's own thread, and only on calls that the program makes: an import that happens inside a run, logging,
and the numerical libraries are let through, because what they read cannot choose the next step.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import builtins
import codecs
import importlib
import io
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
import types
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from ..errors import ExplorerUsageError
from .loop import ExplorerLoop
from .refusals import DEFINING_MODULES, is_a_users
from .tasks import ExplorerTask

_CLOCK = "Use the loop's virtual time (asyncio.sleep, loop.time()) or pass the clock in"
_CHANCE = "Use random.Random(seed), or pass the value in"
_THREAD = "Hand the work to asyncio.to_thread or run_in_executor: there it becomes a choice"
_OUTSIDE = "Put a fake behind an interface of your own"
_FILES = "A file outlives the run and is no part of its state: put a fake behind an interface of your own"
_PROCESS = "It changes all of the process, which is no part of a state: do it before the search"

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
# What changes files, or the place in one that is open. Who only asks (`stat`, `listdir`) sees what no run changes.
_FILE_CALLS = (
    "open", "read", "readv", "pread", "preadv", "write", "writev", "pwrite", "pwritev", "lseek", "ftruncate",
    "truncate", "mkdir", "rmdir", "remove", "unlink", "rename", "replace", "link", "symlink", "mkfifo", "mknod",
    "chmod", "fchmod", "lchmod", "chown", "fchown", "lchown", "utime", "setxattr", "removexattr", "sendfile",
    "copy_file_range", "splice", "posix_fallocate", "pipe", "pipe2", "dup", "dup2", "openpty", "memfd_create",
    "eventfd", "eventfd_read", "eventfd_write", "lockf", "set_blocking", "set_inheritable",
)  # fmt: skip
_PROCESS_CALLS = (
    "putenv", "unsetenv", "chdir", "fchdir", "chroot", "umask", "nice", "setpriority", "sched_setaffinity",
    "sched_setscheduler", "sched_setparam", "setuid", "setgid", "seteuid", "setegid", "setreuid", "setregid",
    "setresuid", "setresgid", "setgroups", "setsid", "setpgid", "execv", "execve", "register_at_fork",
)  # fmt: skip
_SIGNALS = (
    "signal", "setitimer", "alarm", "pthread_sigmask", "set_wakeup_fd", "siginterrupt", "raise_signal", "pthread_kill",
)  # fmt: skip
_GROUPS: tuple[tuple[Any, str, tuple[str, ...], str], ...] = (
    (time, "time", _CLOCKS, _CLOCK),
    (time, "time", tuple(name.removeprefix("time.") for name in _CLOCKS_BY_DEFAULT), _CLOCK),
    (random, "random", _MODULE_RANDOM, _CHANCE),
    (random.SystemRandom, "random.SystemRandom", ("random", "getrandbits", "randbytes"), _CHANCE),
    (secrets, "secrets", _SECRETS, _CHANCE),
    (uuid, "uuid", ("uuid1", "uuid4"), _CHANCE),
    (os, "os", ("urandom", "getrandom"), _CHANCE),
    (os, "os", ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"), _OUTSIDE),
    (signal, "signal", _SIGNALS, _PROCESS),
    (os, "os", _FILE_CALLS, _FILES),
    (os, "os", _PROCESS_CALLS, _PROCESS),
    (time, "time", ("tzset", "clock_settime"), _PROCESS),
    (socket, "socket", ("setdefaulttimeout",), _PROCESS),
    (atexit, "atexit", ("register", "unregister"), _PROCESS),
    (codecs, "codecs", ("register", "unregister", "register_error"), _PROCESS),
    (asyncio, "asyncio", ("set_event_loop",), _PROCESS),
    (sys, "sys", ("set_asyncgen_hooks", "set_coroutine_origin_tracking_depth", "setdlopenflags"), _PROCESS),
    (threading, "threading", ("settrace", "setprofile", "stack_size"), _PROCESS),
    (logging, "logging", ("addLevelName", "setLoggerClass", "setLogRecordFactory", "captureWarnings"), _PROCESS),
    (builtins, "builtins", ("input",), _OUTSIDE),
    (threading.Thread, "threading.Thread", ("start",), _THREAD),
    (_thread, "_thread", ("start_new_thread",), _THREAD),
    (threading.Condition, "threading.Condition", ("wait",), _THREAD),
    (asyncio, "asyncio", ("run_coroutine_threadsafe",), _THREAD),
)

# The same, of modules that a program has to import first: their tables are their own.
_OF_LOADED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("calendar", ("setfirstweekday",)),
    ("copyreg", ("pickle", "constructor", "add_extension", "remove_extension", "clear_extension_cache")),
    ("csv", ("field_size_limit", "register_dialect", "unregister_dialect")),
    ("ctypes", ("set_errno",)),
    ("faulthandler", ("enable", "disable", "register", "unregister", "dump_traceback_later")),
    ("mimetypes", ("add_type",)),
    ("readline", ("add_history", "clear_history", "set_completer", "parse_and_bind")),
    ("resource", ("setrlimit", "prlimit")),
    ("sqlite3", ("register_adapter", "register_converter", "enable_callback_tracebacks")),
    ("tracemalloc", ("start", "stop", "clear_traces")),
    ("urllib.request", ("install_opener",)),
    ("xml.etree.ElementTree", ("register_namespace",)),
)

# Callers whose clocks and random numbers cannot choose the program's next step.
_LET_THROUGH = frozenset({"asyncio", "importlib", "linecache", "logging", "numpy", "tempfile", "torch", "warnings"})
# For files they can: only reading source text, and a handler that was there before and opens its file late.
_LET_THROUGH_TO_FILES = frozenset({"asyncio", "importlib", "linecache", "logging", "tokenize", "warnings", "weakref"})
# What it calls makes a record of a log, whosever it is: Ray, once imported, notes the time in each.
_MAKES_RECORDS = logging.Logger.makeRecord.__code__


def _module(name: str) -> Any:
    """Return a module that not every Python has."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


sqlite3 = _module("sqlite3")
_ALSO_IN = (
    (_module("posix"), "os", _FILE_CALLS, _FILES),
    (_module("posix"), "os", _PROCESS_CALLS, _PROCESS),
    (_module("_gdbm"), "dbm", ("open",), _FILES),
    (_module("_dbm"), "dbm", ("open",), _FILES),
    (_module("_posixshmem"), "shared_memory", ("shm_open", "shm_unlink"), _OUTSIDE),
)


class Surroundings(Protocol):
    """What one run asks of those who watch what outlives all runs (`state/outside.py`)."""

    constants: dict[int, int]
    thread: frozenset[str]
    tracebacks: bool

    def reads(self, path: Any) -> bool:
        """Note a file that the program opens to read, and say whether it is one."""

    def refuse_changes(self, *, declared: bool) -> None:
        """Raise when something outside is not as it was."""

    def is_to_be_watched(self, name: str, question: Any) -> bool:
        """Say whether it is to be seen to that a question changes nothing."""

    def reading(self, run: Any) -> bytes | None:
        """Return the identity of the state that a run is in; None where it cannot be read."""


class Fence:
    """Installs the replacements for one search. `loop` is the run whose step is under way, None between steps."""

    _installed: Fence | None = None

    def __init__(self, allow: tuple[str, ...] = ()) -> None:
        self.loop: ExplorerLoop | None = None
        self.outside: Surroundings | None = None
        self.interrupted = False  # a KeyboardInterrupt came out of a step: the program's own, or somebody's Ctrl-C
        self._allow = frozenset(allow)
        self._thread = threading.get_ident()
        self._saved: list[tuple[Any, str, bool, Any]] = []
        self._random_state: Any = None
        known = {name for _, _, name, _ in _targets()} | {"random.seed", "random.Random", "open", "sqlite3.connect"}
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
        self._replace(asyncio.Timeout, "__init__", self._given_a_time(asyncio.Timeout.__init__, "timeout"))
        self._replace(asyncio.Timeout, "reschedule", self._given_a_time(asyncio.Timeout.reschedule, "__aenter__"))
        if "open" not in self._allow:
            opening = self._opening(builtins.open)
            self._replace(builtins, "open", opening)
            self._replace(io, "open", opening)
            self._replace(io, "FileIO", self._opening_raw(io.FileIO))
        if sqlite3 is not None and "sqlite3.connect" not in self._allow:
            connecting = self._connecting(sqlite3.connect)
            self._replace(sqlite3, "connect", connecting)
            self._replace(sqlite3.dbapi2, "connect", connecting)
        self._replace(random, "setstate", self._setting_state(random.setstate))
        self._replace(random, "seed", self._seeding(random.seed))
        self._replace(random.Random, "seed", self._instance_seeding(random.Random.seed))
        self._replace_in_modules()

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

    def _replace_in_modules(self) -> None:
        """Put the replacements where a module of the user's has a name of its own for one: `from os import remove`."""
        instead = {
            id(original): vars(owner)[attribute]
            for owner, attribute, own, original in self._saved
            if own and issubclass(type(owner), types.ModuleType)
        }
        for module in list(sys.modules.values()):
            if is_a_users(module):
                for name, held in list(vars(module).items()):
                    if id(held) in instead:
                        self._replace(module, name, instead[id(held)])

    def _guard(self, original: Callable[..., Any], name: str, instead: str) -> Callable[..., Any]:
        module_random = name.startswith("random.") and "Random" not in name
        given_at = _CLOCKS_BY_DEFAULT.get(name)
        through = _LET_THROUGH_TO_FILES if instead in (_FILES, _PROCESS) else _LET_THROUGH

        def guarded(*args: Any, **options: Any) -> Any:
            loop = self.loop
            if (
                loop is not None
                and threading.get_ident() == self._thread
                and not (module_random and loop.random_seeded)
                and not (given_at is not None and len(args) > given_at and args[given_at] is not None)
                and _is_the_programs(sys._getframe(1), through)
            ):
                loop.refuse(name, instead)
            return original(*args, **options)

        guarded.__name__ = getattr(original, "__name__", name)
        guarded.__qualname__ = getattr(original, "__qualname__", name)
        guarded.__doc__ = original.__doc__
        return guarded

    def _opening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Refuse `open` for writing. A file that is only read is what no run changes, unless it is held open."""

        def open(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            self._refuse_unless_it_only_reads(file, mode, sys._getframe(1))
            return original(file, mode, *args, **options)

        return open

    def _opening_raw(self, original: Any) -> Any:
        """Refuse the class behind `open` in the same way."""

        class Raw(type):
            def __instancecheck__(cls, one: Any) -> bool:
                return isinstance(one, original)

        class FileIO(original, metaclass=Raw):  # type: ignore[misc]
            def __init__(of, file: Any, mode: str = "r", *args: Any, **options: Any) -> None:
                self._refuse_unless_it_only_reads(file, mode, sys._getframe(1))
                super().__init__(file, mode, *args, **options)

        return FileIO

    def _refuse_unless_it_only_reads(self, file: Any, mode: str, caller: Any) -> None:
        loop, outside = self.loop, self.outside
        if loop is None or outside is None or not _is_the_programs(caller, _LET_THROUGH_TO_FILES):
            return
        if not set("wax+").isdisjoint(mode) or not outside.reads(file):
            loop.refuse("open", _FILES)

    def _connecting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Refuse a database that is more than the memory of one connection."""

        def connect(database: Any, *args: Any, **options: Any) -> Any:
            if self.loop is not None and database != ":memory:":
                self.loop.refuse("sqlite3.connect", _FILES)
            return original(database, *args, **options)

        return connect

    def _given_a_time(self, original: Callable[..., Any], relative: str) -> Callable[..., Any]:
        """Note that a deadline is a given time, as `timeout_at` takes it: whether it is near is a look at the clock.

        `relative` is the function of `asyncio.timeouts` that gives a distance from now.
        """

        def given(timeout: Any, when: float | None) -> Any:
            loop = self.loop
            if loop is not None and when is not None:
                code = sys._getframe(1).f_code
                if code.co_name != relative or code.co_filename != asyncio.timeouts.__file__:
                    loop.given(when, f"asyncio.Timeout({when!r})")
            return original(timeout, when)

        return given

    def _setting_state(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A state that is put back makes the module's functions repeatable, as a seed does."""

        def setstate(state: Any) -> None:
            if self.loop is not None:
                self.loop.random_seeded = True
            original(state)

        return setstate

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
    for owner, prefix, names, instead in (*_GROUPS, *_ALSO_IN):
        for name in names:
            if hasattr(owner, name):  # not every platform and version has every one of them
                yield owner, name, f"{prefix}.{name}", instead
    for module, names in _OF_LOADED:
        for name in names:
            if hasattr(sys.modules.get(module), name):
                yield sys.modules[module], name, f"{module}.{name}", _PROCESS
    yield socket.socket, "__init__", "socket.socket", _OUTSIDE
    yield subprocess.Popen, "__init__", "subprocess.Popen", _OUTSIDE


def _is_the_programs(frame: Any, through: frozenset[str] = _LET_THROUGH) -> bool:
    """Say whether this call comes from the program: not from a library let through, nor from within an import."""
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in DEFINING_MODULES:
            break
        frame = frame.f_back
    else:
        return False
    if package in through or (frame.f_back is not None and frame.f_back.f_code is _MAKES_RECORDS):
        return False
    while frame is not None:
        name: str = frame.f_globals.get("__name__", "")
        if name.startswith("importlib._bootstrap"):
            return False
        frame = frame.f_back
    return True
