"""`explore`: run a program through every schedule and say what holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from cleancut_leaf.words import counted

from .errors import Diverged, ExplorerUsageError, ForbiddenCall, SeenLate, Unwalkable, WorkerLost
from .report.counterexample import NO_PROGRESS, build_trace
from .report.stock import stock_label
from .runtime.fence import Fence
from .runtime.identical import Declared, identical_from
from .runtime.result import Failure, Result, Stock
from .runtime.run import Rules
from .runtime.subject import Program
from .search.folded_search import FoldedSearch
from .search.graph import choices_of_a_circle, count_schedules, traps
from .search.parallel.forked import ForkedWorkers
from .search.parallel.team import TeamSearch, Workplace
from .search.preemptions import FewestPreemptions
from .search.pruned import Exploration, Order, Progress, Search
from .search.setting import Limits, Setting, clock, paused_collection
from .search.unpruned import enumerate_schedules

_UNWALKABLE_SCHEDULES = 20_000
_INTERRUPTED = "interrupted"


def explore(
    program: Program,
    *,
    cancels: int = 0,
    crashes: int = 0,
    state: Callable[[], Any] | None = None,
    identical: Declared = (),
    prune: bool = True,
    invariant: Callable[[], object] | None = None,
    max_states: int | None = None,
    max_seconds: float | None = None,
    atomic_callbacks: bool = False,
    timers: Literal["idle", "anytime"] = "idle",
    order: Order = "breadth",
    keep_going: bool = False,
    patience: int = 1_000,
    strict: bool = False,
    allow: tuple[str, ...] = (),
    progress: Progress | None = None,
    workers: int | None = None,
    ray: str | None = None,
) -> Result:
    """Explore every schedule of a program and return the verdict.

    `program` returns a fresh coroutine, or a `Subject`, each time it is called. `cancels` is how many times the
    environment may cancel a task; `crashes` how many times the process may die, of a `Subject` that says what survives
    (`durable`) and how it goes on (`recover`). `state` declares the shared state, `invariant` is asked in every state.
    `identical` names tasks that do the same to the same (a list of names, or several lists): states that differ only in
    which of them is which are one, and a declaration that is not true is refused. `prune=False` enumerates schedules
    instead of states; `max_states` then bounds their number. `timers="anytime"` lets the earliest timer fire although
    something could still run, as it may when a step takes long. `order` decides which counterexample comes first: a
    shortest one ("breadth"), or one that interrupts tasks least ("fewest-preemptions"). `keep_going` collects the
    outcomes of all schedules instead of stopping at the first failure. With `strict` a task that failed fails the
    schedule also when somebody awaited it and ignored the result. `patience` is how many timers may fire in a row
    without a step of the main coroutine. `workers` is how many processes share the search (None: one); they are forked,
    so any program will do, and what is found is the same. With `ray`, an address or "local", they are actors of a Ray
    cluster (None: one a processor); the program must then have a name that they can import.
    """
    check_arguments(
        cancels=cancels,
        crashes=crashes,
        max_states=max_states,
        max_seconds=max_seconds,
        timers=timers,
        order=order,
        patience=patience,
        workers=workers,
        ray=ray,
        prune=prune,
    )
    members = identical_from(identical) if identical else None
    rules = Rules(
        cancels=cancels,
        crashes=crashes,
        atomic_callbacks=atomic_callbacks,
        timers=timers,
        identical=members,
        strict=strict,
    )
    with _hired(workers, ray, tuple(allow)) as hired, Fence(tuple(allow)) as fence, paused_collection():
        limits = Limits(max_states=max_states, max_seconds=max_seconds, patience=patience)
        setting = Setting(program, rules, fence, state, invariant)
        verdict = _Verdict(setting, limits, keep_going, hired)
        try:
            while prune:
                try:
                    return verdict.pruned(order, progress)
                except SeenLate as error:  # what was searched so far may have taken different states for one
                    setting.rules = replace(setting.rules, sights=setting.rules.sights | error.sights)
            return verdict.unpruned(None, progress)
        except (Diverged, ForbiddenCall, WorkerLost) as error:
            if fence.interrupted and isinstance(error, Diverged):
                return verdict.interrupted()  # somebody pressed Ctrl-C during a step; it did not come again
            return verdict.inconclusive(str(error))


@dataclass(frozen=True)
class _Hired:
    """Those who share a search: how many, and where they are started once there is a setting."""

    number: int
    workplace_for: Callable[[Setting], Workplace]


@contextmanager
def _hired(workers: int | None, ray: str | None, allow: tuple[str, ...]) -> Iterator[_Hired | None]:
    """Whoever is to share the search; None where one process does it alone."""
    if ray is None:
        yield _Hired(workers, ForkedWorkers) if workers is not None and workers > 1 else None
        return
    from .search.parallel import on_ray  # Ray is an extra, and takes its time

    with on_ray.cluster(ray, workers) as number:
        yield _Hired(number, lambda setting: on_ray.RayWorkers(setting, allow))


class _Verdict:
    """Turns what a search found into a result."""

    def __init__(self, setting: Setting, limits: Limits, keep_going: bool, hired: _Hired | None) -> None:
        self._setting = setting
        self._limits = limits
        self._keep_going = keep_going
        self._hired = hired
        self._stop_at: Callable[[Failure], bool] = (lambda failure: False) if keep_going else (lambda failure: True)
        self._found = Exploration()

    def pruned(self, order: Order, progress: Progress | None) -> Result:
        search = self._search(order, progress)
        self._found = found = search.found
        try:
            if isinstance(search, TeamSearch) and self._hired is not None:
                search.run_with(self._hired.workplace_for(self._setting), self._hired.number)
            else:
                search.run()
        except Unwalkable as error:
            return self.unpruned(error.reason, progress)
        except KeyboardInterrupt:
            found.stopped = _INTERRUPTED
        failing = next((state for state in found.states if state.failure is not None), None)
        if failing is not None and failing.failure is not None:
            return self._fails(failing.failure, search.keys_to(failing))
        if found.stalled is not None:
            return self._stalled(search.keys_to(found.stalled))
        if found.stopped is not None:
            return self._result("bounded", why=found.stopped)
        never = traps(found.states)
        if never:
            failure = Failure(NO_PROGRESS, NO_PROGRESS, "the program turns in a circle and can never end from here")
            return self._fails(failure, search.keys_to(never[0]))
        return self._complete(found)

    def _search(self, order: Order, progress: Progress | None) -> Search:
        """Choose the search. What a `Subject` declares about identical tasks is known once there is one."""
        setting = self._setting
        if setting.rules.identical is None:
            with setting.start() as run:
                setting.rules = replace(setting.rules, identical=run.loop.identical)
        kind = Search if self._hired is None else TeamSearch
        if order == "fewest-preemptions":
            kind = FewestPreemptions
        if setting.rules.identical is not None:
            if kind is not Search or setting.rules.crashes:
                crashes = "crashes=" if setting.rules.crashes else f"order={order!r}"
                other = "workers= or ray=" if self._hired is not None else crashes
                raise ExplorerUsageError(f"{other} and identical= do not go together; leave one of them out")
            kind = FoldedSearch
        return kind(setting, self._limits, order=order, stop_at=self._stop_at, progress=progress)

    def _complete(self, found: Exploration) -> Result:
        schedules = count_schedules(found.states)
        spin = None
        if schedules is None:
            spin = "spin through " + ", ".join(choices_of_a_circle(found.states))
        if self._setting.rules.atomic_callbacks:
            return self._result("bounded", why="callbacks ran at once instead of in every order", spin=spin)
        return self._result("holds", complete=True, schedules=schedules, spin=spin)

    def _stalled(self, keys: list[str]) -> Result:
        text = f"no progress: {self._limits.patience} timers fired in a row and no main coroutine ran"
        failure = Failure(NO_PROGRESS, NO_PROGRESS, text)
        trace = build_trace(self._setting, keys, failure, "unknown")
        blocked = "; ".join(
            f"{entry['task']} at {entry['at']} waits for {entry['waits for']}"
            for entry in trace.failure.details["blocked"]
        )
        return self._result("inconclusive", why=f"{text}; {blocked}. Raise patience= if it only takes long")

    def _fails(self, failure: Failure, keys: list[str], *, states: bool = True) -> Result:
        stock: Stock = stock_label(self._setting, failure)
        trace = build_trace(self._setting, keys, failure, stock)
        complete = self._keep_going and self._found.complete
        return self._result("fails", states=states, complete=complete, counterexample=trace, why=str(trace.failure))

    def unpruned(self, unwalkable: str | None, progress: Progress | None) -> Result:
        """Enumerate schedules; `unwalkable` says why states could not be compared."""
        limits = self._limits
        if unwalkable is not None and limits.max_states is None:
            limits = Limits(_UNWALKABLE_SCHEDULES, limits.max_seconds, limits.patience, limits.started)
        found = enumerate_schedules(self._setting, limits, self._stop_at, progress)
        self._found = Exploration(
            transitions=found.transitions, depth=found.depth, stopped=found.stopped, outcomes=found.outcomes
        )
        if found.failure is not None:
            return self._fails(found.failure, found.path, states=False)
        if unwalkable is not None:
            ended = found.stopped or f"all of {counted(found.schedules, 'schedule')} enumerated"
            return self._result("bounded", states=False, why=f"not pruned, because {unwalkable}; {ended}")
        if found.stopped is not None:
            return self._result(
                "bounded", states=False, why=f"{found.stopped} after {counted(found.schedules, 'schedule')}"
            )
        if self._setting.rules.atomic_callbacks:
            return self._result("bounded", states=False, why="callbacks ran at once instead of in every order")
        return self._result("holds", states=False, complete=True, schedules=found.schedules)

    def interrupted(self) -> Result:
        """Return what was covered when somebody interrupted the search."""
        return self._result("bounded", why=_INTERRUPTED)

    def inconclusive(self, why: str) -> Result:
        """Return the verdict that concludes nothing."""
        return self._result("inconclusive", why=why)

    def _result(
        self,
        verdict: Literal["holds", "fails", "bounded", "inconclusive"],
        *,
        states: bool = True,
        complete: bool = False,
        schedules: int | None = None,
        counterexample: Any = None,
        why: str | None = None,
        spin: str | None = None,
    ) -> Result:
        found = self._found
        return Result(
            verdict=verdict,
            complete=complete,
            states=len(found.states) if states else None,
            transitions=found.transitions,
            depth=found.depth,
            schedules=schedules,
            runs=self._setting.runs,
            seconds=clock() - self._limits.started,
            counterexample=counterexample,
            why=why,
            spin=spin,
            outcomes=frozenset(found.outcomes),
        )


def _check_workers(workers: int | None, ray: str | None, prune: bool, order: str) -> None:
    if workers is not None and (type(workers) is not int or workers < 1):
        raise ExplorerUsageError(f"workers={workers!r}: it is a number of processes, 1 or more")
    if ray is not None and (type(ray) is not str or not ray):
        raise ExplorerUsageError(f"ray={ray!r}: it is the address of a Ray cluster, or 'local'")
    shared = f"ray={ray!r}" if ray is not None else f"workers={workers}" if (workers or 1) > 1 else ""
    if shared and not prune:
        raise ExplorerUsageError(f"{shared} with prune=False: an enumeration runs in one process")
    if shared and order != "breadth":
        raise ExplorerUsageError(f"{shared} with order={order!r}: several processes search breadth first only")


def check_arguments(
    *,
    cancels: int,
    crashes: int,
    max_seconds: float | None,
    workers: int | None,
    ray: str | None,
    prune: bool,
    max_states: int | None = None,
    timers: str = "idle",
    order: str = "breadth",
    patience: int = 1,
) -> None:
    """Refuse arguments that the explorer cannot work with, before anything runs."""
    _check_workers(workers, ray, prune, order)
    for name, number in (("cancels", cancels), ("crashes", crashes)):
        if type(number) is not int or number < 0:
            raise ExplorerUsageError(f"{name}={number!r}: it is a number of times, 0 or more")
    if max_states is not None and (type(max_states) is not int or max_states < 1):
        raise ExplorerUsageError(f"max_states={max_states!r}: it is a number of states, 1 or more, or None")
    if max_seconds is not None and not max_seconds > 0:
        raise ExplorerUsageError(f"max_seconds={max_seconds!r}: it is a time above 0, or None")
    if timers not in ("idle", "anytime"):
        raise ExplorerUsageError(f"timers={timers!r}: it is 'idle' or 'anytime'")
    if order not in get_args(Order):
        raise ExplorerUsageError(f"order={order!r}: it is {', '.join(map(repr, get_args(Order)))}")
    if type(patience) is not int or patience < 1:
        raise ExplorerUsageError(f"patience={patience!r}: it is a number of timers, 1 or more")
