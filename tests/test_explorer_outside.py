"""What lies outside of a run: refused by name, or bounded with a name, and never called complete."""

from __future__ import annotations

import asyncio
import builtins
import calendar
import contextlib
import csv
import ctypes
import decimal
import gc
import io
import locale
import logging
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import sqlite3
import sys
import warnings
from collections.abc import Callable
from os import rename
from typing import Any

import pytest
from explorer_outcomes import Cell, outcomes

from interleavings import ExplorerUsageError, Subject, explore
from interleavings.state import outside


def doing(what: Callable[[], object]) -> Callable[[], Any]:
    """A program that does one thing and then waits a turn."""

    async def main() -> None:
        await asyncio.sleep(0)
        what()
        await asyncio.sleep(0)

    return main


# ------------------------------------------------------------------------------------------- refused at the call

HERE = pathlib.Path(__file__)
REFUSED: dict[str, tuple[str, Callable[[], object]]] = {
    "open": ("open", lambda: open("never", "w")),  # noqa: SIM115
    "io.open": ("open", lambda: open("never", "ab")),  # noqa: SIM115
    "pathlib writes": ("open", lambda: pathlib.Path("never").write_text("a")),
    "pathlib makes": ("os.mkdir", lambda: pathlib.Path("never").mkdir()),
    "pathlib touches": ("os.", lambda: pathlib.Path("never").touch()),
    "pathlib removes": ("os.unlink", lambda: pathlib.Path("never").unlink()),
    "shutil": ("open", lambda: shutil.copyfile(HERE, "never")),
    "os.open": ("os.open", lambda: os.open("never", os.O_CREAT)),
    "os.rename": ("os.rename", lambda: os.rename("never", "ever")),
    "os.pipe": ("os.pipe", lambda: os.pipe()),
    "a name of its own": ("os.rename", lambda: rename("never", "ever")),
    "raw": ("open", lambda: io.FileIO("never", "w")),
    "a device": ("open", lambda: open("/dev/zero", "rb")),  # noqa: SIM115
    "table of levels": ("logging.addLevelName", lambda: logging.addLevelName(1, "never")),
    "first day of the week": ("calendar.setfirstweekday", lambda: calendar.setfirstweekday(1)),
    "size of a field": ("csv.field_size_limit", lambda: csv.field_size_limit(1)),
    "limit of a resource": ("resource.setrlimit", lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))),
    "hooks of generators": ("sys.set_asyncgen_hooks", lambda: sys.set_asyncgen_hooks(None, None)),
    "sqlite3": ("sqlite3.connect", lambda: sqlite3.connect("never")),
    "environment": ("os.putenv", lambda: os.environ.__setitem__("NEVER", "1")),
    "working directory": ("os.chdir", lambda: os.chdir("/")),
    "umask": ("os.umask", lambda: os.umask(0)),
    "signal": ("signal.signal", lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN)),
    "timer of the process": ("signal.alarm", lambda: signal.alarm(0)),
    "in a thread": ("open", lambda: open("never", "x")),  # noqa: SIM115
}


@pytest.mark.parametrize("name", REFUSED)
def test_case_G50_what_changes_files_or_the_process_is_refused_by_name(name: str) -> None:
    """At the call, and before it does anything."""
    call, what = REFUSED[name]
    result = explore(doing(what))
    assert result.verdict == "inconclusive"
    assert re.match(rf"{re.escape(call)}\S* was called at test_explorer_outside.py:", str(result.why)), result.why
    assert not pathlib.Path("never").exists()


def test_case_G50_lost_update_through_a_file_is_never_complete(tmp_path: pathlib.Path) -> None:
    """The program that was found: each task reads a number from a file and writes one more."""
    number = tmp_path / "number"

    async def main() -> None:
        number.write_text("0")

        async def add() -> None:
            seen = int(number.read_text())
            await asyncio.sleep(0)
            number.write_text(str(seen + 1))

        await asyncio.gather(add(), add())
        assert number.read_text() == "2"

    result = explore(main)
    assert not result.complete
    assert result.verdict == "inconclusive"


def test_case_G50_the_same_in_an_executor_is_never_complete(tmp_path: pathlib.Path) -> None:
    """A job is a part of the program."""

    async def main() -> None:
        await asyncio.to_thread((tmp_path / "number").write_text, "0")

    assert explore(main).verdict == "inconclusive"


def test_file_that_is_only_read_is_let_through() -> None:
    """Nothing changes it; one that is held open over a turn is bounded, for its place is not read."""

    async def reads() -> bool:
        await asyncio.sleep(0)
        return "let_through" in HERE.read_text()

    async def holds() -> str:
        with open(HERE) as held:
            await asyncio.sleep(0)
            return held.readline()

    assert explore(reads).complete
    result = explore(holds)
    assert result.verdict == "bounded"
    assert "TextIOWrapper" in str(result.why)


def test_database_in_memory_is_bounded() -> None:
    """Its connection does not show what is in it."""

    async def main() -> None:
        with contextlib.closing(sqlite3.connect(":memory:")) as held:
            await asyncio.sleep(0)
            held.execute("select 1")

    result = explore(main)
    assert result.verdict == "bounded"
    assert "Connection" in str(result.why)


# ------------------------------------------------------------------------------------------- bounded, with the name


def _numpy() -> None:
    numpy = pytest.importorskip("numpy")
    numpy.random.random()


def _changed(module: Any, name: str, value: Any) -> tuple[Callable[[], object], Callable[[], object]]:
    before = getattr(module, name, None)
    return lambda: setattr(module, name, value), lambda: setattr(module, name, before)


CHANGED: dict[str, tuple[str, Callable[[], object], Callable[[], object]]] = {
    "sys.path": ("sys.path", lambda: sys.path.append("never"), lambda: sys.path.remove("never")),
    "sys.argv": ("sys.argv", lambda: sys.argv.append("never"), lambda: sys.argv.remove("never")),
    "an attribute of sys": ("sys.", *_changed(sys, "platform", "never")),
    "a new attribute of builtins": (
        "builtins.",
        lambda: setattr(builtins, "never", 1),
        lambda: delattr(builtins, "never") if hasattr(builtins, "never") else None,
    ),
    "sys.stdout": ("sys.stdout", lambda: setattr(sys, "stdout", io.StringIO()), lambda: None),
    "recursion": ("a setting of sys", lambda: sys.setrecursionlimit(4_321), lambda: sys.setrecursionlimit(1_000)),
    "switches": ("a setting of sys", lambda: sys.setswitchinterval(0.5), lambda: sys.setswitchinterval(0.005)),
    "gc": ("a setting of gc", lambda: gc.set_threshold(1, 2, 3), lambda: gc.set_threshold(700, 10, 10)),
    "warnings": ("warnings.filters", lambda: warnings.simplefilter("once"), warnings.resetwarnings),
    "locale": ("the locale", lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"), lambda: None),
    "decimal": (
        "a context of decimal",
        lambda: setattr(decimal.DefaultContext, "prec", 7),
        lambda: setattr(decimal.DefaultContext, "prec", 28),
    ),
    "numpy": ("numpy's generator", _numpy, lambda: None),
}


@pytest.mark.parametrize("name", CHANGED)
def test_case_G50_a_changed_setting_of_the_process_bounds_the_verdict_by_name(name: str) -> None:
    """It is no part of a state, so nothing complete can be said."""
    named, change, back = CHANGED[name]
    stdout, where = sys.stdout, locale.setlocale(locale.LC_ALL)
    if name == "numpy":
        pytest.importorskip("numpy")
    if name == "locale" and where == "C.UTF-8":
        pytest.skip("the locale is that already")
    with warnings.catch_warnings():
        try:
            result = explore(doing(change))
        finally:
            back()
            sys.stdout = stdout
            locale.setlocale(locale.LC_ALL, where)
    assert not result.complete
    assert result.verdict in ("bounded", "inconclusive")
    assert named in str(result.why)


counter = 0
table: dict[str, int] = {}
lock = asyncio.Lock()


class Kept:
    number = 0


kept = Kept()


def helper(seen: list[int] = []) -> None:  # noqa: B006
    seen.append(1)


def helper_with_attributes() -> None: ...


def _in_a_global() -> None:
    global counter
    counter += 1000


in_c = ctypes.PyDLL(None).Py_IsInitialized


def _sets_what_a_function_in_c_takes() -> None:
    in_c.argtypes = [ctypes.c_int] * len(in_c.argtypes or ()) + [ctypes.c_int]


IN_MODULES: dict[str, tuple[str, Callable[[], object]]] = {
    "global": ("counter", _in_a_global),
    "table": ("table", lambda: table.__setitem__("a", len(table) + 7)),
    "instance": ("kept.number", lambda: setattr(kept, "number", kept.number + 1000)),
    "class": ("Kept.number", lambda: setattr(Kept, "number", Kept.number + 1000)),
    "default": ("a default of helper", helper),
    "function in C": ("in_c", _sets_what_a_function_in_c_takes),
    "function": ("helper_with_attributes", lambda: helper_with_attributes.__dict__.update(calls=1)),
}


@pytest.mark.parametrize("name", IN_MODULES)
def test_what_a_module_keeps_bounds_the_verdict_when_a_run_changes_it(name: str) -> None:
    """Found through the names in the program's code; with state= the program says itself what its state is."""
    named, change = IN_MODULES[name]
    helper_with_attributes.__dict__.clear()

    async def main() -> None:
        await asyncio.sleep(0)
        change()
        await asyncio.sleep(0)

    main.__globals__["changed"] = change  # so that the code has a name for it
    program = _program_that_names(change)
    result = explore(program)
    assert not result.complete
    assert named in str(result.why)


def _program_that_names(change: Any) -> Callable[[], Any]:
    async def main() -> None:
        await asyncio.sleep(0)
        change()
        await asyncio.sleep(0)

    def program(what: Any = change) -> Any:
        return main()

    return program


def test_a_function_in_c_that_a_module_keeps_bounds_nothing() -> None:
    """It shows no content, and it has none that a run could change but what it is called with."""

    async def main() -> None:
        await asyncio.sleep(0)
        assert in_c is not None

    assert explore(main).complete


async def _counts() -> None:
    global counter
    counter = 0

    async def add() -> None:
        global counter
        seen = counter
        await asyncio.sleep(0)
        counter = seen + 1

    await asyncio.gather(add(), add())
    assert counter == 2


def test_lost_update_of_a_global_is_found() -> None:
    """States cannot be compared, so schedules are enumerated; what fails is found all the same."""
    result = explore(_counts)
    assert result.verdict == "fails"


def test_search_that_looks_at_nothing_outside_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: without the looks a change of the process is called complete."""
    monkeypatch.setattr(outside.Outside, "refuse_changes", lambda self, declared: None)
    monkeypatch.setattr(outside.Outside, "refuse_any_change", lambda self: None)
    try:
        assert explore(doing(lambda: sys.setrecursionlimit(4_321))).complete
    finally:
        sys.setrecursionlimit(1_000)


# ------------------------------------------------------------------------------------------- a given time


def _late(limited: Callable[[], Any]) -> Callable[[], Any]:
    async def main() -> str:
        cell = Cell()

        async def sleep() -> None:
            await asyncio.sleep(1 + cell.value)

        await asyncio.gather(sleep(), cell.pulse())
        await asyncio.sleep(0)
        return str(await limited())

    return main


async def _timeout_at() -> str:
    try:
        async with asyncio.timeout_at(2.5):
            await asyncio.sleep(1)
    except TimeoutError:
        return "late"
    return "in time"


async def _rescheduled() -> str:
    try:
        async with asyncio.timeout(9) as limit:
            limit.reschedule(2.5)
            await asyncio.sleep(1)
    except TimeoutError:
        return "late"
    return "in time"


async def _call_at() -> str:
    log: list[str] = []
    asyncio.get_running_loop().call_at(2.5, log.append, "late")
    await asyncio.sleep(1)
    return "".join(log) or "in time"


async def _shown() -> str:
    timer = asyncio.get_running_loop().call_later(1, print)
    timer.cancel()
    return "late" if "3" in repr(timer).partition("when=")[2] else "in time"


@pytest.mark.parametrize("limited", [_timeout_at, _rescheduled, _call_at, _shown], ids=lambda one: one.__name__)
def test_case_G54_a_given_time_is_a_look_at_the_clock(limited: Callable[[], Any]) -> None:
    """How far it is from now depends on when now is, and both moments are explored."""
    assert outcomes(_late(limited)) >= {"returned 'late'", "returned 'in time'"}


def test_case_G54_a_distance_is_no_look_at_the_clock() -> None:
    """`asyncio.timeout(2)` in a loop comes back to a state, at any time."""

    async def main() -> None:
        async def beat() -> None:
            while True:
                async with asyncio.timeout(2):
                    await asyncio.sleep(1)

        task = asyncio.create_task(beat())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    assert (explore(main).states or 99) < 20


def test_case_G54_a_given_time_is_refused_where_only_distances_are_looked_at() -> None:
    """`Subject(horizon=)` declares that."""
    result = explore(lambda: Subject(_call_at(), horizon=5))
    assert result.verdict == "inconclusive"
    assert "absolute time" in str(result.why)


# ------------------------------------------------------------------------------------------- questions that act


@pytest.mark.parametrize("asked", ["observe", "state", "invariant"])
@pytest.mark.parametrize("how", ["sets an event with a waiter", "changes what tasks share"])
def test_case_G62_a_question_that_changes_the_program_is_refused(asked: str, how: str) -> None:
    """It once turned a deadlock into a program that holds."""

    def build() -> Subject:
        event, shared = asyncio.Event(), [0]

        async def main() -> None:
            if how == "changes what tasks share":
                await asyncio.sleep(0)
                assert shared
            else:
                await event.wait()

        def question() -> None:
            if how == "changes what tasks share":
                shared.append(len(shared))
            else:
                event.set()

        return Subject(main(), **{asked: question})  # type: ignore[arg-type]

    with pytest.raises(ExplorerUsageError, match=rf"{asked}\(\) changed the program"):
        explore(build)


def test_case_G62_a_question_that_only_looks_is_asked() -> None:
    """The same without the change."""

    def build() -> Subject:
        event = asyncio.Event()

        async def main() -> None:
            await event.wait()

        return Subject(main(), observe=event.is_set, invariant=lambda: None, state=event.is_set)

    assert explore(build).verdict == "fails"


def test_random_numbers_put_back_are_state() -> None:
    """`random.setstate` is a seed."""

    async def main() -> float:
        random.setstate(random.Random(1).getstate())

        async def draw() -> float:
            await asyncio.sleep(0)
            return random.random()

        first, second = await asyncio.gather(draw(), draw())
        return round(first - second, 3)

    assert len(outcomes(main)) == 2
