"""What the explorer does not control: refused at the call, by name, and never taken for a failure or a pass."""

from __future__ import annotations

import _thread
import asyncio
import importlib
import importlib.util
import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from interleavings import ForbiddenCall, Subject, explore

FORBIDDEN: dict[str, Callable[[], object]] = {
    "time.time": lambda: time.time(),
    "time.monotonic": lambda: time.monotonic(),
    "time.perf_counter_ns": lambda: time.perf_counter_ns(),
    "time.clock_gettime": lambda: time.clock_gettime(time.CLOCK_REALTIME),
    "time.localtime": lambda: time.localtime(),
    "time.strftime": lambda: time.strftime("%H"),
    "time.sleep": lambda: time.sleep(0),
    "random.random": lambda: random.random(),
    "random.shuffle": lambda: random.shuffle([1, 2]),
    "random.Random": lambda: random.Random(),
    "random.SystemRandom.random": lambda: random.SystemRandom().random(),
    "os.urandom": lambda: os.urandom(4),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "secrets.token_hex": lambda: secrets.token_hex(4),
    "socket.socket": lambda: socket.socket(),
    "subprocess.Popen": lambda: subprocess.Popen(["true"]),
    "os.system": lambda: os.system("true"),
    "_thread.start_new_thread": lambda: _thread.start_new_thread(print, ()),
    "threading.Thread.start": lambda: threading.Thread(target=print).start(),
    "threading.Condition.wait": lambda: threading.Event().wait(),
    "loop.add_reader": lambda: asyncio.get_running_loop().add_reader(0, print),
    "loop.add_signal_handler": lambda: asyncio.get_running_loop().add_signal_handler(1, print),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_case_F17_call_outside_the_explorer_is_refused_by_name(name: str) -> None:
    """Refused at the call: not a hang, not a deadlock of the program, not a pass."""

    async def main() -> None:
        await asyncio.sleep(0)
        FORBIDDEN[name]()

    result = explore(main)
    assert result.verdict == "inconclusive"
    assert result.why is not None
    assert result.why.startswith(f"{name} was called at test_explorer_forbidden.py:")
    assert "<lambda>" in result.why


def test_time_that_was_given_is_written_as_ever() -> None:
    """`time.strftime` and its like ask the clock only where they are given no time."""

    async def main() -> str:
        return time.strftime("%Y", time.gmtime(0))

    assert explore(main).outcomes == {"returned '1970'"}


def test_swallowed_refusal_is_still_inconclusive() -> None:
    """A program that catches everything cannot turn a forbidden call into a pass."""
    caught: list[ForbiddenCall] = []

    async def main() -> None:
        try:
            time.time()
        except ForbiddenCall as error:
            caught.append(error)

    result = explore(main)
    assert result.verdict == "inconclusive"
    assert caught[0].name == "time.time"


async def _connect() -> None:
    await asyncio.open_connection("localhost", 1)


async def _spawn() -> None:
    await asyncio.create_subprocess_exec("true")


@pytest.mark.parametrize("main", [_connect, _spawn], ids=["socket", "subprocess"])
def test_case_F17_asyncio_streams_and_subprocesses_are_refused(main: Any) -> None:
    """asyncio's own front doors to the outside lead through the loop, which refuses."""
    result = explore(main)
    assert result.verdict == "inconclusive"
    assert result.why is not None
    assert result.why.startswith("loop.")


def test_case_F17_foreign_thread_is_refused_and_named() -> None:
    """A thread that was there before cannot be scheduled; its call raises in that thread and is reported."""
    errors: list[BaseException] = []

    def build() -> Subject:
        async def main() -> None:
            loop = asyncio.get_running_loop()

            def poke() -> None:
                try:
                    loop.call_soon_threadsafe(print)
                except ForbiddenCall as error:
                    errors.append(error)

            thread = threading.Thread(target=poke)
            start_unfenced(thread)
            join_unfenced(thread)
            await asyncio.sleep(0)

        return Subject(main())

    start_unfenced, join_unfenced = threading.Thread.start, threading.Thread.join
    result = explore(build, allow=("threading.Condition.wait",))
    assert result.verdict == "inconclusive"
    assert result.why is not None
    assert "call_soon_threadsafe from another thread" in result.why
    assert errors


def test_seeded_random_is_allowed_and_is_state() -> None:
    """`random.seed(1)` and `random.Random(1)` repeat; how far they have been drawn is part of the state."""

    async def main() -> tuple[int, int]:
        random.seed(1)
        own = random.Random(2)

        async def draw() -> int:
            await asyncio.sleep(0)
            return random.randint(1, 1000) + own.randint(1, 1000)

        first, second = await asyncio.gather(draw(), draw())
        return first, second

    before = random.getstate()
    pruned = explore(main)
    assert random.getstate() == before
    assert pruned.verdict == "holds"
    assert pruned.outcomes == explore(main, prune=False).outcomes
    assert len(pruned.outcomes) == 2


def test_virtual_clock_of_the_loop_is_allowed() -> None:
    """`loop.time()` is the clock a program may read."""

    async def main() -> float:
        await asyncio.sleep(2.5)
        return asyncio.get_running_loop().time()

    assert explore(main).outcomes == {"returned 2.5"}


def test_factory_of_log_records_may_read_the_clock() -> None:
    """Ray puts one in that notes the time in each record; called by the program itself it is refused."""
    made = logging.getLogRecordFactory()  # Ray's own, where another test has imported it

    def factory(*args: Any, **options: Any) -> logging.LogRecord:
        time.time_ns()
        return logging.LogRecord(*args, **options)

    async def logs() -> None:
        logging.getLogger("explored").warning("a line")

    async def calls() -> None:
        factory("explored", logging.WARNING, "", 0, "a line", (), None)

    logging.setLogRecordFactory(factory)
    try:
        assert explore(logs).verdict == "holds"
        assert explore(calls).verdict == "inconclusive"
    finally:
        logging.setLogRecordFactory(made)


def test_logging_and_imports_may_read_the_clock() -> None:
    """A log record carries the time of day, and modules read it while they are imported; neither chooses a step."""

    async def main() -> None:
        logging.getLogger("explored").warning("a line with a time in it")
        importlib.import_module("this_module_reads_the_clock")

        await asyncio.sleep(0)

    source = "import time, random, os\nNOW = time.time()\nDRAWN = random.random()\nBYTES = os.urandom(2)\n"

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> Any:
            if name != "this_module_reads_the_clock":
                return None

            class Loader:
                @staticmethod
                def create_module(spec: object) -> None:
                    return None

                @staticmethod
                def exec_module(module: Any) -> None:
                    exec(source, module.__dict__)

            return importlib.util.spec_from_loader(name, Loader())  # type: ignore[arg-type]

    sys.meta_path.insert(0, Finder)
    try:
        explore(main).assert_holds()
    finally:
        sys.meta_path.remove(Finder)
        sys.modules.pop("this_module_reads_the_clock", None)


def test_allowed_call_goes_through() -> None:
    """A clock whose value goes into a log line only may be allowed by name."""

    async def main() -> None:
        assert time.time() > 0

    explore(main, allow=("time.time",)).assert_holds()


def test_case_F16_fence_is_taken_away_exactly() -> None:
    """After a search every name is the same object as before, and class attributes are not left behind."""
    names = [
        (time, "time"),
        (random, "random"),
        (random, "seed"),
        (os, "urandom"),
        (uuid, "uuid4"),
        (secrets, "choice"),
    ]
    classes = [(socket.socket, "__init__"), (threading.Thread, "start"), (random.Random, "seed")]
    owners: list[tuple[Any, str]] = [*names, *classes]
    before = [vars(owner).get(name) for owner, name in owners]
    explore(FORBIDDEN_MAIN)
    explore(_connect)
    assert [vars(owner).get(name) for owner, name in owners] == before


async def FORBIDDEN_MAIN() -> None:
    time.time()


def test_case_F01_changing_program_is_called_not_deterministic() -> None:
    """A program that changes from run to run is neither passed nor failed; the first step that differs is named."""
    calls = 0

    async def main() -> None:
        nonlocal calls
        calls += 1
        tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(2 + calls % 2)]
        for task in tasks:
            await task

    result = explore(main)
    assert result.verdict == "inconclusive"
    assert result.why is not None
    assert "program is not deterministic: step 1" in result.why
    assert "sleep-3" in result.why


def test_case_F06_failure_that_does_not_come_again_is_no_counterexample() -> None:
    """Every counterexample is run again before anybody sees it."""
    calls = 0

    async def main() -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        assert calls != 1, "the first time only"

    result = explore(main)
    assert result.verdict == "inconclusive"
    assert result.counterexample is None
    assert result.why is not None
    assert "not deterministic" in result.why
