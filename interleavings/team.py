"""A search shared by several processes: one decides the order of the visits, the others run the program.

The order is that of the search in one process, state by state and choice by choice, so states, schedules, verdict and
the shortest counterexample are the same. What workers send is where choices lead; the coordinator keeps the table.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections import deque
from multiprocessing.connection import Connection, wait
from typing import Any

from .errors import Diverged, ExplorerUsageError, Unwalkable, WorkerLost
from .result import Failure
from .search import Exploration, Search, State
from .workers import Answers, Farewell, Job, Known, Learnt, Raised, serve

_LARGEST_BATCH = 16
_AHEAD = 2  # batches that a worker has been given and not answered: it need not wait for the next
_DEATHS_BORNE = 2  # of processes that had the same state to evaluate
_PATIENCE_AT_THE_END = 10.0


class OutOfTime(Exception):
    """`max_seconds` passed while the coordinator waited. Internal."""


class Worker:
    """The coordinator's view of one worker process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: Any = None
        self.connection: Connection
        self.given: deque[list[State]] = deque()
        self.news: list[Known] = []


class TeamSearch(Search):
    """The search of `Search`, with the runs made by other processes."""

    _workers: list[Worker]

    def run_with(self, workers: int) -> Exploration:
        """Search with that many worker processes."""
        if not hasattr(os, "fork"):
            raise ExplorerUsageError(f"workers={workers}: it needs processes that are forked; use 1 on this platform")
        self._setting.observed = Answers()
        self._todo: deque[State] = deque()  # visited, not given to anybody yet
        self._deaths: dict[bytes, int] = {}
        self._workers = [Worker(number) for number in range(workers)]
        try:
            for worker in self._workers:
                self._start(worker)
            found = self.run()
            self._farewell()
            return found
        except OutOfTime:
            self.found.stopped = f"max_seconds={self._limits.max_seconds} passed"
            self._farewell()
            return self.found
        finally:
            for worker in self._workers:
                if worker.process is not None:
                    worker.process.kill()
                    worker.process.join()
                    worker.connection.close()

    def _start(self, worker: Worker) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        others = [ours, *(other.connection for other in self._workers if other.process is not None)]
        worker.process = context.Process(
            target=serve, args=(self._setting, theirs, worker.number, others), name="explorer worker", daemon=True
        )
        with warnings.catch_warnings():
            # Python 3.12 warns where other threads live. A worker takes none of their locks: it only runs the program.
            warnings.simplefilter("ignore", DeprecationWarning)
            worker.process.start()
        theirs.close()
        worker.connection = ours
        worker.news = []

    # -- the search asks --------------------------------------------------------------------------------------------
    def _visit(self, state: State, parent: State | None, via: str) -> bool:
        ended = super()._visit(state, parent, via)
        if state.failure is None:
            self._todo.append(state)
        return ended

    def _evaluate(self, state: State, index: int) -> State:
        while True:
            target = state.targets[index]
            if target is not None:
                return target
            self._hand_out()
            self._listen()

    def _hand_out(self) -> None:
        """Keep every worker busy with the states that will be asked for next."""
        for ahead in range(1, _AHEAD + 1):
            for worker in self._workers:
                if len(worker.given) < ahead:
                    self._give(worker)

    def _give(self, worker: Worker) -> None:
        size = max(1, min(_LARGEST_BATCH, len(self._todo) // (2 * len(self._workers))))
        states: list[State] = []
        jobs: list[Job] = []
        while self._todo and len(jobs) < size:
            state = self._todo.popleft()
            wanted = tuple(index for index, target in enumerate(state.targets) if target is None)
            if wanted:
                states.append(state)
                jobs.append(Job(tuple(state.path()), state.identity, state.options, wanted))
        if not jobs:
            return
        worker.given.append(states)
        try:
            worker.connection.send((worker.news, jobs))
        except OSError:
            return  # it is gone; listening will tell
        worker.news = []

    # -- the workers answer -----------------------------------------------------------------------------------------
    def _listen(self) -> None:
        connections = {worker.connection: worker for worker in self._workers}
        left = self._limits.left()
        for ready in wait(list(connections), timeout=left):
            worker = connections[ready]  # type: ignore[index]
            try:
                answer = worker.connection.recv()
            except (EOFError, OSError):
                self._replace(worker)
                continue
            worker.given.popleft()
            self._take(worker, answer)
        if self._limits.out_of_time():
            raise OutOfTime

    def _take(self, worker: Worker, answer: Learnt | Raised) -> None:
        if isinstance(answer, Raised):
            raise _as_exception(answer)
        self._setting.runs += answer.runs
        table = self._table
        for identity, (options, outcome) in answer.states.items():
            known = table.get(identity)
            if known is None:
                table[identity] = State(options, None, outcome, identity)
            elif known.options != options:
                raise Diverged(0, "", known.options, options)
        others = [other for other in self._workers if other is not worker]
        for identity, index, reached in answer.targets:
            target = State((), Failure(*reached), None) if isinstance(reached, tuple) else table[reached]
            state = table[identity]
            before = state.targets[index]
            if before is None:
                state.targets[index] = target
                for other in others:
                    other.news.append((identity, index))
            elif before is not target and (before.failure is None or before.failure != target.failure):
                reason = f"after {state.options[index]!r} two runs came to different states"
                raise Diverged(state.depth, "", (), (), reason)

    def _replace(self, worker: Worker) -> None:
        """Start another process for one that is gone, and give its work out again."""
        worker.process.join()
        lost = [state for states in worker.given for state in states]
        for state in lost:
            self._deaths[state.identity] = self._deaths.get(state.identity, 0) + 1
            if self._deaths[state.identity] > _DEATHS_BORNE:
                raise WorkerLost(worker.process.exitcode)
        self._todo.extendleft(reversed(lost))
        worker.given.clear()
        worker.connection.close()
        worker.process = None
        self._start(worker)

    def _farewell(self) -> None:
        """Collect what the workers' runs gathered for the caller, then let them go."""
        gather = getattr(self._setting.program, "collected", None)
        for worker in self._workers:
            try:
                worker.connection.send(None)
                while worker.connection.poll(_PATIENCE_AT_THE_END):
                    answer = worker.connection.recv()
                    if isinstance(answer, Farewell):
                        if gather is not None:
                            gather.merge(answer.collected)
                        break
            except (EOFError, OSError):
                continue  # it died with nothing left to do


def _as_exception(raised: Raised) -> Exception:
    if raised.kind == "Unwalkable":
        return Unwalkable(None, raised.text)
    if raised.kind == "ExplorerUsageError":
        return ExplorerUsageError(raised.text)
    if raised.kind == "unexpected":
        return RuntimeError(f"a worker process failed:\n{raised.text}")
    return Diverged.worded(raised.text)
