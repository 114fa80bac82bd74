"""Processes that judge: forks of one that has loaded what is slow to load, each in a copy of the tree.

A child says what it finds line by line, so that whoever waits knows what it is at when it hangs.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Message = dict[str, Any]
Tell = Callable[[Message], None]
SLOW_TO_LOAD = ("msgspec", "numpy", "rich.console", "safetensors.torch", "torch", "trio", "pytest")
"""None of them knows the library."""


def load() -> None:
    """Load what every child needs, once."""
    for name in SLOW_TO_LOAD:
        with suppress(ImportError):
            importlib.import_module(name)


def child(
    copy: Path, log: Path, work: Callable[[Tell], None], limit_of: Callable[[Message], float]
) -> Iterator[Message]:
    """Run `work` in a process of its own in the copy; yield what it tells, and at last how it ended.

    `limit_of` says for a message of the kind `begin` how many seconds what begins may take. What takes longer is
    killed with everything that it started, and the last message is of the kind `timeout`, with what it was at.
    """
    reading, writing = os.pipe()
    identity = os.fork()
    if identity == 0:
        _be_child(copy, log, writing, work)
    os.close(writing)
    at: Message = {"kind": "begin", "what": "start"}
    until = time.monotonic() + 300
    ended = "end"
    rest = b""
    try:
        while True:
            ready, _, _ = select.select([reading], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                ended = "timeout"
                break
            data = os.read(reading, 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if message["kind"] == "begin":
                    at, until = message, time.monotonic() + limit_of(message)
                yield message
    finally:
        os.close(reading)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(identity, signal.SIGKILL)
        _, status = os.waitpid(identity, 0)
    yield {"kind": ended, "what": at["what"], "status": status}


def _die_with(number: int) -> None:
    """Where the system can (Linux): end with the process that waits for this one, so that nothing is left running."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, number)


def _be_child(copy: Path, log: Path, writing: int, work: Callable[[Tell], None]) -> None:
    """Never returns."""
    status = 1
    try:
        os.setsid()
        _die_with(signal.SIGKILL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in enumerate((nothing, output, output)):
            os.dup2(descriptor, number)
        os.set_inheritable(writing, False)
        os.chdir(copy)
        # Whatever the child starts finds the copy too.
        os.environ["PYTHONPATH"] = str(copy)
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        own = str(Path(__file__).resolve().parent.parent)
        sys.path[:] = [str(copy), *(entry for entry in sys.path if entry not in ("", own))]
        importlib.invalidate_caches()

        def tell(message: Message) -> None:
            os.write(writing, json.dumps(message).encode() + b"\n")

        work(tell)
        status = 0
    except BaseException as error:  # the process ends here whatever happens, and the log says why
        import traceback

        traceback.print_exception(error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
