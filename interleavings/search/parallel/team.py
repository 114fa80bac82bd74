"""A search shared by several processes: one decides the order of the visits, the others run the program.

The order is that of the search in one process, state by state and choice by choice, so states, schedules, verdict and
the shortest counterexample are the same. What workers send is where choices lead; the coordinator keeps the table.
Where the workers are, and how messages get there, is a `Workplace`: processes forked here, or actors on a Ray cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from ...errors import Diverged, ExplorerUsageError, SeenLate, Unwalkable, WorkerLost
from ...runtime.result import Failure
from ..pruned import Exploration, Search, State
from .workers import Answers, Farewell, Job, Known, Learnt, Raised

_LARGEST_BATCH = 16
_AHEAD = 2  # batches that a worker has been given and not answered: it need not wait for the next
_DEATHS_BORNE = 2  # of processes that had the same state to evaluate
_PATIENCE_AT_THE_END = 10.0


class OutOfTime(Exception):
    """`max_seconds` passed while the coordinator waited. Internal."""


class Gone(Exception):
    """A worker has ended without an answer; `how`, in words that continue "worker processes ended". Internal."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class Seat(Protocol):
    """Where one worker sits. It answers in the order in which it is asked."""

    def send(self, news: list[Known], jobs: list[Job]) -> None:
        """Give it work, and tell what others have evaluated. Where it is gone, `receive` says so."""

    def receive(self) -> Learnt | Raised:
        """Take the next answer. Raises `Gone`."""

    def farewell(self, seconds: float) -> Farewell | None:
        """Let it go, and take its last word; None when there is none within that time."""

    def stop(self) -> None:
        """End it, whatever it does."""


class Workplace(Protocol):
    """Where workers are started, and how their answers are waited for."""

    def start(self, number: int) -> Seat:
        """Start the worker of that number, with nothing evaluated yet."""

    def ready(self, seats: Sequence[Seat], seconds: float | None) -> list[int]:
        """Wait until one has answered or is gone; the places of those in the list. None of them when time is up."""


class Worker:
    """The coordinator's view of one worker."""

    def __init__(self, number: int, seat: Seat) -> None:
        self.number = number
        self.seat = seat
        self.given: deque[list[State]] = deque()
        self.news: list[Known] = []


class TeamSearch(Search):
    """The search of `Search`, with the runs made by other processes."""

    _workers: list[Worker]

    def run_with(self, workplace: Workplace, workers: int) -> Exploration:
        """Search with that many workers."""
        self._setting.observed = Answers()
        self._todo: deque[State] = deque()  # visited, not given to anybody yet
        self._deaths: dict[bytes, int] = {}
        self._workplace = workplace
        self._workers = []
        try:
            for number in range(workers):
                self._workers.append(Worker(number, workplace.start(number)))
            found = self.run()
            self._farewell()
            return found
        except OutOfTime:
            self.found.stopped = f"max_seconds={self._limits.max_seconds} passed"
            self._farewell()
            return self.found
        finally:
            for worker in self._workers:
                worker.seat.stop()

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
        worker.seat.send(worker.news, jobs)
        worker.news = []

    # -- the workers answer -----------------------------------------------------------------------------------------
    def _listen(self) -> None:
        seats = [worker.seat for worker in self._workers]
        for place in self._workplace.ready(seats, self._limits.left()):
            worker = self._workers[place]
            try:
                answer = worker.seat.receive()
            except Gone as gone:
                self._replace(worker, gone)
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

    def _replace(self, worker: Worker, gone: Gone) -> None:
        """Start another worker for one that is gone, and give its work out again."""
        lost = [state for states in worker.given for state in states]
        for state in lost:
            self._deaths[state.identity] = self._deaths.get(state.identity, 0) + 1
            if self._deaths[state.identity] > _DEATHS_BORNE:
                raise WorkerLost(gone.how)
        self._todo.extendleft(reversed(lost))
        worker.given.clear()
        worker.news = []
        worker.seat.stop()
        worker.seat = self._workplace.start(worker.number)

    def _farewell(self) -> None:
        """Collect what the workers' runs gathered for the caller, then let them go."""
        gather = getattr(self._setting.program, "collected", None)
        for worker in self._workers:
            answer = worker.seat.farewell(_PATIENCE_AT_THE_END)
            if answer is not None and gather is not None:
                gather.merge(answer.collected)


def _as_exception(raised: Raised) -> Exception:
    if raised.kind == "Unwalkable":
        return Unwalkable(None, raised.text)
    if raised.kind == "SeenLate":
        return SeenLate(raised.text.split())
    if raised.kind == "ExplorerUsageError":
        return ExplorerUsageError(raised.text)
    if raised.kind == "unexpected":
        return RuntimeError(f"a worker process failed:\n{raised.text}")
    return Diverged.worded(raised.text)
