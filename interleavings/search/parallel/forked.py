"""Workers as forks of the searching process: they have the program as it is there, so any callable will do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from ...errors import ExplorerUsageError
from ..setting import Setting
from .team import Gone, Seat
from .workers import Farewell, Job, Known, Learnt, Raised, WorkerSearch, answer_to, begin_collecting


class ForkedWorkers:
    """Starts worker processes and waits for their pipes."""

    def __init__(self, setting: Setting) -> None:
        if not hasattr(os, "fork"):
            raise ExplorerUsageError("workers=: it needs processes that are forked; use 1 on this platform")
        self._setting = setting
        self._open: list[Connection] = []

    def start(self, number: int) -> Seat:
        """Fork one."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        self._open = [connection for connection in self._open if not connection.closed]
        self._open.append(ours)
        process = context.Process(
            target=serve, args=(self._setting, theirs, number, self._open), name="explorer worker", daemon=True
        )
        with warnings.catch_warnings():
            # Python 3.12 warns where other threads live. A worker takes none of their locks: it only runs the program.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        return ForkedSeat(process, ours)

    def ready(self, seats: Sequence[Any], seconds: float | None) -> list[int]:
        """Wait for the pipes."""
        places = {seat.connection: place for place, seat in enumerate(seats)}
        return [places[connection] for connection in wait(list(places), timeout=seconds)]


class ForkedSeat:
    """One worker process and our end of its pipe."""

    def __init__(self, process: Any, connection: Connection) -> None:
        self._process = process
        self.connection = connection

    def send(self, news: list[Known], jobs: list[Job]) -> None:
        """Write to the pipe."""
        try:
            self.connection.send((news, jobs))
        except OSError:
            return  # it is gone; receiving will tell

    def receive(self) -> Learnt | Raised:
        """Read from the pipe; its end is the worker's."""
        try:
            answer: Learnt | Raised = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            status = self._process.exitcode
            raise Gone(
                f"by signal {-status}" if status is not None and status < 0 else f"with status {status}"
            ) from None
        return answer

    def farewell(self, seconds: float) -> Farewell | None:
        """Ask for the last word; answers that are still on the way are dropped."""
        try:
            self.connection.send(None)
            while self.connection.poll(seconds):
                answer = self.connection.recv()
                if isinstance(answer, Farewell):
                    return answer
        except (EOFError, OSError):
            pass  # it died with nothing left to do
        return None

    def stop(self) -> None:
        """Kill the process and close the pipe."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def serve(setting: Setting, connection: Connection, number: int, ours: list[Connection]) -> None:
    """Work until told to stop. The coordinator's side of every pipe is closed here, so that its end is noticed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the coordinator decides
    for other in ours:
        other.close()
    search = WorkerSearch(setting, backwards=number % 2 == 1)
    collected = begin_collecting(setting)
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        if message is None:
            connection.send(Farewell(collected))
            return
        connection.send(answer_to(search, *message))
